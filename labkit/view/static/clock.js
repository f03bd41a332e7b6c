// The play clock: which time of the trace is shown now. Knows nothing of drawing.

const CALM_STEPS = 24; // with reduced motion the playhead jumps, this often in a whole window
const CALM_SECONDS = 0.7;

/** A clock over the window [from, to]. `onTick(t)` after each move; `frame` and `isCalm` can be replaced in tests. */
export function createClock({ from, to, seconds = 12, onTick, onState = () => {}, isCalm = () => false,
  frame = (callback) => requestAnimationFrame(callback), cancel = (handle) => cancelAnimationFrame(handle) }) {
  const clock = { t: from, from, to, seconds, speed: 1, playing: false, looping: false };
  let handle = null, last = null, calmFor = 0;

  const moved = () => onTick(clock.t);

  /** How many ns of the trace one second of playing shows. */
  clock.rate = () => ((clock.to - clock.from) / clock.seconds) * clock.speed;

  clock.seek = (t) => { clock.t = Math.min(clock.to, Math.max(clock.from, t)); moved(); };

  clock.setWindow = (start, end, t = start) => { clock.from = start; clock.to = end; clock.seek(t); };

  clock.play = () => {
    if (clock.playing) return;
    if (clock.t >= clock.to) clock.t = clock.from;
    clock.playing = true; last = null; calmFor = 0;
    handle = frame(tick);
    onState();
  };

  clock.pause = () => {
    if (!clock.playing) return;
    clock.playing = false;
    cancel(handle);
    onState();
  };

  clock.toggle = () => (clock.playing ? clock.pause() : clock.play());

  function tick(now) {
    if (!clock.playing) return;
    const elapsed = last === null ? 0 : Math.min(0.1, (now - last) / 1000); // a hidden tab does not leap ahead
    last = now;
    advance(isCalm() ? calmly(elapsed) : elapsed * clock.rate());
    moved();
    if (clock.playing) handle = frame(tick);
  }

  function calmly(elapsed) {
    calmFor += elapsed * clock.speed;
    if (calmFor < CALM_SECONDS) return 0;
    calmFor = 0;
    return (clock.to - clock.from) / CALM_STEPS;
  }

  function advance(by) {
    clock.t += by;
    if (clock.t < clock.to) return;
    if (clock.looping) { clock.t = clock.from; return; }
    clock.t = clock.to;
    clock.pause();
  }

  return clock;
}
