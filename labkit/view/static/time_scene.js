// A scene that runs in a trace's time: training steps to choose from, and, where it has an axis of time, a view on it that
// zooms and moves, a static layer that is painted once per view, and a playhead.

import { FONT } from "./canvas_text.js";
import { choice, group, iconButton } from "./markup.js";
import { unitFor } from "./quantities.js";
import { Scene } from "./scene.js";
import { shifted, ticks, zoomed } from "./time_axis.js";

const FEWEST_NS = 1000; // a window is never shorter, else a single event of no length has no axis
const CLICK_PIXELS = 4; // a pointer that moved less was a click
const TO_COME = 0.34; // opacity of what is after the playhead
const ZOOM_KEYS = "+ − 0 zoom. Ctrl or Shift with the wheel zooms, dragging moves.";

export class TimeScene extends Scene {
  // Beside what a Scene answers, a subclass calls open() in prepare() and answers
  //   onWindow()            what is worked out anew for this.window
  // and, where it has an axis of time (hasAxis: its layout then also holds left, right, plotBottom, narrow):
  //   paintLayer(g)         what stays while time goes on
  //   paintNames(g, now)    what stands left of the axis; paintMoving(g, now, x) what moves, x: the playhead
  //   onView()              what is worked out anew when the view moves

  get hasAxis() { return true; }

  keys() { return this.hasAxis ? `${super.keys()} ${ZOOM_KEYS}` : super.keys(); }

  /** Steps [{step, from, to}] to choose from, and [from, to] of all time; opens on the model's step. */
  open(steps, whole) {
    Object.assign(this, { steps, whole: steps.length ? [steps[0].from, Math.max(...steps.map(({ to }) => to))] : whole });
    this.use(this.clock ? this.step : this.model.get("step"));
  }

  /** A view on a part stays there; one on all shows all there is now. */
  load() {
    const { view, window } = this, isPart = view && view[1] - view[0] < window[1] - window[0];
    super.load();
    if (isPart && this.clock) this.setView(zoomed(view, this.window, 1, view[0]));
  }

  use(step) {
    const range = this.steps.find((one) => one.step === step), [from, to] = range ? [range.from, range.to] : this.whole;
    this.step = range ? step : null;
    this.window = this.view = [from, Math.max(to, from + FEWEST_NS)];
    this.layer = null;
    this.onWindow();
  }

  onView() {}

  // ---- the control bar ------------------------------------------------------------------------------------------------

  choices() { return [...this.stepChoice(), ...this.ownChoices(), ...this.zoomButtons()]; }

  ownChoices() { return []; }

  stepChoice() {
    if (this.steps.length < 2) return [];
    const picker = choice("Training step", [["", "all steps"], ...this.steps.map(({ step }) => [step, `step ${step}`])]);
    picker.value = this.step === null ? "" : String(this.step);
    picker.onchange = () => { this.use(picker.value === "" ? null : Number(picker.value)); this.restart(); };
    return [picker];
  }

  zoomButtons() {
    if (!this.hasAxis) return [];
    const [less, fit, more] = [iconButton("minus", "Zoom out (−)"), iconButton("fit", "Show all (0)"), iconButton("plus", "Zoom in (+)")];
    less.onclick = () => this.zoom(1.5);
    fit.onclick = () => this.setView(this.window);
    more.onclick = () => this.zoom(1 / 1.5);
    return [group(less, fit, more)];
  }

  keyActions() {
    const zooms = { "+": () => this.zoom(1 / 1.5), "=": () => this.zoom(1 / 1.5), "-": () => this.zoom(1.5), 0: () => this.setView(this.window) };
    return { ...super.keyActions(), ...(this.hasAxis ? zooms : {}) };
  }

  // ---- the view -------------------------------------------------------------------------------------------------------

  xOf(time) {
    const { layout: { left, right }, view } = this;
    return left + ((time - view[0]) / (view[1] - view[0])) * (right - left);
  }

  timeOf(x) {
    const { layout: { left, right }, view } = this;
    return view[0] + ((x - left) / (right - left)) * (view[1] - view[0]);
  }

  setView(view) {
    this.view = view;
    this.layer = null;
    this.onView();
    this.ask();
  }

  zoom(factor, about = this.clock.t) {
    const { view, window } = this, isInView = about >= view[0] && about <= view[1];
    this.setView(zoomed(view, window, factor, isInView ? about : (view[0] + view[1]) / 2));
  }

  /** While time goes on zoomed in, the view turns pages. */
  onTime(t) {
    const { view, window } = this;
    if ((this.clock?.playing || this.isFollowing) && (t < view[0] || t > view[1])) this.setView(shifted([t, t + view[1] - view[0]], window, 0));
    super.onTime(t);
  }

  resize() {
    this.layer = null;
    super.resize();
  }

