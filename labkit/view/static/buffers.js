// Binary columns from Python as typed arrays.

/** A copy, because a buffer that came over the wire need not be aligned. */
export function typed(view, Type) {
  const bytes = ArrayBuffer.isView(view) ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) : view;
  return new Type(bytes);
}
