// Where matrices lie and how much of them is there.
import assert from "node:assert/strict";
import { test } from "node:test";

import { between, cellAt, heightOfBox, offsetsOf, placeShard, rowsDone, targetOf, widthOfBox } from "../../../labkit/view/static/matrix_shard_geometry.js";

function shard(cut, n, [outs, ins, samples]) {
  const isRows = cut === "rows", matrices = {};
  for (let k = 0; k < n; k++) {
    matrices[`weight${k}`] = ["", isRows ? outs / n : outs, isRows ? ins : ins / n];
    matrices[`input${k}`] = ["", samples, isRows ? ins : ins / n];
    matrices[`partial${k}`] = ["", samples, isRows ? outs / n : outs];
  }
  for (const name of ["combined", "whole", "difference"]) matrices[name] = ["", samples, outs];
  return { cut, matrices, ranks: Array.from({ length: n }, (_, k) => k) };
}

const inside = (box, left, right) => box.x >= left - 0.01 && box.x + widthOfBox(box) <= right + 0.01;

test("every matrix lies inside the picture and its panel, at any width", () => {
  for (const width of [326, 620, 900]) for (const cut of ["rows", "columns"]) for (const [n, sizes] of [[2, [16, 64, 12]], [4, [64, 64, 12]], [8, [64, 16, 3]]]) {
    const layout = placeShard(shard(cut, n, sizes), width);
    for (const name of ["input", "weight", "combined", "whole", "difference"]) {
      assert.ok(inside(layout[name], 0, width), `${name} at ${width}`);
      assert.ok(layout[name].y + heightOfBox(layout[name]) <= layout.height);
    }
    assert.equal(layout.panels.length, n);
    for (const panel of layout.panels) for (const kind of ["input", "weight", "partial"]) {
      assert.ok(inside(panel[kind], panel.left, panel.left + panel.width), `${cut} ${kind} of ${n} at ${width}`);
      assert.ok(panel[kind].y + heightOfBox(panel[kind]) <= panel.bottom);
    }
  }
});

test("parts come from where they lie in the whole", () => {
  assert.deepEqual(offsetsOf([3, 2, 4]), [0, 3, 5]);
  const byRows = placeShard(shard("rows", 2, [16, 64, 12]), 900), [, second] = byRows.panels;
  assert.equal(second.from.weight.y, byRows.weight.y + 8 * byRows.weight.cell);
  assert.equal(second.from.input.x, byRows.input.x);
  const byColumns = placeShard(shard("columns", 2, [16, 64, 12]), 900);
  assert.equal(byColumns.panels[1].from.input.x, byColumns.input.x + 32 * byColumns.input.cell);
});

test("by rows results go to their columns, by columns all to the same place", () => {
  const rows = placeShard(shard("rows", 2, [16, 64, 12]), 900), columns = placeShard(shard("columns", 2, [16, 64, 12]), 900);
  assert.equal(targetOf(rows, rows.panels[1], true).x, rows.combined.x + 8 * rows.combined.cell);
  assert.deepEqual(columns.panels.map((panel) => targetOf(columns, panel, false).x), [columns.combined.x, columns.combined.x]);
});

test("products grow from the top in the second act", () => {
  assert.deepEqual([0.5, 1, 1.5, 2, 3].map((t) => rowsDone(12, t)), [0, 0, 6, 12, 12]);
});

test("a box on its way starts and ends where it should", () => {
  const from = { x: 0, y: 0, cell: 2, rows: 3, cols: 4 }, to = { x: 10, y: 20, cell: 4, rows: 3, cols: 4 };
  assert.deepEqual(between(from, to, 0), from);
  assert.deepEqual(between(from, to, 1), to);
});

test("the topmost cell under a point", () => {
  const boxes = [["a", { x: 0, y: 0, cell: 10, rows: 3, cols: 3 }], ["b", { x: 10, y: 10, cell: 5, rows: 2, cols: 2 }]];
  assert.deepEqual(cellAt(boxes, 12, 17), { name: "b", row: 1, col: 0 });
  assert.deepEqual(cellAt(boxes, 25, 5), { name: "a", row: 0, col: 2 });
  assert.equal(cellAt(boxes, 99, 5), null);
});
