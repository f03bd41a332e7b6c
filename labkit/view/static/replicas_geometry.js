// Copies of a weight at a moment: where their pictures lie, what act is on. Pure functions, tested with node.
//
// Every step has three acts of length 1: each rank finds its own gradient, gradients are averaged, weights change.
// A box is {x, y, cell, rows, cols}, in CSS pixels.

const NAMES_TALL = 20; // ranks' names
const CAPTION_TALL = 18; // above each row of pictures
const SIDE_MARGIN = 6;
const LARGEST_CELL = 11;

export const NUM_ACTS = 3;

/** {step, act, u}: the act at t, and how far it is, 0 to 1. The last moment belongs to the last act. */
export function actAt(t, numSteps) {
  const act = Math.min(numSteps * NUM_ACTS - 1, Math.max(0, Math.floor(t)));
  return { step: Math.floor(act / NUM_ACTS), act: act % NUM_ACTS, u: Math.min(1, Math.max(0, t - act)) };
}

/** A column of weights, own, used for every rank; the average in the middle between own and used. */
export function placeReplicas(numRanks, numInputs, width) {
  const cols = Math.ceil(Math.sqrt(numInputs)), rows = Math.ceil(numInputs / cols), each = (width - 2 * SIDE_MARGIN) / numRanks;
  const cell = Math.min(LARGEST_CELL, (each - 6) / cols, 110 / rows), tall = cell * rows, top = NAMES_TALL + CAPTION_TALL;
  const y = { weights: top, own: top + tall + CAPTION_TALL + 4, mean: top + 2 * (tall + CAPTION_TALL + 4), used: top + 3 * (tall + CAPTION_TALL + 4) };
  const box = (middle, row) => ({ x: middle - (cell * cols) / 2, y: y[row], cell, rows, cols });
  const columns = Array.from({ length: numRanks }, (_, k) => {
    const middle = SIDE_MARGIN + (k + 0.5) * each;
    return { k, middle, left: SIDE_MARGIN + k * each, width: each, weights: box(middle, "weights"), own: box(middle, "own"), used: box(middle, "used") };
  });
  return { width, columns, mean: box(width / 2, "mean"), label: CAPTION_TALL, height: y.used + tall + 34 };
}

/** Where a gradient is on its way through the average: to it in the first half of the act, from it in the second. */
export function pathThrough(own, mean, used, u) {
  return u < 0.5 ? { from: own, to: mean, u: u * 2, isMean: false } : { from: mean, to: used, u: u * 2 - 1, isMean: true };
}
