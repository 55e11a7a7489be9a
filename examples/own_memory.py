"""A custom replay memory, which samples new transitions more often than old ones.

`python examples/own_memory.py` trains on Pendulum-v1 for about a minute and resumes the run with a longer schedule. On
the command line: `tfsac train --preset=examples/own_memory.py --set=agent.memory.recency=3`.
"""

import pathlib
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

import tfsac
from tfsac.memories import MemoryContext, TransitionMemory
from tfsac.parameters import ExperienceReplayParameters, Preset, parameters

RUN = pathlib.Path("runs/own_memory")


@parameters
class RecentReplayParameters(ExperienceReplayParameters):
    """Parameters of the uniform memory, and `recency`: 1 samples uniformly, larger values prefer newer transitions."""

    recency: Annotated[float, Field(ge=1)] = 2.0
    path: ClassVar[str] = "own_memory:RecentMemory"


class RecentMemory(TransitionMemory):
    """Samples transitions by age: a fraction of the oldest age, the `recency`-th power of a uniform random number."""

    def __init__(self, *arguments: Any, recency: float, **more: Any):
        super().__init__(*arguments, **more)
        self.recency = recency

    @classmethod
    def build(cls, preset: Preset, context: MemoryContext, **more: Any) -> Self:
        """Passes the additional parameter to the constructor."""
        return super().build(preset, context, recency=preset.agent.memory.recency, **more)

    def choose(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, Any]:
        """Returns indices into the flattened ring buffer, and no importance weights."""
        age = (len(self) * rng.random(shape) ** self.recency).astype(int)
        return (self.total_rows * self.num_envs - 1 - age) % self.ring.size, ()


preset = tfsac.override(
    tfsac.load_preset("pendulum_twin_sac"),
    {"agent.memory": RecentReplayParameters(max_size=100_000), "schedule.improve_steps": 4_000},
)


def main() -> None:
    """Trains and resumes."""
    tfsac.train(__file__, RUN)
    longer = tfsac.override(tfsac.load_preset(RUN / "config.json"), {"schedule.improve_steps": 5_000})
    print(f"best mean return {tfsac.train(longer, RUN, resume=True).best_return:.1f}")


if __name__ == "__main__":
    main()
