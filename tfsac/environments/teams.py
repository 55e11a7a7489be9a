"""Cooperative PettingZoo environments, whose agents share one policy and one reward, as single environments."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from tfsac.parameters.base import nearest
from tfsac.types import ACTION_MASK, AGENT_STATE

PREFIX = "pettingzoo:"


def make_team(level: str, **kwargs: Any) -> Team:
    """Makes the parallel environment of a PettingZoo module.

    Args:
        level: "pettingzoo:" and a module, such as "pettingzoo:mpe2.simple_spread_v3".
        **kwargs: passed to the module's `parallel_env`.

    Raises:
        ValueError: no such module in its package (naming the nearest), one without `parallel_env`, or no team.
        ImportError: a package is missing.
        TypeError: arguments that it does not take.
    """
    name = level.removeprefix(PREFIX)
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(
            f"A PettingZoo level is {PREFIX!r} and a module, such as mpe2.simple_spread_v3. Received: {level!r}"
        )
    module = _module(name, level)
    if not hasattr(module, "parallel_env"):
        raise ValueError(
            f"{name} has no `parallel_env`; only PettingZoo's parallel environments can be teams. Received: {level!r}"
        )
    team = Team(module.parallel_env(**kwargs))
    team.spec = EnvSpec(level)  # its name in messages
    return team


def _module(name: str, level: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package, _, missing = (error.name or "").rpartition(".")
        if not package or not f"{name}.".startswith(f"{error.name}."):
            raise  # a whole package is missing, perhaps one that the module itself needs
        there = [each.name for each in pkgutil.iter_modules(getattr(importlib.import_module(package), "__path__", []))]
        raise ValueError(
            f"{package} has no module {missing!r}.{nearest(missing, there)} Received: {level!r}"
        ) from error


class Team(gym.Env):
    """All agents of a cooperative PettingZoo parallel environment at once, in the order of `possible_agents`.

    Observations of P agents that see O numbers each:
        agent_state: `[P, O]` float32, what each agent sees.
        global_state: `[P, G]` float32, what each agent sees, followed by the environment's `state()` where that is a
            vector, else by what all agents see. The agent's own part comes first because the critic, which all agents
            share, must know whose action it values.
        action_mask: `[P, n]`, the valid actions, where agents see dicts of "observation" and "action_mask".

    Actions are `[P, A]`, or `[P]` discrete ones. The reward is the mean of the agents' rewards. The episode has
    `terminated` when it has for every agent, and is `truncated` when every agent is done and some were only cut off.

    Args:
        env: has the attributes and methods of a PettingZoo parallel environment.

    Raises:
        ValueError: no agents, agents with different spaces, or spaces that cannot be put together.
    """

    def __init__(self, env: Any):
        self.env, self.agents = env, list(getattr(env, "possible_agents", None) or ())
        if not self.agents:
            raise ValueError(f"{env}: a team has agents, which `possible_agents` names. Received: none")
        self.metadata, self.render_mode = env.metadata, getattr(env, "render_mode", None)
        one = self._shared("observation", env.observation_space)
        self.masked = isinstance(one, Dict) and one.spaces.keys() == {"observation", ACTION_MASK}
        own = one["observation"] if self.masked else one
        if not _is_vector(own):
            raise ValueError(
                f"{env}: each agent sees a vector, or a Dict with a vector 'observation' and an 'action_mask'. "
                f"Received: {one}"
            )
        state = getattr(env, "state_space", None)
        self.has_state = _is_vector(state)
        everyone: list[Any] = [state] if self.has_state else [own] * len(self.agents)
        spaces: dict[str, gym.Space[Any]] = {AGENT_STATE: self._rows(own), "global_state": self._rows(own, *everyone)}
        if self.masked:
            spaces[ACTION_MASK] = MultiBinary((len(self.agents), *one[ACTION_MASK].shape))
        self.observation_space = Dict(spaces)
        action = self._shared("action", env.action_space)
        if isinstance(action, Discrete):
            everyone_starts = [action.start] * len(self.agents)
            self.action_space = MultiDiscrete([action.n] * len(self.agents), action.dtype, start=everyone_starts)
        elif _is_vector(action):
            self.action_space = self._rows(action, dtype=action.dtype)
        else:
            raise ValueError(
                f"{env}: each agent has a Box `(A,)` of floats or a Discrete as actions. Received: {action}"
            )

    def _shared(self, what: str, space_of: Callable[[Any], gym.Space[Any]]) -> Any:
        first = space_of(self.agents[0])
        for agent in self.agents:
            if space_of(agent) != first:
                raise ValueError(
                    f"{self.env}: agents that share a policy have the same {what} space, {first} as {self.agents[0]} "
                    f"has. Received: {space_of(agent)} of {agent}"
                )
        return first

    def _rows(self, *boxes: Box, dtype: Any = np.float32) -> Box:
        """Returns the space of P rows, each of which has the numbers of all boxes."""
        low, high = (
            np.tile(np.concatenate(bounds).astype(dtype), (len(self.agents), 1))
            for bounds in ([box.low for box in boxes], [box.high for box in boxes])
        )
        return Box(low, high, dtype=dtype)

    def _stack(self, key: str, rows: Sequence[Any]) -> np.ndarray:
        expected = self.observation_space[key].shape[1:]  # type: ignore[index]
        for agent, row in zip(self.agents, rows, strict=True):
            if np.shape(row) != expected:
                raise RuntimeError(f"{key!r} of {agent} must have the shape {expected}. Received: {np.shape(row)}")
        return np.stack(rows)

    def _observe(self, seen: dict[Any, Any]) -> dict[str, np.ndarray]:
        self._check_all(seen, "sees")
        in_order = [seen[agent] for agent in self.agents]
        own = self._stack(AGENT_STATE, [one["observation"] for one in in_order] if self.masked else in_order)
        own = own.astype(np.float32)
        everyone = np.asarray(self.env.state() if self.has_state else own, np.float32).ravel()
        global_state = [np.concatenate([row, everyone]) for row in own]
        observation = {AGENT_STATE: own, "global_state": self._stack("global_state", global_state)}
        if self.masked:
            observation[ACTION_MASK] = self._stack(ACTION_MASK, [one[ACTION_MASK] for one in in_order])
        return observation

    def _check_all(self, agents: Collection[Any], does: str) -> None:
        if missing := [agent for agent in self.agents if agent not in agents]:
            raise RuntimeError(
                f"The agents of a team stay together until the episode ends: each one {does} when another does. "
                f"Received: all but {missing}"
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begins an episode.

        Raises:
            RuntimeError: an agent is not there, or sees something of another shape than its space's.
        """
        super().reset(seed=seed)
        return self._observe(self.env.reset(seed=seed, options=options)[0]), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Makes a step of all agents with actions `[P, A]`, or `[P]` discrete ones, in the environment's own numbers;
        the info has that of each agent by its name.

        Raises:
            RuntimeError: as `reset`, or an agent left before the others.
        """
        actions = {agent: action[i] for i, agent in enumerate(self.agents)}
        seen, rewards, terminated, truncated, infos = self.env.step(actions)
        observation = self._observe(seen)
        done = [agent for agent in self.agents if terminated[agent] or truncated[agent]]
        if done:
            self._check_all(done, "is done")
        ended = all(terminated[agent] for agent in self.agents)
        reward = float(np.mean([rewards[agent] for agent in self.agents]))
        return observation, reward, ended, bool(done) and not ended, dict(infos)

    def render(self) -> Any:
        """Draws the environment in its `render_mode`."""
        return self.env.render()

    def close(self) -> None:
        """Ends the environment."""
        self.env.close()


def _is_vector(space: Any) -> bool:
    return isinstance(space, Box) and len(space.shape) == 1
