// What the kernel works out only when a reader asks: the critical path, and why ranks stood still.

import { countText, shareText, timeText } from "./quantities.js";

const MOST_CAUSES = 3; // sentences on one wait

/** Asks the kernel once for each thing. `onNews()` is called when an answer is there. */
export class Answers {
  constructor(model, listenTo, onNews) {
    Object.assign(this, { model, asked: new Set() });
    listenTo("change:paths", onNews);
    listenTo("change:causes", onNews);
  }

  ask(what, key = "") {
    if (this.asked.has(what + key)) return;
    this.asked.add(what + key);
    this.model.send?.({ do: what, step: key === "" ? null : key });
  }

  /** The critical path of a step (null: of all): {steps, segments}; null until it is there. */
  path(step) {
    const found = this.model.get("paths")?.[step ?? ""];
    if (!found) this.ask("path", step ?? "");
    return found || null;
  }

  /** Sentences on why a rank stood still between two times; null until they are there. */
  whyIdle(rank, from, to) {
    if (!this.hasCauses) { this.ask("causes"); return null; }
    return causesWithin(this.model.get("causes"), rank, from, to);
  }

  get hasCauses() { return Boolean(this.model.get("causes")?.gaps); }
}

/** The sentences on a rank's gaps within [from, to], in order of time. */
export function causesWithin({ gaps, sentences }, wanted, from, to) {
  const found = gaps.filter(([rank, start, end]) => rank === wanted && start < to && end > from).map(([, , , place]) => sentences[place]);
  return found.length > MOST_CAUSES ? [...found.slice(0, MOST_CAUSES), `and ${found.length - MOST_CAUSES} more`] : found;
}

/** What a critical path is made of, longest first: [[what, ns]]. */
export function pathParts({ segments }) {
  const parts = new Map();
  for (const [, start, end, what] of segments) parts.set(what, (parts.get(what) || 0) + end - start);
  return [...parts].sort(([, a], [, b]) => b - a);
}

export const pathLength = ({ segments }) => segments.reduce((sum, [, start, end]) => sum + end - start, 0);

/** "Critical path of step 0: 698 ms. work 90 %, late p2p 10 %. It changes ranks 12 times." */
export function pathText(path) {
  const whole = pathLength(path), { steps, segments } = path;
  const of = steps.length === 0 ? "" : steps.length === 1 ? ` of step ${steps[0]}` : ` of steps ${steps[0]} to ${steps[steps.length - 1]}`;
  const parts = pathParts(path).map(([what, ns]) => `${what} ${shareText(ns, whole)}`);
  const changes = segments.filter(([rank], k) => k > 0 && segments[k - 1][0] !== rank).length;
  return `Critical path${of}: ${timeText(whole)}, ${parts.join(", ")}; it changes ranks ${countText(changes, "time")}. Shortening anything else does not end the step sooner.`;
}

/** Pieces of a path on one rank, joined where they touch: [{rank, from, to}]. */
export function pathRuns({ segments }) {
  const runs = [];
  for (const [rank, from, to] of segments) {
    const last = runs[runs.length - 1];
    if (last && last.rank === rank && from <= last.to) last.to = Math.max(last.to, to);
    else runs.push({ rank, from, to });
  }
  return runs;
}
