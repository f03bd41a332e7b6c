// Pictures of an exported page's players at moments that are set: what a headless browser takes for PNG, GIF and MP4.

import { pictureOf } from "./export_picture.js";

/** `take({ns})` or `take({share})` moves the players there, draws, and gives the picture as a data URL. */
export function framesOf(document) {
  const places = [...document.querySelectorAll("[data-player]")];
  const leads = places.filter((place, k) => isLead(place, places.slice(0, k)));
  return async ({ ns = null, share = null }) => {
    if (ns !== null) for (const { model } of leads) model.emit("msg:custom", { do: "seek", t_ns: ns });
    if (share !== null) for (const place of leads) scrubTo(place.querySelector(".lk-scrub"), share);
    await painted();
    const roots = places.map((place) => place.querySelector(".labkit-player"));
    return pictureOf(roots, { isFrame: share !== null }).toDataURL("image/png");
  };
}

/** Of linked players only the first is moved; the others follow it. */
function isLead({ model }, earlier) {
  const group = model.get("link_group");
  return !group || !earlier.some((other) => other.model.get("link_group") === group);
}

function scrubTo(scrub, share) {
  scrub.value = String(share * Number(scrub.max));
  scrub.dispatchEvent(new Event("input"));
}

/** Drawing waits for the next frame; in the one after that it is there. */
const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
