// The batch flow scene: thumbnails fly to microbatches, microbatches are worked on, gradients are averaged.

import { actTime, flightsOf, gradientAt, placeBatch, realTime, stateOf, workRange } from "./batch_flow_geometry.js";
import { typed } from "./buffers.js";
import { FONT, fitText } from "./canvas_text.js";
import { filled } from "./fills.js";
import { countText, numberText, sizeText, timeText } from "./quantities.js";
import { eased, renderWith, Scene } from "./scene.js";

const BATCH_HINT = "Play: each picture is a sample that was really loaded, and flies to the replica and microbatch that got it.";
const MOST_STOPS = 200;

class BatchFlowView extends Scene {
  constructor(model, el) { super(model, el, { name: "batch-flow", role: "batch flow", hint: BATCH_HINT }); }

  prepare() {
    if (this.model.get("missing")) return this.model.get("missing");
    for (const name of ["pieces", "replicas", "work", "average", "step"]) this[name] = this.model.get(name);
    this.image = this.model.get("image_size");
    this.hasAverage = Boolean(this.average.num);
    this.range = workRange(this.work);
    this.flights = flightsOf(this.pieces);
    this.window = [0, this.hasAverage ? 3 : this.range ? 2 : 1];
    this.seconds = 5 * this.window[1];
    const starts = this.range ? this.work.map((one) => actTime(this.range, one.start_ns)) : [];
    const times = new Set([0, ...this.flights.map(([, arrival]) => arrival), 1, ...starts.slice(0, MOST_STOPS), 2, 2.5, 3]);
    this.stops = [...times].filter((t) => t <= this.window[1]).sort((a, b) => a - b);
    const rowsOf = (piece) => [...piece.rows, ...this.work.filter((one) => one.replica === piece.replica && one.microbatch === piece.microbatch).map((one) => one.row)];
    this.items = this.pieces.map((piece) => ({ row: piece.row, rows: rowsOf(piece) }));
    if (this.hasAverage) this.items.push({ row: this.average.rows[0], rows: this.average.rows });
    const { images, samples } = this.model.get("columns");
    this.pixels = typed(images, Uint8Array);
    this.placeOfSample = new Map([...typed(samples, Int32Array)].map((sample, k) => [sample, k]));
    return "";
  }

  layOut(width) { return placeBatch(this, width); }

  nsOf(t) { return realTime(this.range, t); }

  momentOf(ns) { return this.range ? Math.min(2, Math.max(1, actTime(this.range, ns))) : 0; }

  retheme() { this.atlas = null; super.retheme(); }

  /** All images in one row, in the page's ink. */
  makeAtlas() {
    const [height, width] = this.image, count = Math.max(1, this.placeOfSample.size), perRow = Math.min(count, 64);
    const atlas = new OffscreenCanvas(perRow * width, Math.ceil(count / perRow) * height), g = atlas.getContext("2d");
    const ink = this.theme === "dark" ? [236, 240, 245] : [15, 23, 42];
    for (let k = 0; k < this.placeOfSample.size; k++) {
      const data = g.createImageData(width, height);
      for (let i = 0; i < width * height; i++) data.data.set([...ink, this.pixels[k * width * height + i]], 4 * i);
      g.putImageData(data, (k % perRow) * width, Math.floor(k / perRow) * height);
    }
    return { canvas: atlas, perRow };
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    this.atlas ||= this.makeAtlas();
    g.textBaseline = "middle";
    this.paintHome(g, now);
    for (const card of this.layout.cards) this.paintReplica(g, card, now);
    this.paintSamples(g, now);
    if (this.layout.meet) this.paintMeeting(g, now);
    for (const card of this.layout.cards) this.paintGradient(g, card, now);
  }

  paintHome(g, { t }) {
    const { colours, layout } = this, count = this.pieces.reduce((sum, piece) => sum + piece.num_samples, 0);
    g.textAlign = "left"; g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
    g.fillText(fitText(g, `global batch of step ${this.step}: ${countText(count, "sample")}`, layout.width - 12), 8, 10);
    g.strokeStyle = colours.grid; g.lineWidth = 1;
    for (const { x, y } of layout.home.values()) g.strokeRect(x + 0.5, y + 0.5, layout.size.width - 1, layout.size.height - 1);
  }

