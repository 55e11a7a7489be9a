"""Tiny environments, presets, specs and random batches.

Importing this module registers the environments. Their levels are "toys:Identity-v0", "toys:DiscreteIdentity-v0",
"toys:HybridIdentity-v0", "toys:RememberFirst-v0", "toys:TeamIdentity-v0" and "toys:Faulty-v0".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from tfsac.environments.actions import HybridActionMap, action_spec, nested_mask
from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    Preset,
    PresetValidationParameters,
    ScheduleParameters,
    SoftActorCriticAgentParameters,
    override,
    soft_actor_critic_networks,
)
from tfsac.types import (
    FIRST,
    LAST,
    MID,
    NEXT_STATE,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    STATE,
    ArraySpec,
    DiscreteSpec,
    FactorsSpec,
    HybridSpec,
    Segments,
    Sequence,
    Spec,
    Transition,
)


class Identity(gym.Env):
    """One step: the reward is minus the squared distance of the action from the observation. Bounds differ."""

    def __init__(self, size: int = 2):
        high = np.arange(1, size + 1, dtype=np.float32)
        self.observation_space = Box(-high, high)
        self.action_space = Box(-high, high)
        self.state = np.zeros(size, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        high = self.observation_space.high
        self.state = self.np_random.uniform(-0.8 * high, 0.8 * high).astype(np.float32)
        return self.state, {}

    def step(self, action):
        return self.state, -float(np.square(action - self.state).sum()), True, False, {}


class DiscreteIdentity(gym.Env):
    """One step: the observation is a one-hot target, and the reward is 1 for choosing it, else 0.

    If `masked`, half of the wrong actions, rounded up, are invalid and raise a ValueError.
    """

    def __init__(self, size: int = 4, masked: bool = False):
        observation = Box(0.0, 1.0, (size,), np.float32)
        self.observation_space = Dict(observation=observation, action_mask=MultiBinary(size)) if masked else observation
        self.action_space = Discrete(size)
        self.size, self.masked, self.target, self.mask = size, masked, 0, np.ones(size, np.int8)

    def _observe(self):
        observation = np.eye(self.size, dtype=np.float32)[self.target]
        return {"observation": observation, "action_mask": self.mask} if self.masked else observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.target, self.mask = int(self.np_random.integers(self.size)), np.ones(self.size, np.int8)
        if self.masked:
            wrong = np.delete(np.arange(self.size), self.target)
            self.mask[self.np_random.permutation(wrong)[: self.size // 2]] = 0
        return self._observe(), {}

    def step(self, action):
        if not self.mask[action]:
            raise ValueError(f"The action must be valid, one of {np.flatnonzero(self.mask)}. Received: {action}")
        return self._observe(), float(action == self.target), True, False, {}


class RememberFirst(gym.Env):
    """A memory task: the first observation is -1 or 1, the others are 0.

    The reward of the last step is 1 if the action matches the first observation, else 0.
    """

    def __init__(self, length: int = 4):
        self.observation_space, self.action_space = Box(-1.0, 1.0, (1,), np.float32), Discrete(2)
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign, self.steps = int(self.np_random.integers(2)), 0
        return np.float32([2 * self.sign - 1]), {}

    def step(self, action):
        self.steps += 1
        done = self.steps == self.length
        return np.zeros(1, np.float32), float(done and action == self.sign), done, False, {}


class HybridIdentity(gym.Env):
    """The observation shows discrete and continuous targets.

    The reward is minus the number of wrong discrete actions, minus the squared distance of the continuous actions from
    their targets, in units of half their range.

    Args:
        structure: of the action: "dict", "tuple", "dict in dict", "multi_discrete" or "nested" (parametrised actions).
        mask: "flat", "nested" or "". A mask makes one wrong value of each factor invalid; it raises a ValueError.
        steps: length of an episode.
    """

    def __init__(self, structure: str = "dict", mask: str = "", steps: int = 5):
        press, turn = MultiDiscrete([2, 3]), Box(np.float32([-2, 0]), np.float32([2, 10]))
        choose = Discrete(3, start=5)
        self.action_space = {
            "dict": Dict({"turn": turn, "choose": choose, "press": press}),
            "tuple": Tuple((turn, choose, press)),
            "dict in dict": Dict(arm=Dict(turn=turn, choose=choose), press=press),
            "multi_discrete": MultiDiscrete([3, 2, 3]),
            "nested": Tuple((Discrete(3), Tuple((Box(-1, 1, (1,)), Box(0, 10, (1,)))))),
        }[structure]
        self.action = action_spec(self.action_space)
        observation = Box(-1.0, 1.0, (sum(self.action.sizes) + self.action.action_size,), np.float32)
        masks = {"flat": MultiBinary(sum(self.action.sizes)), "nested": self._mask_space()}
        self.observation_space = Dict(observation=observation, action_mask=masks[mask]) if mask else observation
        self.mask, self.steps, self.left = mask, steps, 0

    def _mask_space(self):
        leaves = {}
        for name, leaf in self.action.leaves.items():
            binary = [MultiBinary(n) for n in getattr(leaf, "sizes", ())]
            leaves[name] = (Tuple(binary) if leaf.shape else binary[0]) if binary else None
        if isinstance(self.action_space, Dict):
            return Dict({name: space for name, space in leaves.items() if space is not None})
        spaces = [space for space in leaves.values() if space is not None]
        return spaces[0] if isinstance(self.action_space, MultiDiscrete) else Tuple(spaces)

    def _observe(self):
        self.targets = self.np_random.integers(0, self.action.sizes)
        self.numbers = self.np_random.uniform(-0.8, 0.8, self.action.action_size).astype(np.float32)
        hot = np.zeros(sum(self.action.sizes), np.float32)
        hot[self.targets + self.action.offsets] = 1.0
        observation = np.concatenate([hot, self.numbers])
        if not self.mask:
            return observation
        wrong = (self.targets + 1) % self.action.sizes
        self.valid = np.ones(len(hot), np.int8)
        self.valid[wrong + self.action.offsets] = 0
        valid = self.valid
        if self.mask == "nested":
            valid = nested_mask(valid, self.action)
            if isinstance(valid, dict):
                valid = {key: part for key, part in valid.items() if part is not None}
            elif isinstance(self.action_space, Tuple):
                valid = tuple(part for part in valid if part is not None)
        return {"observation": observation, "action_mask": valid}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.steps
        return self._observe(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        discrete, continuous = self.action.parts(HybridActionMap(self.action).inverse(action))
        if self.mask and not self.valid[discrete + self.action.offsets].all():
            raise ValueError(f"{discrete} is not valid: {self.valid}")
        reward = -float((discrete != self.targets).sum())
        if continuous is not None:
            reward -= float(np.square(continuous - self.numbers).sum())
        self.left -= 1
        return self._observe(), reward, False, self.left == 0, {}


class TeamIdentity(gym.Env):
    """One step of a team: each member has a target, and the reward is the mean over the members.

    A member's reward is 1 for choosing its target among 3, else 0, or minus the squared distance from its 2 numbers.
    Its "agent_state" is its target; its "global_state" is the targets of all members and a one-hot vector of the member.
    """

    def __init__(self, num_agents: int = 3, discrete: bool = True):
        size, low = (3, 0.0) if discrete else (2, -1.0)
        shape = (num_agents, num_agents * size + num_agents)
        self.observation_space = Dict(
            agent_state=Box(low, 1.0, (num_agents, size), np.float32), global_state=Box(low, 1.0, shape, np.float32)
        )
        self.action_space = MultiDiscrete([size] * num_agents) if discrete else Box(-1.0, 1.0, (num_agents, size))
        self.discrete, self.targets = discrete, np.zeros((num_agents, size), np.float32)

    def _observe(self) -> dict[str, np.ndarray]:
        num_agents = len(self.targets)
        everyone = np.tile(self.targets.ravel(), (num_agents, 1))
        return {
            "agent_state": self.targets,
            "global_state": np.hstack([everyone, np.eye(num_agents, dtype=np.float32)]),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        num_agents, size = self.targets.shape
        if self.discrete:
            self.targets = np.eye(size, dtype=np.float32)[self.np_random.integers(size, size=num_agents)]
        else:
            self.targets = self.np_random.uniform(-0.8, 0.8, (num_agents, size)).astype(np.float32)
        return self._observe(), {}

    def step(self, action):
        if self.discrete:
            rewards = self.targets[np.arange(len(self.targets)), action]
        else:
            rewards = -np.square(action - self.targets).sum(axis=1)
        return self._observe(), float(rewards.mean()), True, False, {}


class Faulty(gym.Env):
    """Episodes of ten steps; step `fail_at` of all steps raises an error, or returns a NaN or a huge reward."""

    def __init__(self, fail_at: int = 100, how: Literal["raise", "reward", "observation", "huge"] = "raise"):
        self.observation_space = Box(-np.inf, np.inf, (3,))
        self.action_space = Box(-1, 1, (1,))
        self.fail_at, self.how, self.steps, self.length = fail_at, how, 0, 0

    def _observe(self) -> np.ndarray:
        return self.np_random.standard_normal(3).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = 0
        return self._observe(), {}

    def step(self, action):
        self.steps, self.length = self.steps + 1, self.length + 1
        observation, reward = self._observe(), float(action[0])
        if self.steps == self.fail_at:
            if self.how == "raise":
                raise RuntimeError("the simulator fell over")
            if self.how == "observation":
                observation[1] = np.nan
            else:
                reward = float("nan") if self.how == "reward" else 3e38
        return observation, reward, False, self.length == 10, {}


gym.register("DiscreteIdentity-v0", entry_point="toys:DiscreteIdentity")
gym.register("Identity-v0", entry_point="toys:Identity")
gym.register("HybridIdentity-v0", entry_point="toys:HybridIdentity")
gym.register("RememberFirst-v0", entry_point="toys:RememberFirst")
gym.register("TeamIdentity-v0", entry_point="toys:TeamIdentity")
gym.register("Faulty-v0", entry_point="toys:Faulty")


def tiny_preset(level: str = "Pendulum-v1", **changes: Any) -> Preset:
    """Returns a preset that trains in seconds: a hidden layer of 16, 100 random and 100 trained steps, two evaluations.

    Args:
        level: environment id.
        **changes: overrides, with `__` for dots in the path: ``agent__algorithm__discount=0.9``.
    """
    preset = Preset(
        agent=SoftActorCriticAgentParameters(
            memory=ExperienceReplayParameters(max_size=1_000),
            networks=soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32),
        ),
        environment=EnvironmentParameters(level=level, max_episode_steps=None if ":" in level else 30),
        schedule=ScheduleParameters(
            heatup_steps=EnvironmentSteps(100),
            improve_steps=EnvironmentSteps(100),
            evaluation_steps=EnvironmentEpisodes(1),
            steps_between_evaluation_periods=EnvironmentSteps(100),
        ),
        validation=PresetValidationParameters(min_reward_threshold=0.0),
    )
    return override(preset, {path.replace("__", "."): value for path, value in changes.items()})


def vector_spec(observation: int = 3, action: int = 2) -> Spec:
    """Returns the spec of a vector observation and actions between -1 and 1."""
    bound = np.ones(action, np.float32)
    return Spec({"observation": ArraySpec((observation,), "float32")}, ArraySpec((action,), "float32", -bound, bound))


def discrete_spec(observation: int = 3, actions: int = 4, masked: bool = False) -> Spec:
    """Returns the spec of a vector observation and a discrete action, with or without an action mask."""
    arrays = {"observation": ArraySpec((observation,), "float32")}
    if masked:
        arrays["action_mask"] = ArraySpec((actions,), "bool")
    return Spec(arrays, DiscreteSpec(actions))


def team_spec(num_agents: int = 2, discrete: bool = True, masked: bool = False) -> Spec:
    """Returns the spec of a team with 4 policy inputs, 6 critic inputs, and 3 discrete or 2 continuous actions."""
    arrays = {
        "agent_state": ArraySpec((num_agents, 4), "float32"),
        "global_state": ArraySpec((num_agents, 6), "float32"),
    }
    if masked:
        arrays["action_mask"] = ArraySpec((num_agents, 3), "bool")
    bound = np.ones((num_agents, 2), np.float32)
    real = ArraySpec((num_agents, 2), "float32", -bound, bound)
    return Spec(arrays, DiscreteSpec(3, (num_agents,)) if discrete else real, num_agents=num_agents)


def hybrid_spec(sizes=(3, 2), action: int = 2, observation: int = 3, masked: bool = False) -> Spec:
    """Returns the spec of a vector observation, a MultiDiscrete "press" and a Box "turn" between -1 and 1.

    Without `sizes` or `action`, that part is missing.
    """
    arrays, bound = {"observation": ArraySpec((observation,), "float32")}, np.ones(action, np.float32)
    if masked:
        arrays["action_mask"] = ArraySpec((sum(sizes),), "bool")
    leaves = {"press": FactorsSpec(tuple(sizes), (0,) * len(sizes), (len(sizes),))} if sizes else {}
    leaves |= {"turn": ArraySpec((action,), "float32", -bound, bound)} if action else {}
    return Spec(arrays, HybridSpec(leaves, {name: name for name in leaves}))


def _draw(rng: np.random.Generator, array: ArraySpec, shape: tuple[int, ...]) -> np.ndarray:
    if array.dtype == "uint8":
        return rng.integers(0, 256, (*shape, *array.shape), np.uint8)
    if array.dtype == "bool":
        return rng.random((*shape, *array.shape)) < 0.5
    return rng.standard_normal((*shape, *array.shape)).astype(array.dtype)


def _actions(rng: np.random.Generator, spec: Spec, shape: tuple[int, ...]) -> Any:
    if isinstance(spec.action, HybridSpec):
        sizes, size = spec.action.sizes, spec.action.action_size
        discrete = rng.integers(0, sizes, (*shape, len(sizes)), np.int32) if sizes else None
        continuous = rng.uniform(-1, 1, (*shape, size)).astype(np.float32) if size else None
        return spec.action.whole(discrete, continuous)
    if isinstance(spec.action, DiscreteSpec):
        return rng.integers(0, spec.action.num_actions, (*shape, *spec.action.shape), np.int32)
    return rng.uniform(-1, 1, (*shape, *spec.action.shape)).astype(np.float32)


def _states(rng: np.random.Generator, state: Mapping[str, ArraySpec] | None, shape: tuple[int, ...]) -> dict[str, Any]:
    arrays = (state or {}).items()
    return {name: rng.uniform(-1, 1, (*shape, *array.shape)).astype(np.float32) for name, array in arrays}


def random_batches(spec: Spec, updates: int, batch_size: int, seed: int = 0) -> Transition:
    """Returns random batches `[U, B, ...]` of a spec; a tenth of the steps are terminal.

    With a mask, all actions are valid, and every mask has a valid action.
    """
    rng = np.random.default_rng(seed)
    shape = (updates, batch_size)
    batch = Transition(
        observation={key: _draw(rng, array, shape) for key, array in spec.observation.items()},
        action=_actions(rng, spec, shape),
        reward=rng.standard_normal(shape).astype(np.float32),
        discount=np.float32(0.99) * (rng.random(shape) > 0.1).astype(np.float32),
        next_observation={key: _draw(rng, array, shape) for key, array in spec.observation.items()},
        extras={key: _draw(rng, array, shape) for key, array in spec.extras.items()},
    )
    if "action_mask" in spec.observation:
        other = _actions(rng, spec, shape)
        for observation, valid in ((batch.observation, batch.action), (batch.next_observation, other)):
            hybrid = isinstance(spec.action, HybridSpec)
            index = spec.action.parts(valid)[0] + spec.action.offsets if hybrid else valid[..., None]
            np.put_along_axis(observation["action_mask"], index, True, axis=-1)
    return batch


def random_segments(
    spec: Spec, updates: int, steps: int, columns: int, seed: int = 0, state: Mapping[str, ArraySpec] | None = None
) -> Segments:
    """Returns random segments `[U, T, B, ...]` of an ACER agent's spec, including its extras.

    The first update is a fresh rollout with terminated episodes; the others are replayed segments of 1 to T steps.
    `state` is the agent's recurrent state, `agent.policy.recurrent_state`.
    """
    rng = np.random.default_rng(seed)
    shape = (updates, steps, columns)
    valid_steps = np.arange(steps)[None, :, None] < rng.integers(1, steps + 1, (updates, 1, columns))
    valid_steps[0] = True
    terminated = valid_steps & (rng.random(shape) < 0.2)
    terminated[1:, :-1] &= ~valid_steps[1:, 1:]  # only the last step of a replayed segment can terminate
    starts = np.zeros(shape, bool)
    starts[0, 1:] = terminated[0, :-1]
    starts[:, 0] = rng.random((updates, columns)) < 0.5
    length = np.zeros(shape, np.float32)
    for u, b in np.ndindex(updates, columns):
        for rows in np.split(np.flatnonzero(valid_steps[u, :, b]), np.flatnonzero(starts[u, 1:, b]) + 1):
            length[u, rows, b] = len(rows)

    def of_steps(values: np.ndarray) -> np.ndarray:
        values[~valid_steps] = 0
        return values

    def extra(name: str, array: ArraySpec) -> np.ndarray:
        values = rng.standard_normal((*shape, *array.shape)).astype(array.dtype)
        return of_steps(np.exp(values) if name.endswith("variance") else values)

    observation = {key: _draw(rng, array, (updates, steps + 1, columns)) for key, array in spec.observation.items()}
    if isinstance(spec.action, DiscreteSpec):
        action = rng.integers(0, spec.action.num_actions, shape, np.int32)
    else:
        action = rng.standard_normal((*shape, *spec.action.shape)).astype(np.float32)
    if "action_mask" in observation:
        np.put_along_axis(observation["action_mask"][:, :-1], action[..., None], True, axis=-1)
        observation["action_mask"][:, -1, :, 0] = True
    on_policy = np.zeros(shape, np.float32)
    on_policy[0] = 1
    initial = _states(rng, state, (updates, columns))
    for values in initial.values():
        values[1:] = 0
    return Segments(
        observation=observation,
        action=of_steps(action),
        reward=of_steps(rng.standard_normal(shape).astype(np.float32)),
        nonterminal=of_steps((~terminated).astype(np.float32)),
        is_first=of_steps(starts.astype(np.float32)),
        length=length,
        on_policy=on_policy,
        initial_state=initial,
        extras={name: extra(name, array) for name, array in spec.extras.items()},
    )


def random_sequences(
    spec: Spec,
    updates: int,
    steps: int,
    batch_size: int,
    seed: int = 0,
    state: Mapping[str, ArraySpec] | None = None,
) -> Sequence:
    """Returns random sequences `[U, T, B, ...]` of the spec of an agent with a state, including its extras.

    Every step but the first ends an episode with probability 0.3; half of these ends are terminal. Stored states lie in
    [-1, 1], continue from step to step and start at zero. `state` is `agent.policy.recurrent_state`.
    """
    rng = np.random.default_rng(seed)
    shape = (updates, steps, batch_size)
    step_type = np.full(shape, MID, np.int32)
    step_type[:, 0][rng.random((updates, batch_size)) < 0.3] = FIRST
    for t in range(1, steps):
        after = step_type[:, t - 1] == LAST
        step_type[:, t][after] = FIRST
        step_type[:, t][~after & (rng.random((updates, batch_size)) < 0.3)] = LAST
    counts = step_type != LAST

    def of_steps(values: np.ndarray) -> np.ndarray:
        values[~counts] = 0
        return values

    nonterminal = np.ones(shape, np.float32)
    nonterminal[:, :-1][~counts[:, 1:] & (rng.random((updates, steps - 1, batch_size)) < 0.5)] = 0

    def extra(array: ArraySpec) -> np.ndarray:
        flag = not array.shape  # of a switch
        values = rng.integers(0, 2, shape) if flag else rng.uniform(-1, 1, (*shape, *array.shape))
        return of_steps(values.astype(array.dtype))

    extras = {name: extra(array) for name, array in spec.extras.items()}
    rewards = () if spec.num_rewards is None else (spec.num_rewards,)
    observation = {key: _draw(rng, array, shape) for key, array in spec.observation.items()}
    action, discrete = _actions(rng, spec, shape), isinstance(spec.action, DiscreteSpec)
    if "action_mask" in observation:
        np.put_along_axis(observation["action_mask"], action[..., None], True, axis=-1)
    action, reward = of_steps(action), of_steps(rng.standard_normal((*shape, *rewards)).astype(np.float32))
    of_step = {STATE + PREVIOUS_ACTION: action, STATE + PREVIOUS_REWARD: reward}
    for name in [name for name in spec.extras if name.startswith(STATE)]:
        after = of_step[name] if name in of_step else extras[f"{NEXT_STATE}{name.removeprefix(STATE)}"]
        extras[name][:, 1:] = after[:, :-1]
        extras[name][step_type == FIRST] = -1 if discrete and name == STATE + PREVIOUS_ACTION else 0
    initial = _states(rng, state, (updates, batch_size))
    return Sequence(observation, action, reward, of_steps(nonterminal), step_type, extras, initial or ())


def statistics_of(rows, discount):
    """Returns the discounted returns after each of the rows `[K, E]`, and those of the running episodes."""
    g, returns = np.zeros(rows.shape[1]), []
    for row in rows:
        g = discount * g + row["reward"].astype(np.float64)
        returns.append(g)
        g = np.where(row["terminated"] | row["truncated"], 0.0, g)
    return np.array(returns), g


def restored(old, new):
    """Copies the records and the state of a memory into another, as a checkpoint does, and returns it."""
    new.put(old.oldest_row, old.between(old.oldest_row, old.total_rows))
    new.total_rows = old.total_rows
    new.restore(old.state())
    return new
