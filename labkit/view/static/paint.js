// Drawing the timeline on a canvas: a static layer of spans and labels, and what moves in every frame. A *scene* is the
// TimelineView: spans, rows, layout, view, looks, tables of names, colours.

import { FONT, rimmedText, textWidth } from "./canvas_text.js";
import { endOf, linkedWith, valueOf } from "./spans.js";
import { boxOf } from "./timeline_geometry.js";
import { longestInside, messagesWithin, pixelShares, spanAt, visible } from "./tracks.js";
import { labelsOf, opText } from "./wording.js";

const MOST_MESSAGES = 600; // more at once say nothing: then only those under way are drawn
const OTHER_STEP = 0.25; // opacity of what belongs to another step than the chosen one
const MOST_OUTLINED = 50_000; // spans; beyond, the outline of the present ones costs more than it tells

// ---- the static layer -------------------------------------------------------------------------------------------------

/** All spans of the view. */
export function paintSpans(g, scene) {
  g.textAlign = "center"; g.textBaseline = "middle";
  scene.rows.forEach((row, r) => {
    const place = scene.layout.rows[r];
    paintIdle(g, scene, place.compute);
    paintTrack(g, scene, row.compute, place.compute);
    row.syncs.forEach((track, s) => { paintRail(g, scene, place.syncs[s]); paintTrack(g, scene, track, place.syncs[s]); });
  });
}

function paintIdle(g, scene, { top, height }) {
  const { layout, window } = scene, idle = scene.fills.idle;
  const left = Math.max(layout.left, scene.xOf(window[0])), right = Math.min(layout.right, scene.xOf(window[1]));
  g.fillStyle = idle.fill;
  g.beginPath(); g.roundRect(left, top, Math.max(0, right - left), height, 4); g.fill();
}

function paintRail(g, { layout, colours }, { top, height }) {
  g.fillStyle = colours.rail;
  g.fillRect(layout.left, top + height / 2 - 0.5, layout.right - layout.left, 1);
}

function paintTrack(g, scene, track, box) {
  const width = Math.floor(scene.layout.right - scene.layout.left);
  const [a, b] = visible(scene.spans, track, ...scene.view);
  if (b - a > 2 * width) return paintShares(g, scene, track, box, width);
  const roomy = b - a < width / 5; // then a gap between spans is worth its pixel
  for (let k = a; k < b; k++) paintSpan(g, scene, track, k, box, roomy);
  g.globalAlpha = 1;
}

/** More spans than pixels: each pixel column is a stack of what its time went to. */
function paintShares(g, scene, track, { top, height }, width) {
  const { spans, fillList: fills, view, layout } = scene, shares = pixelShares(spans, track, view, width, fills.length);
  for (let x = 0; x < width; x++) {
    let y = top + height;
    for (let look = 0; look < fills.length; look++) {
      const part = Math.min(1, shares[x * fills.length + look]) * height;
      if (part < 0.2) continue;
      g.fillStyle = fills[look].base;
      g.fillRect(layout.left + x, Math.max(top, y - part), 1, Math.min(part, y - top));
      y -= part;
    }
  }
}

function paintSpan(g, scene, track, k, box, roomy) {
  const i = track.index[k], left = scene.xOf(scene.spans.start[i]), whole = scene.xOf(endOf(scene.spans, i)) - left;
  const width = Math.max(whole === 0 ? 2 : 0.75, whole - (roomy && whole > 4 ? 1.25 : 0)), { top, height } = nestedBox(track.depth[k], box);
  const fill = scene.fillList[scene.spans.look[i]];
  const strength = isOfOtherStep(scene, i) ? OTHER_STEP : 1;
  g.globalAlpha = strength;
  g.fillStyle = fill.fill;
  const before = Math.min(width, scene.xOf(scene.joined[i]) - left); // of a sync: pixels until its last rank joined
  if (before > 1) paintUnjoined(g, left, top, before, height, strength);
  paintBlock(g, left + Math.max(0, before), top, Math.max(0.75, width - Math.max(0, before)), height);
  if (width < 15 || height < 12 || strength < 1) return;
  if (before > width / 2) return paintLabel(g, scene, i, { text: scene.colours.text }, left, before, { top, height });
  const inside = scene.xOf(scene.spans.start[i] + longestInside(scene.spans, track, k)) - left;
  const holds = inside > 8; // then its lower part is covered
  const solid = Math.max(0, before);
  paintLabel(g, scene, i, fill, left + solid, width - solid, holds ? { top, height: height * 0.58 } : { top, height });
}

function paintBlock(g, left, top, width, height) {
  if (width > 5) { g.beginPath(); g.roundRect(left, top, width, height, Math.min(4, width / 3)); g.fill(); }
  else g.fillRect(left, top, width, height);
}

