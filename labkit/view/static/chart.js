// A chart in the page's theme. The page's own plotly draws it: JupyterLab and Voila have one for all charts.

import { element, themeOf, watchTheme } from "./markup.js";

const PLOTLY_MIME = "application/vnd.plotly.v1+json";

/** Plain data with every colour of one theme replaced by its like of the other, and a marker's pattern and outline by
 * what reads on it. `colours`: [[light, dark, text on light, text on dark], ...]. */
export function recoloured(value, colours, theme) {
  const [from, to] = theme === "dark" ? [0, 1] : [1, 0];
  const other = new Map(colours.map((one) => [one[from], one[to]])), texts = new Map(colours.map((one) => [one[from], one[to + 2]]));
  const walk = (one) => {
    if (typeof one === "string") return other.get(one) ?? one;
    if (Array.isArray(one)) return one.map(walk);
    if (one === null || typeof one !== "object") return one;
    const made = Object.fromEntries(Object.entries(one).map(([key, inner]) => [key, key === "template" ? inner : walk(inner)]));
    const text = one.pattern && texts.get(one.color);
    return text ? { ...made, pattern: { ...made.pattern, fgcolor: text }, line: { ...made.line, color: text } } : made;
  };
  return walk(value);
}

const TOP_MARGIN = 24; // pixels, where the title stood: it is text of the page, which wraps

/** The figure as it is drawn on a page of that theme, without its title. */
export function figureFor({ data, layout, config }, { templates, colours, theme }) {
  const shown = recoloured({ data, layout }, colours, theme), margin = { ...shown.layout.margin, t: TOP_MARGIN };
  const page = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true, title: {}, margin };
  return { data: shown.data, layout: { ...shown.layout, ...page, template: templates[theme] }, config };
}

class ChartView {
  constructor(model, el) {
    this.model = model;
    this.picture = element("div", { role: "img", "aria-label": model.get("label") });
    this.head = element("div", { class: "lk-head" });
    this.root = element("div", { class: "labkit labkit-chart" }, this.head, this.picture);
    el.append(this.root);
    this.draw = this.draw.bind(this);
    model.on("change:figure", this.draw);
    const width = () => Math.round(this.picture.clientWidth);
    let drawnAt = width();
    this.sizes = new ResizeObserver(() => {
      if (!width() || width() === drawnAt) return;
      drawnAt = width();
      window.dispatchEvent(new Event("resize")); // what plotly listens to
    });
    this.sizes.observe(this.picture);
    this.stopTheme = watchTheme(this.draw);
    this.draw();
  }

  async draw() {
    const theme = themeOf(this.model.get("theme"));
    this.root.dataset.theme = theme;
    const { title } = this.model.get("figure").layout;
    this.head.replaceChildren(element("div", { class: "lk-title" }, title?.text || ""), element("div", { class: "lk-subtitle" }, title?.subtitle?.text || ""));
    const shown = figureFor(this.model.get("figure"), { templates: this.model.get("templates"), colours: this.model.get("colours"), theme });
    const page = { data: { [PLOTLY_MIME]: shown }, metadata: {}, trusted: true, setData() {} };
    try {
      const renderer = this.model.widget_manager.rendermime.createRenderer(PLOTLY_MIME);
      const before = [...this.picture.children];
      this.picture.append(renderer.node); // first, so that plotly sees how wide it may be
      await renderer.renderModel(page);
      for (const old of before) old.remove();
    } catch (error) {
      this.picture.replaceChildren(element("p", {}, `This page cannot draw the chart “${this.model.get("label")}”: it has no plotly (${error.message}). figure.show() opens it in a page of its own.`));
    }
  }

  remove() {
    this.model.off("change:figure", this.draw);
    this.sizes.disconnect();
    this.stopTheme();
    this.root.remove();
  }
}

function render({ model, el }) {
  const view = new ChartView(model, el);
  return () => view.remove();
}

export default { render };
