// Why ranks stand still: a bar of causes and the longest gaps, for every rank.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

export const percentText = (percent) => (percent >= 10 ? percent.toFixed(0) : percent.toFixed(1)) + " %";

/** "worked 73 %; drain 15 %, warm-up 12 %" */
export const rankText = ({ work, causes }) => [`worked ${percentText(work)}`, causes.map(([cause, percent]) => `${cause} ${percentText(percent)}`).join(", ")].filter(Boolean).join("; ");

class FindingsView {
  constructor(model, el) {
    this.model = model;
    this.swatches = [];
    this.root = element("section", { class: "labkit labkit-findings" });
    el.append(this.root);
    const ranks = model.get("ranks");
    const head = element("div", { class: "lk-head" }, element("div", { class: "lk-title" }, "Why ranks stand still"), element("div", { class: "lk-muted" }, model.get("note")));
    if (!ranks.length) this.root.append(head, element("p", { class: "lk-empty" }, "This trace holds no work and no syncs, so there is nothing to explain."));
    else this.root.append(head, this.legend(), ...ranks.map((rank) => this.rank(rank)));
    keepKeys(this.root);
    const retheme = () => {
      const theme = themeOf(model.get("theme"));
      this.root.dataset.theme = theme;
      for (const [one, name] of this.swatches) one.style.backgroundColor = model.get("looks")[name][theme];
    };
    this.stop = watchTheme(retheme);
    retheme();
  }

  legend() {
    const entries = Object.entries(this.model.get("causes")).map(([name, words]) => element("li", {}, this.swatch(name), element("b", {}, name), element("span", {}, words)));
    return element("details", { class: "lk-causes" }, element("summary", {}, "What the causes mean, and what helps"), element("ul", {}, ...entries));
  }

  swatch(name) {
    const made = element("i", { "data-pattern": this.model.get("looks")[name].pattern, "aria-hidden": "true" });
    this.swatches.push([made, name]);
    return made;
  }

  share(name, percent) {
    const made = this.swatch(name);
    made.style.flexGrow = String(percent);
    made.title = `${name} ${percentText(percent)}`;
    if (percent >= 12) made.append(element("span", {}, name));
    return made;
  }

  rank(one) {
    const parts = [this.share("work", one.work), ...one.causes.map(([cause, percent]) => this.share(cause, percent))];
    const bar = element("div", { class: "lk-shares", role: "img", "aria-label": `rank ${one.rank}: ${rankText(one)}` }, ...parts);
    const gaps = element("ul", { class: "lk-gaps" }, ...one.gaps.map(([sentence, t]) => element("li", {}, this.gap(sentence, t))));
    return element("div", { class: "lk-rank" }, element("h4", {}, `rank ${one.rank}`), element("span", { class: "lk-muted" }, rankText(one)), bar, gaps);
  }

  gap(sentence, t) {
    if (!this.model.get("can_show")) return sentence;
    const button = element("button", { type: "button", class: "lk-gap", title: "Show this moment in the timeline" }, sentence);
    button.onclick = () => this.model.send({ do: "show", t_ns: t });
    return button;
  }
}

function render({ model, el }) {
  const view = new FindingsView(model, el);
  return () => { view.stop(); view.root.remove(); };
}

export default { render };
