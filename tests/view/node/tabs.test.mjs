import assert from "node:assert/strict";
import { test } from "node:test";

import { tabAfter } from "../../../labkit/view/static/tabs.js";

test("arrow keys go round, Home and End to the ends, other keys nowhere", () => {
  assert.equal(tabAfter("ArrowRight", 2, 3), 0);
  assert.equal(tabAfter("ArrowLeft", 0, 3), 2);
  assert.equal(tabAfter("Home", 2, 3), 0);
  assert.equal(tabAfter("End", 0, 3), 2);
  assert.equal(tabAfter("x", 1, 3), null);
});
