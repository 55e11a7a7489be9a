"""Goal environments for tests of hindsight replay: bit flipping, and a point on a plane with optional faults."""

import gymnasium as gym
import numpy as np

Box, Dict = gym.spaces.Box, gym.spaces.Dict


class BitFlipping(gym.Env):
    """Flips one of n bits per step to reach the desired bits; the reward is 0 at the goal and -1 before."""

    def __init__(self, bits=12):
        space = Box(0.0, 1.0, (bits,), np.float32)
        self.observation_space = Dict(observation=space, achieved_goal=space, desired_goal=space)
        self.action_space = gym.spaces.Discrete(bits)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, *self.observation_space["observation"].shape))
        return self.observation(), {}

    def step(self, action):
        self.bits[action] ^= 1
        success = bool((self.bits == self.goal).all())
        return self.observation(), float(success) - 1.0, success, False, {"is_success": success}

    def observation(self):
        bits = self.bits.astype(np.float32)
        return {"observation": bits, "achieved_goal": bits.copy(), "desired_goal": self.goal.astype(np.float32)}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(axis=-1) - 1.0

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(axis=-1)


class Reach(gym.Env):
    """Moves a point on a plane towards a goal, with a sparse reward; `wrong` selects a fault, `hybrid` adds two gears."""

    def __init__(self, wrong="", hybrid=False):
        self.wrong, self.hybrid, goal = wrong, hybrid, Box(-2.0, 2.0, (2,), np.float64)
        point = Box(-2.0, 2.0, (2,), np.float64)
        self.observation_space = Dict(observation=point, achieved_goal=goal, desired_goal=goal)
        self.action_space = move = Box(-1.0, 1.0, (2,), np.float32)
        if hybrid:
            self.action_space = Dict(gear=gym.spaces.Discrete(2), move=move)
        if wrong == "no termination":
            self.compute_terminated = lambda achieved, desired, info: None
        if wrong == "scalar termination":
            self.compute_terminated = lambda achieved, desired, info: bool(np.linalg.norm(achieved - desired) < 0.01)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point, self.goal = self.np_random.uniform(-1.0, 1.0, (2, 2))
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        if self.hybrid:
            action = action["gear"] * action["move"]
        self.point = np.clip(self.point + 0.2 * action, -2.0, 2.0)
        reward = float(self.reward(self.point, self.goal))
        if self.wrong == "penalty":
            reward -= 0.1 * float(np.square(action).sum())
        self.steps += 1
        if self.wrong == "own step":
            reward -= 0.01 * self.steps
        fell = self.wrong == "last step" and self.steps == 30
        if fell:
            reward = -100.0
        return self.observation(), reward, fell, False, {"is_success": reward == 0.0, "bonus": 0.0}

    def observation(self):
        return {key: self.point.copy() for key in ("observation", "achieved_goal")} | {"desired_goal": self.goal.copy()}

    def reward(self, achieved, desired):
        return -(np.linalg.norm(achieved - desired, axis=-1) > 0.2).astype(np.float64)

    def compute_reward(self, achieved_goal, desired_goal, info):
        if self.wrong == "info":
            return self.reward(achieved_goal, desired_goal) + info["bonus"]
        if self.wrong == "own step":
            return self.reward(achieved_goal, desired_goal) - 0.01 * self.steps
        if self.wrong == "own goal":
            return self.reward(achieved_goal, self.goal)
        if self.wrong == "one norm":
            return -float(np.linalg.norm(achieved_goal - desired_goal) > 0.2)
        return self.reward(achieved_goal, desired_goal)


class ReachVectorEnv(gym.vector.SyncVectorEnv):
    """A `VectorEnv` of points that has its own `compute_reward`."""

    def __init__(self, num_envs=3, mode=gym.vector.AutoresetMode.NEXT_STEP):
        super().__init__([lambda: gym.wrappers.TimeLimit(Reach(), 8)] * num_envs, autoreset_mode=mode)

    def compute_reward(self, achieved_goal, desired_goal, info):
        return self.envs[0].unwrapped.compute_reward(achieved_goal, desired_goal, info)


gym.register("BitFlipping-v0", BitFlipping, max_episode_steps=12)
gym.register("Reach-v0", Reach, max_episode_steps=20)
# With the module's name, so that other processes can make them.
REACH, BITS = f"{__name__}:Reach-v0", f"{__name__}:BitFlipping-v0"
