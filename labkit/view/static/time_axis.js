// The axis of time: round times along it, views that zoom and move within bounds. Pure functions, tested with node.

const FEWEST_VISIBLE_NS = 10; // deepest zoom

/** Round times between two times, at most `most` of them: {every, times}. */
export function ticks([from, to], most) {
  const least = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least * 0.999999);
  const times = [];
  for (let k = Math.ceil(from / every - 1e-9); k * every <= to + every * 1e-9; k++) times.push(k * every + 0); // + 0: no "-0"
  return { every, times };
}

/** A view zoomed about a time and kept inside the bounds. */
export function zoomed([from, to], bounds, factor, about) {
  const whole = bounds[1] - bounds[0];
  const width = Math.min(whole, Math.max(Math.min(whole, FEWEST_VISIBLE_NS), (to - from) * factor));
  const share = Math.min(1, Math.max(0, (about - from) / (to - from)));
  return shifted([about - share * width, about - share * width + width], bounds, 0);
}

/** A view moved by some ns and kept inside the bounds. */
export function shifted([from, to], bounds, by) {
  const width = to - from, start = Math.min(Math.max(from + by, bounds[0]), bounds[1] - width);
  return [start, start + width];
}
