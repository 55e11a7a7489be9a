"""Batches that mix rows of a fixed data set with the agent's own: prior data (RLPD) and imitation (SQIL)."""

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
    """A ring of the agent's own transitions, sampled together with those of a fixed data set (arXiv 2302.02948).

    A batch has exactly `round(share * B)` transitions of the data, evenly mixed with own ones from the first on, so
    that every replica's part has its share of both. Each kind is sampled uniformly. The ring never overwrites the data.

    Args:
        spec: as in TransitionMemory.
        capacity: number of own transitions, over all environments.
        demonstrations: the data, at least one transition.
        num_envs: number of environments that fill the ring.
        share: of the transitions of a batch that come from the data.
        data_reward_filter: what the agent sees of the data's raw rewards; None for the one of its own.
        more: as in TransitionMemory, of both kinds of rows; the data are always in RAM.

    Attributes:
        demonstrations: the memory of the data.
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
        share = getattr(memory, "share", 0.5)  # SQIL has no other
        return super().build(preset, context, demonstrations=demonstrations, share=share, **more)

    def sample(self, num_updates: int, batch_size: int, rng: np.random.Generator) -> Transition:
        """Returns `num_updates` batches `[U, B, ...]`, with replacement; `round(share * B)` rows are of the data."""
        count = round(self.share * batch_size)
        collected = super().sample(num_updates, batch_size - count, rng)
        data = self.demonstrations.sample(num_updates, count, rng)
        # Every B / k consecutive rows have count / k of the data, wherever both are whole numbers.
        from_data = np.diff(np.arange(batch_size + 1) * count // batch_size).astype(bool)
        fields = set(Transition._fields) - {"weight"}
        return Transition(**{name: _mixed(getattr(collected, name), getattr(data, name), from_data) for name in fields})

    @functools.cached_property
    def digest(self) -> np.ndarray:
        """SHA-256 of the data, uint8 `[32]`."""
        return np.frombuffer(hashlib.sha256(self.demonstrations.ring.view(np.uint8).data).digest(), np.uint8)

    def state(self) -> dict[str, np.ndarray]:
        """Returns what a `TransitionMemory` does, and the digest of the `demonstrations`."""
        return {**super().state(), "demonstrations": self.digest}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Loads what `state` returned, if the demonstrations are those of the checkpoint.

        Raises:
            TfsacError: they are not.
        """
        if not np.array_equal(arrays["demonstrations"], self.digest):
            raise TfsacError("agent.memory.demonstrations changed since the checkpoint was written: restore the file")
        super().restore(arrays)


class SQILMemory(PriorDataMemory):
    """A ring of the agent's own transitions, sampled together with as many demonstrated ones (arXiv 1905.11108).

    Rows of a batch alternate, own ones first, so that every replica's part has both kinds. Each own reward is 0
    and each demonstrated one 1, whatever the environment gave; `n_step` sums those. The extra "expert" is 1 in
    demonstrated rows and 0 in own ones.

    Args:
        spec: as in TransitionMemory, with the extra "expert", float32 of shape ().
        arguments, more: as in PriorDataMemory, without filters of rewards.
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
