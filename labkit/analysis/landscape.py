"""The loss around a training run: its weights as a path, and the loss over a plane through such paths.

In: networks (`analysis.perceptron`). Out: a `Plane`, paths on it, and the loss of every point of it, really computed.
The plane is the one that the points of all paths lie nearest to, their first two principal components (Li et al. 2018,
"Visualizing the Loss Landscape of Neural Nets", section 7). A path leaves the plane where `share` is below 1.
All on one thread: products are small, and threads that wait for each other on a busy machine take ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from labkit.analysis.perceptron import Perceptron, accuracy, mean_loss


@dataclass(frozen=True)
class Plane:
    """A plane in the space of all networks of one shape."""

    origin: Perceptron
    directions: np.ndarray  # (2, num_parameters), orthonormal
    share: float  # of the points' squared distance from their mean that lies in the plane

    def place(self, network: Perceptron) -> np.ndarray:
        """Where on the plane the point nearest to this network lies. (2,)"""
        return self.directions @ (network.flat - self.origin.flat)

    def network(self, place: np.ndarray) -> Perceptron:
        """The network at a place of the plane. place: (2,)"""
        return self.origin.at(self.origin.flat + place @ self.directions)


@threadpool_limits.wrap(limits=1)
def plane_through(paths: Sequence[Sequence[Perceptron]]) -> Plane:
    """The plane nearest to all points of these paths. Raises ValueError when they do not span one."""
    points = np.stack([network.flat for path in paths for network in path])
    mean = points.mean(axis=0)
    _, sizes, directions = np.linalg.svd(points - mean, full_matrices=False)
    if len(sizes) < 2 or sizes[1] <= 1e-12 * max(sizes[0], 1e-300):
        raise ValueError(f"{len(points)} points of the paths lie on a line: train for more steps, or give two runs")
    return Plane(paths[0][0].at(mean), directions[:2], float((sizes[:2] ** 2).sum() / (sizes**2).sum()))


@threadpool_limits.wrap(limits=1)
def losses_on(plane: Plane, across: np.ndarray, up: np.ndarray, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean loss over the images at every crossing. across: (n,), up: (m,); returns (m, n)."""
    rows = [[mean_loss(plane.network(np.array([a, b])), images, labels) for a in across] for b in up]
    return np.array(rows)


@dataclass(frozen=True)
class Descent:
    """A run on the plane: for every network of it, where it lies, and what the network itself does with the images."""

    places: np.ndarray  # (steps, 2)
    losses: np.ndarray  # (steps,), of the network itself, not of the place it is drawn at
    accuracies: np.ndarray  # (steps,)


@threadpool_limits.wrap(limits=1)
def descent_on(plane: Plane, networks: Sequence[Perceptron], images: np.ndarray, labels: np.ndarray) -> Descent:
    """The networks of a run as a path on the plane."""
    return Descent(
        np.stack([plane.place(network) for network in networks]),
        np.array([mean_loss(network, images, labels) for network in networks]),
        np.array([accuracy(network, images, labels) for network in networks]),
    )
