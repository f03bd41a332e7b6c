// What runs in an exported page: it gives each player a model made of plain data, where a notebook gives a kernel's.
// The browser's own export takes this function's text, so all that it needs is inside.

/** Draws every player of the page; says so in the page where one cannot be drawn. */
export async function showPlayers(document) {
  class Model {
    constructor(state) { this.state = state; this.handlers = {}; }
    get(name) { return this.state[name]; }
    set(name, value) { this.state[name] = value; this.emit(`change:${name}`); }
    save_changes() {}
    send() {}
    on(name, handler) { (this.handlers[name] ||= []).push(handler); }
    off(name, handler) { this.handlers[name] = (this.handlers[name] || []).filter((one) => one !== handler); }
    emit(name, ...values) { for (const handler of this.handlers[name] || []) handler(...values); }
  }

  async function unpacked(value) {
    if (Array.isArray(value)) return Promise.all(value.map(unpacked));
    if (value === null || typeof value !== "object") return value;
    if (typeof value.gzip !== "string") return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([name, one]) => [name, await unpacked(one)])));
    const letters = atob(value.gzip), bytes = new Uint8Array(letters.length);
    for (let k = 0; k < bytes.length; k++) bytes[k] = letters.charCodeAt(k);
    return new DataView(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  }

  for (const place of document.querySelectorAll("[data-player]")) {
    try {
      const state = await unpacked(JSON.parse(place.querySelector("script").textContent));
      place.model = new Model(state);
      globalThis.labkitPlayers[Number(place.dataset.player)].render({ model: place.model, el: place });
    } catch (error) {
      place.append(`This player could not be drawn: ${error.message}. A newer browser may help.`);
      console.error(error);
    }
  }
  document.body.dataset.isReady = "true";
}
