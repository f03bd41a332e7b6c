import assert from "node:assert/strict";
import { test } from "node:test";

import { filesText, sizeText } from "../../../labkit/view/static/drop.js";

test("sizes and files in words", () => {
  assert.deepEqual([12, 2048, 3.4 * 1048576].map(sizeText), ["12 B", "2 KiB", "3.4 MiB"]);
  assert.equal(filesText([]), "");
  assert.equal(filesText([{ name: "a.json", size: 2048 }]), "a.json, 2 KiB");
  assert.equal(filesText([{ name: "a.json", size: 1024 }, { name: "b.json", size: 1024 }]), "a.json and 1 more, 2 KiB");
});
