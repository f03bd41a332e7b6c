// Numbers and spans in words: labels inside spans, the facts of a hovered span, the picture as text. Pure.

import { countText, shareText, sizeText, timeText, unitFor } from "./quantities.js";
import { endOf, linkedWith, samplesOf, valueOf } from "./spans.js";
import { timeSpent } from "./tracks.js";

const MAX_SAMPLES_SHOWN = 16;

/** Decimals that tell a span's start from its end: at least 1, at most 6. */
const digitsFor = (ns, [, size]) => Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(Math.max(1, ns) / size))));

/** What can stand inside a span, longest first: the first that fits is drawn. */
export function labelsOf(scene, i) {
  const { spans, looks, layers, channels } = scene, look = looks[spans.look[i]];
  const microbatch = valueOf(spans, "microbatch", i), layer = valueOf(spans, "layer", i);
  if (look.name === "sync") {
    const op = opText(channels, spans, i), size = valueOf(spans, "size_bytes", i);
    return size === null ? [op] : [`${op} ${sizeText(size)}`, op];
  }
  if (look.name === "wait") return [`wait ${opText(channels, spans, i)}`.trim(), "wait"];
  if (layer !== null) return [layers[layer], `${look.short} ${layers[layer].split(".").pop()}`, look.short];
  return microbatch === null ? [look.short] : [`${look.short}${microbatch}`];
}

/** "all_reduce", "send" ... */
export function opText(channels, spans, i) {
  const channel = valueOf(spans, "channel", i);
  return channel === null ? "" : channels[channel].op;
}

/** A time since the window's start, in the window's unit, with decimals that tell ends `length` ns apart. */
export function sinceStartText({ window }, t, length) {
  const unit = unitFor(window[1] - window[0]);
  return timeText(t - window[0], unit, digitsFor(length, unit));
}

/** Everything known about a span: {title, facts: [[name, value]]}. */
export function factsOf(scene, i) {
  const { spans, looks, layers, channels, ranks } = scene, look = looks[spans.look[i]];
  const known = (name) => valueOf(spans, name, i);
  const layer = known("layer"), microbatch = known("microbatch"), op = opText(channels, spans, i);
  const subject = look.name === "sync" ? op || "sync" : look.name === "wait" && op ? `waits for ${op}` : look.label;
  const title = layer === null ? subject : `${subject} · ${layers[layer]}`;
  const { rank, place } = ranks.find((one) => one.rank === spans.rank[i]) || { rank: spans.rank[i], place: "" };
  const facts = [["rank", place ? `${rank} · ${place}` : `${rank}`]];
  const add = (name, value) => value !== null && value !== "" && facts.push([name, value]);
  if (place.startsWith("stages ")) add("stage", known("stage"));
  add("microbatch", microbatch);
  add("step", known("step"));
  const sinceStart = (t) => sinceStartText(scene, t, spans.duration[i]);
  facts.push(["from", `${sinceStart(spans.start[i])} to ${sinceStart(endOf(spans, i))}`]);
  facts.push(["took", timeText(spans.duration[i])]);
  if (known("channel") !== null) channelFacts(channels[spans.channel[i]], add);
  add("size", known("size_bytes") === null ? null : sizeText(known("size_bytes")));
  add("number", known("seq"));
  add("CPU time", known("cpu_ns") === null ? null : timeText(known("cpu_ns")));
  add("late by", known("late_ns") > 0 ? timeText(known("late_ns")) : null);
  add("samples", sampleText(samplesOf(spans, i)));
  add("why", causeText(scene, i));
  return { title, facts };
}

function channelFacts({ op, axis, group, peer, dtype }, add) {
  add("axis", axis);
  if (peer !== null) add(op === "recv" ? "from rank" : "to rank", peer);
  else add("ranks", group.length > 12 ? `${group.slice(0, 12).join(", ")} … (${group.length})` : group.join(", "));
  add("type", dtype);
}

function sampleText(samples) {
  if (!samples.length) return "";
  const more = samples.length - MAX_SAMPLES_SHOWN;
  return samples.slice(0, MAX_SAMPLES_SHOWN).join(", ") + (more > 0 ? ` … (${samples.length})` : "");
}

/** Whom a wait or a collective waited for, as far as the trace tells. */
export function causeText({ spans, looks, channels }, i) {
  const others = linkedWith(spans, i), name = looks[spans.look[i]].name;
  if (others.length < 2 || !["wait", "sync"].includes(name)) return "";
  const op = opText(channels, spans, i);
  if (op === "recv" || op === "send") return name === "wait" && op === "recv" ? senderText(spans, channels, others, i) : "";
  const last = others.reduce((a, b) => (spans.start[b] > spans.start[a] ? b : a));
  const first = others.reduce((a, b) => (spans.start[b] < spans.start[a] ? b : a));
  const late = spans.start[last] - spans.start[first];
  return late > 0 ? `rank ${spans.rank[last]} joined last, ${timeText(late)} after rank ${spans.rank[first]}` : "all ranks joined at once";
}

function senderText(spans, channels, others, i) {
  const send = others.find((k) => opText(channels, spans, k) === "send");
  if (send === undefined) return "";
  const late = spans.start[send] - spans.start[i];
  return late > 0 ? `rank ${spans.rank[send]} sent it only ${timeText(late)} later` : "it was already under way";
}

/** The picture in words, then a sentence for each rank. */
export function inWords({ spans, rows, looks, window, detail }) {
  const waitLook = looks.findIndex((look) => look.name === "wait"), whole = window[1] - window[0];
  const percent = (ns) => shareText(ns, whole);
  const ranks = rows.map((row) => {
    const { busy, wait } = timeSpent(spans, row, window, waitLook);
    const who = `Rank ${row.rank}${row.place ? ` (${row.place})` : ""}`;
    return `${who}: ${percent(busy)} computing, ${percent(wait)} blocked, ${percent(whole - busy - wait)} idle; ` +
      `${countText(row.compute.index.length, `${detail} span`)} and waits, ${countText(row.syncs.reduce((sum, { index }) => sum + index.length, 0), "sync")}.`;
  });
  return [`${countText(rows.length, "rank")} over ${timeText(whole)}.`, ...ranks];
}
