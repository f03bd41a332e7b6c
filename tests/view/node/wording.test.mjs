// Spans and numbers in words.
import assert from "node:assert/strict";
import { test } from "node:test";

import { applies, lineText, ranksText, secondsLeft, valueOfInput } from "../../../labkit/view/static/controls.js";
import { sizeText, timeText } from "../../../labkit/view/static/quantities.js";
import { readSpans, GRAIN } from "../../../labkit/view/static/spans.js";
import { causeText, factsOf, labelsOf } from "../../../labkit/view/static/wording.js";

test("times and sizes", () => {
  assert.equal(timeText(20_500_000), "20.5 ms");
  assert.equal(timeText(0), "0 ns");
  assert.equal(timeText(1_500), "1500 ns");
  assert.equal(timeText(3_210_000_000), "3.21 s");
  assert.equal(sizeText(0), "0 B");
  assert.equal(sizeText(1536), "1.50 KiB");
  assert.equal(sizeText(4_200_000), "4.01 MiB");
});

const LOOKS = [{ name: "forward", label: "forward", short: "F" }, { name: "wait", label: "wait", short: "wait" }, { name: "sync", label: "sync", short: "sync" }];
const CHANNELS = [{ op: "send", axis: "pp", group: [0, 1], peer: 1, dtype: "float32" }, { op: "recv", axis: "pp", group: [0, 1], peer: 0, dtype: "float32" }];

/** Rank 0 sends at 30; rank 1 waits for it from 10 on. */
function scene() {
  const spans = readSpans({
    start: Float64Array.of(0, 30, 10, 10), duration: Float64Array.of(30, 5, 25, 25), rank: Uint16Array.of(0, 0, 1, 1),
    grain: Uint8Array.of(GRAIN.stage, GRAIN.sync, GRAIN.sync, GRAIN.either), look: Uint8Array.of(0, 2, 2, 1), row: Uint32Array.of(0, 1, 2, 3),
    microbatch: Int32Array.of(3, 3, 3, -1), channel: Int32Array.of(-1, 0, 1, 1), link: Int32Array.of(-1, 0, 0, 0), size_bytes: Float64Array.of(-1, 2048, 2048, -1),
  });
  const ranks = [{ rank: 0, place: "stage 0" }, { rank: 1, place: "stage 1" }];
  return { spans, looks: LOOKS, layers: [], channels: CHANNELS, ranks, window: [0, 40], unit: ["ns", 1] };
}

test("labels: the longest that fits is drawn, so they come longest first", () => {
  assert.deepEqual(labelsOf(scene(), 0), ["F3"]);
  assert.deepEqual(labelsOf(scene(), 1), ["send 2.00 KiB", "send"]);
  assert.deepEqual(labelsOf(scene(), 3), ["wait recv", "wait"]);
});

test("facts name rank, place, times and the other side", () => {
  const { title, facts } = factsOf(scene(), 2);
  assert.equal(title, "recv");
  const told = Object.fromEntries(facts);
  assert.equal(told.rank, "1 · stage 1");
  assert.equal(told["from rank"], 0);
  assert.equal(told.took, "25 ns");
});

test("a wait tells whom it waited for", () => {
  assert.equal(causeText(scene(), 3), "rank 0 sent it only 20 ns later");
  assert.equal(causeText(scene(), 0), "");
});

test("the form's own words", () => {
  assert.equal(ranksText({ dp: 1, tp: 1, pp: 1 }), "data 1 × tensor 1 × pipeline 1 = 1 rank");
  assert.equal(secondsLeft(4, 2, 6), 8);
  assert.equal(secondsLeft(4, 0, 6), null);
  assert.equal(applies({ needs: "pp" }, { pp: 1 }), false);
  assert.equal(applies({ needs: "paced" }, { paced: true }), true);
  assert.equal(valueOfInput({ kind: "number" }, { value: "" }), null);
  assert.equal(valueOfInput({ kind: "choice", choices: [[4, "4"]] }, { value: "4" }), 4);
  assert.equal(valueOfInput({ kind: "switch" }, { checked: true }), true);
});

test("a run that waits for others says its place in line", () => {
  assert.equal(lineText(2, 6.4), "place 2 in line, about 6 s");
  assert.equal(lineText(1, 0.2), "place 1 in line, about 1 s");
  assert.equal(lineText(3, null), "place 3 in line");
});
