// Numbers around zero as colours: blue below, orange above, the page's own colour at zero.

const rgbOf = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));

/** The scale of every picture of numbers: the theme's blue and orange around the page's own colour. */
export const numberScale = ({ forward, backward_weight }, theme) => divergingScale(forward.base, backward_weight.base, theme === "dark" ? "#1e2126" : "#ffffff");

/** A function from -1 .. 1 to [red, green, blue]. `low`, `high`, `middle`: "#rrggbb". Small numbers are lifted, to be seen. */
export function divergingScale(low, high, middle) {
  const ends = [rgbOf(low), rgbOf(high)], zero = rgbOf(middle);
  return (value) => {
    const end = ends[value < 0 ? 0 : 1], share = Math.min(1, Math.abs(value)) ** 0.7;
    return zero.map((one, k) => Math.round(one + (end[k] - one) * share));
  };
}
