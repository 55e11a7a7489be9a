"""Cooperative PettingZoo environments as single environments: all agents share one policy and one reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from tfsac.errors import TfsacError
from tfsac.types import ACTION_MASK, AGENT_STATE


class Team(gym.Env):
    """All agents of a cooperative PettingZoo parallel environment at once, in the order of `possible_agents`.

    Observations of P agents with O numbers each:
        agent_state: `[P, O]` float32, the observation of each agent.
        global_state: `[P, G]` float32, the observation of each agent, followed by the environment's `state()` if it is
            a vector, else by the observations of all agents. The agent's own observation comes first because the shared
            critic must know which agent's action it evaluates.
        action_mask: `[P, n]`, the valid actions, if agents observe dicts of "observation" and "action_mask".

    Actions are `[P, A]`, or `[P]` if discrete. The reward is the mean of the agents' rewards. An episode is
    `terminated` when it is for every agent, and `truncated` when every agent is done and at least one was truncated.

    Args:
        env: a PettingZoo parallel environment.

    Raises:
        TfsacError: agents with different spaces, or spaces that cannot be combined.
    """

    def __init__(self, env: Any):
        self.env, self.agents = env, list(env.possible_agents)
        self.metadata, self.render_mode = env.metadata, getattr(env, "render_mode", None)
        observation, action = self._shared(env.observation_space), self._shared(env.action_space)
        self.masked = isinstance(observation, Dict) and observation.spaces.keys() == {"observation", ACTION_MASK}
        agent_space: Any = observation["observation"] if self.masked else observation
        if not _is_vector(agent_space) or not (_is_vector(action) or isinstance(action, Discrete)):
            rule = "a vector, or a Dict with 'observation' and 'action_mask', and act in a Box (A,) or Discrete"
            raise TfsacError(f"agents of a team must observe {rule}, got {observation} and {action}")
        state = getattr(env, "state_space", None)
        self.has_state = _is_vector(state)
        everyone: list[Any] = [state] if self.has_state else [agent_space] * len(self.agents)
        spaces: dict[str, gym.Space[Any]] = {
            AGENT_STATE: self._stacked(agent_space),
            "global_state": self._stacked(agent_space, *everyone),
        }
        if self.masked:
            spaces[ACTION_MASK] = MultiBinary((len(self.agents), *observation[ACTION_MASK].shape))
        self.observation_space = Dict(spaces)
        if isinstance(action, Discrete):
            starts = [action.start] * len(self.agents)
            self.action_space = MultiDiscrete([action.n] * len(self.agents), action.dtype, start=starts)
        else:
            self.action_space = self._stacked(action, dtype=action.dtype)

    def _shared(self, space_of: Callable[[Any], gym.Space[Any]]) -> Any:
        spaces = [space_of(agent) for agent in self.agents]
        if any(space != spaces[0] for space in spaces):
            raise TfsacError(f"agents of a team share a policy and need the same spaces, got {spaces}")
        return spaces[0]

    def _stacked(self, *boxes: Box, dtype: Any = np.float32) -> Box:
        """Returns the space `[P, ...]` in which each agent has the concatenated entries of all boxes."""
        bounds = np.concatenate([[box.low, box.high] for box in boxes], axis=1).astype(dtype)
        low, high = np.tile(bounds[:, None], (1, len(self.agents), 1))
        return Box(low, high, dtype=dtype)

    def _observe(self, observations: dict[Any, Any]) -> dict[str, np.ndarray]:
        if missing := [agent for agent in self.agents if agent not in observations]:
            raise RuntimeError(f"all agents of a team must stay until the episode ends, {missing} have no observation")
        in_order: Sequence[Any] = [observations[agent] for agent in self.agents]
        vectors = np.stack([x["observation"] for x in in_order] if self.masked else in_order).astype(np.float32)
        everyone = np.asarray(self.env.state() if self.has_state else vectors, np.float32).ravel()
        observation = {AGENT_STATE: vectors, "global_state": np.stack([np.append(x, everyone) for x in vectors])}
        if self.masked:
            observation[ACTION_MASK] = np.stack([x[ACTION_MASK] for x in in_order])
        return observation

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Starts an episode."""
        super().reset(seed=seed)
        return self._observe(self.env.reset(seed=seed, options=options)[0]), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Steps all agents with actions `[P, A]`, or `[P]` if discrete, in the environment's own numbers. The info
        contains each agent's info by name.

        Raises:
            RuntimeError: an agent was done before the others.
        """
        actions = {agent: action[i] for i, agent in enumerate(self.agents)}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        observation = self._observe(observations)
        done = [bool(terminated[agent] or truncated[agent]) for agent in self.agents]
        if any(done) and not all(done):
            raise RuntimeError(f"the agents of a team must all be done in the same step, got {done}")
        ended = all(terminated[agent] for agent in self.agents)
        reward = float(np.mean([rewards[agent] for agent in self.agents]))
        return observation, reward, ended, any(done) and not ended, dict(infos)

    def render(self) -> Any:
        """Renders the environment in its `render_mode`."""
        return self.env.render()

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()


def _is_vector(space: Any) -> bool:
    return isinstance(space, Box) and len(space.shape) == 1
