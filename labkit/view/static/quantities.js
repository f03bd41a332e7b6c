// Numbers in words, for scenes: bytes, times, counts. Pure.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

/** "1.5 MiB"; 0 B where nothing is. */
export function sizeText(bytes) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, bytes)) / 10)), value = bytes / 1024 ** power;
  return `${value >= 100 || power === 0 ? Math.round(value) : value.toPrecision(3)} ${SIZES[power]}`;
}

/** "20.5 ms" */
export function spanText(ns) {
  const [name, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, least]) => Math.abs(ns) >= least * 2) || ["ns", 1];
  const value = ns / size, magnitude = Math.abs(value);
  return `${value.toFixed(size === 1 || magnitude >= 100 ? 0 : magnitude >= 10 ? 1 : 2)} ${name}`;
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