  paintReplica(g, card, now) {
    const { colours } = this, { ranks } = this.replicas.find((one) => one.replica === card.replica);
    g.fillStyle = colours.page; g.strokeStyle = colours.line; g.lineWidth = 1;
    g.beginPath(); g.roundRect(card.left, card.top, card.width, card.bottom - card.top, 8); g.fill(); g.stroke();
    g.textAlign = "left"; g.fillStyle = colours.text; g.font = `600 12px ${FONT}`;
    const who = ranks.length === 1 ? [`rank ${ranks[0]}`] : [`replica ${card.replica} · ranks ${ranks.join(", ")}`, `replica ${card.replica}`];
    const fits = who.find((text) => g.measureText(text).width <= card.width - 12);
    g.fillText(fits || String(card.replica), card.left + 7, card.top + 12);
    for (const strip of card.strips) this.paintStrip(g, strip, now);
  }

  paintStrip(g, strip, now) {
    const { colours } = this, piece = this.pieces[strip.p], state = stateOf(piece, this.work, this.range, now.t);
    const isMarked = now.hovered === strip.p || now.selected === strip.p, look = state.now && this.fills[state.now.kind];
    g.fillStyle = colours.soft; g.strokeStyle = isMarked ? colours.accent : look ? look.base : colours.line; g.lineWidth = isMarked || look ? 2 : 1;
    g.beginPath(); g.roundRect(strip.left, strip.top, strip.width, strip.height, 5); g.fill(); g.stroke();
    g.font = `11px ${FONT}`; g.textAlign = "right";
    const word = this.stateWord(state, strip.width), wide = g.measureText(word).width;
    if (look) { g.fillStyle = look.base; g.beginPath(); g.roundRect(strip.left + strip.width - wide - 10, strip.top + 1, wide + 9, 14, 4); g.fill(); }
    g.fillStyle = look ? look.text : colours.text;
    g.fillText(word, strip.left + strip.width - 5, strip.top + 8.5);
    g.textAlign = "left"; g.fillStyle = colours.muted;
    g.fillText(fitText(g, strip.width > 120 ? `microbatch ${piece.microbatch}` : `mb ${piece.microbatch}`, strip.width - wide - 16), strip.left + 5, strip.top + 8.5);
  }

  /** "forward", "backward, stage 1", "done" ... */
  stateWord({ now, forward, backward, num }, width) {
    const roomy = width > 170;
    if (now) {
      const { name, short } = { name: this.lookOf(now.kind).label, short: this.lookOf(now.kind).short };
      return num > 1 ? (roomy ? `${name}, stage ${now.stage}` : `${short} s${now.stage}`) : roomy || width > 130 ? name : short;
    }
    if (num && backward >= num) return roomy ? "gradient ready" : "✓";
    return forward ? (roomy ? `forward ${forward} of ${num}` : `F ${forward}/${num}`) : "";
  }

  lookOf(name) { return this.model.get("looks").find((look) => look.name === name); }

  paintSamples(g, now) {
    const { layout } = this;
    g.imageSmoothingEnabled = false;
    for (const { strips } of layout.cards) for (const { p, slots } of strips) {
      const [leave, arrive] = this.flights[p], u = (now.t - leave) / (arrive - leave), n = slots.length;
      this.pieces[p].samples.forEach((sample, k) => {
        const from = layout.home.get(sample), own = n > 1 ? (u * 1.35 - (0.35 * k) / (n - 1)) : u; // one after the other
        const share = now.isCalm ? Number(own >= 1) : eased(own);
        this.paintThumb(g, sample, from.x + (slots[k].x - from.x) * share, from.y + (slots[k].y - from.y) * share, share > 0 && share < 1);
      });
    }
  }

  paintThumb(g, sample, x, y, isFlying) {
    const { width, height } = this.layout.size, k = this.placeOfSample.get(sample), [ih, iw] = this.image;
    g.fillStyle = this.colours.page; g.fillRect(x, y, width, height);
    if (k !== undefined) g.drawImage(this.atlas.canvas, (k % this.atlas.perRow) * iw, Math.floor(k / this.atlas.perRow) * ih, iw, ih, x, y, width, height);
    else this.paintNumber(g, sample, x, y);
    g.strokeStyle = isFlying ? this.colours.playhead : this.colours.line; g.lineWidth = 1;
    g.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }

