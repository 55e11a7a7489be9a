"""A ring of transitions, sampled in proportion to their priorities."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.transitions import MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import Spec


class PrioritizedMemory(TransitionMemory):
    """Transitions sampled with P(i) = p_i^alpha / sum_j p_j^alpha, with weights against the bias (arXiv 1511.05952).

    Entry i of a batch is drawn from the i-th of B equal parts of the total. The weight is (N P(i))^-beta divided by the
    largest such weight of the whole memory. Batches of one call are drawn with the same priorities, so with U updates
    per call they are up to U updates old; U = 1 is the textbook algorithm.

    Args:
        spec, capacity, num_envs, more: as in TransitionMemory; the priorities are always in RAM.
        alpha: from 0 (uniform) to 1 (proportional to the priorities).
        beta: initial strength of the weights, from 0 (none) to 1 (full correction of the bias).
        beta_anneal_updates: number of sampled batches over which beta rises linearly to 1.
        epsilon: added to priorities, so that each transition can be sampled.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        num_envs: int = 1,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_anneal_updates: int = 100_000,
        epsilon: float = 1e-5,
        **more: Any,
    ):
        super().__init__(spec, capacity, num_envs, **more)
        self.alpha, self.beta, self.beta_anneal_updates, self.epsilon = alpha, beta, beta_anneal_updates, epsilon
        self.tree = SumTree(self.ring.size)  # of p^alpha
        self.largest, self.batches = 1.0, 0  # largest priority ever seen, number of batches ever sampled
        self.admitted = 0  # number of rows ever added that the tree has
        # Absolute indices `[U, B]` of the last sample, until its priorities are set.
        self.sampled: np.ndarray | None = None

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        memory: Any = preset.agent.memory
        names = ("alpha", "beta", "beta_anneal_updates", "epsilon")
        return super().build(preset, context, **{name: getattr(memory, name) for name in names}, **more)

    def _admit(self) -> None:
        """Gives the rows added since the last call the largest priority so far (at first 1), all at once."""
        rows = np.arange(max(self.admitted, self.total_rows - self.rows), self.total_rows) % self.rows
        priority: Any = self.largest**self.alpha
        if self.autoreset:
            priority = np.where(self.ring["autoreset"][rows], 0.0, priority).ravel()
        self.tree.set((rows[:, None] * self.num_envs + np.arange(self.num_envs)).ravel(), priority)
        self.admitted = self.total_rows

    def choose(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns slots and importance weights of a sample by priority, both `[U, B]`."""
        index, weight = self.draw(rng.random(shape))
        return index, weight.astype(np.float32)

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws batches from uniform numbers in [0, 1), all `[U, B]`; beta advances and the sample is remembered.

        Returns:
            Slots of the flat ring, and their importance weights in float64.
        """
        self._admit()
        num_updates, batch_size = uniform.shape
        index = self.tree.find((np.arange(batch_size) + uniform) * (self.tree.total / batch_size))
        progress = (self.batches + np.arange(num_updates)) / self.beta_anneal_updates
        beta = np.minimum(1.0, self.beta + progress * (1.0 - self.beta))
        self.batches += num_updates
        self.sampled = self._absolute(index)
        return index, self.weights(index, beta[:, None])

    def weights(self, index: np.ndarray, beta: float | np.ndarray) -> np.ndarray:
        """Returns the importance weights of slots: N and the sum of the priorities cancel in (N P)^-beta over its
        maximum.
        """
        return (self.tree.minimum / self.tree.values(index)) ** beta

    def update_priorities(self, priority: np.ndarray) -> None:
        """Sets the priorities of the last sample, plus epsilon; transitions overwritten since are skipped.

        Args:
            priority: `[U, B]`, finite and not negative, such as |TD error|. The last one counts if a transition was
                sampled more than once.

        Raises:
            TfsacError: values out of range, which would make sampling impossible.
        """
        priority = np.asarray(priority, np.float64)
        if not (np.isfinite(priority) & (priority >= 0)).all():
            raise TfsacError("Priorities must be finite and not negative: the TD errors have diverged")
        assert self.sampled is not None and priority.shape == self.sampled.shape
        self._admit()
        still_stored = self.sampled >= (self.total_rows - self.rows) * self.num_envs
        priority = priority[still_stored] + self.epsilon
        self.tree.set(self.sampled[still_stored] % self.ring.size, priority**self.alpha)
        self.largest = float(priority.max(initial=self.largest))
        self.sampled = None

    def state(self) -> dict[str, np.ndarray]:
        """Returns the exact state that a checkpoint stores besides the rows and `total_rows`.

        Returns:
            the state of a `TransitionMemory`; `leaves` float64 `[len]`, p^alpha by slot; `largest` float64 `[]`;
            `batches` int64 `[]`; and `sampled` int64 `[U, B]`, absolute indices, if priorities are pending.
        """
        self._admit()
        state = super().state() | {
            "leaves": self.tree.values(np.arange(len(self))),
            "largest": np.array(self.largest),
            "batches": np.array(self.batches),
        }
        return state if self.sampled is None else {**state, "sampled": self.sampled}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores a result of `state`, after the rows were restored and `total_rows` was set."""
        super().restore(arrays)
        self.tree = SumTree(self.ring.size)
        self.tree.set(np.arange(len(self)), arrays["leaves"])
        self.largest, self.batches = float(arrays["largest"]), int(arrays["batches"])
        self.admitted, self.sampled = self.total_rows, arrays.get("sampled")


class SumTree:
    """Values in slots, with their sum, their minimum and the slot at any cumulative sum in O(log capacity).

    Node i has the children 2i and 2i + 1, node 1 is the root. Inner nodes are always computed from their children, so
    the leaves determine the tree and rounding errors do not accumulate.

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
        """Smallest of the values, infinity if there are none."""
        return self.minima[1]

    def values(self, index: np.ndarray) -> np.ndarray:
        """Returns the values in the given slots, zero for empty ones."""
        return self.sums[self.first_leaf + index]

    def set(self, index: np.ndarray, values: np.ndarray | float) -> None:
        """Sets slots `[K]` to values `[K]` or to one; zero empties them. The last value of a repeated slot counts."""
        if not len(index):
            return
        node = self.first_leaf + index
        self.sums[node], self.minima[node] = values, np.where(values, values, np.inf)
        for _ in range(self.depth):
            node >>= 1
            node = node[np.append(node[:-1] != node[1:], True)]  # one of two siblings, which are neighbours
            left, right = 2 * node, 2 * node + 1
            self.sums[node] = self.sums[left] + self.sums[right]
            self.minima[node] = np.minimum(self.minima[left], self.minima[right])

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Returns for each mass in [0, total) the first slot whose cumulative sum exceeds it; any shape."""
        node, mass = np.ones(mass.shape, int), mass.copy()
        for _ in range(self.depth):
            node *= 2
            left = self.sums[node]
            # Rounding may leave a mass at the end of a subtree: never descend into an empty one.
            right = (mass >= left) & (self.sums[node + 1] > 0)
            mass -= left * right
            node += right
        return node - self.first_leaf
