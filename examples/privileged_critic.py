"""Privileged critics read the exact state of a simulator; the policy reads only what the deployed system measures.

`python examples/privileged_critic.py` trains for about a minute, evaluates the policy in the environment without the
simulator's state, and exports it. docs/partial_observability.md explains the parameters.
"""

import functools
import pathlib
from typing import Any

import gymnasium
import numpy as np

import tfsac

RUN = pathlib.Path("runs/privileged_critic")


class Tank(gymnasium.Env):
    """Keep a tank at its target level: a pump fills it, an unknown leak empties it, and the gauge is noisy.

    The policy sees "gauge", the last four readings relative to the target. The simulator also provides "state", the
    true level and the leak, which the deployed tank does not measure. The reward is minus the squared true level.

    Args:
        deployed: omit "state".
    """

    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, deployed: bool = False) -> None:
        self.deployed = deployed
        spaces = {"gauge": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)}
        if not deployed:
            spaces["state"] = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        """Samples the level and the leak."""
        super().reset(seed=seed)
        self.level, self.leak = self.np_random.uniform(-1.0, 1.0), self.np_random.uniform(0.1, 0.5)
        self.readings = [self._read()] * 4
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        """Pumps for one step. Episodes never terminate; the preset's time limit truncates them."""
        self.level = float(np.clip(self.level + float(action[0]) - self.leak, -2.0, 2.0))
        self.readings = [*self.readings[1:], self._read()]
        return self._observe(), -(self.level**2), False, False, {}

    def _read(self) -> float:
        return self.level + self.np_random.normal(0.0, 0.2)

    def _observe(self) -> dict[str, np.ndarray]:
        observation = {"gauge": np.array(self.readings, np.float32)}
        return observation if self.deployed else observation | {"state": np.array([self.level, self.leak], np.float32)}


def main() -> None:
    """Trains with the simulator's state, and evaluates and exports the policy without it."""
    changes = {
        "environment.max_episode_steps": 50,
        "schedule.improve_steps": 4_000,
        "agent.networks.policy.observation_keys": ["gauge"],
        "agent.networks.q.observation_keys": ["gauge", "state"],
    }
    preset = tfsac.override(tfsac.load_preset("pendulum_twin_sac"), changes)
    tfsac.train(preset, RUN, env_fn=Tank)
    deployed = functools.partial(Tank, deployed=True)
    returns = tfsac.evaluate(RUN, episodes=20, env_fn=deployed).returns
    path = tfsac.export(tfsac.load_policy(RUN, env_fn=deployed), RUN / "exported")
    print(f"mean return {returns.mean():.2f} without the simulator's state; exported to {path}")


if __name__ == "__main__":
    main()
