// Where ranks sit, which groups there are, what travels when.
import assert from "node:assert/strict";
import { test } from "node:test";

import { GRAIN, readSpans } from "../../../labkit/view/static/spans.js";
import { boxAt, coordinateOf, flowsAt, flowsOf, groupsOf, isAlong, linkCurve, onCurve, placeMesh, trafficUntil } from "../../../labkit/view/static/mesh_grid_geometry.js";

const CUBE = { pp: 2, dp: 2, tp: 2 };

test("tp varies fastest, as in Python's Mesh", () => {
  assert.deepEqual(coordinateOf(CUBE, 5), { pp: 1, dp: 0, tp: 1 });
  assert.deepEqual(groupsOf(CUBE, "dp"), [[0, 2], [1, 3], [4, 6], [5, 7]]);
  assert.deepEqual(groupsOf(CUBE, "tp"), [[0, 1], [2, 3], [4, 5], [6, 7]]);
  assert.deepEqual(groupsOf({ pp: 3, dp: 1, tp: 1 }, "pp"), [[0, 1, 2]]);
});

const CHANNELS = [{ op: "send", axis: "pp", group: [0, 1], peer: 1 }, { op: "recv", axis: "pp", group: [0, 1], peer: 0 }, { op: "all_reduce", axis: "dp", group: [0, 1], peer: null }];

/** A message from 0 to 1 at 10..30, an all_reduce at 50 that takes no time. */
const spans = () => readSpans({
  start: Float64Array.of(10, 50, 20, 50), duration: Float64Array.of(5, 0, 10, 0), rank: Uint16Array.of(0, 0, 1, 1), grain: Uint8Array.from({ length: 4 }, () => GRAIN.sync),
  look: new Uint8Array(4), row: Uint32Array.of(0, 1, 2, 3), channel: Int32Array.of(0, 2, 1, 2), link: Int32Array.of(0, 1, 0, 1), size_bytes: Float64Array.of(64, 100, 64, 100),
});

test("flows: one for each communication, whatever end comes first", () => {
  const { flows } = flowsOf(spans(), CHANNELS, [0, 100]);
  assert.deepEqual(flows.map(({ op, axis, from, to, start, end, bytes }) => [op, axis, from, to, start, end, bytes]), [["message", "pp", 0, 1, 10, 30, 64], ["all_reduce", "dp", -1, -1, 50, 50, 100]]);
  assert.deepEqual(flows[1].ranks, [0, 1]);
  assert.equal(flowsOf(spans(), CHANNELS, [60, 100]).flows.length, 0);
});

test("what takes no time is shown for the glow, no longer", () => {
  const traffic = flowsOf(spans(), CHANNELS, [0, 100]);
  const at = (t) => flowsAt(traffic, t, 4).map(({ op }) => op);
  assert.deepEqual([at(9), at(10), at(30), at(31), at(50), at(54), at(55)], [[], ["message"], ["message"], [], ["all_reduce"], ["all_reduce"], []]);
});

test("traffic counts what is complete, by axis", () => {
  const traffic = flowsOf(spans(), CHANNELS, [0, 100]);
  assert.equal(trafficUntil(traffic, 29).size, 0);
  assert.deepEqual([...trafficUntil(traffic, 60)], [["pp", { count: 1, bytes: 64 }], ["dp", { count: 1, bytes: 100 }]]);
  assert.ok(isAlong({ axis: "dp+tp" }, "tp") && !isAlong({ axis: "dp" }, "tp") && isAlong({ axis: "dp" }, "all"));
});

test("every rank has a box inside the picture, none covers another", () => {
  for (const width of [326, 600, 900]) for (const degrees of [CUBE, { pp: 1, dp: 1, tp: 1 }, { pp: 4, dp: 1, tp: 1 }, { pp: 1, dp: 16, tp: 1 }, { pp: 1, dp: 1, tp: 8 }, { pp: 8, dp: 8, tp: 8 }]) {
    const layout = placeMesh(degrees, width), { boxes, height, cells } = layout;
    assert.equal(boxes.length, degrees.pp * degrees.dp * degrees.tp);
    assert.equal(cells.length, degrees.pp * degrees.dp);
    boxes.forEach((box, rank) => {
      assert.ok(box.x >= 0 && box.x + box.width <= width && box.y >= 0 && box.y + box.height <= height, `${JSON.stringify(degrees)} at ${width}`);
      assert.equal(boxAt(layout, box.x + box.width / 2, box.y + box.height / 2), rank);
    });
  }
});

test("a link runs from box to box", () => {
  const layout = placeMesh(CUBE, 900), curve = linkCurve(layout, 0, 4);
  assert.deepEqual(onCurve(curve, 0), curve[0]);
  assert.deepEqual(onCurve(curve, 1), curve[2]);
  assert.ok(curve[1].y < curve[0].y); // sideways links bow up
  assert.ok(linkCurve(layout, 0, 2)[1].x < layout.boxes[0].x); // downward ones to the left
});

test("a receiver that waits early has no traffic, and a collective none before its last rank", () => {
  const early = spans();
  early.start.set([10, 45, 5, 50]); // the receive is posted at 5, the send issued at 10; ranks come to the all_reduce at 45 and 50
  assert.deepEqual(flowsOf(early, CHANNELS, [0, 100]).flows.map(({ start }) => start), [10, 50]);
});
