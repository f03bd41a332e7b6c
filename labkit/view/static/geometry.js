// Spans -> rows, tracks, positions. Pure functions: no DOM, no canvas, no state. Tested with node.
//
// A *row* is one rank. It holds a *compute track* and one or more *sync tracks*. A track lists span numbers by start and
// knows how far any of its spans so far reaches, so that "what is visible?" and "what is here?" are binary searches, even
// where spans contain others. All times are nanoseconds since the trace's origin.

export const GRAIN = { step: 0, stage: 1, layer: 2, either: 3, sync: 4 };

const TYPES = {
  start: Float64Array, duration: Float64Array, rank: Uint16Array, grain: Uint8Array, look: Uint8Array, row: Uint32Array,
  step: Int32Array, microbatch: Int32Array, stage: Int16Array, layer: Int32Array, channel: Int32Array, link: Int32Array,
  seq: Int32Array, size_bytes: Float64Array, cpu_ns: Float64Array, late_ns: Float64Array, num_samples: Int32Array,
  samples: Int32Array,
};
const MAX_SYNC_TRACKS = 3;
const FEWEST_VISIBLE_NS = 10; // deepest zoom

/** Binary buffers by name -> typed arrays by name. A column that is not there is null. */
export function readSpans(columns) {
  const spans = {};
  for (const [name, Type] of Object.entries(TYPES)) spans[name] = columns[name] ? typed(columns[name], Type) : null;
  spans.start ||= new Float64Array(0);
  spans.count = spans.start.length;
  return spans;
}

/** A copy, because a buffer that came over the wire need not be aligned. */
function typed(view, Type) {
  const bytes = ArrayBuffer.isView(view) ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) : view;
  return new Type(bytes);
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

/** One row for every rank: {rank, place, compute, syncs}, of the spans that touch the window. Spans come by rank, then start. */
export function buildRows(spans, ranks, detail, [from, to]) {
  const present = detailsIn(spans);
  const grain = present[detail] ? GRAIN[detail] : present.stage ? GRAIN.stage : GRAIN.layer;
  let at = 0;
  return ranks.map(({ rank, place }) => {
    const compute = [], syncs = [];
    for (; at < spans.count && spans.rank[at] === rank; at++) {
      if (spans.start[at] > to || endOf(spans, at) < from) continue;
      if (spans.grain[at] === GRAIN.sync) syncs.push(at);
      else if (spans.grain[at] === grain || spans.grain[at] === GRAIN.either) compute.push(at);
    }
    return { rank, place, compute: track(spans, compute), syncs: packed(spans, syncs).map((list) => track(spans, list)) };
  });
}

/** A track: span numbers, how far they reach so far, how deep each lies inside others. A span inside one of its own look
    (a wait within a wait) is left out: it would tell nothing. */
export function track(spans, numbers) {
  const seen = withoutEchoes(spans, numbers);
  const index = Uint32Array.from(seen), reach = new Float64Array(index.length), depth = new Uint8Array(index.length);
  const open = []; // spans that contain the present one
  let furthest = -Infinity;
  index.forEach((i, k) => {
    while (open.length && !contains(spans, open[open.length - 1], i)) open.pop();
    depth[k] = Math.min(255, open.length);
    open.push(i);
    reach[k] = furthest = Math.max(furthest, endOf(spans, i));
  });
  return { index, reach, depth };
}

function withoutEchoes(spans, numbers) {
  const last = []; // by look: the span that reaches furthest so far
  return numbers.filter((i) => {
    const look = spans.look[i], before = last[look];
    if (before !== undefined && contains(spans, before, i)) return false;
    if (before === undefined || endOf(spans, i) > endOf(spans, before)) last[look] = i;
    return true;
  });
}

/** Whether span b lies inside the longer span a. Spans that only overlap, or are the same, lie side by side. */
function contains(spans, a, b) {
  return spans.start[b] < endOf(spans, a) && endOf(spans, b) <= endOf(spans, a) && spans.duration[b] < spans.duration[a];
}

