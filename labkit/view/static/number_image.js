// A small matrix as an image of one pixel a number.

/** `numbers` row by row, `cols` in each; what is missing in the last row stays clear. `colour`: -1 .. 1 -> [r, g, b]. */
export function numberImage(numbers, cols, largest, colour) {
  const canvas = new OffscreenCanvas(cols, Math.ceil(numbers.length / cols)), g = canvas.getContext("2d");
  const image = g.createImageData(canvas.width, canvas.height);
  numbers.forEach((value, i) => image.data.set([...colour(value / largest), 255], 4 * i));
  g.putImageData(image, 0, 0);
  return canvas;
}
