// Where samples and gradients are at a moment.
import assert from "node:assert/strict";
import { test } from "node:test";

import { actTime, flightsOf, gradientAt, placeBatch, realTime, stateOf, workRange } from "../../../labkit/view/static/batch_flow_geometry.js";

const pieces = (replicas, microbatches, each) => Array.from({ length: replicas * microbatches }, (_, k) => ({
  replica: Math.floor(k / microbatches), microbatch: k % microbatches, samples: Array.from({ length: each }, (_, s) => k * each + s) }));
const of = (n) => Array.from({ length: n }, (_, replica) => ({ replica, ranks: [replica] }));

test("microbatches fly in order of their number, all within the first act", () => {
  const flights = flightsOf(pieces(2, 4, 1));
  assert.deepEqual(flights[0], flights[4]);
  for (const [leave, arrive] of flights) assert.ok(leave >= 0 && arrive <= 1 && leave < arrive);
  assert.ok(flights[3][0] > flights[0][0]);
});

test("the second act runs in real time", () => {
  const range = workRange([{ start_ns: 100, end_ns: 300 }, { start_ns: 200, end_ns: 500 }]);
  assert.deepEqual(range, [100, 500]);
  assert.equal(realTime(range, 1.5), 300);
  assert.equal(actTime(range, 300), 1.5);
  assert.equal(realTime(range, 0.5), null);
  assert.equal(workRange([]), null);
});

test("a microbatch is waiting, worked on, done", () => {
  const work = [{ replica: 0, microbatch: 0, kind: "forward", start_ns: 0, end_ns: 10 }, { replica: 0, microbatch: 0, kind: "backward", start_ns: 20, end_ns: 40 }];
  const state = (t) => stateOf({ replica: 0, microbatch: 0 }, work, workRange(work), t);
  assert.deepEqual(state(0.5), { now: null, forward: 0, backward: 0, num: 1 });
  assert.equal(state(1.1).now, work[0]);
  assert.deepEqual(state(1.4), { now: null, forward: 1, backward: 0, num: 1 });
  assert.equal(state(1.75).now, work[1]);
  assert.equal(state(3).backward, 1);
});

test("everything lies inside the picture, microbatches inside their replica, at any size", () => {
  for (const width of [326, 900]) for (const [replicas, microbatches, each] of [[1, 8, 8], [4, 2, 4], [8, 4, 16], [3, 1, 1]]) {
    const layout = placeBatch({ pieces: pieces(replicas, microbatches, each), replicas: of(replicas), image: [8, 8], hasAverage: true }, width);
    for (const { x, y } of layout.home.values()) assert.ok(x >= 0 && x + layout.size.width <= width && y >= 0);
    for (const card of layout.cards) for (const strip of card.strips) {
      assert.ok(strip.left >= card.left && strip.left + strip.width <= card.left + card.width + 0.01);
      assert.ok(strip.top + strip.height <= card.bottom && card.left + card.width <= width && card.bottom <= layout.height);
      assert.equal(strip.slots.length, each);
      for (const slot of strip.slots) assert.ok(slot.x + layout.size.width <= strip.left + strip.width + 0.01 && slot.y + layout.size.height <= strip.top + strip.height);
    }
  }
});

test("gradients meet side by side and come back as the average", () => {
  const card = { width: 100, gradient: { x: 50, y: 10 } }, meet = { x: 200, y: 90, width: 108 };
  assert.deepEqual(gradientAt(card, meet, 2, 0, 2), { x: 50, y: 10, room: 90, isAverage: false });
  const met = [0, 1].map((k) => gradientAt(card, meet, 2.45, k, 2));
  assert.deepEqual(met.map(({ x, y }) => [x, y]), [[175, 90], [225, 90]]);
  const back = gradientAt(card, meet, 3, 0, 2);
  assert.ok(back.isAverage && Math.abs(back.x - 50) < 1e-9 && Math.abs(back.y - 10) < 1e-9);
});
