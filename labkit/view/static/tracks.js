// Spans -> rows and tracks, and searches in them. Pure functions, tested with node.
//
// A *row* is one rank. It holds a *compute track* and one or more *sync tracks*. A track lists span numbers by start and
// knows how far any of its spans so far reaches, so that "what is visible?" and "what is here?" are binary searches, even
// where spans contain others.

import { detailsIn, endOf, GRAIN } from "./spans.js";

const MAX_SYNC_TRACKS = 3;

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
export function firstWhere(length, holds) {
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

/** The time without a span around a moment that none covers: [from, to], within the window; null where one does. */
export function idleAt(spans, track, time, [start, end]) {
  const { index, reach } = track, after = firstWhere(index.length, (k) => spans.start[index[k]] > time);
  const from = after > 0 ? reach[after - 1] : start, to = after < index.length ? spans.start[index[after]] : end;
  return from <= time && time <= to ? [Math.max(from, start), Math.min(to, end)] : null;
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

/** Positions [a, b) of the messages that can be under way between two times. */
export const messagesWithin = (spans, { from, reach }, start, end) =>
  visible(spans, { index: from, reach }, start, end);

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
