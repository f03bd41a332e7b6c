// Loss paths at a moment: how far each run has come, where that lies on the map. Pure functions, tested with node.
//
// A map is {values, grid: [across, up], extent: [left, right, bottom, top]}; values row by row from the bottom.
// Time counts updates, or images: a run of batch b makes its k-th update when it has seen k * b images.

const LAST = 0.2; // of the time between two updates in which the ball moves, where time counts images

/** How many updates a run has made, with the fraction of the one under way. */
export function progressAt(t, { batch, numUpdates }, byImages) {
  if (!byImages) return Math.min(t, numUpdates);
  const done = Math.min(t / batch, numUpdates), whole = Math.floor(done + 1e-9), rest = done - whole;
  return whole + Math.max(0, (rest - (1 - LAST)) / LAST);
}

/** [from, to] and the moments between at which something happens. */
export function timeOf(paths, byImages) {
  if (!byImages) {
    const most = Math.max(...paths.map(({ numUpdates }) => numUpdates));
    return { window: [0, most], stops: Array.from({ length: most + 1 }, (_, k) => k) };
  }
  const end = Math.min(...paths.map(({ batch, numUpdates }) => batch * numUpdates));
  const stops = paths.flatMap(({ batch }) => Array.from({ length: Math.floor(end / batch) + 1 }, (_, k) => k * batch));
  return { window: [0, end], stops: [...new Set([...stops, end])].sort((a, b) => a - b) };
}

/** A place between the points of a path: [[a, b], ...]. */
export function placeAt(points, progress) {
  const k = Math.min(Math.floor(progress), points.length - 1), next = points[Math.min(k + 1, points.length - 1)], u = progress - k;
  return points[k].map((value, d) => value + (next[d] - value) * u);
}

/** Picture coordinates of a place, and back. */
export const toPixel = ({ left, top, width, height }, [x0, x1, y0, y1], [a, b]) => [left + ((a - x0) / (x1 - x0)) * width, top + ((y1 - b) / (y1 - y0)) * height];
export const toPlace = ({ left, top, width, height }, [x0, x1, y0, y1], x, y) => [x0 + ((x - left) / width) * (x1 - x0), y1 - ((y - top) / height) * (y1 - y0)];

/** The map's value at shares u (from the left) and v (from the bottom) of its extent, interpolated. */
export function heightAt({ values, grid: [across, up] }, u, v) {
  const x = Math.min(1, Math.max(0, u)) * (across - 1), y = Math.min(1, Math.max(0, v)) * (up - 1);
  const i = Math.min(across - 2, Math.floor(x)), j = Math.min(up - 2, Math.floor(y)), p = x - i, q = y - j;
  const at = (column, row) => values[row * across + column];
  return (at(i, j) * (1 - p) + at(i + 1, j) * p) * (1 - q) + (at(i, j + 1) * (1 - p) + at(i + 1, j + 1) * p) * q;
}

/** The nearest of points [[x, y], ...] within `reach` pixels; -1 for none. */
export function nearestPoint(points, x, y, reach) {
  let best = -1, least = reach;
  points.forEach(([px, py], k) => { const far = Math.hypot(px - x, py - y); if (far <= least) { least = far; best = k; } });
  return best;
}
