// Numbers in words: bytes, times, counts. Pure.

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** The unit in which a length of time reads best: [name, ns]. */
export const unitFor = (ns) => UNITS.find(([, size]) => ns >= size * 2) || UNITS[UNITS.length - 1];

/** "20.5 ms". Digits follow the size; `digits` fixes them. */
export function timeText(ns, [name, size] = unitFor(Math.abs(ns)), digits = null) {
  const value = ns / size, magnitude = Math.abs(value);
  return `${value.toFixed(digits ?? (size === 1 || magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2))} ${name}`;
}

/** A moment of a window, in the window's unit: "349 / 698 ms". */
export function momentText(t, [from, to]) {
  const unit = unitFor(to - from);
  return `${timeText(t - from, unit).replace(/ \S+$/, "")} / ${timeText(to - from, unit)}`;
}

/** "1.5 MiB"; 0 B where nothing is. */
export function sizeText(bytes) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, bytes)) / 10)), value = bytes / 1024 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toPrecision(3)} ${SIZES[power]}`;
}

/** "12 %"; "<1 %" of what is there but small. */
export function shareText(part, whole) {
  const percent = Math.round((100 * part) / Math.max(1, whole));
  return part > 0 && percent < 1 ? "<1 %" : `${percent} %`;
}

/** A captured number, short: "0.0123", "-1.2e-5". */
export function numberText(value) {
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  const text = magnitude >= 1e-3 && magnitude < 1e4 ? value.toPrecision(3) : value.toExponential(1);
  return text.replace("-", "−");
}

/** "1 message", "3 messages" */
export const countText = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
