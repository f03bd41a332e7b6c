// An all-reduce at a moment: who holds whose share, where ranks sit, where messages are. Pure functions, tested with node.
//
// Time counts rounds: at 2.5 the messages of round 3 are half way. `holds[p][c]` lists the places in the group whose
// numbers are in the sum that place p holds of chunk c.

/** Chunks of a send as indices: its own, or all where it carries the whole tensor. */
export const chunksOf = ({ num_chunks }, { chunk }) => (chunk >= 0 ? [chunk] : Array.from({ length: num_chunks }, (_, c) => c));

const known = new WeakMap(); // call -> who holds what after each round: worked out once, for it is asked in every frame

/** Who holds whose share at time t: Set of places, by place and chunk; not to be changed. A message counts once it has arrived. */
export function holdsAt(call, t) {
  if (!known.has(call)) known.set(call, [call.group.map((_, p) => Array.from({ length: call.num_chunks }, () => new Set([p])))]);
  const rounds = known.get(call), last = Math.min(Math.floor(t + 1e-9), roundsOf(call).length - 1);
  while (rounds.length <= last) rounds.push(afterRound(call, rounds[rounds.length - 1], roundsOf(call)[rounds.length]));
  return rounds[Math.max(0, last)];
}

/** What is held once these sends, which all left together, have arrived. What does not change is shared. */
function afterRound(call, before, sends) {
  const places = placesOf(call), after = before.map((chunks) => chunks.slice());
  for (const send of sends) for (const c of chunksOf(call, send)) {
    const to = places.get(send.receiver);
    after[to][c] = new Set([...after[to][c], ...before[places.get(send.sender)][c]]);
  }
  return after;
}

const sorted = new WeakMap();

/** Sends by round: [[], [first round's], ...]. */
export function roundsOf(call) {
  if (!sorted.has(call)) {
    const rounds = Array.from({ length: 1 + Math.max(0, ...call.sends.map((send) => send.round)) }, () => []);
    call.sends.forEach((send, i) => rounds[send.round].push(Object.assign(send, { place: i })));
    sorted.set(call, rounds);
  }
  return sorted.get(call);
}

export const placesOf = ({ group }) => new Map(group.map((rank, p) => [rank, p]));

/** Sends in the air at time t with the share of the way they have made: [{send, u, i}]. */
export function inTheAir(call, t) {
  const round = Math.ceil(t - 1e-9), u = t - (round - 1);
  return u > 1e-9 && u < 1 - 1e-9 ? (roundsOf(call)[round] || []).map((send) => ({ send, u, i: send.place })) : [];
}

/** What travels in a round: sums that still grow, or results that only spread. */
export function phaseOf(call, round) {
  if (round < 1) return "every rank holds its own";
  const all = call.group.length, before = holdsAt(call, round - 1), places = placesOf(call);
  const ofRound = roundsOf(call)[round] || [];
  if (!ofRound.length) return "";
  const isResult = (send) => chunksOf(call, send).every((c) => before[places.get(send.sender)][c].size === all);
  const results = ofRound.filter(isResult).length;
  return results === ofRound.length ? "results spread" : results ? "sums grow, results spread" : "sums grow";
}

/** Bytes up to time t: {total, busiest: {link, bytes}, sent: by place, received: by place}. */
export function bytesAt(call, t) {
  const places = placesOf(call), sent = call.group.map(() => 0), received = call.group.map(() => 0), links = new Map();
  let total = 0;
  for (const send of call.sends) {
    if (send.round > t + 1e-9) continue;
    total += send.size_bytes;
    sent[places.get(send.sender)] += send.size_bytes;
    received[places.get(send.receiver)] += send.size_bytes;
    const link = `${send.sender} → ${send.receiver}`;
    links.set(link, (links.get(link) || 0) + send.size_bytes);
  }
  const handled = sent.map((bytes, p) => bytes + received[p]), busiest = handled.indexOf(Math.max(...handled));
  return { total, sent, received, links, busiest };
}

/** Pairs of places that ever speak: [[from, to, two-way]], each pair once. */
export function linksOf(call) {
  const places = placesOf(call), found = new Map();
  for (const { sender, receiver } of call.sends) {
    const a = places.get(sender), b = places.get(receiver), back = found.get(`${b} ${a}`);
    if (back) back[2] = true;
    else if (!found.has(`${a} ${b}`)) found.set(`${a} ${b}`, [a, b, false]);
  }
  return [...found.values()];
}

/** Centres and size of the ranks' cards: {width, height, card: {width, height, isBare}, cards: [{x, y}], centre}. */
export function placeRanks(call, width) {
  const n = call.group.length, card = cardSize(call, width);
  if (call.shape !== "ring" && call.shape !== "messages") return onTree(call, width, card);
  if (n > MOST_ROUND) return inRows(n, width, card);
  return n > (width < 560 ? 4 : width < 800 ? 8 : MOST_ROUND) ? inColumns(n, width, card) : onCircle(n, width, card);
}

const MOST_ROUND = 32; // ranks on a circle; more lie in rows
const CARD_HEAD = 17; // the line with the rank's number

