// A pipeline schedule that a reader builds: what may be placed next, when everything runs, what it comes to.
// An order is a list for each rank of [kind, microbatch]; rank r holds stage r. Times are in units of one forward.

/** The microbatch that the next forward (or backward) of a rank would be. */
export const nextOf = (order, kind) => order.filter(([each]) => each === kind).length;

/** Microbatches whose activations a rank holds: forwards done, backwards not yet. */
export const heldBy = (order) => nextOf(order, "F") - nextOf(order, "B");

/** Why a rank cannot do its next forward or backward now; "" when it can. */
export function refusal(orders, rank, kind, { microbatches, maxHeld }) {
  const microbatch = nextOf(orders[rank], kind), last = orders.length - 1;
  if (microbatch >= microbatches) return `rank ${rank} has done all its ${kind === "F" ? "forwards" : "backwards"}`;
  if (kind === "F") {
    if (rank > 0 && nextOf(orders[rank - 1], "F") <= microbatch) return `F${microbatch} on rank ${rank} needs what F${microbatch} on rank ${rank - 1} gives: place that first`;
    if (heldBy(orders[rank]) >= maxHeld) return `rank ${rank} already holds the activations of ${maxHeld} microbatches, and has room for no more: do a backward first`;
    return "";
  }
  if (heldBy(orders[rank]) < 1) return `B${microbatch} on rank ${rank} comes after its own F${microbatch}: place that first`;
  if (rank < last && nextOf(orders[rank + 1], "B") <= microbatch) return `B${microbatch} on rank ${rank} needs the gradient that B${microbatch} on rank ${rank + 1} gives: place that first`;
  return "";
}

/** When everything that is placed runs, each as early as it can: [{rank, kind, microbatch, start, end}]. */
export function clocked(orders, { forward, backward }) {
  const ends = new Map(), slots = [], next = orders.map(() => 0), free = orders.map(() => 0);
  const endOf = (rank, kind, microbatch) => (rank < 0 || rank >= orders.length ? 0 : ends.get(`${rank}${kind}${microbatch}`));
  for (let went = true; went;) {
    went = false;
    orders.forEach((order, rank) => {
      const action = order[next[rank]];
      if (!action) return;
      const [kind, microbatch] = action, ready = endOf(rank + (kind === "F" ? -1 : 1), kind, microbatch);
      if (ready === undefined) return;
      const start = Math.max(free[rank], ready), end = start + (kind === "F" ? forward : backward);
      ends.set(`${rank}${kind}${microbatch}`, end);
      slots.push({ rank, kind, microbatch, start, end });
      free[rank] = end;
      next[rank] += 1;
      went = true;
    });
  }
  return slots;
}

export const isComplete = (orders, microbatches) => orders.every((order) => order.length === 2 * microbatches);

/** Length of all that is placed, and the share of it in which ranks stand still. */
export function summary(orders, durations) {
  const slots = clocked(orders, durations), length = Math.max(0, ...slots.map(({ end }) => end));
  const worked = slots.reduce((sum, { start, end }) => sum + end - start, 0);
  return { length, bubble: length ? 1 - worked / (length * orders.length) : 0 };
}

/** The text that labkit.Plan(order=...) takes: a line of actions for each rank. */
export const orderText = (orders) => orders.map((order, rank) => order.map(([kind, microbatch]) => `${rank}${kind}${microbatch}`).join(",")).join("\n");

/** The other way round; null for what is no such text. */
export function ordersOf(text, ranks) {
  const lines = text.split("\n").map((line) => line.trim());
  if (lines.length !== ranks) return null;
  const orders = lines.map((line, rank) => (line ? line.split(",") : []).map((cell) => {
    const found = /^(\d+)([FB])(\d+)$/.exec(cell.trim());
    return found && Number(found[1]) === rank ? [found[2], Number(found[3])] : null;
  }));
  return orders.flat().includes(null) ? null : orders;
}
