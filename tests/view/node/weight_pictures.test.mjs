// Which act of which step a moment is, and where pictures lie.
import assert from "node:assert/strict";
import { test } from "node:test";

import { PIXELS, readPictures } from "../../../labkit/view/static/weight_pictures_data.js";
import { divergingScale } from "../../../labkit/view/static/diverging.js";
import { actStops, mixed, momentAt, pictureAt, placePictures, SIDE } from "../../../labkit/view/static/weight_pictures_geometry.js";

test("three acts a step, and a last forward", () => {
  assert.deepEqual(actStops(3), [0, 1, 2, 3, 4, 5, 6, 7]); // two updates, then a forward
  assert.deepEqual(momentAt(0, 3), { step: 0, act: 0, u: 0 });
  assert.deepEqual(momentAt(1, 3), { step: 0, act: 0, u: 1 }); // who steps from act to act sees each one done
  assert.deepEqual(momentAt(3, 3), { step: 0, act: 2, u: 1 });
  assert.deepEqual(momentAt(1.25, 3), { step: 0, act: 1, u: 0.25 });
  assert.deepEqual(momentAt(5.5, 3), { step: 1, act: 2, u: 0.5 });
  assert.deepEqual(momentAt(7, 3), { step: 2, act: 0, u: 1 }); // the end: the last forward is done
  assert.deepEqual(momentAt(99, 3), momentAt(7, 3));
  assert.deepEqual(momentAt(0.5, 1), { step: 0, act: 0, u: 0.5 }); // one step: only its forward
});

test("half way between two rows of numbers", () => assert.deepEqual(mixed([0, 2], [1, 4], 0.5), [0.5, 3]));

const inside = ({ x, y, cell }, left, top, right, bottom) => x >= left && y >= top && x + SIDE * cell <= right + 0.01 && y + SIDE * cell <= bottom + 0.01;

test("every picture lies inside its panel and the page, and panels do not overlap", () => {
  for (const width of [320, 360, 699, 700, 900, 1400]) for (const units of [1, 7, 8, 10, 16]) {
    const layout = placePictures(units, width), { image, bars, panels, height } = layout;
    assert.equal(panels.length, units);
    assert.ok(inside(image, 0, 0, bars.x, height), `image at ${width}`);
    assert.ok(bars.x + bars.width <= width && bars.y + bars.height <= height);
    for (const panel of panels) {
      assert.ok(panel.x >= 0 && panel.x + panel.width <= width + 0.01 && panel.y + panel.height <= height, `${units} panels at ${width}`);
      for (const kind of ["weight", "grad"]) assert.ok(inside(panel[kind], panel.x, panel.y, panel.x + panel.width, panel.y + panel.height), `${kind} of ${units} at ${width}`);
      assert.ok(panel.weight.x + SIDE * panel.weight.cell <= panel.grad.x);
      if (!layout.isNarrow) assert.ok(panel.x > image.x + SIDE * image.cell && panel.x + panel.width < bars.x);
    }
    for (const one of panels) for (const other of panels) if (one.unit < other.unit) {
      assert.ok(one.x + one.width <= other.x + 0.01 || one.y + one.height <= other.y + 0.01 || other.x + other.width <= one.x + 0.01, `${one.unit} over ${other.unit}`);
    }
  }
});

test("the cell under a point", () => {
  const layout = placePictures(10, 1100), { weight, grad } = layout.panels[4];
  assert.deepEqual(pictureAt(layout, weight.x + 2.5 * weight.cell, weight.y + 1.5 * weight.cell), { kind: "weight", unit: 4, cell: 10 });
  assert.deepEqual(pictureAt(layout, grad.x + 0.5, grad.y + 7.5 * grad.cell), { kind: "grad", unit: 4, cell: 56 });
  assert.deepEqual(pictureAt(layout, layout.panels[4].x + 1, layout.panels[4].y + 1), { kind: "panel", unit: 4, cell: -1 });
  assert.equal(pictureAt(layout, layout.image.x + 1, layout.image.y + 1).kind, "image");
  assert.equal(pictureAt(layout, layout.width - 1, layout.height - 1), null);
});

test("blue below zero, orange above, the page at zero, and no colour beyond full", () => {
  const colour = divergingScale("#0000ff", "#ff8800", "#ffffff");
  assert.deepEqual([colour(-1), colour(0), colour(1), colour(5)], [[0, 0, 255], [255, 255, 255], [255, 136, 0], [255, 136, 0]]);
  assert.ok(colour(0.5)[2] < colour(0.25)[2]);
});

test("columns tell each step's, unit's and image's own numbers", () => {
  const steps = 2, units = 3, images = 2, counted = (length) => Float32Array.from({ length }, (_, k) => k);
  const columns = {
    weights: counted(steps * units * PIXELS), grads: counted(steps * units * PIXELS).map((one) => -one), images: counted(images * PIXELS),
    activations: counted(steps * images * units), probabilities: counted(steps * images * 10),
  };
  const run = readPictures(Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, new DataView(values.buffer)])), units, images);
  assert.equal(run.numSteps, 2);
  assert.equal(run.weights(1, 2)[5], (1 * 3 + 2) * 64 + 5);
  assert.equal(run.change(1, 2)[5], 3 * 64);
  assert.equal(run.change(0, 1)[5], 0);
  assert.equal(run.activation(1, 0, 2), 1 * 2 * 3 + 0 * 3 + 2);
  assert.deepEqual(run.probabilities(0, 1), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  assert.equal(run.image(1)[0], 64);
  assert.deepEqual(run.largest, { weights: 383, activations: 11, change: 192, grads: [191, 383] });
});