function cardSize(call, width) {
  const n = call.group.length, narrow = width < 560;
  const most = n <= 4 ? (narrow ? 84 : 132) : n <= 8 ? (narrow ? 60 : 96) : n <= 16 ? (narrow ? 36 : 60) : 26;
  const isBare = n > 16;
  const foot = isBare || call.num_chunks < 2 || n > 8 || (n > 4 && narrow) ? 0 : 13; // the chunks' numbers
  return { width: most, height: isBare ? 22 : CARD_HEAD + foot + (n <= 4 ? 50 : n <= 8 ? 42 : narrow ? 24 : 36), isBare, head: CARD_HEAD, foot };
}

function onCircle(n, width, card) {
  const margin = 12, rx = Math.min(width / 2 - card.width / 2 - margin, 330);
  const ry = n <= 2 ? 0 : Math.max(width < 560 ? 150 : n <= 4 ? 128 : 160, (n * (card.height + 8)) / 3.6), middle = width / 2, top = margin + card.height / 2;
  const height = 2 * (ry + top) + (n <= 2 ? 74 : 0);
  const cards = Array.from({ length: n }, (_, p) => {
    const angle = n <= 2 ? Math.PI * (1 + p) : -Math.PI / 2 + (2 * Math.PI * p) / n;
    return { x: middle + rx * Math.cos(angle), y: (n <= 2 ? top : height / 2) + ry * Math.sin(angle) };
  });
  return { width, height, card, cards, centre: { x: middle, y: n <= 2 ? height - 34 : height / 2 } };
}

/** A ring that has no room for a circle: down on the right, up on the left, with room for messages between cards. */
function inColumns(n, width, card) {
  const margin = 12, down = Math.ceil(n / 2), step = card.height + (card.isBare ? 16 : 40), top = margin + card.height / 2;
  const right = width - margin - card.width / 2, left = margin + card.width / 2, height = 2 * top + (down - 1) * step;
  const cards = Array.from({ length: n }, (_, p) => (p < down ? { x: right, y: top + p * step } : { x: left, y: height - top - (p - down) * step }));
  return { width, height, card, cards, centre: { x: width / 2, y: height / 2 } };
}

/** A ring of many: row after row, to the right and back. */
function inRows(n, width, card) {
  const margin = 12, step = card.width + 16, perRow = Math.max(2, Math.floor((width - 2 * margin + 16) / step)), rowHeight = card.height + 18, top = margin + 34;
  const cards = Array.from({ length: n }, (_, p) => {
    const row = Math.floor(p / perRow), k = p % perRow, at = row % 2 ? perRow - 1 - k : k;
    return { x: margin + card.width / 2 + at * step, y: top + card.height / 2 + row * rowHeight };
  });
  return { width, height: top + Math.ceil(n / perRow) * rowHeight, card, cards, centre: { x: width / 2, y: 18, isLine: true } };
}

/** The root on top; below it each rank under the one it reports to, spread by place. */
function onTree(call, width, card) {
  const n = call.group.length, parent = (p) => (call.shape === "gather" ? 0 : p - (p & -p));
  const depthOf = (p) => (p === 0 ? 0 : 1 + depthOf(parent(p)));
  const depths = call.group.map((_, p) => depthOf(p)), deepest = Math.max(...depths), margin = 12;
  const perRow = Math.max(1, Math.floor((width - 2 * margin + 6) / (card.width + 6)));
  const rows = []; // a level that does not fit takes several rows
  for (let d = 0; d <= deepest; d++) {
    const level = depths.flatMap((depth, p) => (depth === d ? [p] : []));
    for (let k = 0; k < level.length; k += perRow) rows.push(level.slice(k, k + perRow));
  }
  const gap = rows.length > 8 ? 22 : rows.length > 4 ? 40 : 62, top = margin + 34, cards = [];
  rows.forEach((row, r) => row.forEach((p, k) => {
    cards[p] = { x: margin + ((k + 0.5) / row.length) * (width - 2 * margin), y: top + card.height / 2 + r * (card.height + gap) };
  }));
  return { width, height: top + rows.length * (card.height + gap) - gap + margin, card, cards, centre: { x: width / 2, y: 18, isLine: true } };
}

/** How far beside a two-way link a message flies, so that two that meet do not cover each other: {dx, dy}. */
export function asideOf({ cards, card }, from, to) {
  const a = cards[from], b = cards[to], length = Math.hypot(b.x - a.x, b.y - a.y) || 1, aside = card.isBare ? 5 : 12;
  return { dx: (-(b.y - a.y) / length) * aside, dy: ((b.x - a.x) / length) * aside };
}

/** The point where the line from one card's centre to another's leaves the first card. */
export function edgeOf({ card, cards }, from, to) {
  const a = cards[from], b = cards[to], dx = b.x - a.x, dy = b.y - a.y;
  const share = Math.min(dx ? (card.width / 2 + 3) / Math.abs(dx) : Infinity, dy ? (card.height / 2 + 3) / Math.abs(dy) : Infinity, 0.5);
  return { x: a.x + dx * share, y: a.y + dy * share };
}
