// What the page's address carries.

import assert from "node:assert/strict";
import { test } from "node:test";

import { textInAddress, withText } from "../../../labkit/view/static/address.js";

test("an address carries texts by name and keeps those of others", () => {
  assert.equal(withText("", "plan", "dp=2;pp=2"), "#plan=dp=2;pp=2");
  assert.equal(withText("#a=dp=2&b=tp=2", "a", "dp=4"), "#b=tp=2&a=dp=4");
  assert.equal(withText("#a=dp=2&b=tp=2", "b", ""), "#a=dp=2");
  assert.equal(withText("#plan=dp=2", "plan", ""), "");
});

test("a text comes back as it went, whatever it holds", () => {
  for (const text of ["dp=2;pp=2", "a&b#c=d e%", "<img src=x>", "ä → ü"]) {
    assert.equal(textInAddress(withText("#x=1", "plan", text), "plan"), text);
  }
});

test("an address that names no text, or a broken one, gives none", () => {
  assert.equal(textInAddress("", "plan"), null);
  assert.equal(textInAddress("#planet=dp=2", "plan"), null);
  assert.equal(textInAddress("#plan=%E0%A4%A", "plan"), null);
});
