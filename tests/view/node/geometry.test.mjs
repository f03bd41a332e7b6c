// Positions and searches, without a browser. Run by test_node.py, or: node --test tests/view/node
import assert from "node:assert/strict";
import { test } from "node:test";

import * as spansOfTrace from "../../../labkit/view/static/spans.js";
import * as timeAxis from "../../../labkit/view/static/time_axis.js";
import * as timelineGeometry from "../../../labkit/view/static/timeline_geometry.js";
import * as tracks from "../../../labkit/view/static/tracks.js";

const geometry = { ...spansOfTrace, ...tracks, ...timelineGeometry, ...timeAxis };

const LOOK = { forward: 0, wait: 1, sync: 2 };

/** Typed columns from rows of [rank, grain, look, start, end, extra columns]. */
function spansOf(rows, extra = {}) {
  const columns = {
    rank: Uint16Array.from(rows, (row) => row[0]), grain: Uint8Array.from(rows, (row) => geometry.GRAIN[row[1]]),
    look: Uint8Array.from(rows, (row) => LOOK[row[2]]), start: Float64Array.from(rows, (row) => row[3]),
    duration: Float64Array.from(rows, (row) => row[4] - row[3]), row: Uint32Array.from(rows, (_, i) => i), ...extra,
  };
  return geometry.readSpans(columns);
}

const compute = (start, end, look = "forward") => [0, "stage", look, start, end];
const trackOf = (spans) => geometry.track(spans, [...Array(spans.count).keys()]);

test("no spans: bounds, steps, rows and messages are sensible", () => {
  const spans = geometry.readSpans({});
  assert.equal(spans.count, 0);
  assert.deepEqual(geometry.boundsOf(spans), [0, 1]);
  assert.deepEqual(geometry.stepRanges(spans), []);
  const [row] = geometry.buildRows(spans, [{ rank: 0, place: "" }], "stage", [0, 1]);
  assert.equal(row.compute.index.length, 0);
  assert.equal(geometry.messagesOf(spans, []).from.length, 0);
});

test("columns are read from views that are not aligned", () => {
  const bytes = new Uint8Array(17);
  new DataView(bytes.buffer).setFloat64(1, 42.5, true);
  const spans = geometry.readSpans({ start: new DataView(bytes.buffer, 1, 8) });
  assert.equal(spans.start[0], 42.5);
  assert.equal(geometry.valueOf(spans, "layer", 0), null);
});

test("a span of no length still has bounds to draw in", () => {
  assert.deepEqual(geometry.boundsOf(spansOf([compute(5, 5)])), [5, 6]);
});

test("rows: stage and layer grains are chosen by detail, the rest is in both, syncs lie apart", () => {
  const spans = spansOf([
    [0, "stage", "forward", 0, 10], [0, "layer", "forward", 0, 5], [0, "sync", "sync", 4, 9], [0, "either", "wait", 10, 12],
    [1, "layer", "forward", 0, 5],
  ]);
  const ranks = [{ rank: 0, place: "" }, { rank: 1, place: "" }];
  const indices = (detail) => geometry.buildRows(spans, ranks, detail, [0, 20]).map((row) => [...row.compute.index]);
  assert.deepEqual(indices("stage"), [[0, 3], []]);
  assert.deepEqual(indices("layer"), [[1, 3], [4]]);
  assert.deepEqual([...geometry.buildRows(spans, ranks, "stage", [0, 20])[0].syncs[0].index], [2]);
  assert.deepEqual(geometry.buildRows(spans, ranks, "stage", [11, 20])[0].syncs, []); // none touches that window
});

test("rows: where the asked detail does not exist, the other is drawn", () => {
  const spans = spansOf([[0, "layer", "forward", 0, 5]]);
  assert.equal(geometry.buildRows(spans, [{ rank: 0, place: "" }], "stage", [0, 5])[0].compute.index.length, 1);
});

test("visible: a long span that began far to the left is found", () => {
  const spans = spansOf([compute(0, 100), compute(1, 2, "wait"), compute(3, 4, "wait"), compute(50, 60, "wait")]);
  assert.deepEqual(geometry.visible(spans, trackOf(spans), 40, 45), [0, 3]);
  assert.deepEqual(geometry.visible(spans, trackOf(spans), 200, 300), [4, 4]);
});

test("depth: contained spans are deeper, touching and identical ones are not", () => {
  const spans = spansOf([compute(0, 10), compute(2, 4, "wait"), compute(10, 20), compute(10, 20, "wait"), compute(15, 30, "wait")]);
  assert.deepEqual([...trackOf(spans).depth], [0, 1, 0, 0, 0]);
});