  /** A sample without a picture: its number in the data set, where there is room. */
  paintNumber(g, sample, x, y) {
    const { width, height } = this.layout.size;
    g.font = `11px ${FONT}`; g.textAlign = "center"; g.fillStyle = this.colours.text;
    if (height >= 12 && g.measureText(sample).width <= width - 2) g.fillText(sample, x + width / 2, y + height / 2 + 0.5);
  }

  paintMeeting(g, { t, hovered, selected }) {
    const { meet } = this.layout, { colours, average } = this, isMarked = hovered === this.pieces.length || selected === this.pieces.length;
    const isAverage = t >= 2.55, { width } = meet;
    g.strokeStyle = isMarked ? colours.accent : isAverage ? this.fills.sync.base : colours.muted; g.lineWidth = isMarked || isAverage ? 2 : 1;
    g.fillStyle = colours.page;
    if (!isAverage) g.setLineDash([5, 4]);
    g.beginPath(); g.roundRect(meet.x - width / 2, meet.y - 20, width, 40, 9); g.fill(); g.stroke();
    g.setLineDash([]);
    if (isAverage && t >= 3) this.paintAverage(g, meet);
    g.textAlign = "center"; g.fillStyle = colours.muted; g.font = `11px ${FONT}`;
    const title = `average over ${countText(this.replicas.length, "replica")} · ${average.ops.join(", ")} · ${sizeText(average.size_bytes)}`;
    g.fillText(fitText(g, title, width - 12), meet.x, meet.y - 28);
  }

  paintAverage(g, meet) {
    const { numbers } = this.average;
    g.textAlign = "center"; g.fillStyle = this.colours.text; g.font = `600 12px ${FONT}`;
    const sum = numbers ? `average ${numberText(numbers.after)}, of ${numbers.local.map(numberText).join(", ")}` : "the average is back on every replica";
    g.fillText(fitText(g, sum, meet.width - 12), meet.x, meet.y);
  }

  paintGradient(g, card, { t, isCalm }) {
    const done = card.strips.every(({ p }) => { const { num, backward } = stateOf(this.pieces[p], this.work, this.range, t); return num > 0 && backward >= num; });
    const place = this.replicas.findIndex((one) => one.replica === card.replica), numbers = this.average.numbers;
    const calmT = t < 2.55 ? 2 : 3, shown = gradientAt(card, this.layout.meet, isCalm && t > 2 ? calmT : t, place, this.replicas.length);
    const fill = shown.isAverage ? this.fills.sync : this.fills.backward, isReady = done || t > 2;
    const text = !isReady ? "no gradient yet" : numbers ? numberText(shown.isAverage ? numbers.after : numbers.local[place]) : shown.isAverage ? "average" : "gradient";
    g.font = `600 11px ${FONT}`; g.textAlign = "center";
    const width = Math.min(shown.room, g.measureText(text).width + 18);
    if (isReady) {
      g.fillStyle = fill.base; g.strokeStyle = this.colours.page; g.lineWidth = 1.5;
      g.beginPath(); g.roundRect(shown.x - width / 2, shown.y - 10, width, 20, 6); g.fill(); g.stroke();
    }
    g.fillStyle = isReady ? fill.text : this.colours.muted;
    g.fillText(fitText(g, text, isReady ? shown.room - 4 : card.width - 12), shown.x, shown.y + 0.5);
  }

  // ---- pointing and telling -------------------------------------------------------------------------------------------

  itemAt(x, y) {
    const { cards, meet } = this.layout || { cards: [] };
    const strip = cards.flatMap((card) => card.strips).find((box) => x >= box.left && x <= box.left + box.width && y >= box.top && y <= box.top + box.height);
    if (strip) return strip.p;
    return meet && Math.abs(y - meet.y) < 22 && Math.abs(x - meet.x) < meet.width / 2 ? this.pieces.length : -1;
  }

