// The matrix shard at a moment: where each matrix is and how much of it is there. Pure functions, tested with node.
//
// Time has four acts of length 1: the weight is cut and handed out [0, 1], every rank multiplies [1, 2], results are put
// together [2, 3], the result is compared with the whole one [3, 4]. A box is {x, y, cell, rows, cols}, in CSS pixels.

const LABEL = 17; // above each matrix
const SPACE = 14;
const LABEL_WIDTH = 150; // of "input x, 12 × 128"

export const widthOfBox = ({ cell, cols }) => cell * cols;
export const heightOfBox = ({ cell, rows }) => cell * rows;

/** Rows or columns of the parts side by side: [first, ...] where each part begins within the whole. */
export function offsetsOf(sizes) {
  let at = 0;
  return sizes.map((size) => { const start = at; at += size; return start; });
}

/** Boxes of everything: whole input and weight on top, one panel per rank, the results below. */
export function placeShard(shard, width) {
  const n = shard.ranks.length, size = (name) => { const [, rows, cols] = shard.matrices[name]; return { rows, cols }; };
  const parts = shard.ranks.map((_, k) => ({ weight: size(`weight${k}`), input: size(`input${k}`), partial: size(`partial${k}`) }));
  const isRows = shard.cut === "rows", sum = (values) => values.reduce((a, b) => a + b, 0);
  const whole = {
    weight: isRows ? { rows: sum(parts.map((p) => p.weight.rows)), cols: parts[0].weight.cols } : { rows: parts[0].weight.rows, cols: sum(parts.map((p) => p.weight.cols)) },
    input: isRows ? parts[0].input : { rows: parts[0].input.rows, cols: sum(parts.map((p) => p.input.cols)) },
  };
  const margin = 6, inner = width - 2 * margin, layout = { width, panels: [] };
  let y = LABEL;
  y = placeTop(layout, whole, { x: margin, y, inner, stacked: width < 560 }) + LABEL + 6;
  const offsets = isRows ? offsetsOf(parts.map((p) => p.weight.rows)) : offsetsOf(parts.map((p) => p.weight.cols));
  const columns = Math.max(1, Math.min(n, Math.floor(inner / 250))), each = (inner - (columns - 1) * 12) / columns;
  for (let k = 0; k < n; k += columns) {
    const row = parts.slice(k, k + columns).map((part, c) => placePanel(part, k + c, margin + c * (each + 12), y, each, offsets[k + c], isRows, layout));
    y = Math.max(...row.map((panel) => panel.bottom)) + 12;
    for (const panel of row) panel.bottom = y - 12;
    layout.panels.push(...row);
  }
  placeResults(layout, size("combined"), y + LABEL, inner, margin);
  return layout;
}

/** The whole input and weight: side by side, on a narrow page one below the other. */
function placeTop(layout, { weight, input }, { x, y, inner, stacked }) {
  const cell = Math.max(1.5, Math.min(9, 190 / Math.max(weight.rows, input.rows), stacked ? inner / Math.max(weight.cols, input.cols) : Math.min((inner - SPACE) / (weight.cols + input.cols), (inner - LABEL_WIDTH) / weight.cols)));
  layout.input = { x, y, cell, ...input };
  const inputBottom = y + cell * input.rows;
  layout.weight = stacked ? { x, y: inputBottom + LABEL + 4, cell, ...weight } : { x: x + Math.max(cell * input.cols + SPACE, LABEL_WIDTH), y, cell, ...weight };
  return Math.max(inputBottom, layout.weight.y + cell * weight.rows);
}

/** A rank's input, its part of the weight below, and its result beside; where they come from in the wholes. */
function placePanel({ weight, input, partial }, k, left, top, width, offset, isRows, layout) {
  const cell = Math.max(1.2, Math.min(9, (width - 16 - SPACE) / (input.cols + partial.cols), 150 / Math.max(weight.rows, 1)));
  const x = left + 8, y = top + 22 + LABEL;
  const boxes = {
    input: { x, y, cell, ...input },
    weight: { x, y: y + cell * input.rows + LABEL + 3, cell, ...weight },
    partial: { x: x + cell * input.cols + SPACE, y, cell, ...partial },
  };
  const from = {
    weight: { ...layout.weight, ...weight, x: layout.weight.x + (isRows ? 0 : offset * layout.weight.cell), y: layout.weight.y + (isRows ? offset * layout.weight.cell : 0) },
    input: { ...layout.input, ...input, x: layout.input.x + (isRows ? 0 : offset * layout.input.cell) },
  };
  return { k, left, top, width, offset, bottom: boxes.weight.y + cell * weight.rows + 10, ...boxes, from };
}

/** Together, whole, difference: three of a size. */
function placeResults(layout, { rows, cols }, y, inner, x) {
  const cell = Math.max(1, Math.min(11, (inner - 2 * SPACE) / 3 / cols, 150 / rows)), step = Math.max(cell * cols, Math.min((inner - 2 * SPACE) / 3, 200)) + SPACE;
  ["combined", "whole", "difference"].forEach((name, k) => { layout[name] = { x: x + k * step, y, cell, rows, cols }; });
  layout.resultStep = step - SPACE;
  layout.height = y + cell * rows + 24;
}

const smooth = (u) => { const x = Math.min(1, Math.max(0, u)); return x * x * (3 - 2 * x); };

/** A box on its way from one place and size to another. */
export function between(from, to, u) {
  const s = smooth(u), mix = (a, b) => a + (b - a) * s;
  return { x: mix(from.x, to.x), y: mix(from.y, to.y), cell: mix(from.cell, to.cell), rows: to.rows, cols: to.cols };
}

/** How many rows of a product are there at t: they grow from the top in the second act. */
export const rowsDone = (rows, t) => Math.max(0, Math.min(rows, Math.floor((t - 1) * (rows + 0.999))));

/** Where the k-th partial result flies to in the third act: its columns of the result, or, if added, all of it. */
export function targetOf(layout, panel, isRows) {
  const { combined } = layout;
  return { ...combined, rows: panel.partial.rows, cols: panel.partial.cols, x: combined.x + (isRows ? panel.offset * combined.cell : 0) };
}

/** The matrix and cell under a point: {name, row, col}; null beside them. `boxes`: [[name, box]], topmost last. */
export function cellAt(boxes, x, y) {
  for (let k = boxes.length - 1; k >= 0; k--) {
    const [name, box] = boxes[k], col = Math.floor((x - box.x) / box.cell), row = Math.floor((y - box.y) / box.cell);
    if (row >= 0 && row < box.rows && col >= 0 && col < box.cols) return { name, row, col };
  }
  return null;
}
