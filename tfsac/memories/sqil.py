"""Soft Q imitation learning: batches that are half demonstrated."""

from __future__ import annotations

import numpy as np

from tfsac.memories.demonstrations import Demonstrations
from tfsac.memories.fixed_data import FixedDataMemory
from tfsac.memories.storage import Allocate
from tfsac.memories.transitions import EXTRA
from tfsac.types import EXPERT, Spec, Transition


class SQILMemory(FixedDataMemory):
    """A ring of the agent's own transitions, sampled together with as many demonstrated ones (arXiv 1905.11108).

    Rows of a batch alternate, own ones first, so that every replica's part has both kinds. Each own reward is 0
    and each demonstrated one 1, whatever the environment gave; `n_step` sums those. The extra "expert" is 1 in
    demonstrated rows and 0 in own ones. The ring never overwrites demonstrations.

    Args:
        spec: as in TransitionMemory, with the extra "expert", float32 of shape ().
        capacity: number of own transitions, over all environments.
        demonstrations: at least one transition.
        num_envs, discount, n_step, ignore_done: as in TransitionMemory.
        allocate: makes the ring of the own transitions; the demonstrations are always in RAM.

    Attributes:
        demonstrations: the memory of the demonstrated transitions.

    Raises:
        ValueError: as TransitionMemory.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        demonstrations: Demonstrations,
        num_envs: int = 1,
        discount: float = 0.99,
        n_step: int = 1,
        ignore_done: bool = False,
        allocate: Allocate = np.zeros,
    ):
        zero_and_one = np.zeros_like, np.ones_like
        super().__init__(
            spec, capacity, demonstrations, 0.5, num_envs, discount, n_step, ignore_done, zero_and_one, allocate
        )
        self.demonstrations.ring[EXTRA + EXPERT] = 1

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement: own rows at even places, demonstrated at odd.

        Raises:
            ValueError: there is no transition of the agent's own yet, or an odd batch.
        """
        if batch_size % 2:
            raise ValueError(f"Half of every batch is demonstrated, so its size is even. Received: {batch_size}")
        return super().sample(num_updates, batch_size, rng)
