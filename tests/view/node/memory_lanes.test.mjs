// What ranks hold at a moment.
import assert from "node:assert/strict";
import { test } from "node:test";

import { HELD_NAMES, lanesOf, layLanes, peakOf, pixelRows, readHeld, rowAt, scaleOf, totalAt } from "../../../labkit/view/static/memory_lanes_geometry.js";

/** Rank 0: 10 at t 5, 30 at 10, 20 at 20. Rank 1: 7 at t 8. */
function data() {
  const columns = { held_t: Float64Array.of(5, 10, 20, 8), held_row: Uint32Array.of(1, 2, 3, 4) };
  HELD_NAMES.forEach((name, band) => { columns[name] = band === 0 ? Float64Array.of(4, 4, 4, 7) : band === 3 ? Float64Array.of(6, 26, 16, 0) : new Float64Array(4); });
  return readHeld(columns);
}
const [FIRST, SECOND] = lanesOf([3, 1]);

test("what a row tells holds until the next; before the first nothing is known", () => {
  assert.deepEqual([4, 5, 9.9, 10, 99].map((t) => rowAt(data(), FIRST, t)), [-1, 0, 0, 1, 2]);
  assert.equal(rowAt(data(), SECOND, 7), -1);
  assert.equal(rowAt(data(), SECOND, 8), 3);
  assert.equal(totalAt(data(), 1), 30);
  assert.equal(totalAt(data(), -1), 0);
});

test("the peak of a window counts what was held when it began", () => {
  assert.equal(peakOf(data(), FIRST, [0, 100]), 1);
  assert.equal(peakOf(data(), FIRST, [15, 18]), 1);
  assert.equal(peakOf(data(), FIRST, [20, 30]), 2);
  assert.equal(peakOf(data(), { from: 0, to: 0 }, [0, 100]), -1);
});

test("each pixel shows the most that was held in its time", () => {
  assert.deepEqual([...pixelRows(data(), FIRST, [0, 25], 5)], [-1, 0, 1, 1, 2]); // at 10: 30, until 20
  assert.deepEqual([...pixelRows(data(), FIRST, [0, 100], 2)], [1, 2]);
  assert.deepEqual([...pixelRows(data(), SECOND, [0, 16], 2)], [-1, 3]);
});

test("lanes lie inside the picture, however many", () => {
  for (const count of [1, 4, 16, 64]) for (const width of [326, 900]) {
    const layout = layLanes(count, width, true);
    assert.ok(layout.left < layout.right && layout.right < width);
    layout.lanes.forEach((lane, k) => assert.ok(lane.height >= 14 && lane.top + lane.height <= (layout.lanes[k + 1]?.top ?? layout.plotBottom)));
  }
});

test("the scale holds peaks and limit", () => {
  assert.ok(scaleOf([10, 30], null) >= 30);
  assert.ok(scaleOf([10], 99) >= 99);
  assert.equal(scaleOf([0], undefined), 1);
});
