// Numbers and spans in words: labels inside spans, the facts of a hovered span, the picture as text. Pure.

import { endOf, linkedWith, samplesOf, timeSpent, valueOf } from "./geometry.js";

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const MAX_SAMPLES_SHOWN = 16;

/** The unit in which a length of time reads best: [name, ns]. */
export const unitFor = (ns) => UNITS.find(([, size]) => ns >= size * 2) || UNITS[UNITS.length - 1];

/** "20.5 ms". Digits follow the size; `digits` fixes them. */
export function timeText(ns, [name, size] = unitFor(Math.abs(ns)), digits = null) {
  const value = ns / size, magnitude = Math.abs(value);
  return `${value.toFixed(digits ?? (size === 1 || magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2))} ${name}`;
}

/** Decimals that tell a span's start from its end: at least 1, at most 6. */
const digitsFor = (ns, [, size]) => Math.min(6, Math.max(1, 1 - Math.floor(Math.log10(Math.max(1, ns) / size))));

/** "1.5 MiB" */
export function bytesText(bytes) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, bytes)) / 10)), value = bytes / 1024 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** What can stand inside a span, longest first: the first that fits is drawn. */
export function labelsOf(scene, i) {
  const { spans, looks, layers, channels } = scene, look = looks[spans.look[i]];
  const microbatch = valueOf(spans, "microbatch", i), layer = valueOf(spans, "layer", i);
  if (look.name === "sync") {
    const op = opText(channels, spans, i), size = valueOf(spans, "size_bytes", i);
    return size === null ? [op] : [`${op} ${bytesText(size)}`, op];
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
  const digits = digitsFor(spans.duration[i], scene.unit), sinceStart = (t) => timeText(t - scene.window[0], scene.unit, digits);
  facts.push(["from", `${sinceStart(spans.start[i])} to ${sinceStart(endOf(spans, i))}`]);
  facts.push(["took", timeText(spans.duration[i])]);
  if (known("channel") !== null) channelFacts(channels[spans.channel[i]], add);
  add("size", known("size_bytes") === null ? null : bytesText(known("size_bytes")));
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

/** The picture in words, a sentence for each rank. */
export function inWords({ spans, rows, looks, window, detail }) {
  const waitLook = looks.findIndex((look) => look.name === "wait"), whole = window[1] - window[0];
  const percent = (ns) => `${Math.round((100 * ns) / whole)} %`;
  return rows.map((row) => {
    const { busy, wait } = timeSpent(spans, row, window, waitLook);
    const who = `Rank ${row.rank}${row.place ? ` (${row.place})` : ""}`;
    return `${who}: ${percent(busy)} computing, ${percent(wait)} blocked, ${percent(whole - busy - wait)} idle; ` +
      `${row.compute.index.length.toLocaleString("en")} ${detail} spans and waits, ` +
      `${row.syncs.reduce((sum, { index }) => sum + index.length, 0).toLocaleString("en")} syncs.`;
  });
}