test("a wait within a wait is left out", () => {
  const spans = spansOf([compute(0, 10, "wait"), compute(2, 8, "wait"), compute(10, 12, "wait")]);
  assert.deepEqual([...trackOf(spans).index], [0, 2]);
});

test("spanAt: the innermost, the nearest within reach, or none", () => {
  const spans = spansOf([compute(0, 10), compute(4, 6, "wait"), compute(20, 20)]);
  const track = trackOf(spans);
  assert.equal(geometry.spanAt(spans, track, 5), 1);
  assert.equal(geometry.spanAt(spans, track, 8), 0);
  assert.equal(geometry.spanAt(spans, track, 15), -1);
  assert.equal(geometry.spanAt(spans, track, 20), 2);
  assert.equal(geometry.spanAt(spans, track, 18.5, 2), 2);
});

test("idleAt: the time around a moment that no span covers, within the window", () => {
  const spans = spansOf([compute(2, 10), compute(4, 6, "wait"), compute(20, 25)]), track = trackOf(spans);
  assert.deepEqual([0, 15, 30].map((t) => geometry.idleAt(spans, track, t, [0, 40])), [[0, 2], [10, 20], [25, 40]]);
  assert.equal(geometry.idleAt(spans, track, 8, [0, 40]), null); // after the wait inside, the outer one still runs
  assert.deepEqual(geometry.idleAt(spans, geometry.track(spans, []), 3, [0, 40]), [0, 40]);
});

test("layers are shown where the fullest rank has room for them", () => {
  const spans = spansOf([[0, "layer", "forward", 0, 5], [0, "layer", "forward", 5, 9], [1, "layer", "forward", 0, 5], [1, "stage", "forward", 0, 9]]);
  assert.equal(geometry.countLayers(spans, [0, 10]), 2);
  assert.equal(geometry.countLayers(spans, [6, 10]), 1);
  assert.equal(geometry.countLayers(geometry.readSpans({}), [0, 1]), 0);
  assert.equal(geometry.detailFor(20, [0, 100], [0, 100], 800), "stage"); // 40 pixels each
  assert.equal(geometry.detailFor(20, [0, 100], [0, 50], 800), "layer");
});

test("neighbour: next and previous starts over several tracks", () => {
  const spans = spansOf([compute(0, 1), compute(5, 6), compute(3, 4)]);
  const tracks = [geometry.track(spans, [0, 1]), geometry.track(spans, [2])];
  assert.equal(geometry.neighbour(spans, tracks, 0, 1), 2);
  assert.equal(geometry.neighbour(spans, tracks, 5, -1), 2);
  assert.equal(geometry.neighbour(spans, tracks, 5, 1), -1);
  assert.equal(geometry.neighbour(spans, tracks, 0, -1), -1);
});

test("overlapping syncs get lanes of their own, at most three", () => {
  const spans = spansOf([[0, 9], [1, 8], [2, 7], [3, 6], [10, 11]].map(([a, b]) => [0, "sync", "sync", a, b]));
  assert.deepEqual(geometry.packed(spans, [0, 1, 2, 3, 4]), [[0, 4], [1], [2, 3]]);
});

test("pixelShares: parts of a pixel add up, contained spans count once", () => {
  const spans = spansOf([compute(0, 15), compute(2, 4, "wait"), compute(15, 20, "wait")]);
  const shares = geometry.pixelShares(spans, trackOf(spans), [0, 20], 2, 3);
  assert.deepEqual([...shares], [1, 0, 0, 0.5, 0.5, 0]);
});

test("timeSpent: a wait inside a computation is no computing", () => {
  const spans = spansOf([compute(0, 10), compute(4, 6, "wait"), compute(12, 15, "wait")]);
  const row = { compute: trackOf(spans) };
  assert.deepEqual(geometry.timeSpent(spans, row, [0, 20], LOOK.wait), { busy: 8, wait: 5 });
  assert.deepEqual(geometry.timeSpent(spans, row, [5, 13], LOOK.wait), { busy: 4, wait: 2 });
});

const CHANNELS = [{ op: "send" }, { op: "recv" }, { op: "all_reduce" }];
const syncs = (rows) =>
  spansOf(rows.map(([rank, start, end]) => [rank, "sync", "sync", start, end]), {
    channel: Int32Array.from(rows, (row) => row[3]), link: Int32Array.from(rows, (row) => row[4]),
  });

