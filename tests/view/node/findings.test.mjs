import assert from "node:assert/strict";
import { test } from "node:test";

import { percentText, rankText } from "../../../labkit/view/static/findings.js";

test("shares in words", () => {
  assert.equal(percentText(9.04), "9.0 %");
  assert.equal(percentText(72.4), "72 %");
  assert.equal(rankText({ work: 73, causes: [["drain", 15], ["straggler", 12]] }), "worked 73 %; drain 15 %, straggler 12 %");
  assert.equal(rankText({ work: 100, causes: [] }), "worked 100 %");
});
