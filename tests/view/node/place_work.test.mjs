// The puzzle's rules and its clock, on two ranks by hand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { clocked, heldBy, isComplete, ordersOf, orderText, refusal, summary } from "../../../labkit/view/static/place_work_geometry.js";

const RULES = { microbatches: 2, maxHeld: 2 }, DURATIONS = { forward: 1, backward: 2 };
const ONE_F_ONE_B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1";

test("1F1B on two ranks, worked out by hand", () => {
  // rank 0: F0 0-1, F1 1-2, then B0 must wait for rank 1's B0 (2-4): 4-6, B1 after rank 1's (5-7): 7-9.
  const orders = ordersOf(ONE_F_ONE_B, 2);
  const found = Object.fromEntries(clocked(orders, DURATIONS).map(({ rank, kind, microbatch, start, end }) => [`${rank}${kind}${microbatch}`, [start, end]]));
  assert.deepEqual(found, { "0F0": [0, 1], "0F1": [1, 2], "1F0": [1, 2], "1B0": [2, 4], "1F1": [4, 5], "1B1": [5, 7], "0B0": [4, 6], "0B1": [7, 9] });
  assert.deepEqual(summary(orders, DURATIONS), { length: 9, bubble: 1 - 12 / 18 });
  assert.ok(isComplete(orders, 2));
});

test("what may not be placed, and why", () => {
  const empty = [[], []];
  assert.match(refusal(empty, 1, "F", RULES), /F0 on rank 1 needs what F0 on rank 0 gives/);
  assert.match(refusal(empty, 0, "B", RULES), /comes after its own F0/);
  assert.equal(refusal(empty, 0, "F", RULES), "");
  const oneThere = [[["F", 0]], []];
  assert.match(refusal(oneThere, 0, "B", RULES), /needs the gradient that B0 on rank 1 gives/);
  assert.match(refusal(oneThere, 0, "F", { microbatches: 2, maxHeld: 1 }), /room for no more/);
  assert.match(refusal(ordersOf(ONE_F_ONE_B, 2), 0, "F", RULES), /has done all its forwards/);
});

test("a rank holds what it went forward with and not back", () => {
  assert.equal(heldBy([["F", 0], ["F", 1], ["B", 0]]), 1);
});

test("the text there and back, and texts that are none", () => {
  assert.equal(orderText(ordersOf(ONE_F_ONE_B, 2)), ONE_F_ONE_B);
  for (const text of ["", "0F0", "0F0\n0F0", "0F0\n1X0", "0F0\n1F0\n2F0"]) assert.equal(ordersOf(text, 2), null, text);
  assert.deepEqual(ordersOf("\n", 2), [[], []]);
});
