"""A custom exploration: noise that decays during the run.

`python examples/own_exploration.py` trains on Pendulum-v1 for about a minute and resumes with a longer schedule.
On the command line: `tfsac train --preset=examples/own_exploration.py --set=agent.exploration.decay_steps=5000`.
"""

import pathlib
from collections.abc import Callable
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

import tfsac
from tfsac.parameters import AdditiveNoiseParameters, parameters
from tfsac.policies import Exploration

RUN = pathlib.Path("runs/own_exploration")


@parameters
class DecayingNoiseParameters(AdditiveNoiseParameters):
    """`noise_std` is the initial standard deviation; it decays to zero over `decay_steps` environment steps."""

    noise_std: Annotated[float, Field(ge=0)] = 0.5
    decay_steps: Annotated[int, Field(gt=0)] = 3_000
    path: ClassVar[str] = "own_exploration:DecayingNoise"


class DecayingNoise(Exploration):
    """Adds Gaussian noise to actions in [-1, 1]. It has no state: a resumed run explores like an uninterrupted one."""

    def __call__(
        self, action: np.ndarray, rng: np.random.Generator, uniform: Callable[[], np.ndarray], env_steps: int
    ) -> np.ndarray:
        """Returns noisy actions `[B, A]`."""
        std = self.parameters.noise_std * max(0.0, 1.0 - env_steps / self.parameters.decay_steps)
        return np.clip(action + np.float32(std) * rng.standard_normal(action.shape, np.float32), -1.0, 1.0)


preset = tfsac.override(
    tfsac.load_preset("pendulum_twin_sac"),
    {"agent.exploration": DecayingNoiseParameters(), "schedule.improve_steps": 4_000},
)


def main() -> None:
    """Trains and resumes."""
    tfsac.train(__file__, RUN)
    longer = tfsac.override(tfsac.load_preset(RUN / "config.json"), {"schedule.improve_steps": 5_000})
    print(f"best mean return {tfsac.train(longer, RUN, resume=True).best_return:.1f}")


if __name__ == "__main__":
    main()
