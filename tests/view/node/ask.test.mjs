// Which answers count: numbers as people write them, and the margin.
import assert from "node:assert/strict";
import { test } from "node:test";
import { isWithin, numberOf } from "../../../labkit/view/static/ask.js";

test("numbers as people write them", () => {
  const written = { "3": 3, " 1,200 ": 1200, "37.5 %": 0.375, "3/8": 0.375, "-2": -2, "1e3": 1000, "12 ms": 12, "2×": 2 };
  for (const [text, value] of Object.entries(written)) assert.equal(numberOf(text, "ms"), value, text);
});

test("what is no number", () => {
  for (const text of ["", "  ", "many", "3/", "/3", "1/2/3", "1/0", "NaN", "Infinity", "12 kg"]) assert.ok(!isWithin(numberOf(text, "ms"), 0, 1e9), text);
});

test("the edge of the margin counts, beyond it does not", () => {
  assert.ok(isWithin(0.28, 0.27, 0.01));
  assert.ok(!isWithin(0.2801, 0.27, 0.01));
  assert.ok(isWithin(3 / 11, 3 / 11, 0));
  assert.ok(!isWithin(NaN, 0, 1));
});
