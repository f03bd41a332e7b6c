// The mesh at a moment: where ranks sit, which groups there are, what travels. Pure functions, tested with node.
//
// A *flow* is one communication on all its ranks: {op, axis, ranks, from, to, start, end, bytes, spans}. Messages have
// from and to. What took less than `glow` ns is shown for that long, else no eye would see it.

import { endOf, GRAIN } from "./spans.js";

/** {pp, dp, tp} of a rank; tp varies fastest. */
export const coordinateOf = ({ dp, tp }, rank) => ({ pp: Math.floor(rank / (dp * tp)), dp: Math.floor(rank / tp) % dp, tp: rank % tp });

/** All groups along an axis, each a list of ranks. */
export function groupsOf(degrees, axis) {
  const { pp, dp, tp } = degrees, groups = new Map();
  for (let rank = 0; rank < pp * dp * tp; rank++) {
    const key = Object.entries(coordinateOf(degrees, rank)).filter(([name]) => name !== axis).map(([, at]) => at).join();
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(rank);
  }
  return [...groups.values()];
}

/** Every communication of a time window, by start, and how far they reach: {flows, reach}. A message
 * starts when it is sent, however early its receiver waits; a collective when its last rank has come. */
export function flowsOf(spans, channels, [from, to]) {
  const byLink = new Map();
  for (let i = 0; spans.link && i < spans.count; i++) {
    if (spans.grain[i] !== GRAIN.sync || spans.link[i] < 0 || spans.channel[i] < 0 || spans.start[i] > to || endOf(spans, i) < from) continue;
    const channel = channels[spans.channel[i]], flow = byLink.get(spans.link[i]);
    if (flow) { flow.start = startOfBoth(flow, channel, spans.start[i]); flow.end = Math.max(flow.end, endOf(spans, i)); flow.spans.push(i); }
    else byLink.set(spans.link[i], newFlow(spans, channel, i));
  }
  const flows = [...byLink.values()].sort((a, b) => a.start - b.start), reach = new Float64Array(flows.length);
  flows.forEach((flow, k) => { reach[k] = Math.max(k ? reach[k - 1] : -Infinity, flow.end); });
  return { flows, reach };
}

const startOfBoth = (flow, channel, start) => (!isMessageOp(channel) ? Math.max(flow.start, start) : channel.op === "send" ? start : flow.start);

function newFlow(spans, channel, i) {
  const bytes = spans.size_bytes ? Math.max(0, spans.size_bytes[i]) : 0, op = isMessageOp(channel) ? "message" : channel.op;
  return { ...placesOfFlow(spans, channel, i), op, axis: channel.axis, start: spans.start[i], end: endOf(spans, i), bytes, spans: [i] };
}

const isMessageOp = ({ op, peer }) => (op === "send" || op === "recv") && peer !== null;

function placesOfFlow(spans, channel, i) {
  const { op, group, peer } = channel, rank = spans.rank[i];
  if (!isMessageOp(channel)) return { from: -1, to: -1, ranks: group.length ? group : [rank] };
  const [from, to] = op === "send" ? [rank, peer] : [peer, rank];
  return { from, to, ranks: [from, to] };
}

/** When a flow is shown: from its start to its end, but for `glow` at least. */
export const shownUntil = (flow, glow) => Math.max(flow.end, flow.start + glow);

/** Flows that are shown at t, the latest last. */
export function flowsAt({ flows, reach }, t, glow) {
  let low = 0, high = flows.length;
  while (low < high) { const middle = (low + high) >> 1; if (reach[middle] + glow >= t) high = middle; else low = middle + 1; }
  const found = [];
  for (let k = low; k < flows.length && flows[k].start <= t; k++) if (shownUntil(flows[k], glow) >= t) found.push(flows[k]);
  return found;
}

export const isAlong = ({ axis }, picked) => picked === "all" || axis.split("+").includes(picked);

/** Communications and tensor bytes completed up to t, by axis: Map of {count, bytes}. */
export function trafficUntil({ flows }, t) {
  const totals = new Map();
  for (const { axis, start, end, bytes } of flows) {
    if (start > t) break;
    if (end > t) continue;
    const total = totals.get(axis) || { count: 0, bytes: 0 };
    total.count++; total.bytes += bytes;
    totals.set(axis, total);
  }
  return totals;
}