/** The part of a sync in which a rank was still missing is pale: nothing moved yet. */
function paintUnjoined(g, left, top, width, height, strength) {
  g.globalAlpha = strength * 0.3;
  paintBlock(g, left, top, width, height);
  g.globalAlpha = strength;
}

/** Ranks do not change steps together: a window of one step also shows ends and beginnings of others, faintly. */
const isOfOtherStep = ({ spans, step }, i) => step !== null && valueOf(spans, "step", i) !== null && spans.step[i] !== step;

/** A span inside another is drawn in the other's lower part, so that both can be read. */
export function nestedBox(depth, { top, height }) {
  return depth === 0 ? { top, height } : { top: top + height * 0.58, height: height * 0.42 - 1 };
}

function paintLabel(g, scene, i, fill, left, width, { top, height }) {
  if (height < 11) return;
  const seen = [Math.max(left, scene.layout.left), Math.min(left + width, scene.layout.right)], room = seen[1] - seen[0] - 2;
  g.font = `600 ${height >= 22 && width >= 26 ? 12 : 11}px ${FONT}`;
  const label = labelsOf(scene, i).find((text) => textWidth(g, text) <= room);
  if (!label) return;
  const x = (seen[0] + seen[1]) / 2, y = top + height / 2 + 0.5;
  g.fillStyle = fill.text;
  if (fill.patterned) rimmedText(g, label, x, y, fill.base);
  else g.fillText(label, x, y);
}

// ---- a frame ----------------------------------------------------------------------------------------------------------

/** What moves; x: the playhead. `now`: {t, isStarted, hovered, selected, isCalm}. */
export function paintMoment(g, scene, now, x) {
  if (now.isStarted && scene.spans.count < MOST_OUTLINED) paintPresent(g, scene, now.t, x);
  paintMessages(g, scene, now);
  paintMarked(g, scene, now);
}

/** Names of the ranks, left of the axis. */
export function paintNames(g, { layout, rows, colours, focusRow }) {
  g.textAlign = "left"; g.textBaseline = "middle";
  rows.forEach((row, r) => {
    const { compute, top, bottom } = layout.rows[r], middle = compute.top + compute.height / 2;
    const twoLines = row.place && bottom - top >= 30, y = twoLines ? middle - 7 : middle;
    if (r === focusRow) { g.fillStyle = colours.accent; g.fillRect(0, top, 3, bottom - top); }
    g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
    const name = `rank ${row.rank}`;
    g.fillText(name, 8, y);
    if (!row.place) return;
    g.fillStyle = colours.muted; g.font = `11px ${FONT}`;
    if (twoLines) g.fillText(layout.narrow ? abbreviated(row.place) : row.place, 8, middle + 8);
    else if (!layout.narrow) g.fillText(abbreviated(row.place), 70, y);
  });
}

/** "stage 1 · dp 0" -> "s1 d0" */
const abbreviated = (place) => place.split(" · ").map((part) => part[0] + part.slice(part.indexOf(" ") + 1)).join(" ");

/** What runs at time t: full strength to its end, and an outline. */
function paintPresent(g, scene, t, x) {
  const { spans, rows, layout, colours } = scene;
  rows.forEach((row, r) => {
    const i = spanAt(spans, row.compute, t);
    if (i < 0 || spans.duration[i] === 0) return;
    const { top, height } = layout.rows[r].compute;
    const left = Math.max(layout.left, scene.xOf(spans.start[i])), right = Math.min(layout.right, scene.xOf(endOf(spans, i)));
    if (right - left < 3) return;
    scene.copyLayer(g, Math.max(x, left), right, 0.6, top, height);
    g.strokeStyle = colours.text; g.lineWidth = 1.5;
    g.beginPath(); g.roundRect(left + 0.75, top + 0.75, right - left - 2.5, height - 1.5, 4); g.stroke();
  });
}

function paintMessages(g, scene, now) {
  const { spans, messages, view } = scene;
  let [a, b] = messagesWithin(spans, messages, ...view);
  const crowded = b - a > MOST_MESSAGES;
  if (crowded) [a, b] = messagesWithin(spans, messages, now.t, now.t);
  for (let k = a; k < b; k++) {
    const send = messages.from[k], receive = messages.to[k];
    const isUnderWay = now.isStarted && spans.start[send] <= now.t && now.t <= endOf(spans, receive);
    const isMarked = [now.hovered, now.selected].some((i) => i >= 0 && i < spans.count && concerns(spans, i, send, receive));
    if (crowded && !isUnderWay && !isMarked) continue;
    const isFuture = now.isStarted && spans.start[send] > now.t;
    paintMessage(g, scene, send, receive, { isUnderWay, isMarked, isFuture, now });
  }
}

