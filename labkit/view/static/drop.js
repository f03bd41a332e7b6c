// A place to drop files on. They go to the kernel piece by piece, each when the kernel asks for it.

import { element, keepKeys, themeOf, watchTheme } from "./markup.js";

/** "3.4 MiB" */
export const sizeText = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1048576 ? `${(bytes / 1024).toFixed(0)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`);

/** "rank0.json.gz and 3 more, 12.0 MiB" */
export function filesText(files) {
  const total = files.reduce((sum, { size }) => sum + size, 0), more = files.length - 1;
  return files.length ? `${files[0].name}${more ? ` and ${more} more` : ""}, ${sizeText(total)}` : "";
}

class DropView {
  constructor(model, el) {
    Object.assign(this, { model, files: [], sent: 0, at: [] });
    this.input = element("input", { type: "file", multiple: true, accept: model.get("accept"), class: "lk-unseen", tabindex: "-1", "aria-hidden": "true" });
    this.button = element("button", { type: "button", class: "lk-main" }, "Choose files");
    this.bar = element("progress", { max: 1, value: 0, "aria-label": "sent" });
    this.status = element("p", { class: "lk-status", role: "status" });
    this.problem = element("p", { class: "lk-problem", role: "alert" });
    const words = element("p", {}, element("b", {}, "Drop trace files here"), element("span", {}, model.get("hint")));
    this.root = element("section", { class: "labkit labkit-drop", "aria-label": "Trace files" }, words, this.button, this.input, this.status, this.bar, this.problem);
    el.append(this.root);
    keepKeys(this.root);
    this.listen();
    this.show();
  }

  listen() {
    this.button.onclick = () => this.input.click();
    this.input.onchange = () => { this.begin([...this.input.files]); this.input.value = ""; };
    this.root.ondragover = (event) => { event.preventDefault(); this.root.classList.add("lk-over"); };
    this.root.ondragleave = () => this.root.classList.remove("lk-over");
    this.root.ondrop = (event) => { event.preventDefault(); this.root.classList.remove("lk-over"); this.begin([...event.dataTransfer.files]); };
    const onMessage = (message) => { if (message.do === "more") this.sendPiece(message.file); }, show = () => this.show();
    const retheme = () => { this.root.dataset.theme = themeOf(this.model.get("theme")); };
    this.model.on("msg:custom", onMessage);
    for (const name of ["state", "problem"]) this.model.on(`change:${name}`, show);
    const stopTheme = watchTheme(retheme);
    retheme();
    this.stop = () => {
      this.model.off("msg:custom", onMessage);
      for (const name of ["state", "problem"]) this.model.off(`change:${name}`, show);
      stopTheme();
    };
  }

  begin(files) {
    if (!files.length || this.model.get("state") !== "idle") return;
    Object.assign(this, { files, sent: 0, at: files.map(() => 0) });
    this.model.send({ do: "begin", files: files.map(({ name, size }) => ({ name, size })) });
  }

  async sendPiece(number) {
    const file = this.files[number], from = this.at[number];
    if (!file) return;
    const piece = await file.slice(from, from + this.model.get("piece_bytes")).arrayBuffer();
    this.at[number] += piece.byteLength;
    this.sent += piece.byteLength;
    this.model.send({ do: "piece", file: number }, undefined, [piece]);
    this.show();
  }

  show() {
    const state = this.model.get("state"), problem = this.model.get("problem"), total = this.files.reduce((sum, { size }) => sum + size, 0);
    this.button.disabled = state !== "idle";
    this.bar.hidden = state !== "receiving";
    this.bar.value = total ? this.sent / total : 0;
    this.status.textContent = state === "receiving" ? `Taking ${filesText(this.files)} …` : state === "reading" ? `Reading ${filesText(this.files)} …` : problem ? "" : filesText(this.files);
    this.problem.textContent = problem;
    this.problem.hidden = !problem;
    this.root.dataset.state = state;
  }
}

function render({ model, el }) {
  const view = new DropView(model, el);
  return () => { view.stop(); view.root.remove(); };
}

export default { render };