/** Boxes of ranks and the cells that hold one stage of one replica: {boxes: [{x, y, size}], cells, width, height}. */
export function placeMesh(degrees, width) {
  const { pp, dp, tp } = degrees, narrow = width < 560, acrossPp = pp > 1, columns = acrossPp ? pp : dp, rows = acrossPp ? dp : 1;
  const tpColumns = Math.min(tp, tp > 16 ? 8 : 4), tpRows = Math.ceil(tp / tpColumns), least = tpColumns * (narrow ? 30 : 40) + 14;
  const few = pp * dp * tp <= 16, gap = narrow ? 12 : few ? 60 : 34;
  const perRow = Math.max(1, Math.min(columns, Math.floor((width - 12 + gap) / (least + gap))));
  const cellWidth = Math.min((width - 12 - (perRow - 1) * gap) / perRow, tpColumns * (few ? 118 : 84) + 14), total = perRow * cellWidth + (perRow - 1) * gap;
  const size = Math.max(14, Math.min(few ? 104 : 70, (cellWidth - 14 - (tpColumns - 1) * 8) / tpColumns)), boxHeight = Math.max(22, Math.min(few ? 52 : 44, size));
  const cellHeight = 14 + tpRows * (boxHeight + 10) + 14, rowGap = rows > 1 || columns > perRow ? 24 : 0, top = 38, left = (width - total) / 2;
  const cells = [], boxes = [];
  for (let column = 0; column < columns; column++) for (let row = 0; row < rows; row++) {
    const line = Math.floor(column / perRow) * rows + row, x = left + (column % perRow) * (cellWidth + gap), y = top + line * (cellHeight + rowGap);
    const at = acrossPp ? { pp: column, dp: row } : { pp: 0, dp: column };
    cells.push({ ...at, x, y, width: cellWidth, height: cellHeight });
    for (let k = 0; k < tp; k++) {
      const inset = (cellWidth - (tpColumns * size + (tpColumns - 1) * 8)) / 2;
      boxes[(at.pp * dp + at.dp) * tp + k] = { x: x + inset + (k % tpColumns) * (size + 8), y: y + 14 + Math.floor(k / tpColumns) * (boxHeight + 10), width: size, height: boxHeight };
    }
  }
  const lines = Math.ceil(columns / perRow) * rows;
  return { width, height: top + lines * (cellHeight + rowGap) - rowGap + 14, cells, boxes };
}

const middleOf = ({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 });

/** The curve from one rank's box to another's: [start, control, end]. Sideways it bows up, downwards to the left. */
export function linkCurve(layout, a, b) {
  const from = layout.boxes[a], to = layout.boxes[b], [p, q] = [middleOf(from), middleOf(to)];
  const isSideways = Math.abs(p.x - q.x) > Math.abs(p.y - q.y), far = Math.hypot(p.x - q.x, p.y - q.y);
  if (isSideways) {
    const start = { x: p.x, y: from.y }, end = { x: q.x, y: to.y };
    return [start, { x: (start.x + end.x) / 2, y: Math.max(2, Math.min(start.y, end.y) - 14 - far * 0.06) }, end];
  }
  const start = { x: from.x, y: p.y }, end = { x: to.x, y: q.y };
  return [start, { x: Math.max(2, Math.min(start.x, end.x) - 12 - far * 0.06), y: (start.y + end.y) / 2 }, end];
}

/** The point at share u of a curve. */
export function onCurve([p, c, q], u) {
  const mix = (axis) => (1 - u) ** 2 * p[axis] + 2 * u * (1 - u) * c[axis] + u * u * q[axis];
  return { x: mix("x"), y: mix("y") };
}

/** Links of a group: from each member to the next. */
export const linksOfGroup = (ranks) => ranks.slice(1).map((rank, k) => [ranks[k], rank]);

export const boxAt = ({ boxes }, x, y) => boxes.findIndex((box) => x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height);
