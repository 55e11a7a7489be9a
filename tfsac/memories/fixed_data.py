"""Batches that have rows of a fixed data set beside the agent's own."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tfsac.memories.demonstrations import Demonstrations, load_demonstrations
from tfsac.memories.storage import Allocate
from tfsac.memories.transitions import MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import Spec, Transition

RewardFilter = Callable[[np.ndarray], np.ndarray]


class FixedDataMemory(TransitionMemory):
    """A ring of the agent's own transitions beside a fixed data set; every batch has a share of rows of the data.

    Rows of both kinds are sampled uniformly and evenly mixed, so that every replica's part has its share of both. The
    ring never overwrites the data.

    Args:
        spec: as in TransitionMemory.
        capacity: number of own transitions, over all environments.
        demonstrations: the data, at least one transition.
        share: of the rows of a batch that come from the data; their number is rounded.
        num_envs, discount, n_step, ignore_done: as in TransitionMemory, of both kinds of rows.
        reward_filters: what the agent sees of raw rewards: of its own, and of those of the data.
        allocate: makes the ring of the own transitions; the data are always in RAM.

    Attributes:
        demonstrations: the memory of the data.

    Raises:
        ValueError: as TransitionMemory.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        demonstrations: Demonstrations,
        share: float,
        num_envs: int,
        discount: float,
        n_step: int,
        ignore_done: bool,
        reward_filters: tuple[RewardFilter | None, RewardFilter | None],
        allocate: Allocate,
    ):
        own, of_data = reward_filters
        super().__init__(spec, capacity, num_envs, discount, n_step, ignore_done, own, allocate)
        count = len(demonstrations.records)
        self.share = share
        self.demonstrations = TransitionMemory(spec.unstacked(), count, 1, discount, n_step, ignore_done, of_data)
        self.demonstrations.total_rows = count
        for name in demonstrations.records.dtype.names or ():
            self.demonstrations.ring[name][:, 0] = demonstrations.records[name]

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`.

        Raises:
            ValueError, OSError, ImportError: demonstrations that cannot be read, or do not fit the environment.
        """
        agent: Any = preset.agent
        memory, algorithm, environment = agent.memory, agent.algorithm, preset.environment
        demonstrations = load_demonstrations(
            memory.demonstrations,
            context.spec,
            environment.level,
            memory.num_episodes,
            context.stored_action,
            environment.visible_entries,
        )
        return cls(
            context.spec,
            memory.max_size,
            demonstrations,
            num_envs=environment.num_envs,
            discount=algorithm.discount,
            n_step=algorithm.n_step,
            ignore_done=algorithm.ignore_done,
            allocate=context.allocate,
            **more,
        )

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement; `round(share * B)` rows are of the data.

        Raises:
            ValueError: there is no transition of the agent's own yet.
        """
        count = round(self.share * batch_size)
        own = super().sample(num_updates, batch_size - count, rng)
        data = self.demonstrations.sample(num_updates, count, rng)
        # Every B / k consecutive rows have count / k of the data, wherever both are whole numbers.
        of_data = np.diff(np.arange(batch_size + 1) * count // batch_size).astype(bool)
        fields = set(Transition._fields) - {"weight"}
        return Transition(**{name: _mixed(getattr(own, name), getattr(data, name), of_data) for name in fields})

    @functools.cached_property
    def digest(self) -> np.ndarray:
        """SHA-256 of the data, uint8 `[32]`."""
        return np.frombuffer(hashlib.sha256(self.demonstrations.ring.view(np.uint8).data).digest(), np.uint8)

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a checkpoint keeps beside the rows and `total_rows`: what a `TransitionMemory` does, and the
        digest of the `demonstrations`.
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


def _mixed(own: Any, data: Any, of_data: np.ndarray) -> Any:
    """Returns the rows `[U, B, ...]` of two arrays in one, or the same of each entry of two dicts.

    Args:
        own, data: `[U, own rows, ...]` and `[U, rows of the data, ...]`.
        of_data: booleans `[B]`, which rows are of the data.
    """
    if isinstance(own, dict):
        return {key: _mixed(own[key], data[key], of_data) for key in own}
    both = np.empty((len(own), len(of_data), *own.shape[2:]), own.dtype)
    both[:, ~of_data], both[:, of_data] = own, data
    return both