/** Whether a span is one end of a message, waits for it, or works on its microbatch. */
function concerns(spans, i, send, receive) {
  if (i === send || i === receive) return true;
  const link = valueOf(spans, "link", i);
  if (link !== null) return link === spans.link[send];
  const same = (name) => valueOf(spans, name, i) !== null && valueOf(spans, name, i) === valueOf(spans, name, send);
  return same("microbatch") && same("step");
}

function paintMessage(g, scene, send, receive, { isUnderWay, isMarked, isFuture, now }) {
  const { spans, layout, colours, rowAt } = scene, from = layout.rows[rowAt.get(spans.rank[send])], to = layout.rows[rowAt.get(spans.rank[receive])];
  if (!from || !to) return;
  const isDown = to.top > from.top, start = spans.start[send], end = Math.max(start, endOf(spans, receive));
  const x0 = scene.xOf(start), x1 = scene.xOf(end), y0 = isDown ? from.bottom + 1 : from.top - 1, y1 = isDown ? to.top - 1 : to.bottom + 1;
  const middle = (y0 + y1) / 2, strong = isMarked || isUnderWay;
  const isFar = Math.abs(rowAt.get(spans.rank[send]) - rowAt.get(spans.rank[receive])) > 1; // crosses other rows
  g.globalAlpha = strong ? 1 : isFuture ? 0.28 : isFar ? 0.45 : 0.75;
  g.strokeStyle = g.fillStyle = isMarked ? colours.accent : strong ? colours.text : colours.muted;
  g.lineWidth = strong ? 1.75 : 1;
  g.beginPath(); g.moveTo(x0, y0); g.bezierCurveTo(x0, middle, x1, middle, x1, y1); g.stroke();
  const back = isDown ? -6 : 6;
  g.beginPath(); g.moveTo(x1, y1); g.lineTo(x1 - 3.25, y1 + back); g.lineTo(x1 + 3.25, y1 + back); g.fill();
  if (isUnderWay && !now.isCalm) paintParcel(g, colours, (now.t - start) / Math.max(1, end - start), [x0, y0], [x0, middle], [x1, middle], [x1, y1]);
  g.globalAlpha = 1;
}

/** The message on its way: a dot at share u of the curve. */
function paintParcel(g, colours, u, ...points) {
  const weights = [(1 - u) ** 3, 3 * u * (1 - u) ** 2, 3 * u * u * (1 - u), u ** 3];
  const at = (axis) => points.reduce((sum, point, k) => sum + weights[k] * point[axis], 0);
  g.beginPath(); g.arc(at(0), at(1), 4.5, 0, 7);
  g.fillStyle = colours.playhead; g.fill();
  g.strokeStyle = colours.page; g.lineWidth = 1.5; g.stroke();
}

/** Outlines of the hovered and the selected span, and the line that ties a collective together. */
function paintMarked(g, scene, { hovered, selected }) {
  for (const i of new Set([selected, hovered])) {
    if (i < 0 || i >= scene.spans.count) continue;
    const isMessage = ["send", "recv"].includes(opText(scene.channels, scene.spans, i));
    const others = isMessage ? [] : linkedWith(scene.spans, i);
    if (others.length > 1) paintTie(g, scene, others);
    for (const other of others) outline(g, scene, other, scene.colours.accent, 1.5);
    outline(g, scene, i, scene.colours.text, 2.25);
  }
}

function outline(g, scene, i, colour, width) {
  const box = boxOf(scene.spans, scene.rows, scene.layout, i);
  if (box) outlineBox(g, scene, box, [scene.spans.start[i], endOf(scene.spans, i)], colour, width);
}

/** A frame around a stretch of time in a box. */
export function outlineBox(g, scene, { top, height }, [from, to], colour, width) {
  const left = scene.xOf(from), right = Math.max(left + 3, scene.xOf(to));
  g.strokeStyle = colour; g.lineWidth = width;
  g.beginPath(); g.roundRect(left - 1, top - 1, right - left + 1, height + 2, 5); g.stroke();
}

/** From the moment each rank joined a collective to the next rank's, and so for the moments it was done. */
function paintTie(g, scene, members) {
  const points = members
    .map((i) => ({ i, box: boxOf(scene.spans, scene.rows, scene.layout, i) })).filter(({ box }) => box)
    .sort((one, other) => one.box.top - other.box.top);
  g.strokeStyle = scene.colours.accent; g.lineWidth = 1.5;
  for (const [edge, dash] of [[(i) => scene.spans.start[i], [4, 3]], [(i) => endOf(scene.spans, i), []]]) {
    g.setLineDash(dash);
    g.beginPath();
    for (const { i, box } of points) { const x = scene.xOf(edge(i)); g.lineTo(x, box.top); g.lineTo(x, box.top + box.height); }
    g.stroke();
  }
  g.setLineDash([]);
}
