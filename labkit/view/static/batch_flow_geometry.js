// The batch flow at a moment: where thumbnails are, which microbatch is worked on, where gradients are. Pure, tested with node.
//
// Time has three acts of length 1: samples are dealt out [0, 1], microbatches are worked on at their real times [1, 2],
// gradients meet and come back [2, 3].

const FLIGHT = 0.45; // of the first act: how long one microbatch's samples fly
const GAP = 2; // between thumbnails

/** [departure, arrival] of the k-th of n groups of samples. */
export function flightOf(k, n) {
  const start = n > 1 ? (k / (n - 1)) * (0.92 - FLIGHT) : 0.1;
  return [start, start + FLIGHT];
}

/** Microbatches leave in order of their number: the first of every replica together. */
export function flightsOf(pieces) {
  const numbers = [...new Set(pieces.map(({ microbatch }) => microbatch))].sort((a, b) => a - b);
  return pieces.map(({ microbatch }) => flightOf(numbers.indexOf(microbatch), numbers.length));
}

/** [first start, last end] of the work in ns; null without any. */
export function workRange(work) {
  if (!work.length) return null;
  const from = Math.min(...work.map((one) => one.start_ns)), to = Math.max(...work.map((one) => one.end_ns));
  return [from, Math.max(to, from + 1)];
}

/** The real time at which the second act stands at t; null in the others. */
export const realTime = (range, t) => (range && t >= 1 && t <= 2 ? range[0] + (t - 1) * (range[1] - range[0]) : null);

/** The moment of the second act that shows a real time. */
export const actTime = (range, ns) => 1 + (ns - range[0]) / (range[1] - range[0]);

/** What is done with each piece at t: {now: work under way, forward, backward: number of stages done}. */
export function stateOf(piece, work, range, t) {
  const ns = t < 1 ? -Infinity : t > 2 ? Infinity : realTime(range, t);
  const state = { now: null, forward: 0, backward: 0, num: 0 };
  for (const one of work) {
    if (one.replica !== piece.replica || one.microbatch !== piece.microbatch) continue;
    const isForward = one.kind === "forward";
    if (isForward) state.num++;
    if (ns === null || one.start_ns > ns) continue;
    if (one.end_ns > ns) state.now = one;
    else if (isForward) state.forward++;
    else if (one.kind !== "backward_weight") state.backward++;
  }
  return state;
}

/** Size of thumbnails and places of everything, in CSS pixels. */
export function placeBatch({ pieces, replicas, image, hasAverage }, width) {
  const margin = 8, narrow = width < 560, left = margin, inner = width - 2 * margin;
  const samples = [...new Set(pieces.flatMap((piece) => piece.samples))].sort((a, b) => a - b);
  const size = thumbSize(samples.length, inner), most = Math.max(1, Math.floor((inner + GAP) / (size.width + GAP)));
  const rows = Math.max(1, Math.ceil(samples.length / most)), perRow = Math.max(1, Math.ceil(samples.length / rows)), gridTop = 22;
  const home = new Map(samples.map((sample, k) => [sample, { x: left + (k % perRow) * (size.width + GAP), y: gridTop + Math.floor(k / perRow) * (size.height + GAP) }]));
  let y = gridTop + rows * (size.height + GAP) + 26;
  const wanted = narrow ? 96 : 130, columns = Math.max(1, Math.min(replicas.length, Math.floor((inner + 10) / (wanted + 10))));
  const columnWidth = (inner - (columns - 1) * 10) / columns, cards = [];
  for (let r = 0; r < replicas.length; r += columns) {
    const row = replicas.slice(r, r + columns).map((replica, k) => placeReplica(replica, pieces, size, left + k * (columnWidth + 10), y, columnWidth));
    const bottom = Math.max(...row.map((card) => card.bottom));
    for (const card of row) cards.push({ ...card, bottom, gradient: { x: card.left + columnWidth / 2, y: bottom - 13 } });
    y = bottom + 12;
  }
  const meet = hasAverage ? { x: width / 2, y: y + 40, width: Math.min(inner, 440) } : null;
  return { width, height: y + (meet ? 66 : 4), size, home, cards, meet, columnWidth, gridTop };

  function thumbSize(count, room) {
    const ratio = image[1] / image[0], tallest = count <= 16 ? 34 : count <= 64 ? 22 : count <= 160 ? 18 : count <= 400 ? 12 : 8;
    return { height: tallest, width: Math.min(room, Math.max(4, Math.round(tallest * ratio))) };
  }
}

const HEAD = 22, STRIP_HEAD = 16, FOOT = 30;

function placeReplica({ replica }, pieces, size, left, top, width) {
  const own = pieces.flatMap((piece, p) => (piece.replica === replica ? [p] : [])), columns = columnsFor(own.length, width);
  const each = (width - 8 - (columns - 1) * 4) / columns, perRow = Math.max(1, Math.floor((each - 6 + GAP) / (size.width + GAP)));
  const strips = [];
  let y = top + HEAD, tallest = 0;
  own.forEach((p, k) => {
    const { samples } = pieces[p], at = left + 4 + (k % columns) * (each + 4);
    if (k % columns === 0 && k) { y += tallest + 4; tallest = 0; }
    const strip = { p, left: at, top: y, width: each, height: STRIP_HEAD + Math.ceil(samples.length / perRow) * (size.height + GAP) + 3 };
    strip.slots = samples.map((_, s) => ({ x: at + 3 + (s % perRow) * (size.width + GAP), y: strip.top + STRIP_HEAD + Math.floor(s / perRow) * (size.height + GAP) }));
    tallest = Math.max(tallest, strip.height);
    strips.push(strip);
  });
  return { replica, left, top, width, strips, bottom: y + tallest + 4 + FOOT };
}

/** Microbatches side by side: as many as there is room for, in equal rows if that can be. */
function columnsFor(count, width) {
  const most = Math.max(1, Math.min(count, Math.floor(width / 200)));
  for (let columns = most; columns > most / 2; columns--) if (count % columns === 0) return columns;
  return most;
}

/** Where the gradient of the k-th of n replicas is in the third act, and whether it is the average: {x, y, room, isAverage}. */
export function gradientAt(card, meet, t, k, n) {
  const { x, y } = card.gradient, room = card.width - 10;
  if (!meet || t <= 2) return { x, y, room, isAverage: false };
  const u = Math.min(1, t - 2), isAverage = u >= 0.55, way = isAverage ? 1 - (u - 0.55) / 0.45 : Math.min(1, u / 0.45), smooth = way * way * (3 - 2 * way);
  const slot = meet.x + ((k + 0.5) / n - 0.5) * (meet.width - 8); // gradients come in side by side
  return { x: x + (slot - x) * smooth, y: y + (meet.y - y) * smooth, room: Math.min(room, Math.max(8, (meet.width - 8) / n - 4)), isAverage };
}
