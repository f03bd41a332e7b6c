// The play clock on a clock of our own.
import assert from "node:assert/strict";
import { test } from "node:test";

import { createClock } from "../../../labkit/view/static/clock.js";

/** A play clock over 0..1200 ns in 12 s, and `run(seconds)`, which lets that much time pass at 60 frames a second. */
function setUp(options = {}) {
  let now = 0, waiting = null, ticks = 0;
  const clock = createClock({ from: 0, to: 1200, onTick: () => ticks++, frame: (callback) => { waiting = callback; return 1; }, cancel: () => { waiting = null; }, ...options });
  const run = (seconds) => {
    for (const end = now + seconds * 1000; waiting && now < end;) { const callback = waiting; waiting = null; now += 1000 / 60; callback(now); }
  };
  return { clock, run, ticks: () => ticks };
}

test("a second of playing shows its share of the window", () => {
  const { clock, run } = setUp();
  clock.play();
  run(3);
  assert.ok(Math.abs(clock.t - 300) < 5, `${clock.t}`);
  clock.pause();
  run(3);
  assert.ok(Math.abs(clock.t - 300) < 5);
});

test("speed scales it", () => {
  const { clock, run } = setUp();
  clock.speed = 4;
  clock.play();
  run(1);
  assert.ok(Math.abs(clock.t - 400) < 10);
});

test("it stops at the end, and playing again starts over", () => {
  const { clock, run } = setUp();
  clock.seek(1190);
  clock.play();
  run(2);
  assert.deepEqual([clock.t, clock.playing], [1200, false]);
  clock.play();
  assert.equal(clock.t, 0);
});

test("looping starts over by itself", () => {
  const { clock, run } = setUp();
  clock.looping = true;
  clock.play();
  run(13);
  assert.ok(clock.playing && clock.t < 200);
});

test("seeking stays in the window, and a new window starts at its beginning", () => {
  const { clock } = setUp();
  clock.seek(-5);
  assert.equal(clock.t, 0);
  clock.seek(9999);
  assert.equal(clock.t, 1200);
  clock.setWindow(400, 800);
  assert.deepEqual([clock.t, clock.to], [400, 800]);
});

test("with reduced motion it jumps, rarely", () => {
  const { clock, run } = setUp({ isCalm: () => true });
  const seen = new Set();
  clock.play();
  for (let k = 0; k < 42; k++) { run(0.1); seen.add(clock.t); }
  assert.ok(seen.size >= 4 && seen.size <= 8, `${[...seen]}`);
});

test("a tab that was hidden does not leap ahead", () => {
  let callback;
  const clock = createClock({ from: 0, to: 1200, onTick() {}, frame: (given) => { callback = given; return 1; }, cancel() {} });
  clock.play();
  callback(0);
  callback(60_000);
  assert.ok(clock.t <= 10.1);
});
