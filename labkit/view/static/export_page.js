// A player as one HTML file that needs no kernel and no network. Python writes the same page from the same template.

import { showPlayers } from "./standalone.js";

// {{word}} is filled in. The policy keeps the promise: a browser then refuses every request, to any host.
export const PAGE = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<meta name="generator" content="labkit">
<link rel="icon" href="data:,">
<title>{{title}}</title>
<style>
body { margin: 0 auto; padding: 16px; max-width: 1400px; background: #f6f8fb; }
body[data-jp-theme-light="false"] { background: #101318; }
@media (prefers-color-scheme: dark) { body:not([data-jp-theme-light]) { background: #101318; } }
{{style}}
</style>
</head>
<body{{theme}}>
<noscript>This page draws its picture with JavaScript, which is switched off here. It loads nothing from anywhere.</noscript>
{{players}}
<script>globalThis.labkitPlayers = [];</script>
{{modules}}
<script type="module">
{{start}}
</script>
</body>
</html>
`;

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => ENTITIES[sign]);
/** Code inside a script element: nothing in it may look like that element's end, or like a comment's start. */
const inScript = (code) => code.replace(/<(\/script|script|!--)/gi, "\\x3c$1");

/** The module inside a widget's `_esm`, where lazy.js keeps it as a string. */
export const wholeModule = (esm) => JSON.parse(/^const source = (".*");$/m.exec(esm)[1]);

/** The page of one player. `saved` are its traits, packed; `esm` its module, `css` its styles. */
export function pageOf({ title, theme, saved, esm, css }) {
  const fills = {
    title: escaped(title), style: css.replaceAll("</", "<\\/"), theme: theme === "auto" ? "" : ` data-jp-theme-light="${theme === "light"}"`,
    players: `<div data-player="0"><script type="application/json">${JSON.stringify(saved).replaceAll("<", "\\u003c")}</script></div>`,
    modules: `<script type="module">\n${inScript(esm.replace(/^export default /m, "labkitPlayers[0] = "))}\n</script>`,
    start: inScript(`${showPlayers}\nshowPlayers(document);`),
  };
  return PAGE.replace(/\{\{(\w+)\}\}/g, (_, name) => fills[name]);
}

/** The model's traits as plain data; bytes are packed and written as text. */
export async function savedState(model) {
  const saved = {};
  for (const name of model.get("saved")) saved[name] = await packedValue(model.get(name));
  return saved;
}

async function packedValue(value) {
  if (ArrayBuffer.isView(value)) return { gzip: await base64(new Blob([value]).stream().pipeThrough(new CompressionStream("gzip"))) };
  if (Array.isArray(value)) return Promise.all(value.map(packedValue));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(await Promise.all(Object.entries(value).map(async ([name, one]) => [name, await packedValue(one)])));
}

async function base64(stream) {
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer()), most = 0x8000; // arguments of one call
  let letters = "";
  for (let at = 0; at < bytes.length; at += most) letters += String.fromCharCode(...bytes.subarray(at, at + most));
  return btoa(letters);
}
