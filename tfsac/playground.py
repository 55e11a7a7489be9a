"""MuJoCo Playground tasks as Gymnasium vector environments, which JAX steps in one compiled call.

The level `tfsac.playground:CheetahRun` imports this module, which registers every task. It needs `tfsac[playground]`.
"""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import numpy as jnp
from mujoco_playground import registry

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise JAX reserves most of the GPU


class Playground(VectorEnv):
    """E copies of a task with actions in [-1, 1]; several observations come by key.

    Args:
        task: a name in `mujoco_playground.registry.ALL_ENVS`.
        num_envs: E.
        max_episode_steps: number of steps after which an episode is truncated.
        **config: fields of the task's configuration, such as `impl="warp"` or `action_scale=0.3`.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, task: str, num_envs: int, max_episode_steps: int, **config: Any):
        if jax.default_backend() == "cpu":  # the default, MuJoCo Warp, is for NVIDIA GPUs
            config = {"impl": "jax", **config}
        env = registry.load(task, config_overrides=config)
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps
        shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs
        boxes = jax.tree.map(lambda x: gym.spaces.Box(-np.inf, np.inf, x.shape, np.float32), shapes)
        self.single_observation_space = gym.spaces.Dict(boxes) if isinstance(boxes, dict) else boxes
        self.single_action_space = gym.spaces.Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state: Any = None
        self.length = np.zeros(num_envs, int)  # steps of the episodes so far

        def reset(key: Any) -> Any:
            state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
            return jax.tree.map(lambda x: x.astype(x.dtype), state)  # weak types would make `step` compile again

        def step(state: Any, action: Any) -> tuple[Any, Any]:
            following = jax.vmap(env.step)(state, action)
            numbers = jax.tree.leaves((following.obs, following.reward))
            finite = jnp.stack([jnp.isfinite(x.reshape(num_envs, -1)).all(-1) for x in numbers]).all(0)
            reward = jnp.where(finite, following.reward, 0.0)
            return following.replace(obs=_where(finite, following.obs, state.obs), reward=reward), ~finite

        self._reset, self._step, self._where = jax.jit(reset), jax.jit(step), jax.jit(_where)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, or only those in `options["reset_mask"]` `[E]`."""
        super().reset(seed=seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        state = self._reset(jax.random.PRNGKey(self.np_random.integers(2**31)))
        self.state = state if mask.all() else self._where(mask, state, self.state)
        self.length[mask] = 0
        return self.state.obs, {}

    def step(self, actions: Any) -> tuple[Any, Any, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all. A diverging simulation truncates its episode, which ends with the previous observation."""
        self.state, diverged = self._step(self.state, np.asarray(actions, np.float32))
        self.length += 1
        diverged = np.asarray(diverged)
        terminated = np.asarray(self.state.done, bool) & ~diverged
        truncated = (self.length >= self.max_episode_steps) & ~terminated | diverged
        return self.state.obs, self.state.reward, terminated, truncated, {"diverged": diverged}


def _where(mask: Any, new: Any, old: Any) -> Any:
    """Returns arrays `[E, ...]` with the new values where the mask `[E]` is true. Arrays that all copies share, such as
    MuJoCo Warp's list of contacts, keep their old values.
    """

    def choose(x: Any, y: Any) -> Any:
        return jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, y) if x.shape[:1] == mask.shape else y

    return jax.tree.map(choose, new, old)


for _task in registry.ALL_ENVS:
    _steps = registry.get_default_config(_task).episode_length
    gym.register(_task, vector_entry_point=f"{__name__}:Playground", max_episode_steps=_steps, kwargs={"task": _task})
