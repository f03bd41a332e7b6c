// An all-reduce at a moment: who holds what, what flies, where cards lie.
import assert from "node:assert/strict";
import { test } from "node:test";

import { asideOf, bytesAt, edgeOf, holdsAt, inTheAir, linksOf, phaseOf, placeRanks } from "../../../labkit/view/static/all_reduce_geometry.js";

/** A ring of n ranks, as the sends of a run would be. */
function ring(n) {
  const sends = [];
  for (let k = 0; k < 2 * (n - 1); k++) for (let r = 0; r < n; r++) sends.push({ sender: r, receiver: (r + 1) % n, round: k + 1, chunk: (((r - k) % n) + n) % n, size_bytes: 100 });
  return { group: Array.from({ length: n }, (_, r) => r), shape: "ring", num_chunks: n, sends };
}
const tree = { group: [4, 5, 6, 7], shape: "tree", num_chunks: 1, sends: [
  [5, 4, 1], [7, 6, 1], [6, 4, 2], [4, 6, 3], [4, 5, 4], [6, 7, 4]].map(([sender, receiver, round]) => ({ sender, receiver, round, chunk: -1, size_bytes: 400 })) };

test("at the start every rank holds its own, at the end all hold all", () => {
  for (const call of [ring(4), ring(2), tree]) {
    assert.ok(holdsAt(call, 0).every((chunks, p) => chunks.every((held) => held.size === 1 && held.has(p))));
    assert.ok(holdsAt(call, 99).every((chunks) => chunks.every((held) => held.size === call.group.length)));
  }
});

test("a message counts when it has arrived, not before", () => {
  const call = ring(4);
  assert.deepEqual([...holdsAt(call, 0.99)[1][0]], [1]);
  assert.deepEqual([...holdsAt(call, 1)[1][0]].sort(), [0, 1]);
});

test("in the air are the messages of the present round", () => {
  const air = inTheAir(ring(4), 2.25);
  assert.equal(air.length, 4);
  assert.ok(air.every(({ send, u }) => send.round === 3 && u === 0.25));
  assert.equal(inTheAir(ring(4), 3).length, 0);
});

test("sums grow first, then results spread", () => {
  assert.deepEqual([1, 3, 4, 6].map((round) => phaseOf(ring(4), round)), ["sums grow", "sums grow", "results spread", "results spread"]);
  assert.deepEqual([2, 3].map((round) => phaseOf(tree, round)), ["sums grow", "results spread"]);
});

test("bytes up to a moment", () => {
  assert.equal(bytesAt(ring(4), 0).total, 0);
  assert.equal(bytesAt(ring(4), 1).total, 400);
  const whole = bytesAt(tree, 4);
  assert.equal(whole.total, 2400);
  assert.equal(tree.group[whole.busiest], 4);
});

test("links are pairs, each once", () => {
  assert.equal(linksOf(ring(4)).length, 4);
  assert.deepEqual(linksOf(tree).map(([, , both]) => both), [true, true, true]);
  assert.deepEqual(linksOf(ring(2)), [[0, 1, true]]);
});

test("cards stay inside the picture and apart from each other", () => {
  for (const width of [326, 560, 900]) for (const call of [ring(2), ring(3), ring(4), ring(8), ring(16), ring(32), ring(100), tree]) {
    const { card, cards, height } = placeRanks(call, width);
    for (const { x, y } of cards) {
      assert.ok(x - card.width / 2 >= 0 && x + card.width / 2 <= width, `${call.shape} ${cards.length} at ${width}`);
      assert.ok(y - card.height / 2 >= 0 && y + card.height / 2 <= height);
    }
    cards.forEach((a, i) => cards.slice(i + 1).forEach((b) => assert.ok(Math.abs(a.x - b.x) >= card.width || Math.abs(a.y - b.y) >= card.height, `${call.shape} of ${cards.length} overlaps at ${width}`)));
  }
});

test("messages that meet on a link fly on either side of it", () => {
  const layout = placeRanks(ring(2), 600), there = asideOf(layout, 0, 1), back = asideOf(layout, 1, 0);
  assert.ok(Math.abs(there.dy) > 8 && Math.abs(there.dy + back.dy) < 1e-9);
});

test("on a ring of up to 16 a message has room between its cards", () => {
  for (const width of [326, 560, 900]) for (const n of [3, 4, 6, 8, 16]) {
    const layout = placeRanks(ring(n), width);
    for (const [a, b] of linksOf(ring(n))) {
      const from = edgeOf(layout, a, b), to = edgeOf(layout, b, a);
      assert.ok(Math.hypot(to.x - from.x, to.y - from.y) >= 28, `${n} ranks at ${width}: ${a} to ${b}`);
    }
  }
});
