// A trace's spans as typed arrays, and what they say: bounds, steps, messages, partners, samples. Pure, tested with node.
//
// Spans come ordered by rank, then start, then longest first. All times are nanoseconds since the trace's origin.

import { typed } from "./buffers.js";

export const GRAIN = { step: 0, stage: 1, layer: 2, either: 3, sync: 4 };

const TYPES = {
  start: Float64Array, duration: Float64Array, rank: Uint16Array, grain: Uint8Array, look: Uint8Array, row: Uint32Array,
  step: Int32Array, microbatch: Int32Array, stage: Int16Array, layer: Int32Array, channel: Int32Array, link: Int32Array,
  seq: Int32Array, size_bytes: Float64Array, cpu_ns: Float64Array, late_ns: Float64Array, num_samples: Int32Array,
  samples: Int32Array,
};

/** Binary buffers by name -> typed arrays by name. A column that is not there is null. */
export function readSpans(columns) {
  const spans = {};
  for (const [name, Type] of Object.entries(TYPES)) spans[name] = columns[name] ? typed(columns[name], Type) : null;
  spans.start ||= new Float64Array(0);
  spans.count = spans.start.length;
  return spans;
}

export const endOf = (spans, i) => spans.start[i] + spans.duration[i];

/** The value of an optional column; null where it does not apply. */
export function valueOf(spans, name, i) {
  const column = spans[name];
  return column && column[i] >= 0 ? column[i] : null;
}

/** [first start, last end] of all spans. */
export function boundsOf(spans) {
  let from = Infinity, to = -Infinity;
  for (let i = 0; i < spans.count; i++) {
    from = Math.min(from, spans.start[i]);
    to = Math.max(to, endOf(spans, i));
  }
  return from <= to ? [from, Math.max(to, from + 1)] : [0, 1];
}

/** [{step, from, to}] in order: each training step from its first start to its last end on any rank. */
export function stepRanges(spans) {
  const ranges = new Map();
  for (let i = 0; spans.step && i < spans.count; i++) {
    const step = spans.step[i];
    if (step < 0) continue;
    const range = ranges.get(step);
    if (!range) ranges.set(step, { step, from: spans.start[i], to: endOf(spans, i) });
    else { range.from = Math.min(range.from, spans.start[i]); range.to = Math.max(range.to, endOf(spans, i)); }
  }
  return [...ranges.values()].sort((a, b) => a.step - b.step);
}

/** Which details the spans can be drawn in: {stage, layer}. */
export function detailsIn(spans) {
  const found = { stage: false, layer: false };
  for (let i = 0; i < spans.count; i++) {
    if (spans.grain[i] === GRAIN.stage) found.stage = true;
    if (spans.grain[i] === GRAIN.layer) found.layer = true;
  }
  return found;
}

/** How many layer spans the rank with most of them has in a window. */
export function countLayers(spans, [from, to]) {
  const counts = new Map();
  for (let i = 0; i < spans.count; i++) {
    if (spans.grain[i] !== GRAIN.layer || spans.start[i] > to || endOf(spans, i) < from) continue;
    counts.set(spans.rank[i], (counts.get(spans.rank[i]) || 0) + 1);
  }
  return Math.max(0, ...counts.values());
}

/** Messages as pairs of spans, by start: {from: sends, to: receives, reach}. A send without its receive is left out. */
export function messagesOf(spans, channels) {
  const sends = new Map(), pairs = [];
  const each = (op, visit) => {
    for (let i = 0; spans.link && i < spans.count; i++) {
      const channel = spans.grain[i] === GRAIN.sync && spans.link[i] >= 0 && channels[spans.channel[i]];
      if (channel && channel.op === op) visit(i);
    }
  };
  each("send", (i) => sends.set(spans.link[i], i));
  each("recv", (i) => sends.has(spans.link[i]) && pairs.push([sends.get(spans.link[i]), i]));
  pairs.sort((one, other) => spans.start[one[0]] - spans.start[other[0]]);
  const reach = new Float64Array(pairs.length);
  pairs.forEach(([, receive], k) => { reach[k] = Math.max(k ? reach[k - 1] : -Infinity, endOf(spans, receive)); });
  return { from: Uint32Array.from(pairs, (pair) => pair[0]), to: Uint32Array.from(pairs, (pair) => pair[1]), reach };
}

/** For every span of a communication the time at which its last rank joined; before that, nothing could move. */
export function joinedAt(spans) {
  const last = new Map(), joined = new Float64Array(spans.count).fill(-Infinity);
  const each = (visit) => { for (let i = 0; spans.link && i < spans.count; i++) if (spans.link[i] >= 0 && spans.grain[i] === GRAIN.sync) visit(i, spans.link[i]); };
  each((i, link) => last.set(link, Math.max(last.get(link) ?? -Infinity, spans.start[i])));
  each((i, link) => { joined[i] = Math.min(endOf(spans, i), last.get(link)); });
  return joined;
}

/** Spans of the same communication as span i, on all its ranks, i included; waits left out. */
export function linkedWith(spans, i) {
  const link = valueOf(spans, "link", i), found = [];
  for (let k = 0; link !== null && k < spans.count; k++) {
    if (spans.link[k] === link && spans.grain[k] === GRAIN.sync) found.push(k);
  }
  return found;
}

/** Dataset indices of a load. */
export function samplesOf(spans, i) {
  if (valueOf(spans, "num_samples", i) === null) return [];
  let at = 0;
  for (let k = 0; k < i; k++) at += Math.max(0, spans.num_samples[k]);
  return [...spans.samples.subarray(at, at + spans.num_samples[i])];
}
