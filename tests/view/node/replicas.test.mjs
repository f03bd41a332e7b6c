// Copies of a weight at a moment: which act is on, where pictures lie.
import assert from "node:assert/strict";
import { test } from "node:test";

import { actAt, pathThrough, placeReplicas } from "../../../labkit/view/static/replicas_geometry.js";

test("three acts a step, and the last moment belongs to the last act", () => {
  assert.deepEqual(actAt(0, 2), { step: 0, act: 0, u: 0 });
  assert.deepEqual(actAt(2.25, 2), { step: 0, act: 2, u: 0.25 });
  assert.deepEqual(actAt(3, 2), { step: 1, act: 0, u: 0 });
  assert.deepEqual(actAt(6, 2), { step: 1, act: 2, u: 1 });
});

test("nothing is cut or overlaps, at any width and number of ranks", () => {
  for (const width of [306, 330, 900]) for (const [ranks, inputs] of [[2, 64], [4, 64], [8, 64], [4, 10], [3, 1000]]) {
    const layout = placeReplicas(ranks, inputs, width);
    assert.equal(layout.columns.length, ranks);
    for (const { weights, own, used, left, width: each } of layout.columns) for (const box of [weights, own, used]) {
      assert.ok(box.x >= left - 0.01 && box.x + box.cell * box.cols <= left + each + 0.01);
      assert.ok(box.rows * box.cols >= inputs && box.cell > 0.5);
    }
    const [{ weights, own, used }] = layout.columns, bottom = (box) => box.y + box.cell * box.rows;
    assert.ok(bottom(weights) < own.y && bottom(own) < layout.mean.y && bottom(layout.mean) < used.y && bottom(used) < layout.height);
    assert.ok(layout.mean.x >= 0 && layout.mean.x + layout.mean.cell * layout.mean.cols <= width);
  }
});

test("a gradient goes to the average, and the average to its rank", () => {
  const [own, mean, used] = ["own", "mean", "used"];
  assert.deepEqual(pathThrough(own, mean, used, 0.25), { from: own, to: mean, u: 0.5, isMean: false });
  assert.deepEqual(pathThrough(own, mean, used, 0.75), { from: mean, to: used, u: 0.5, isMean: true });
});
