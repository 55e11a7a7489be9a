"""Soft Q imitation learning: batches that are half demonstrated."""

from __future__ import annotations

import hashlib
from typing import Any, Self

import numpy as np

from tfsac.memories.demonstrations import Demonstrations, load_demonstrations
from tfsac.memories.storage import Allocate
from tfsac.memories.transitions import EXTRA, MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import EXPERT, Spec, Transition


class SQILMemory(TransitionMemory):
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
        super().__init__(spec, capacity, num_envs, discount, n_step, ignore_done, np.zeros_like, allocate)
        count = len(demonstrations.records)
        self.demonstrations = TransitionMemory(
            spec.unstacked(), count, 1, discount, n_step, ignore_done, reward_filter=np.ones_like
        )
        self.demonstrations.total_rows = count
        ring = self.demonstrations.ring
        for name in demonstrations.records.dtype.names or ():
            ring[name][:, 0] = demonstrations.records[name]
        ring[EXTRA + EXPERT] = 1
        self.digest = np.frombuffer(hashlib.sha256(ring.view(np.uint8).data).digest(), np.uint8)

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`.

        Raises:
            ValueError, OSError, ImportError: demonstrations that cannot be read, or do not fit the environment.
        """
        agent: Any = preset.agent
        spec, memory, algorithm, environment = context.spec, agent.memory, agent.algorithm, preset.environment
        demonstrations = load_demonstrations(
            memory.demonstrations, spec, environment.level, memory.num_episodes, context.stored_action
        )
        return cls(
            spec,
            memory.max_size,
            demonstrations,
            environment.num_envs,
            algorithm.discount,
            algorithm.n_step,
            algorithm.ignore_done,
            context.allocate,
            **more,
        )

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement: own rows at even places, demonstrated at odd.

        Raises:
            ValueError: there is no transition of the agent's own yet, or an odd batch.
        """
        if batch_size % 2:
            raise ValueError(f"Half of every batch is demonstrated, so its size is even. Received: {batch_size}")
        own = super().sample(num_updates, batch_size // 2, rng)
        shown = self.demonstrations.sample(num_updates, batch_size // 2, rng)
        fields = set(Transition._fields) - {"weight"}
        return Transition(**{name: _alternate(getattr(own, name), getattr(shown, name)) for name in fields})

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint keeps beside the rows and `total_rows`: what a `TransitionMemory` does, and SHA-256
        of the `demonstrations`, uint8 `[32]`.
        """
        return {**super().state(), "demonstrations": self.digest}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Loads what `state` returned, if the demonstrations are those of the checkpoint.

        Raises:
            ValueError: they are not.
        """
        if not np.array_equal(arrays["demonstrations"], self.digest):
            raise ValueError(
                "The demonstrations changed since the checkpoint was written: their SHA-256 was "
                f"{arrays['demonstrations'].tobytes().hex()}. Received: {self.digest.tobytes().hex()}"
            )
        super().restore(arrays)


def _alternate(own: Any, shown: Any) -> Any:
    """Returns rows `[U, B, ...]` of two arrays `[U, B // 2, ...]` in turn, or the same of each entry of two dicts."""
    if isinstance(own, dict):
        return {key: _alternate(own[key], shown[key]) for key in own}
    both = np.empty((len(own), 2 * own.shape[1], *own.shape[2:]), own.dtype)
    both[:, 0::2], both[:, 1::2] = own, shown
    return both
