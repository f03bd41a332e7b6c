// Where the timeline's rows and spans are, in CSS pixels. Pure functions, tested with node.

import { firstWhere } from "./tracks.js";

const ROOMY = 44; // pixels a layer wants, to be told from its neighbours and named

/** The detail that there is room for: layers, where the rank with most of them has room for all that are in view. */
export function detailFor(mostLayers, window, view, width) {
  const inView = (mostLayers * (view[1] - view[0])) / (window[1] - window[0]);
  return width / inView >= ROOMY ? "layer" : "stage";
}

/** Heights and tops of rows, in CSS pixels: {left, right, plotBottom, height, rows: [{top, bottom, compute, syncs, memory}]}. */
export function layOut(rows, width, { hasMessages, hasPlaces, hasCollectives, hasMemory }) {
  const narrow = width < 560, count = rows.length;
  const isCrowded = count > 64; // then rows are as low as their names allow
  const computeHeight = count <= 4 ? 40 : count <= 8 ? 32 : count <= 16 ? 24 : isCrowded ? 9 : 18;
  const syncHeight = hasCollectives && count <= 8 ? 17 : isCrowded ? 2 : 7;
  const memoryHeight = count <= 8 ? 22 : isCrowded ? 4 : 14, space = isCrowded ? 1 : 2, gap = isCrowded ? 4 : hasMessages && count <= 8 ? 22 : 12;
  let y = 14; // room for the playhead's handle
  const placed = rows.map((row) => {
    const compute = { top: y, height: computeHeight };
    y += computeHeight;
    const syncs = row.syncs.map(() => { const at = { top: y + space, height: syncHeight }; y += syncHeight + space; return at; });
    const memory = hasMemory ? { top: y + space, height: memoryHeight } : null;
    if (memory) y += memoryHeight + space;
    const bottom = y;
    y += gap;
    return { top: compute.top, bottom, compute, syncs, memory };
  });
  const plotBottom = y - gap + 8;
  const left = narrow ? (hasPlaces ? 62 : 50) : hasPlaces ? 128 : 66;
  return { left, right: width - 12, width, narrow, plotBottom, height: plotBottom + 26, rows: placed };
}

/** What is under a point: {row, track}, or {row, track: null} in a memory lane; null between rows. */
export function trackAt(layout, rows, y) {
  for (let r = 0; r < rows.length; r++) {
    const { compute, syncs, memory } = layout.rows[r];
    const inside = (box) => y >= box.top - 1 && y <= box.top + box.height + 1;
    if (inside(compute)) return { row: r, track: rows[r].compute };
    if (memory && inside(memory)) return { row: r, track: null };
    const s = syncs.findIndex(inside);
    if (s >= 0) return { row: r, track: rows[r].syncs[s] };
  }
  return null;
}

/** {row, top, height} of where a span is drawn; null where the present detail leaves it out. */
export function boxOf(spans, rows, layout, i) {
  const r = rows.findIndex((row) => row.rank === spans.rank[i]);
  if (r < 0) return null;
  const holds = ({ index }) => {
    const k = firstWhere(index.length, (k) => index[k] >= i); // span numbers ascend within a track
    return index[k] === i;
  };
  if (holds(rows[r].compute)) return { row: r, ...layout.rows[r].compute };
  const s = rows[r].syncs.findIndex(holds);
  return s < 0 ? null : { row: r, ...layout.rows[r].syncs[s] };
}
