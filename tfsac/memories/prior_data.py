"""Prior data (RLPD): a share of every batch comes from a fixed data set, with its own rewards."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from tfsac.memories.demonstrations import Demonstrations
from tfsac.memories.fixed_data import FixedDataMemory, RewardFilter
from tfsac.memories.storage import Allocate
from tfsac.memories.transitions import MemoryContext
from tfsac.parameters import Preset
from tfsac.types import Spec


class PriorDataMemory(FixedDataMemory):
    """A ring of the agent's own transitions, sampled together with those of a fixed data set (arXiv 2302.02948).

    A batch has exactly `round(share * B)` rows of the data, from the first one on, evenly mixed with own ones. Rewards
    of both go through the same filter.

    Args:
        spec: as in TransitionMemory.
        capacity: number of own transitions, over all environments.
        demonstrations: the data, at least one transition.
        share: of the rows of a batch that come from the data.
        num_envs, discount, n_step, ignore_done, reward_filter: as in TransitionMemory, of both kinds of rows.
        allocate: makes the ring of the own transitions; the data are always in RAM.

    Attributes:
        demonstrations: the memory of the data.

    Raises:
        ValueError: as TransitionMemory, or extras in the spec.
    """

    def __init__(
        self,
        spec: Spec,
        capacity: int,
        demonstrations: Demonstrations,
        share: float = 0.5,
        num_envs: int = 1,
        discount: float = 0.99,
        n_step: int = 1,
        ignore_done: bool = False,
        reward_filter: RewardFilter | None = None,
        allocate: Allocate = np.zeros,
    ):
        if spec.extras:
            raise ValueError(
                "A data set has no values that a policy stores beside its steps, so this policy goes without prior "
                f"data. Received: the extras {', '.join(spec.extras)}"
            )
        same = reward_filter, reward_filter
        super().__init__(spec, capacity, demonstrations, share, num_envs, discount, n_step, ignore_done, same, allocate)

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Returns the memory that a preset describes; see `FixedDataMemory.build`."""
        memory: Any = preset.agent.memory
        return super().build(preset, context, share=memory.share, reward_filter=context.reward_filter, **more)
