// What ranks hold at a moment, and where it is drawn. Pure functions, tested with node.
//
// A *lane* is one rank's part of the columns: {from, to} are its first row and the one after its last. What a row tells
// holds until the next; before the first, nothing is known and nothing is drawn.

import { typed } from "./buffers.js";

export const HELD_NAMES = ["param_bytes", "grad_bytes", "optimizer_bytes", "activation_bytes"];

/** Binary buffers -> {t, row, held: [four arrays]}. */
export function readHeld(columns) {
  return { t: typed(columns.held_t, Float64Array), row: typed(columns.held_row, Uint32Array), held: HELD_NAMES.map((name) => typed(columns[name], Float64Array)) };
}

/** Lanes of ranks from how many rows each has. */
export function lanesOf(counts) {
  let at = 0;
  return counts.map((count) => { const from = at; at += count; return { from, to: at }; });
}

/** The last row of a lane at or before t; -1 before its first. */
export function rowAt({ t }, { from, to }, time) {
  let low = from, high = to;
  while (low < high) { const middle = (low + high) >> 1; if (t[middle] > time) high = middle; else low = middle + 1; }
  return low > from ? low - 1 : -1;
}

export const totalAt = ({ held }, k) => (k < 0 ? 0 : held.reduce((sum, column) => sum + column[k], 0));

/** The row within a window (and the one before it) with the largest total; -1 for an empty lane. */
export function peakOf(data, lane, [start, end]) {
  const before = rowAt(data, lane, start);
  let best = before;
  for (let k = Math.max(lane.from, before + 1); k < lane.to && data.t[k] <= end; k++) if (best < 0 || totalAt(data, k) > totalAt(data, best)) best = k;
  return best;
}

/** For every pixel column the row with the largest total in its time; -1 where nothing is known yet. */
export function pixelRows(data, lane, [start, end], width) {
  const rows = new Int32Array(width).fill(-1), each = (end - start) / width;
  let k = rowAt(data, lane, start);
  for (let x = 0; x < width; x++) {
    const next = () => (k < 0 ? lane.from : k + 1), goesOn = (holds) => next() < lane.to && holds(data.t[next()]);
    while (goesOn((t) => t <= start + x * each)) k = next();
    let best = k;
    while (goesOn((t) => t < start + (x + 1) * each)) {
      k = next();
      if (best < 0 || totalAt(data, k) > totalAt(data, best)) best = k;
    }
    rows[x] = best;
  }
  return rows;
}

/** Tops and heights of lanes: {width, height, left, right, lanes: [{top, height}], plotBottom}. */
export function layLanes(count, width, hasPlaces) {
  const narrow = width < 560, height = count <= 2 ? 110 : count <= 4 ? 74 : count <= 8 ? 48 : count <= 16 ? 30 : 18, gap = count <= 16 ? 12 : 6;
  const lanes = Array.from({ length: count }, (_, k) => ({ top: 16 + k * (height + gap), height })), plotBottom = 16 + count * (height + gap) - gap + 8;
  return { width, narrow, left: narrow ? 54 : hasPlaces ? 128 : 66, right: width - (narrow ? 66 : 92), lanes, plotBottom, height: plotBottom + 26 };
}

/** The largest total that must fit into a lane, with a little air. */
export const scaleOf = (peaks, limit) => Math.max(1, 1.06 * Math.max(...peaks, limit ?? 0));
