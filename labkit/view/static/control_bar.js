// The control bar's own buttons: play, step, loop, scrub, speed. What a scene adds to the bar is the scene's.

import { choice, element, group, icon, iconButton } from "./markup.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];

/** {parts, scrub, showState(clock), showTime(clock, text)}. `scene` answers stepTo, setLoop, jump, showState; its clock comes later. */
export function makeBar(scene) {
  const play = iconButton("play", "Play (Space)", { class: "lk-main" }), loop = iconButton("loop", "Loop (L)", { "aria-pressed": "false" });
  const back = iconButton("back", "Previous step (←)"), forth = iconButton("forth", "Next step (→)");
  const scrub = element("input", { class: "lk-scrub", type: "range", min: "0", max: "1000", step: "any", "aria-label": "Time" });
  const time = element("span", { class: "lk-time" }), speed = choice("Speed", SPEEDS.map((one) => [one, `${one}×`]));
  speed.value = "1";
  play.onclick = () => scene.clock.toggle();
  back.onclick = () => scene.stepTo(-1);
  forth.onclick = () => scene.stepTo(1);
  loop.onclick = () => scene.setLoop(!scene.clock.looping);
  speed.onchange = () => { scene.clock.speed = Number(speed.value); scene.showState(); };
  scrub.oninput = () => { const { from, to } = scene.clock; scene.jump(from + (scrub.value / 1000) * (to - from)); };

  function showState({ playing, looping }) {
    const label = playing ? "Pause (Space)" : "Play (Space)";
    play.replaceChildren(icon(playing ? "pause" : "play"));
    play.title = label;
    play.setAttribute("aria-label", label);
    loop.setAttribute("aria-pressed", String(looping));
  }

  function showTime({ t, from, to }, text) {
    scrub.value = String((1000 * (t - from)) / (to - from));
    if (time.textContent === text) return;
    time.textContent = text;
    scrub.setAttribute("aria-valuetext", text);
  }

  return { parts: [play, group(back, forth), loop, scrub, time, speed], scrub, speed, showState, showTime };
}