  retheme() {
    this.layer = null;
    super.retheme();
  }

  // ---- pointing -------------------------------------------------------------------------------------------------------

  listenToPointer() {
    if (!this.hasAxis) { super.listenToPointer(); return; }
    const { picture } = this;
    let drag = null;
    picture.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      picture.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, view: this.view, moved: 0 };
    });
    picture.addEventListener("pointermove", (event) => {
      if (!drag) { this.hover(this.itemAt(event.offsetX, event.offsetY)); return; }
      drag.moved = Math.max(drag.moved, Math.abs(event.offsetX - drag.x));
      if (drag.moved >= CLICK_PIXELS) this.dragTo(event.offsetX, drag);
    });
    picture.addEventListener("pointerup", (event) => {
      if (drag && drag.moved < CLICK_PIXELS) this.click(event);
      drag = null;
      picture.classList.remove("lk-dragging");
    });
    picture.addEventListener("pointercancel", () => { drag = null; });
    picture.addEventListener("pointerleave", () => this.hover(-1));
    picture.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
  }

  /** Zoomed in, dragging moves the view; else it moves the playhead. */
  dragTo(x, drag) {
    const { window, layout } = this, width = drag.view[1] - drag.view[0];
    if (width >= (window[1] - window[0]) * 0.999) { this.jump(this.timeOf(x)); return; }
    this.picture.classList.add("lk-dragging");
    this.setView(shifted(drag.view, window, ((drag.x - x) / (layout.right - layout.left)) * width));
  }

  /** A click selects what is there; where nothing is, it moves the playhead. */
  click(event) {
    super.click(event);
    if (this.now.selected < 0 && event.offsetX >= this.layout.left) this.jump(this.timeOf(event.offsetX));
  }

  onWheel(event) {
    if (!event.ctrlKey && !event.shiftKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.zoom(Math.exp((event.deltaY || event.deltaX) * 0.002), this.timeOf(event.offsetX));
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  paint(g, now) {
    const { layout } = this, x = Math.max(layout.left, Math.min(layout.right, this.xOf(now.t)));
    this.layer ||= this.makeLayer();
    this.paintAxis(g);
    this.paintNames(g, now);
    this.copyLayer(g, layout.left, x, 1);
    this.copyLayer(g, x, layout.right, now.isStarted ? TO_COME : 1);
    g.save();
    g.beginPath(); g.rect(layout.left - 4, 0, layout.width - layout.left + 4, layout.height); g.clip();
    this.paintMoving(g, now, x);
    g.restore();
    if (now.t >= this.view[0] && now.t <= this.view[1]) paintPlayhead(g, x, layout.plotBottom, this.colours.playhead);
  }

  /** The view's static part on a canvas of its own; every frame copies it. */
  makeLayer() {
    const { layout, dpr } = this, canvas = new OffscreenCanvas(Math.max(1, layout.width * dpr), Math.max(1, layout.height * dpr)), g = canvas.getContext("2d");
    g.scale(dpr, dpr);
    g.beginPath(); g.rect(layout.left, 0, layout.right - layout.left, layout.height); g.clip();
    this.paintLayer(g);
    return canvas;
  }

  copyLayer(g, from, to, alpha, top = 0, height = this.layout.height) {
    if (to <= from) return;
    const { dpr } = this;
    g.globalAlpha = alpha;
    g.drawImage(this.layer, from * dpr, top * dpr, (to - from) * dpr, height * dpr, from, top, to - from, height);
    g.globalAlpha = 1;
  }

  paintAxis(g) {
    const { layout, view, window, colours } = this, [name, size] = unitFor(view[1] - view[0]);
    const { every, times } = ticks(view.map((t) => (t - window[0]) / size), (layout.right - layout.left) / (layout.narrow ? 64 : 86));
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(every) + 1e-9)));
    g.font = `11px ${FONT}`; g.textBaseline = "top"; g.textAlign = "center";
    for (const time of times) {
      const x = this.xOf(window[0] + time * size);
      g.fillStyle = colours.grid; g.fillRect(Math.round(x), 10, 1, layout.plotBottom - 6);
      g.fillStyle = colours.muted; g.fillText(time.toFixed(digits), Math.min(x, layout.right - 4), layout.plotBottom + 8);
    }
    g.textAlign = "left";
    g.fillText(layout.left < 100 ? name : `time in ${name}`, 4, layout.plotBottom + 8);
  }
}

function paintPlayhead(g, x, bottom, colour) {
  g.fillStyle = colour;
  g.fillRect(x - 0.75, 4, 1.5, bottom);
  g.beginPath(); g.moveTo(x - 5.5, 0); g.lineTo(x + 5.5, 0); g.lineTo(x + 5.5, 3); g.lineTo(x, 10); g.lineTo(x - 5.5, 3); g.fill();
}
