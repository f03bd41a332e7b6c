import assert from "node:assert/strict";
import { test } from "node:test";

import { applies, ranksText, secondsLeft, valueOfInput } from "../../../labkit/view/static/controls.js";

test("a field applies while what it needs is on, above 1, or chosen", () => {
  const values = { on: true, off: false, one: 1, two: 2, none: "", some: "0" };
  const found = Object.keys(values).filter((needs) => applies({ needs }, values));
  assert.deepEqual(found, ["on", "two", "some"]);
  assert.ok(applies({ needs: "" }, values));
});

test("inputs hold values of their fields' kinds", () => {
  assert.equal(valueOfInput({ kind: "switch" }, { checked: true }), true);
  assert.equal(valueOfInput({ kind: "number" }, { value: "1e3" }), 1000);
  assert.equal(valueOfInput({ kind: "number" }, { value: "" }), null);
  assert.equal(valueOfInput({ kind: "choice", choices: [[1, "one"], [2, "two"]] }, { value: "2" }), 2);
  assert.equal(valueOfInput({ kind: "slider", choices: [[0.5, "half"], [1, "one"]] }, { value: "1" }), 1);
});

test("ranks and time left in words", () => {
  assert.equal(ranksText({ dp: 2, tp: 1, pp: 2 }), "data 2 × tensor 1 × pipeline 2 = 4 ranks");
  assert.equal(secondsLeft(4, 2, 6), 8);
  assert.equal(secondsLeft(4, 0, 6), null);
});