/** Overlapping syncs spread over a few lists, each without overlap as long as there are lists enough. */
export function packed(spans, numbers) {
  const lists = [], ends = [];
  for (const i of numbers) {
    let at = ends.findIndex((end) => end <= spans.start[i]);
    if (at < 0) at = ends.length < MAX_SYNC_TRACKS ? ends.length : ends.indexOf(Math.min(...ends));
    (lists[at] ||= []).push(i);
    ends[at] = Math.max(ends[at] ?? -Infinity, endOf(spans, i));
  }
  return lists;
}

/** The longest span that lies directly or deeper inside the k-th of a track; 0 ns where there is none. */
export function longestInside(spans, { index, depth }, k) {
  let longest = 0;
  for (let inner = k + 1; inner < index.length && depth[inner] > depth[k]; inner++) longest = Math.max(longest, spans.duration[index[inner]]);
  return longest;
}

/** Positions [a, b) in a track that can touch the times from..to. */
export function visible(spans, { index, reach }, from, to) {
  const a = firstWhere(index.length, (k) => reach[k] >= from);
  const b = firstWhere(index.length, (k) => spans.start[index[k]] > to);
  return [a, Math.max(a, b)];
}

/** The smallest k in 0..length for which `holds`, which must be false up to some k and true from there on. */
function firstWhere(length, holds) {
  let low = 0, high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

/** The innermost span at a time, or the nearest within `slack` ns (so that a span of one pixel can be hit); -1: none. */
export function spanAt(spans, track, time, slack = 0) {
  const [a, b] = visible(spans, track, time - slack, time + slack);
  let nearest = -1, least = slack;
  for (let k = b - 1; k >= a; k--) {
    const i = track.index[k];
    const away = Math.max(spans.start[i] - time, time - endOf(spans, i), 0);
    if (away === 0 && (spans.duration[i] > 0 || spans.start[i] === time)) return i;
    if (away <= least && slack > 0) { least = away; nearest = i; }
  }
  return nearest;
}

/** The next span to start after a time (direction 1), or the last to have started before it (-1); -1: none. */
export function neighbour(spans, tracks, time, direction) {
  let best = -1;
  for (const { index } of tracks) {
    const after = firstWhere(index.length, (k) => spans.start[index[k]] > time);
    const k = direction > 0 ? after : firstWhere(index.length, (k) => spans.start[index[k]] >= time) - 1;
    if (k < 0 || k >= index.length) continue;
    const i = index[k];
    if (best < 0 || (spans.start[i] - spans.start[best]) * direction < 0) best = i;
  }
  return best;
}

export const tracksOf = (row) => [row.compute, ...row.syncs];

/** For every pixel column the share of its time that each look takes: Float32Array of width x numLooks. */
export function pixelShares(spans, track, [from, to], width, numLooks) {
  const shares = new Float32Array(width * numLooks), scale = width / (to - from);
  const [a, b] = visible(spans, track, from, to);
  for (let k = a; k < b; k++) {
    if (track.depth[k] > 0) continue; // its container already counts
    const i = track.index[k], left = (spans.start[i] - from) * scale, right = left + spans.duration[i] * scale;
    for (let x = Math.max(0, Math.floor(left)); x < right && x < width; x++) {
      shares[x * numLooks + spans.look[i]] += Math.min(right, x + 1) - Math.max(left, x);
    }
  }
  return shares;
}

/** {busy, wait}: ns of from..to in which a row computed, and in which it was blocked (also inside a computation). */
export function timeSpent(spans, { compute }, [from, to], waitLook) {
  const [a, b] = visible(spans, compute, from, to);
  let covered = from, waited = from, busy = 0, wait = 0;
  for (let k = a; k < b; k++) {
    const i = compute.index[k], end = Math.min(to, endOf(spans, i));
    if (spans.look[i] === waitLook) {
      wait += Math.max(0, end - Math.max(waited, spans.start[i]));
      waited = Math.max(waited, end);
    }
    busy += Math.max(0, end - Math.max(covered, spans.start[i]));
    covered = Math.max(covered, end);
  }
  return { busy: busy - wait, wait };
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

/** Positions [a, b) of the messages that can be under way between two times. */
export const messagesWithin = (spans, { from, reach }, start, end) =>
  visible(spans, { index: from, reach }, start, end);

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

/** Round times between two times, at most `most` of them: {every, times}. */
export function ticks([from, to], most) {
  const least = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least * 0.999999);
  const times = [];
  for (let k = Math.ceil(from / every - 1e-9); k * every <= to + every * 1e-9; k++) times.push(k * every + 0); // + 0: no "-0"
  return { every, times };
}

/** A view zoomed about a time and kept inside the bounds. */
export function zoomed([from, to], bounds, factor, about) {
  const whole = bounds[1] - bounds[0];
  const width = Math.min(whole, Math.max(Math.min(whole, FEWEST_VISIBLE_NS), (to - from) * factor));
  const share = Math.min(1, Math.max(0, (about - from) / (to - from)));
  return shifted([about - share * width, about - share * width + width], bounds, 0);
}

/** A view moved by some ns and kept inside the bounds. */
export function shifted([from, to], bounds, by) {
  const width = to - from, start = Math.min(Math.max(from + by, bounds[0]), bounds[1] - width);
  return [start, start + width];
}

/** Heights and tops of rows, in CSS pixels: {left, right, plotBottom, height, rows: [{top, bottom, compute, syncs}]}. */
export function layOut(rows, width, { hasMessages, hasPlaces, hasCollectives }) {
  const narrow = width < 560, count = rows.length;
  const computeHeight = count <= 4 ? 40 : count <= 8 ? 32 : count <= 16 ? 24 : 18;
  const syncHeight = hasCollectives && count <= 8 ? 17 : 7;
  const gap = hasMessages ? (count <= 8 ? 22 : 12) : 12;
  let y = 14; // room for the playhead's handle
  const placed = rows.map((row) => {
    const compute = { top: y, height: computeHeight };
    y += computeHeight;
    const syncs = row.syncs.map(() => { const at = { top: y + 2, height: syncHeight }; y += syncHeight + 2; return at; });
    const bottom = y;
    y += gap;
    return { top: compute.top, bottom, compute, syncs };
  });
  const plotBottom = y - gap + 8;
  const left = narrow ? (hasPlaces ? 62 : 50) : hasPlaces ? 128 : 66;
  return { left, right: width - 12, width, narrow, plotBottom, height: plotBottom + 26, rows: placed };
}

/** The row and track under a point: {row, track}; null between rows. */
export function trackAt(layout, rows, y) {
  for (let r = 0; r < rows.length; r++) {
    const { compute, syncs } = layout.rows[r];
    const inside = (box) => y >= box.top - 1 && y <= box.top + box.height + 1;
    if (inside(compute)) return { row: r, track: rows[r].compute };
    const s = syncs.findIndex(inside);
    if (s >= 0) return { row: r, track: rows[r].syncs[s] };
  }
  return null;
}

/** {row, top, height} of where a span is drawn; null where the present detail leaves it out. */
export function boxOf(spans, rows, layout, i) {
  const r = rows.findIndex((row) => row.rank === spans.rank[i]);
  if (r < 0) return null;
  const holds = ({ index }) => {
    const k = firstWhere(index.length, (k) => index[k] >= i); // span numbers ascend within a track
    return index[k] === i;
  };
  if (holds(rows[r].compute)) return { row: r, ...layout.rows[r].compute };
  const s = rows[r].syncs.findIndex(holds);
  return s < 0 ? null : { row: r, ...layout.rows[r].syncs[s] };
}
