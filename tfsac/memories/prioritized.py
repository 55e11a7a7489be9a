"""A ring of transitions, sampled in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tfsac.memories.storage import Allocate
from tfsac.memories.sum_tree import SumTree
from tfsac.memories.transitions import MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import Spec


class PrioritizedMemory(TransitionMemory):
    """Transitions sampled with P(i) = p_i^alpha / sum_j p_j^alpha, weighted against the bias (arXiv 1511.05952).

    Slot i of a batch is drawn from the i-th of B equal parts of the total. The weight is (N P(i))^-beta over the
    largest such weight of the whole memory. Batches of one call are drawn with the same priorities, so with U updates a
    call they are up to U updates old; U = 1 is the textbook's way.

    Args:
        spec, capacity, num_envs, discount, n_step, ignore_done, reward_filter: as in TransitionMemory.
        alpha: from 0, uniform, to 1, in proportion to the priorities.
        beta: strength of the weights at first, from 0, none, to 1, the whole bias.
        beta_anneal_updates: number of sampled batches over which beta goes linearly to 1.
        epsilon: added to priorities, so that each transition can be sampled.
        allocate: as in TransitionMemory; the priorities are always in RAM.

    Raises:
        ValueError: as TransitionMemory, or an argument outside its range.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        num_envs: int = 1,
        discount: float = 0.99,
        n_step: int = 1,
        ignore_done: bool = False,
        reward_filter: Callable[[np.ndarray], np.ndarray] | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_anneal_updates: int = 100_000,
        epsilon: float = 1e-5,
        allocate: Allocate = np.zeros,
    ):
        super().__init__(spec, capacity, num_envs, discount, n_step, ignore_done, reward_filter, allocate)
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1]. Received: {value}")
        for name, value in {"beta_anneal_updates": beta_anneal_updates, "epsilon": epsilon}.items():
            if not 0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite. Received: {value}")
        self.alpha, self.beta, self.beta_anneal_updates, self.epsilon = alpha, beta, beta_anneal_updates, epsilon
        self.tree = SumTree(self.ring.size)  # of p^alpha
        self.largest, self.batches = 1.0, 0  # largest priority ever seen, number of batches ever sampled
        self.admitted = 0  # rows ever added that the tree knows
        self.sampled: np.ndarray | None = (
            None  # absolute indices `[U, B]` of the last sample, until its priorities are set
        )

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`."""
        memory: Any = preset.agent.memory
        names = ("alpha", "beta", "beta_anneal_updates", "epsilon")
        return super().build(preset, context, **{name: getattr(memory, name) for name in names}, **more)

    def _admit(self) -> None:
        """Gives the rows added since the last call the largest priority so far (at first 1), all at once."""
        rows = np.arange(max(self.admitted, self.total_rows - self.rows), self.total_rows) % self.rows
        self.tree.set((rows[:, None] * self.num_envs + np.arange(self.num_envs)).ravel(), self.largest**self.alpha)
        self.admitted = self.total_rows

    def choose(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns slots and importance weights of a sample by priority, both `[U, B]`."""
        index, weight = self.draw(rng.random(shape))
        return index, weight.astype(np.float32)

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws batches from uniform numbers in [0, 1), all `[U, B]`; beta moves on and the sample is remembered.

        Returns:
            Slots of the flat ring, and their importance weights in float64.
        """
        self._admit()
        num_updates, batch_size = uniform.shape
        index = self.tree.find((np.arange(batch_size) + uniform) * (self.tree.total / batch_size))
        gone = (self.batches + np.arange(num_updates)) / self.beta_anneal_updates
        beta = np.minimum(1.0, self.beta + gone * (1.0 - self.beta))
        self.batches += num_updates
        self.sampled = self._absolute(index)
        return index, self.weights(index, beta[:, None])

    def weights(self, index: np.ndarray, beta: float | np.ndarray) -> np.ndarray:
        """Returns the importance weights of slots: N and the sum of the priorities cancel in (N P)^-beta over its
        maximum.
        """
        return (self.tree.minimum / self.tree.values(index)) ** beta

    def update_priorities(self, priority: np.ndarray) -> None:
        """Sets the priorities of the last sample, plus epsilon; transitions overwritten since are left out.

        Args:
            priority: `[U, B]`, finite and not negative, such as |TD error|. The last one stays where a transition was
                sampled more than once.

        Raises:
            ValueError: nothing sampled yet, another shape, or values out of range. Nothing is changed then.
        """
        priority = np.asarray(priority, np.float64)
        if self.sampled is None:
            raise ValueError(f"Priorities are those of the last sample; sample first. Received: shape {priority.shape}")
        if priority.shape != self.sampled.shape:
            raise ValueError(
                f"Priorities of the last sample have the shape {self.sampled.shape}. Received: {priority.shape}"
            )
        wrong = priority[~(np.isfinite(priority) & (priority >= 0))]
        if wrong.size:
            raise ValueError(
                f"Priorities must be finite and not negative. Received: {wrong[0]} and {wrong.size - 1} more"
            )
        self._admit()
        kept = self.sampled >= (self.total_rows - self.rows) * self.num_envs
        priority = priority[kept] + self.epsilon
        self.tree.set(self.sampled[kept] % self.ring.size, priority**self.alpha)
        self.largest = float(priority.max(initial=self.largest))
        self.sampled = None

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint keeps beside the rows and `total_rows`, exactly.

        Returns:
            what a `TransitionMemory` does; `leaves` float64 `[len]`, p^alpha by slot; `largest` float64 `[]`; `batches`
            int64 `[]`; and `sampled` int64 `[U, B]`, absolute indices, where the last sample waits for its priorities.
        """
        self._admit()
        leaves = self.tree.values(np.arange(len(self)))
        state = {
            **super().state(),
            "leaves": leaves,
            "largest": np.array(self.largest),
            "batches": np.array(self.batches),
        }
        return state if self.sampled is None else {**state, "sampled": self.sampled}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Loads what `state` returned, after the rows were put back and `total_rows` was set.

        Raises:
            ValueError: other arrays, or not as many leaves as there are transitions. Nothing is changed then.
        """
        expected = {"leaves": (len(self),), "largest": (), "batches": ()}
        beside = {"sampled", *super().state()}
        shapes = {name: np.shape(array) for name, array in arrays.items() if name not in beside}
        if shapes != expected:
            raise ValueError(f"Priorities of this memory are {expected}. Received: {shapes}")
        super().restore(arrays)
        self.tree = SumTree(self.ring.size)
        self.tree.set(np.arange(len(self)), arrays["leaves"])
        self.largest, self.batches = float(arrays["largest"]), int(arrays["batches"])
        self.admitted, self.sampled = self.total_rows, arrays.get("sampled")
