"""A binary tree of sums and minima over an array."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Numbers in slots, with their sum, their minimum and the slot at any cumulative sum in O(log capacity).

    Node i has the children 2i and 2i + 1, node 1 is the root. Inner nodes are always computed from their children, so
    the tree follows from its leaves alone and rounding errors do not gather.

    Args:
        capacity: number of slots; they are empty at first.
    """

    def __init__(self, capacity: int):
        self.depth = (capacity - 1).bit_length()
        self.first_leaf = 1 << self.depth
        self.sums = np.zeros(2 * self.first_leaf)
        self.minima = np.full(2 * self.first_leaf, np.inf)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return self.sums[1]

    @property
    def minimum(self) -> float:
        """Smallest of the values, infinity where there are none."""
        return self.minima[1]

    def values(self, index: np.ndarray) -> np.ndarray:
        """Returns the values in the given slots, zero where they are empty."""
        return self.sums[self.first_leaf + index]

    def set(self, index: np.ndarray, values: np.ndarray | float) -> None:
        """Puts positive values `[K]`, or one, into slots `[K]`; the last one stays in a slot that comes twice."""
        if not len(index):
            return
        node = self.first_leaf + index
        self.sums[node] = self.minima[node] = values
        for _ in range(self.depth):
            node >>= 1
            node = node[
                np.append(node[:-1] != node[1:], True)
            ]  # siblings are neighbours: a range is half as long on every level
            left, right = 2 * node, 2 * node + 1
            self.sums[node] = self.sums[left] + self.sums[right]
            self.minima[node] = np.minimum(self.minima[left], self.minima[right])

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Returns for each mass in [0, total) the first slot up to which the values sum to more than it; any shape."""
        node, mass = np.ones(mass.shape, int), mass.copy()
        for _ in range(self.depth):
            node *= 2
            left = self.sums[node]
            # Rounding may leave a mass at the end of a subtree: never descend into an empty one.
            right = (mass >= left) & (self.sums[node + 1] > 0)
            mass -= left * right
            node += right
        return node - self.first_leaf