  tell(i) {
    if (i === this.pieces.length) return this.tellAverage();
    const piece = this.pieces[i], { samples, num_samples } = piece, more = num_samples > 12 ? ` … (${num_samples})` : "";
    const work = this.work.filter((one) => one.replica === piece.replica && one.microbatch === piece.microbatch);
    const took = (kind) => timeText(work.filter((one) => one.kind.startsWith(kind)).reduce((sum, one) => sum + one.end_ns - one.start_ns, 0));
    const facts = [["replica", piece.replica], ["loaded by rank", piece.rank], ["in", timeText(piece.end_ns - piece.start_ns)], ["samples", samples.slice(0, 12).join(", ") + more]];
    if (work.length) facts.push(["forward", took("forward")], ["backward", took("backward")]);
    return { title: `microbatch ${piece.microbatch}`, facts, colour: this.fills.forward.base };
  }

  tellAverage() {
    const { num, ops, size_bytes, start_ns, end_ns, numbers } = this.average;
    const facts = [["per rank", `${num} × ${ops.join(", ")}`], ["bytes", sizeText(size_bytes)], ["first start to last end", timeText(end_ns - start_ns)]];
    if (numbers) facts.push(["one number", `${numbers.name}: ${numbers.local.map(numberText).join(", ")} → ${numberText(numbers.after)}`]);
    return { title: "gradients averaged", facts, colour: this.fills.sync.base };
  }

  tellNow() {
    const { t } = this.now;
    if (t < 1) return { title: "samples are dealt out", facts: [["arrived", `${this.flights.filter(([, arrival]) => arrival <= t).length} of ${this.pieces.length} microbatches`]] };
    if (t > 2 && this.hasAverage) return this.tellAverage();
    const ns = realTime(this.range, t), busy = this.range ? this.work.filter((one) => one.start_ns <= ns && one.end_ns > ns) : [];
    const facts = busy.slice(0, 16).map((one) => [`rank ${one.rank}`, `${this.lookOf(one.kind).label}, microbatch ${one.microbatch}`]);
    return { title: "work", facts: facts.length ? facts : [["now", "no microbatch is worked on"]] };
  }

  clockText(t) {
    if (t < 1) return "1 · samples fly";
    if (t > 2 && this.hasAverage) return "3 · averaging";
    return this.range ? `2 · ${timeText(realTime(this.range, Math.min(2, t)) - this.range[0])}` : "samples there";
  }

  sentences() {
    const count = this.pieces.reduce((sum, piece) => sum + piece.num_samples, 0), { average } = this;
    const shown = this.pieces.reduce((sum, piece) => sum + piece.samples.length, 0);
    const listed = ({ samples, num_samples }) => `${samples.slice(0, 16).join(", ")}${num_samples > 16 ? " …" : ""}`;
    return [
      `Step ${this.step}: ${countText(count, "sample")} in ${this.pieces.length} microbatches over ${countText(this.replicas.length, "replica")}.`,
      ...this.pieces.slice(0, 16).map((piece) => `Replica ${piece.replica}, microbatch ${piece.microbatch}: samples ${listed(piece)}.`),
      this.hasAverage ? `Then gradients were averaged: ${average.num} × ${average.ops.join(", ")} on each rank, ${sizeText(average.size_bytes)}.`
        : "The trace holds no averaging of gradients between replicas for this step.",
      ...(this.placeOfSample.size ? [] : ["The samples of this task have no pictures: their numbers in the data set are shown."]),
      "The first and third act show what happened, not how long it took; the second runs at the real times.",
      ...(average.numbers ? [`Numbers are one gradient of ${average.numbers.name}, as captured.`]
        : this.hasAverage ? ["Set value_limit_bytes in the Plan to see the gradients' own numbers."] : []),
      ...(shown < count ? [`${count - shown} samples are not drawn: only the first of each microbatch are.`] : []),
    ];
  }

  legend() {
    const list = [[filled(this.fills.forward), "forward"], [filled(this.fills.backward), "backward, and its gradient"]];
    return this.hasAverage ? [...list, [filled(this.fills.sync), "averaged gradient"]] : list;
  }
}

const render = renderWith(BatchFlowView, "batch flow");

export default { render };
