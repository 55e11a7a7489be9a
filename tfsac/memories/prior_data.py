"""Batches that mix transitions of a fixed dataset with the agent's own: prior data (RLPD) and imitation (SQIL)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from tfsac.errors import TfsacError
from tfsac.memories.demonstrations import Demonstrations, load_demonstrations
from tfsac.memories.transitions import EXTRA, MemoryContext, TransitionMemory
from tfsac.parameters import Preset
from tfsac.types import EXPERT, Spec, Transition


class PriorDataMemory(TransitionMemory):
    """A ring of the agent's own transitions, sampled together with those of a fixed dataset (arXiv 2302.02948).

    A batch has exactly `round(share * B)` transitions of the dataset, mixed evenly with the agent's own, so that every
    replica's part has its share of both. Each kind is sampled uniformly. The ring never overwrites the dataset.

    Args:
        spec: as in TransitionMemory.
        capacity: number of the agent's own transitions, over all environments.
        demonstrations: the dataset, at least one transition.
        num_envs: number of environments that fill the ring.
        share: fraction of a batch that comes from the dataset.
        data_reward_filter: the `reward_filter` of the dataset; None for that of the agent's own transitions.
        more: as in TransitionMemory, for both kinds of transitions; the dataset is always in RAM.

    Attributes:
        demonstrations: the memory of the dataset.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        demonstrations: Demonstrations,
        num_envs: int = 1,
        *,
        share: float = 0.5,
        data_reward_filter: Callable[[np.ndarray], np.ndarray] | None = None,
        **more: Any,
    ):
        super().__init__(spec, capacity, num_envs, **more)
        self.share = share
        data_options = {**more, "reward_filter": data_reward_filter or self.reward_filter, "allocate": np.zeros}
        data_options["autoreset"] = False
        count = len(demonstrations.records)
        self.demonstrations = TransitionMemory(spec.unstacked(), count, 1, **data_options)
        self.demonstrations.total_rows = count
        for name in demonstrations.records.dtype.names or ():
            self.demonstrations.ring[name][:, 0] = demonstrations.records[name]

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `TransitionMemory.build`.

        Raises:
            TfsacError, OSError: demonstrations that cannot be read, or do not fit the environment.
        """
        memory: Any = preset.agent.memory
        demonstrations = load_demonstrations(
            memory.demonstrations,
            context.spec,
            preset.environment.level,
            memory.num_episodes,
            context.stored_action,
            preset.environment.visible_entries,
        )
        share = getattr(memory, "share", 0.5)  # always 0.5 for SQIL
        return super().build(preset, context, demonstrations=demonstrations, share=share, **more)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement; `round(share * B)` are of the dataset."""
        count = round(self.share * batch_size)
        collected = super().sample(num_updates, batch_size - count, rng)
        data = self.demonstrations.sample(num_updates, count, rng)
        # Every B / k consecutive entries have count / k of the dataset, if both are integers.
        from_data = np.diff(np.arange(batch_size + 1) * count // batch_size).astype(bool)
        fields = set(Transition._fields) - {"weight"}
        return Transition(**{name: _mixed(getattr(collected, name), getattr(data, name), from_data) for name in fields})

    @functools.cached_property
    def digest(self) -> np.ndarray:
        """SHA-256 of the dataset, uint8 `[32]`."""
        return np.frombuffer(hashlib.sha256(self.demonstrations.ring.view(np.uint8).data).digest(), np.uint8)

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state of a `TransitionMemory`, and the digest of the `demonstrations`."""
        return {**super().state(), "demonstrations": self.digest}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restores a result of `state`, if the demonstrations are those of the checkpoint.

        Raises:
            TfsacError: the demonstrations differ.
        """
        if not np.array_equal(arrays["demonstrations"], self.digest):
            raise TfsacError("agent.memory.demonstrations changed since the checkpoint was written: restore the file")
        super().restore(arrays)


class SQILMemory(PriorDataMemory):
    """A ring of the agent's own transitions, sampled together with as many demonstrated ones (arXiv 1905.11108).

    Batch entries alternate, own ones first, so that every replica's part has both kinds. Every own reward is 0 and
    every demonstrated one 1, whatever the environment's reward; `n_step` sums those. The extra "expert" is 1 for
    demonstrated entries and 0 for own ones.

    Args:
        spec: as in TransitionMemory, with the extra "expert", float32 of shape ().
        arguments, more: as in PriorDataMemory, without reward filters.
    """

    def __init__(self, spec: Spec, *arguments: Any, **more: Any):
        filters = {"reward_filter": np.zeros_like, "data_reward_filter": np.ones_like}
        super().__init__(spec, *arguments, **{**more, **filters})
        self.demonstrations.ring[EXTRA + EXPERT] = 1


def _mixed(collected: Any, data: Any, from_data: np.ndarray) -> Any:
    """Returns two arrays, or the entries of two dicts, in one `[U, B, ...]`, by booleans `[B]`."""
    if isinstance(collected, dict):
        return {key: _mixed(collected[key], data[key], from_data) for key in collected}
    mixed = np.empty((len(collected), len(from_data), *collected.shape[2:]), collected.dtype)
    mixed[:, ~from_data], mixed[:, from_data] = collected, data
    return mixed
