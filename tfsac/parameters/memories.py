"""Parameters of the replay memories."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import (
    ByKind,
    ClassParameters,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    UnusedIf,
    parameters,
)


@parameters
class ExperienceReplayParameters(ClassParameters):
    """A ring of transitions sampled uniformly with replacement.

    Attributes:
        max_size: transitions of all environments.
        device: where batches are drawn: "cpu" in RAM; "accelerator" inside the compiled updates, from a copy of the
            memory on the GPU; "auto" on a GPU if the memory fits, otherwise in RAM.
    """

    max_size: PositiveInt = 1_000_000
    device: Literal["cpu", "accelerator", "auto"] = "cpu"
    kind: Literal["uniform"] = "uniform"
    path: ClassVar[str] = "tfsac.memories.transitions:TransitionMemory"


@parameters
class PrioritizedExperienceReplayParameters(ClassParameters):
    """A ring of transitions sampled by priority, the absolute TD error (arXiv 1511.05952, proportional variant).

    All updates of one call use the priorities from before the call.

    Attributes:
        max_size: transitions of all environments.
        alpha: exponent of the priorities; 0 samples uniformly.
        beta: initial exponent of the importance weights; 1 corrects the sampling bias fully.
        beta_anneal_updates: updates over which `beta` grows to 1.
        epsilon: added to every priority, so that every transition can be sampled.
    """

    max_size: PositiveInt = 1_000_000
    device: Literal["cpu"] = "cpu"
    alpha: UnitInterval = 0.6
    beta: Annotated[UnitInterval, UnusedIf("alpha", 0.0)] = 0.4
    beta_anneal_updates: Annotated[PositiveInt, UnusedIf("alpha", 0.0), UnusedIf("beta", 1.0)] = 100_000
    epsilon: Annotated[PositiveFloat, UnusedIf("alpha", 0.0)] = 1e-5
    kind: Literal["prioritized"] = "prioritized"
    path: ClassVar[str] = "tfsac.memories.prioritized:PrioritizedMemory"


@parameters
class HindsightExperienceReplayParameters(ClassParameters):
    """Hindsight experience replay (arXiv 1707.01495) for goal environments: most sampled transitions get a goal that
    their episode achieved, and the rewards for that goal. Unfinished episodes are not sampled.

    Attributes:
        max_size: transitions of all environments.
        strategy: source of the goal: the same or a later step of the episode ("future"), its last step ("final") or
            any of its steps ("episode").
        goals_per_step: k; k of k + 1 sampled transitions are relabelled, the others keep their goals.
    """

    max_size: PositiveInt = 1_000_000
    device: Literal["cpu"] = "cpu"
    strategy: Literal["future", "final", "episode"] = "future"
    goals_per_step: NonNegativeInt = 4
    kind: Literal["hindsight"] = "hindsight"
    path: ClassVar[str] = "tfsac.memories.hindsight:HindsightMemory"


@parameters
class DemonstratedReplayParameters(ClassParameters):
    """Base of the parameters of memories that take a fixed number of entries of each batch from demonstrations.

    Attributes:
        demonstrations: a file from `tfsac record`, or "minari:" and the id of a Minari dataset.
        num_episodes: number of demonstrated episodes to use, from the first on; None for all.
        max_size: the agent's own transitions, of all environments.
    """

    demonstrations: Annotated[str, Field(min_length=1)]
    num_episodes: PositiveInt | None = None
    max_size: PositiveInt = 1_000_000
    device: Literal["cpu"] = "cpu"

    def check_batch(self, batch_size: int, replicas: int = 1) -> None:
        """Raises ParameterError if replicas cannot share the demonstrated entries of a global batch equally."""
        share = getattr(self, "share", 0.5)  # fixed for SQIL
        rows = round(share * batch_size)
        if not 0 < rows < batch_size or rows % replicas:
            allowed = f"above 0, below batch_size and divisible by the {replicas} replicas"
            raise ParameterError(f"share={share} of batch_size={batch_size} must be {allowed}, got {rows} entries")


@parameters
class SQILExperienceReplayParameters(DemonstratedReplayParameters):
    """Soft Q imitation learning (arXiv 1905.11108): half of every batch is demonstrated, with reward 1; the other half
    is the agent's own, with reward 0. The environment's rewards are not used for learning.
    """

    kind: Literal["sqil"] = "sqil"
    path: ClassVar[str] = "tfsac.memories.prior_data:SQILMemory"


@parameters
class PriorDataReplayParameters(DemonstratedReplayParameters):
    """Prior data (RLPD, arXiv 2302.02948): a share of every batch consists of transitions of a fixed data set with its
    recorded rewards; the rest are the agent's own. Both are sampled uniformly, from the first update on.

    Attributes:
        share: fraction of the batch entries that comes from the data; `share * batch_size` is rounded.
    """

    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    kind: Literal["prior_data"] = "prior_data"
    path: ClassVar[str] = "tfsac.memories.prior_data:PriorDataMemory"


@parameters
class SequenceReplayParameters(ClassParameters):
    """A ring of steps, sampled uniformly as sequences.

    Attributes:
        max_size: steps of all environments.
        sequence_length: T, number of consecutive entries, the last of which only bootstraps. Longer sequences look
            further ahead, or with recurrent agents further back, and cost more.
    """

    max_size: PositiveInt = 1_000_000
    sequence_length: Annotated[PositiveInt, Field(ge=2)] = 4
    kind: Literal["sequences"] = "sequences"
    path: ClassVar[str] = "tfsac.memories.sequences:SequenceMemory"


@parameters
class EpisodicReplayParameters(ClassParameters):
    """Whole episodes, replayed as segments: a uniformly sampled segment of a uniformly sampled episode.

    Attributes:
        max_size: steps of all finished episodes; the oldest are removed first. Unfinished episodes do not count.
        replay_start_size: steps of finished episodes before the first replay.
    """

    max_size: PositiveInt = 1_000_000
    replay_start_size: NonNegativeInt = 10_000
    kind: Literal["episodes"] = "episodes"
    path: ClassVar[str] = "tfsac.memories.episodes:EpisodicMemory"


MemoryParameters = Annotated[
    ExperienceReplayParameters
    | PrioritizedExperienceReplayParameters
    | SQILExperienceReplayParameters
    | PriorDataReplayParameters
    | HindsightExperienceReplayParameters,
    ByKind(),
]
