// The critical path and causes of gaps, as the kernel tells them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Answers, causesWithin, pathLength, pathParts, pathRuns, pathText } from "../../../labkit/view/static/answers.js";

const MS = 1e6;
const PATH = { steps: [0], segments: [[0, 0, 4 * MS, "work", 3], [0, 4 * MS, 6 * MS, "work", 4], [1, 6 * MS, 7 * MS, "late p2p", 9], [1, 7 * MS, 10 * MS, "work", 8]] };

test("a path's length and parts, longest first", () => {
  assert.equal(pathLength(PATH), 10 * MS);
  assert.deepEqual(pathParts(PATH), [["work", 9 * MS], ["late p2p", MS]]);
});

test("a path in words", () => {
  assert.equal(pathText(PATH), "Critical path of step 0: 10.0 ms, work 90 %, late p2p 10 %; it changes ranks 1 time. Shortening anything else does not end the step sooner.");
  assert.match(pathText({ ...PATH, steps: [0, 1, 2] }), /of steps 0 to 2: 10.0 ms/);
});

test("pieces on one rank that touch are one run", () => {
  assert.deepEqual(pathRuns(PATH), [{ rank: 0, from: 0, to: 6 * MS }, { rank: 1, from: 6 * MS, to: 10 * MS }]);
  assert.deepEqual(pathRuns({ segments: [] }), []);
});

test("causes: those of the rank that touch the time, no more than can be read", () => {
  const causes = { gaps: [[0, 0, 5, 0], [1, 0, 5, 1], [0, 5, 9, 1], [0, 20, 30, 0]], sentences: ["a", "b"] };
  assert.deepEqual(causesWithin(causes, 0, 1, 9), ["a", "b"]);
  assert.deepEqual(causesWithin(causes, 0, 9, 20), []);
  const many = { gaps: Array.from({ length: 5 }, (_, k) => [0, k, k + 1, 0]), sentences: ["a"] };
  assert.deepEqual(causesWithin(many, 0, 0, 5), ["a", "a", "a", "and 2 more"]);
});

test("the kernel is asked once for each thing, and what is there is not asked for", () => {
  const state = { paths: { 1: PATH } }, sent = [];
  const answers = new Answers({ get: (name) => state[name], send: (message) => sent.push(message) }, () => {}, () => {});
  assert.equal(answers.path(1), PATH);
  for (let k = 0; k < 3; k++) { assert.equal(answers.path(0), null); assert.equal(answers.path(null), null); assert.equal(answers.whyIdle(0, 0, 1), null); }
  assert.deepEqual(sent, [{ do: "path", step: 0 }, { do: "path", step: null }, { do: "causes", step: null }]);
  state.causes = { gaps: [[0, 0, 1, 0]], sentences: ["a"] };
  assert.deepEqual(answers.whyIdle(0, 0, 1), ["a"]);
});
