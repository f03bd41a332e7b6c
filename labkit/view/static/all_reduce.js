// The all-reduce scene: ranks as cards that show whose numbers their sums hold, chunks that fly from card to card.

import { asideOf, bytesAt, edgeOf, holdsAt, inTheAir, linksOf, phaseOf, placeRanks, placesOf, roundsOf } from "./all_reduce_geometry.js";
import { FONT, fitText, rimmedText } from "./canvas_text.js";
import { filled } from "./fills.js";
import { choice } from "./markup.js";
import { countText, numberText, sizeText, timeText } from "./quantities.js";
import { eased, renderWith, Scene } from "./scene.js";

const SHAPES = { ring: "on a ring", tree: "on a binary tree", gather: "by gathering and sending back", messages: "by messages" };
const ALL_REDUCE_HINT = "Play: every parcel is a message that was really sent. A rank's columns are its chunks; each bar in a column is one rank's gradient in the sum.";

const NO_NUMBERS = "Numbers inside the messages are not shown: the trace keeps none that belong to one message for certain. " +
  "Set value_limit_bytes in the Plan, and a link or no pace.";

class AllReduceView extends Scene {
  constructor(model, el) { super(model, el, { name: "all-reduce", role: "all-reduce", hint: ALL_REDUCE_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    this.use(this.model.get("call"));
    return "";
  }

  use(number) {
    const call = (this.call = this.model.get("calls")[number]);
    this.rounds = Math.max(0, ...call.sends.map((send) => send.round));
    this.window = [0, this.rounds];
    this.stops = Array.from({ length: this.rounds + 1 }, (_, round) => round);
    this.seconds = Math.min(24, Math.max(5, this.rounds * 1.5));
    if (this.clock) this.clock.seconds = this.seconds;
    this.places = placesOf(call);
    this.links = linksOf(call);
    this.items = [...call.group.map((rank, p) => ({ p, rank })), ...call.sends.map((send, s) => ({ s, row: send.row, rows: [send.row, send.recv_row] }))];
  }

  choices() {
    const calls = this.model.get("calls");
    if (calls.length < 2) return [];
    const groups = new Set(calls.map(({ group }) => group.join()));
    const nameOf = ({ step, group }, k) => `${step === null ? `all-reduce ${k}` : `step ${step}`}${groups.size > 1 ? ` · ranks ${group.join(", ")}` : ""}`;
    const picker = choice("Which all-reduce", calls.map((call, k) => [k, nameOf(call, k)]));
    picker.value = String(this.model.get("call"));
    picker.onchange = () => { this.use(Number(picker.value)); this.restart(); };
    return [picker];
  }

  layOut(width) { return placeRanks(this.call, width); }

  /** Rounds are shown equally long; in the trace each lasts from its first send to its last arrival. */
  nsOf(t) {
    const round = Math.max(1, Math.ceil(t - 1e-9)), sends = roundsOf(this.call)[round] || [];
    const from = Math.min(...sends.map((send) => send.start_ns)), to = Math.max(...sends.map((send) => send.end_ns));
    return from + (t - round + 1) * (to - from);
  }

  momentOf(ns) { return this.call.sends.filter((send) => send.end_ns <= ns).reduce((latest, send) => Math.max(latest, send.round), 0); }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    this.flying = [];
    this.holds = holdsAt(this.call, now.t);
    const air = inTheAir(this.call, now.t);
    this.paintLinks(g, now, air);
    this.call.group.forEach((_, p) => this.paintCard(g, p, now));
    for (const { send, u, i } of air) this.paintParcel(g, send, now.isCalm ? 0.5 : eased(u), i, now);
    this.paintCentre(g, now);
  }

  paintLinks(g, now, air) {
    const { layout, colours } = this, busy = new Set(air.map(({ send }) => `${this.places.get(send.sender)} ${this.places.get(send.receiver)}`));
    for (const [a, b, isTwoWay] of this.links) {
      const from = edgeOf(layout, a, b), to = edgeOf(layout, b, a), isBusy = busy.has(`${a} ${b}`) || busy.has(`${b} ${a}`);
      g.strokeStyle = g.fillStyle = isBusy ? colours.text : colours.muted;
      g.globalAlpha = isBusy ? 1 : 0.55; g.lineWidth = isBusy ? 1.75 : 1;
      g.beginPath(); g.moveTo(from.x, from.y); g.lineTo(to.x, to.y); g.stroke();
      arrowHead(g, from, to);
      if (isTwoWay) arrowHead(g, to, from);
      g.globalAlpha = 1;
    }
  }

  paintCard(g, p, now) {
    const { card, cards } = this.layout, { colours } = this, left = cards[p].x - card.width / 2, top = cards[p].y - card.height / 2;
    const isMarked = [now.hovered, now.selected].some((i) => i >= 0 && this.items[i].p === p);
    const isDone = this.holds[p].every((held) => held.size === this.call.group.length);
    g.fillStyle = colours.page; g.strokeStyle = isMarked ? colours.accent : isDone ? this.fills.sync.base : colours.muted;
    g.lineWidth = isMarked || isDone ? 2 : 1;
    g.beginPath(); g.roundRect(left, top, card.width, card.height, card.isBare ? 5 : 8); g.fill(); g.stroke();
    g.textBaseline = "middle"; g.textAlign = "center"; g.fillStyle = colours.text;
    g.font = `600 ${card.isBare ? 11 : 12}px ${FONT}`;
    const rank = this.call.group[p];
    if (card.isBare) { g.fillText(String(rank), cards[p].x, cards[p].y); return; }
    g.fillText(fitText(g, `rank ${rank}${isDone && card.width > 80 ? " · all" : ""}`, card.width - 6) || String(rank), cards[p].x, top + 10);
    const arriving = inTheAir(this.call, now.t).filter(({ send }) => this.places.get(send.receiver) === p).map(({ send }) => send.chunk);
    paintSums(g, this, this.holds[p], left + 5, top + card.head, card.width - 10, card.height - card.head - card.foot - 5);
    this.paintColumns(g, arriving, left + 5, top + card.head, card);
  }

  /** Below each column its chunk's number; a frame around one that a message is on its way to. */
  paintColumns(g, arriving, left, top, { width, height, head, foot }) {
    const n = this.call.num_chunks, column = (width - 10) / n;
    if (n < 2) return;
    g.font = `11px ${FONT}`; g.lineWidth = 1.5;
    for (let c = 0; c < n; c++) {
      const isArriving = arriving.includes(c);
      g.fillStyle = isArriving ? this.colours.text : this.colours.muted; g.strokeStyle = this.colours.playhead;
      if (foot) g.fillText(String(c), left + (c + 0.5) * column, top + height - head - foot + 4);
      if (isArriving && column > 6) g.strokeRect(left + c * column - 0.5, top - 1, column + 1, height - head - foot - 4);
    }
  }

  paintParcel(g, send, u, i, now) {
    const { layout, colours, call } = this, from = this.places.get(send.sender), to = this.places.get(send.receiver);
    const start = edgeOf(layout, from, to), end = edgeOf(layout, to, from);
    const isTwoWay = this.links.some(([a, b, both]) => both && ((a === from && b === to) || (a === to && b === from)));
    const at = { x: start.x + (end.x - start.x) * u, y: start.y + (end.y - start.y) * u };
    if (isTwoWay) { const { dx, dy } = asideOf(layout, from, to); at.x += dx; at.y += dy; }
    const width = layout.card.isBare ? 10 : 22, height = layout.card.isBare ? 10 : Math.min(28, Math.max(14, call.group.length * 5));
    const held = this.carriedBy(send), item = call.group.length + i, isMarked = now.hovered === item || now.selected === item;
    g.fillStyle = colours.page; g.strokeStyle = isMarked ? colours.accent : colours.playhead; g.lineWidth = 2;
    g.beginPath(); g.roundRect(at.x - width / 2, at.y - height / 2, width, height, 4); g.fill(); g.stroke();
    paintSums(g, this, [held], at.x - width / 2 + 3, at.y - height / 2 + 3, width - 6, height - 6);
    this.flying.push({ item, left: at.x - width / 2 - 4, top: at.y - height / 2 - 4, right: at.x + width / 2 + 4, bottom: at.y + height / 2 + 4 });
    const most = call.num_chunks > 1 ? 4 : 8; // beyond, tags would cover cards; the receiver's framed column tells the chunk
    if (layout.card.isBare || call.group.length > most) return;
    this.paintTag(g, send, at.x, at.y + height / 2 + 9);
  }

  paintTag(g, send, x, y) {
    const { colours, layout } = this, roomy = layout.width >= 560;
    const parts = [send.chunk >= 0 ? `chunk ${send.chunk}` : "", roomy ? sizeText(send.size_bytes) : ""].filter(Boolean);
    const text = parts.join(" · ") || sizeText(send.size_bytes);
    g.font = `600 11px ${FONT}`; g.textAlign = "center"; g.textBaseline = "middle";
    const half = g.measureText(text).width / 2 + 2, at = Math.min(layout.width - half, Math.max(half, x));
    const { card, cards } = layout, covers = (one) => Math.abs(one.x - at) < card.width / 2 + half && Math.abs(one.y - y) < card.height / 2 + 7;
    if (cards.some(covers)) return;
    g.fillStyle = colours.text;
    rimmedText(g, text, at, y, colours.page);
  }

  paintCentre(g, { t }) {
    const { layout: { centre, width }, call, colours } = this;
    const { total } = bytesAt(call, t), round = Math.ceil(t - 1e-9), phase = t >= this.rounds ? "all hold the sum" : phaseOf(call, round);
    const title = round ? `round ${round} of ${this.rounds}` : "before the first round", sum = `${sizeText(total)} sent`;
    g.textAlign = "center"; g.textBaseline = "middle";
    const room = !centre.isLine ? Math.max(100, width - 2 * this.layout.card.width - 36) : width - 16;
    const lines = !centre.isLine ? [title, phase, sum] : [[title, phase, ...(width < 560 ? [] : [sum])].join(" · ")];
    lines.forEach((line, k) => {
      g.font = `${k === 0 ? 600 : 400} ${k === 0 ? 14 : 12}px ${FONT}`;
      g.fillStyle = k === 0 ? colours.text : colours.muted;
      g.fillText(fitText(g, line, room), centre.x, centre.y + (k - (lines.length - 1) / 2) * 19);
    });
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    const parcel = (this.flying || []).find((box) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom);
    if (parcel) return parcel.item;
    const { card, cards } = this.layout || { cards: [] };
    return cards.findIndex((at) => Math.abs(at.x - x) <= card.width / 2 && Math.abs(at.y - y) <= card.height / 2);
  }

  /** Places whose numbers a message carries. */
  carriedBy(send) { return holdsAt(this.call, send.round - 1)[this.places.get(send.sender)][Math.max(0, send.chunk)]; }

  tell(i) { return this.items[i].p === undefined ? this.tellSend(this.call.sends[this.items[i].s]) : this.tellRank(this.items[i].p); }

  tellSend(send) {
    const facts = [
      ["round", send.round], ["carries", send.chunk >= 0 ? `chunk ${send.chunk}` : "the whole tensor"], ["size", sizeText(send.size_bytes)],
      ["sum over", ranksText(this.call, this.carriedBy(send))], ["took", this.tookText(send.end_ns - send.start_ns)],
    ];
    if (send.number !== null) facts.push(["one of its numbers", numberText(send.number)]);
    return { title: `rank ${send.sender} → rank ${send.receiver}`, facts, colour: this.colours.playhead };
  }

  tellRank(p) {
    const { sent, received } = bytesAt(this.call, this.now.t), held = holdsAt(this.call, this.now.t)[p];
    const sums = held.map((places, c) => [held.length > 1 ? `chunk ${c}` : "its sum", `${ranksText(this.call, places)}${this.knownNumber(p, c)}`]);
    return { title: `rank ${this.call.group[p]}`, facts: [["sent", sizeText(sent[p])], ["received", sizeText(received[p])], ...sums.slice(0, 16)], colour: this.fills.sync.base };
  }

  /** A number of the sum that place p holds of chunk c now, where a captured message shows it. */
  knownNumber(p, c) {
    const size = holdsAt(this.call, this.now.t)[p][c].size;
    const shows = this.call.sends.find((send) => send.number !== null && Math.max(0, send.chunk) === c && this.carriedBy(send).size === size &&
      (this.places.get(send.sender) === p || size === this.call.group.length));
    return shows ? ` = ${numberText(shows.number)}` : "";
  }

  tellNow() {
    const { t } = this.now, round = Math.max(1, Math.ceil(t - 1e-9)), sends = roundsOf(this.call)[round] || [];
    const { total, sent, received, busiest } = bytesAt(this.call, t), from = Math.min(...sends.map((send) => send.start_ns)), to = Math.max(...sends.map((send) => send.end_ns));
    const facts = [
      ["messages", sends.length], ["bytes so far", `${sizeText(total)} of ${sizeText(bytesAt(this.call, this.rounds).total)}`],
      ["busiest", `rank ${this.call.group[busiest]}: ${sizeText(sent[busiest])} out, ${sizeText(received[busiest])} in`], ["the real round took", this.tookText(to - from)],
    ];
    return { title: `round ${round} of ${this.rounds}`, facts };
  }

  /** Without a link, a paced run gives messages no length; its waiting for late ranks is all the time there is. */
  tookText(ns) { return ns > 0 ? timeText(ns) : "no set time (the plan sets no link)"; }

  clockText(t) { return `round ${Math.ceil(t - 1e-9)} / ${this.rounds}`; }

  sentences() {
    const { call, rounds } = this, { total, sent, received, busiest } = bytesAt(call, rounds), n = call.group.length;
    const from = Math.min(...call.sends.map((send) => send.start_ns)), to = Math.max(...call.sends.map((send) => send.end_ns));
    return [
      `All-reduce of ${sizeText(call.size_bytes)} over ${countText(n, "rank")} ${SHAPES[call.shape]}: ` +
        `${countText(call.sends.length, "message")} in ${countText(rounds, "round")}, ${sizeText(total)} in all; the real one took ${this.tookText(to - from)}.`,
      `The busiest rank, ${call.group[busiest]}, sent ${sizeText(sent[busiest])} and received ${sizeText(received[busiest])}.`,
      "A round here is what the order of the real sends allows: a rank sends one message and receives one at a time. " +
        "All rounds are shown equally long; real times are told on pointing.",
      ...(call.sends.some((send) => send.number !== null) ? [] : [NO_NUMBERS]),
    ];
  }

  legend() {
    const bar = (fill, outline) => (g, w, h) => { g.fillStyle = fill; g.fillRect(0, 0, w, h); if (outline) { g.strokeStyle = outline; g.strokeRect(0.5, 0.5, w - 1, h - 1); } };
    return [
      [filled(this.fills.backward), "a rank's gradient that is in the sum"], [bar(this.colours.page, this.colours.muted), "not in it yet"],
      [filled(this.fills.sync), "sum complete"], [bar(this.colours.page, this.colours.playhead), "message on its way"],
    ];
  }
}

/** Columns are chunks, bars from top to bottom the group's ranks: filled where their numbers are in the sum. */
function paintSums(g, { call, fills, colours }, chunks, left, top, width, height) {
  const n = call.group.length, column = width / chunks.length, bar = height / n, gap = column > 10 ? 2 : 1;
  chunks.forEach((held, c) => {
    const x = left + c * column + gap / 2, w = Math.max(1, column - gap), isDone = held.size === n;
    for (let p = 0; p < n; p++) {
      const y = top + p * bar, h = Math.max(1, bar - (bar > 4 ? 1.5 : 0.25));
      g.fillStyle = isDone ? fills.sync.base : held.has(p) ? fills.backward.base : colours.soft;
      g.fillRect(x, y, w, h);
      if (!held.has(p) && bar > 5) { g.strokeStyle = colours.muted; g.globalAlpha = 0.5; g.lineWidth = 1; g.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); g.globalAlpha = 1; }
    }
  });
}

function arrowHead(g, from, to) {
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  g.save(); g.translate(to.x, to.y); g.rotate(angle);
  g.beginPath(); g.moveTo(0, 0); g.lineTo(-7, 3.5); g.lineTo(-7, -3.5); g.fill();
  g.restore();
}

function ranksText(call, places) {
  if (places.size === call.group.length) return `all ${places.size} ranks`;
  const ranks = [...places].sort((a, b) => a - b).map((p) => call.group[p]);
  return ranks.length > 8 ? `${ranks.length} ranks` : ranks.length === 1 ? `rank ${ranks[0]} alone` : `ranks ${ranks.join(" + ")}`;
}

const render = renderWith(AllReduceView, "all-reduce");

export default { render };
