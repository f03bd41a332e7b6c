// How far runs have come, and the land between the places where it was computed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { heightAt, nearestPoint, placeAt, progressAt, timeOf, toPixel, toPlace } from "../../../labkit/view/static/loss_paths_geometry.js";

const FULL = { batch: 100, numUpdates: 3 }, MINI = { batch: 10, numUpdates: 5 };

test("time counts updates: each run is at the same one until it ends", () => {
  assert.deepEqual(timeOf([FULL, MINI], false), { window: [0, 5], stops: [0, 1, 2, 3, 4, 5] });
  assert.equal(progressAt(2.5, FULL, false), 2.5);
  assert.equal(progressAt(4, FULL, false), 3);
});

test("time counts images: an update comes when its batch has been seen, not before", () => {
  const { window, stops } = timeOf([FULL, MINI], true);
  assert.deepEqual(window, [0, 50]); // as far as both have come
  assert.deepEqual(stops, [0, 10, 20, 30, 40, 50]);
  assert.equal(progressAt(50, FULL, true), 0);
  assert.equal(progressAt(50, MINI, true), 5);
  assert.equal(progressAt(30, MINI, true), 3);
  assert.equal(progressAt(35, MINI, true), 3); // it looks at images
  assert.ok(Math.abs(progressAt(39, MINI, true) - 3.5) < 1e-9); // and moves when it has seen them
});

test("between two points of a path, and beyond its end", () => {
  const points = [[0, 0], [2, 4]];
  assert.deepEqual(placeAt(points, 0.5), [1, 2]);
  assert.deepEqual(placeAt(points, 1), [2, 4]);
  assert.deepEqual(placeAt(points, 7), [2, 4]);
});

test("pixels and places are each other's inverse; up is up", () => {
  const plot = { left: 10, top: 20, width: 200, height: 100 }, extent = [-1, 1, 0, 4];
  assert.deepEqual(toPixel(plot, extent, [-1, 4]), [10, 20]);
  assert.deepEqual(toPixel(plot, extent, [1, 0]), [210, 120]);
  assert.deepEqual(toPlace(plot, extent, ...toPixel(plot, extent, [0.25, 3])), [0.25, 3]);
});

test("the height of a corner is its own, of the middle the mean of four", () => {
  const map = { values: [1, 2, 3, 5, 6, 7], grid: [3, 2] }; // bottom row 1 2 3, top row 5 6 7
  assert.equal(heightAt(map, 0, 0), 1);
  assert.equal(heightAt(map, 1, 0), 3);
  assert.equal(heightAt(map, 0.5, 1), 6);
  assert.equal(heightAt(map, 0.25, 0.5), (1 + 2 + 5 + 6) / 4);
  assert.equal(heightAt(map, 9, 9), 7);
});

test("the nearest point within reach", () => {
  const points = [[0, 0], [10, 0], [12, 0]];
  assert.equal(nearestPoint(points, 10.5, 1, 5), 1);
  assert.equal(nearestPoint(points, 50, 50, 5), -1);
});