test("messages: sends and receives are paired by link; one without the other is left out", () => {
  const spans = syncs([[0, 0, 2, 0, 7], [0, 5, 6, 0, 8], [1, 1, 3, 1, 7]]);
  const messages = geometry.messagesOf(spans, CHANNELS);
  assert.deepEqual([[...messages.from], [...messages.to], [...messages.reach]], [[0], [2], [3]]);
  assert.deepEqual(geometry.messagesWithin(spans, messages, 2.5, 2.6), [0, 1]);
  assert.deepEqual(geometry.messagesWithin(spans, messages, 4, 5), [1, 1]);
});

test("joinedAt: nothing moves before the last rank joined", () => {
  const spans = syncs([[0, 0, 9, 2, 3], [1, 4, 9, 2, 3], [2, 6, 10, 2, 3]]);
  assert.deepEqual([...geometry.joinedAt(spans)], [6, 6, 6]);
  assert.deepEqual(geometry.linkedWith(spans, 1), [0, 1, 2]);
});

test("samples of a load are found behind those of earlier loads", () => {
  const spans = spansOf([compute(0, 1), compute(1, 2), compute(2, 3)], {
    num_samples: Int32Array.from([2, -1, 3]), samples: Int32Array.from([5, 6, 7, 8, 9]),
  });
  assert.deepEqual(geometry.samplesOf(spans, 2), [7, 8, 9]);
  assert.deepEqual(geometry.samplesOf(spans, 1), []);
});

test("steps run from their first start to their last end on any rank", () => {
  const spans = spansOf([compute(0, 4), compute(1, 9), compute(9, 12)], { step: Int32Array.from([0, 0, 1]) });
  assert.deepEqual(geometry.stepRanges(spans), [{ step: 0, from: 0, to: 9 }, { step: 1, from: 9, to: 12 }]);
});

test("ticks are round and no more than asked for", () => {
  assert.deepEqual(geometry.ticks([0, 100], 5).times, [0, 20, 40, 60, 80, 100]);
  for (const [from, to] of [[0, 1], [3.3, 7.1], [1e9, 1.0001e9], [0, 7e-4]]) {
    const { times } = geometry.ticks([from, to], 8);
    assert.ok(times.length >= 2 && times.length <= 9, `${from}..${to}: ${times}`);
  }
});

test("zooming and moving stay inside the bounds", () => {
  assert.deepEqual(geometry.zoomed([0, 100], [0, 100], 0.5, 50), [25, 75]);
  assert.deepEqual(geometry.zoomed([0, 50], [0, 100], 4, 0), [0, 100]);
  const [from, to] = geometry.zoomed([0, 100], [0, 100], 1e-9, 100);
  assert.ok(to - from >= 10 && to === 100);
  assert.deepEqual(geometry.shifted([10, 20], [0, 100], -50), [0, 10]);
});

test("layout: rows do not overlap, at any width and number of ranks", () => {
  for (const count of [1, 4, 8, 16, 64]) {
    for (const width of [300, 1200]) {
      const rows = Array.from({ length: count }, () => ({ syncs: [0, 1] }));
      const layout = geometry.layOut(rows, width, { hasMessages: true, hasPlaces: true, hasCollectives: true, hasMemory: true });
      layout.rows.forEach(({ memory, syncs, bottom }) => assert.ok(memory.top > syncs[1].top + syncs[1].height && memory.top + memory.height <= bottom));
      layout.rows.forEach((row, r) => assert.ok(row.bottom > row.top && (r === 0 || row.top > layout.rows[r - 1].bottom)));
      assert.ok(layout.height > layout.rows[count - 1].bottom && layout.left < layout.right);
    }
  }
});

test("layout: 512 ranks stay below what a canvas can hold", () => {
  const rows = Array.from({ length: 512 }, () => ({ syncs: [0, 1, 2] }));
  assert.ok(geometry.layOut(rows, 800, { hasMessages: true, hasPlaces: true, hasCollectives: true, hasMemory: true }).height < 16000);
});

test("trackAt and boxOf agree", () => {
  const spans = spansOf([[0, "stage", "forward", 0, 10], [0, "sync", "sync", 4, 9]]);
  const rows = geometry.buildRows(spans, [{ rank: 0, place: "" }], "stage", [0, 10]);
  const layout = geometry.layOut(rows, 800, { hasMessages: false, hasPlaces: false, hasCollectives: true });
  for (const i of [0, 1]) {
    const { top, height } = geometry.boxOf(spans, rows, layout, i);
    assert.deepEqual([...geometry.trackAt(layout, rows, top + height / 2).track.index], [i]);
  }
  assert.equal(geometry.trackAt(layout, rows, layout.height), null);
});
