"""A T-maze, which only a policy with memory can solve; see docs/recurrent_soft_actor_critic.md.

cd examples
tfsac train --preset=recurrent_discrete_sac --level=t_maze:TMaze-v0 --run_dir=runs/t_maze
"""

from typing import Any

import gymnasium
import numpy as np


class TMaze(gymnasium.Env):
    """A sign at the start of a corridor shows on which side of its end the reward lies (Bakker 2002, "Reinforcement
    learning with long short-term memory").

    The observation is the sign, -1 or 1 at the start and 0 afterwards, and whether this is the junction (1). Actions
    are forward, left and right. At the junction, left and right end the episode, with a reward of 4 on the sign's side
    and -0.1 on the other. Not moving costs 0.1: turning in the corridor, or going forward at the junction.
    """

    def __init__(self, length: int = 10) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.length, self.position, self.sign = length, 0, 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Samples the side of the reward."""
        super().reset(seed=seed)
        self.position, self.sign = 0, int(self.np_random.integers(2)) * 2 - 1
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Moves forward, or turns at the junction."""
        at_junction = self.position == self.length
        if at_junction and action != 0:
            is_right_side = (action == 2) == (self.sign == 1)
            return self._observe(), 4.0 if is_right_side else -0.1, True, False, {"is_success": is_right_side}
        moves = not at_junction and action == 0
        self.position += int(moves)
        return self._observe(), 0.0 if moves else -0.1, False, False, {"is_success": False}

    def _observe(self) -> np.ndarray:
        sign = self.sign if self.position == 0 else 0
        return np.float32([sign, self.position == self.length])


gymnasium.register("TMaze-v0", entry_point="t_maze:TMaze", max_episode_steps=50)
