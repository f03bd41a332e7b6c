// Weight pictures at a moment: which act of which step it is, and where everything lies. Pure functions, tested with node.
//
// A step has three acts of length 1: forward [0, 1], backward [1, 2], update [2, 3]. After the last captured update one
// more forward shows what came of it. A box is {x, y, cell}: a square of 8 x 8 cells, in CSS pixels.

export const SIDE = 8;
export const ACTS = ["forward", "backward", "update"];

const PAD = 8, TITLE = 19, ACTIVATION = 17, BAR = 21, ARROW = 30;

/** {step, act, u}: u from 0 to 1 within the act. Where one act ends and the next begins, the first is shown, done. */
export function momentAt(t, numSteps) {
  const end = 3 * (numSteps - 1) + 1, at = Math.min(Math.max(0, t), end), whole = Math.max(0, Math.ceil(at - 1e-9) - 1);
  return { step: Math.floor(whole / 3), act: whole % 3, u: Math.min(1, Math.max(0, at - whole)) };
}

/** The times at which acts end, and the start. */
export const actStops = (numSteps) => Array.from({ length: 3 * (numSteps - 1) + 2 }, (_, k) => k);

/** Numbers on the way from one row of a table to another. */
export const mixed = (from, to, u) => from.map((value, k) => value + (to[k] - value) * u);

/** Image, panels of units, bars of probabilities: side by side, on a narrow page the panels below. */
export function placePictures(numUnits, width) {
  const isNarrow = width < 700, side = isNarrow ? 11 : 12, top = 22;
  const image = { x: 6, y: top, cell: side }, barsWidth = isNarrow ? width - image.x - SIDE * side - 42 : 190;
  const bars = { x: width - barsWidth - 2, y: top, width: barsWidth, step: BAR, height: 10 * BAR };
  const left = isNarrow ? 4 : image.x + SIDE * side + ARROW, right = isNarrow ? width - 4 : bars.x - ARROW;
  const first = isNarrow ? bars.y + bars.height + 26 : 4;
  const panels = placePanels(numUnits, { left, top: first, width: right - left });
  const bottom = Math.max(...panels.map((panel) => panel.y + panel.height), bars.y + bars.height, image.y + SIDE * side + 62);
  return { width, height: bottom + 6, isNarrow, image, bars, panels };
}

function placePanels(numUnits, { left, top, width }) {
  const most = Math.max(1, Math.min(5, Math.floor((width + PAD) / 148))), rows = Math.ceil(numUnits / most);
  const columns = Math.ceil(numUnits / rows), each = (width - (columns - 1) * PAD) / columns;
  const cell = Math.max(4, Math.min(10, Math.floor(((each - 3 * PAD) / (2 * SIDE)) * 2) / 2)), height = TITLE + SIDE * cell + ACTIVATION + 10;
  return Array.from({ length: numUnits }, (_, unit) => {
    const x = left + (unit % columns) * (each + PAD), y = top + Math.floor(unit / columns) * (height + PAD);
    const inset = (each - 2 * SIDE * cell - PAD) / 2, pictures = y + TITLE + 4;
    return {
      unit, x, y, width: each, height,
      weight: { x: x + inset, y: pictures, cell }, grad: { x: x + inset + SIDE * cell + PAD, y: pictures, cell },
      activation: { x: x + inset, y: pictures + SIDE * cell + 6, width: 2 * SIDE * cell + PAD },
    };
  });
}

/** What lies under a point: {kind, unit, cell} of a picture's cell, {kind: "panel", unit}, or null. */
export function pictureAt({ panels, image }, x, y) {
  const within = cellOf(image, x, y);
  if (within >= 0) return { kind: "image", unit: -1, cell: within };
  const panel = panels.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + one.height);
  if (!panel) return null;
  for (const kind of ["weight", "grad"]) if (cellOf(panel[kind], x, y) >= 0) return { kind, unit: panel.unit, cell: cellOf(panel[kind], x, y) };
  return { kind: "panel", unit: panel.unit, cell: -1 };
}

function cellOf(box, x, y) {
  const column = Math.floor((x - box.x) / box.cell), row = Math.floor((y - box.y) / box.cell);
  return column >= 0 && column < SIDE && row >= 0 && row < SIDE ? row * SIDE + column : -1;
}
