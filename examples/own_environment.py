"""A custom environment: `python examples/own_environment.py` checks it, and trains, evaluates and exports a policy.

To use it on the command line, register it with Gymnasium: see docs/own_environments.md.
"""

import pathlib
from typing import Any

import gymnasium
import numpy as np

import tfsac

RUN = pathlib.Path("runs/own_environment")


class Thermostat(gymnasium.Env):
    """Keep a room at 20 degrees: it loses heat to the colder outside, and a heater warms it.

    Observations are the deviations of the room and outside temperatures from 20 degrees, in units of 10 degrees. The
    action is the heating power, from 0 to 5 degrees per step. The reward is minus the squared observation of the room.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(0.0, 5.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Samples both temperatures."""
        super().reset(seed=seed)
        self.room, self.outside = self.np_random.uniform(10.0, 25.0), self.np_random.uniform(-10.0, 15.0)
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Heats for one step. Episodes never terminate; the preset's time limit truncates them."""
        self.room += float(action[0]) + 0.1 * (self.outside - self.room)
        observation = self._observe()
        return observation, -float(observation[0] ** 2), False, False, {}

    def _observe(self) -> np.ndarray:
        return np.clip((np.array([self.room, self.outside]) - 20.0) / 10.0, -10.0, 10.0).astype(np.float32)


def main() -> None:
    """Checks the environment, and trains, evaluates and exports a policy for it."""
    report = tfsac.check_environment(Thermostat, num_steps=500)
    print(report)
    assert report.usable
    changes = {"environment.max_episode_steps": 50, "schedule.improve_steps": 4_000}
    preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), changes)
    tfsac.train(preset, RUN, env_fn=Thermostat)
    done = tfsac.evaluate(RUN, episodes=10, env_fn=Thermostat)
    path = tfsac.export(tfsac.load_policy(RUN, env_fn=Thermostat), RUN / "exported")
    print(f"mean return {done.returns.mean():.2f}; exported to {path}")


if __name__ == "__main__":
    main()
