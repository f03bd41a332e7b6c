// Texts that the page's address carries behind its #: "#plan=dp=2;pp=2" or "#a=...&b=...". They never reach a server.

/** Whether the page is ours alone, as Voila's is: JupyterLab and Notebook keep their own state in the address. */
export const hasOwnAddress = () => "voila" in document.body.dataset || !document.querySelector(".jp-LabShell, .jp-NotebookShell");

const partsOf = (hash) => hash.replace(/^#/, "").split("&").filter(Boolean).map((part) => [part.split("=", 1)[0], part.slice(part.indexOf("=") + 1)]);

/** The text of that name; null where the address names none, or one that cannot be decoded. */
export function textInAddress(hash, name) {
  const found = partsOf(hash).find(([one]) => one === name);
  try {
    return found ? decodeURIComponent(found[1]) : null;
  } catch {
    return null;
  }
}

/** The same address with another text of that name, or without it. */
export function withText(hash, name, text) {
  const others = partsOf(hash).filter(([one]) => one !== name), all = text ? [...others, [name, encodeURIComponent(text).replace(/%3D/g, "=").replace(/%3B/g, ";")]] : others;
  return all.length ? `#${all.map(([one, value]) => `${one}=${value}`).join("&")}` : "";
}
