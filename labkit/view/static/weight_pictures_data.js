// What a run's columns say about a step, a unit, an image. Pure, tested with node.

import { typed } from "./buffers.js";
import { SIDE } from "./weight_pictures_geometry.js";

export const PIXELS = SIDE * SIDE;
export const NUM_DIGITS = 10;

const largestOf = (values) => values.reduce((most, one) => Math.max(most, Math.abs(one)), 1e-30);

/** Weights and gradients (step, unit, 64), activations (step, image, unit), probabilities (step, image, 10), images (image, 64). */
export function readPictures(columns, numUnits, numImages) {
  const data = Object.fromEntries(Object.entries(columns).map(([name, view]) => [name, typed(view, Float32Array)])), perStep = numUnits * PIXELS;
  const numSteps = data.weights.length / perStep, row = (values, at, size) => values.subarray(at * size, (at + 1) * size);
  return {
    numSteps,
    image: (image) => row(data.images, image, PIXELS),
    weights: (step, unit) => row(data.weights, step * numUnits + unit, PIXELS),
    grads: (step, unit) => row(data.grads, step * numUnits + unit, PIXELS),
    /** How far each weight of a unit is from where it started. */
    change: (step, unit) => row(data.weights, step * numUnits + unit, PIXELS).map((value, k) => value - data.weights[unit * PIXELS + k]),
    activation: (step, image, unit) => data.activations[(step * numImages + image) * numUnits + unit],
    probabilities: (step, image) => [...row(data.probabilities, step * numImages + image, NUM_DIGITS)],
    /** What counts as full colour: over the whole run, so that steps can be compared; gradients in each step. */
    largest: {
      weights: largestOf(data.weights), activations: largestOf(data.activations),
      change: largestOf(data.weights.map((value, k) => value - data.weights[k % perStep])),
      grads: Array.from({ length: numSteps }, (_, step) => largestOf(row(data.grads, step, perStep))),
    },
  };
}
