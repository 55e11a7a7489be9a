"""Teams: PettingZoo environments as single environments."""

import sys
import types

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import Team, check, make, spec_of
from tfsac.errors import TfsacError
from tfsac.types import ArraySpec, DiscreteSpec

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete
MultiBinary, MultiDiscrete = gym.spaces.MultiBinary, gym.spaces.MultiDiscrete


def test_spec_of_discrete_team():
    env = gym.Env()
    env.observation_space = Dict(
        agent_state=Box(-1, 1, (2, 3)), global_state=Box(-1, 1, (2, 7)), action_mask=MultiBinary((2, 4))
    )
    env.action_space = MultiDiscrete([4, 4], start=[5, 5])
    check(env)
    spec = spec_of(env)
    assert spec.num_agents == 2
    assert spec.action == DiscreteSpec(4, (2,), 5)
    assert spec.observation == {
        "action_mask": ArraySpec((2, 4), "bool"),
        "agent_state": ArraySpec((2, 3), "float32"),
        "global_state": ArraySpec((2, 7), "float32"),
    }
    assert spec.single_agent().observation["action_mask"] == ArraySpec((4,), "bool")


class Pair:
    """A parallel environment with two agents, without PettingZoo.

    Each agent observes its index, the step and its last action. The reward is the action for y, 10 times that for x.
    """

    possible_agents = ["y", "x"]  # not in alphabetical order
    metadata = {"name": "pair", "render_fps": 7}
    render_mode = "rgb_array"
    space = Box(-1, 9, (3,), np.float64)

    def __init__(self, ends=None, masked=False, state=False, **changes):
        self.ends, self.masked, self.seeds = ends or {}, masked, []
        if state:
            self.state_space = Box(0, 99, (2,), np.float64)
            self.state = lambda: np.array([self.steps, 50.0 + self.steps])
        for name, value in changes.items():
            setattr(self, name, value)

    def observation_space(self, agent):
        return Dict(observation=self.space, action_mask=Box(0, 1, (3,), np.int8)) if self.masked else self.space

    def action_space(self, agent):
        return Discrete(3, start=1)

    def observe(self):
        rows = {
            agent: np.array([i, self.steps, self.last[agent]], float) for i, agent in enumerate(self.possible_agents)
        }
        if not self.masked:
            return rows
        masks = {"y": np.array([1, 1, 0], np.int8), "x": np.array([0, self.steps < 2, 1], np.int8)}
        return {agent: {"observation": rows[agent], "action_mask": masks[agent]} for agent in rows}

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.steps, self.last = 0, dict.fromkeys(self.possible_agents, 0)
        return self.observe(), {agent: {} for agent in self.possible_agents}

    def step(self, actions):
        self.steps, self.last = self.steps + 1, actions
        ended = self.ends.get(str(self.steps), {})
        rewards = {"y": float(actions["y"]), "x": 10.0 * actions["x"]}
        terminated, truncated = ({a: ended.get(a) == word for a in rewards} for word in ("terminated", "truncated"))
        return self.observe(), rewards, terminated, truncated, {a: {} for a in rewards}


def test_team_stacks_agents_in_order():
    team = Team(Pair())
    check(team)
    assert team.action_space == MultiDiscrete([3, 3], start=[1, 1])
    assert spec_of(team).observation == {
        "agent_state": ArraySpec((2, 3), "float32"),
        "global_state": ArraySpec((2, 9), "float32"),
    }
    first, info = team.reset(seed=4)
    assert info == {} and team.env.seeds == [4]
    np.testing.assert_array_equal(first["agent_state"], [[0, 0, 0], [1, 0, 0]])
    observation, reward, terminated, truncated, info = team.step(np.array([1, 3]))
    assert (reward, terminated, truncated, info) == ((1 + 30) / 2, False, False, {"y": {}, "x": {}})
    np.testing.assert_array_equal(observation["agent_state"], [[0, 1, 1], [1, 1, 3]])
    joined = [0, 1, 1, 1, 1, 3]
    np.testing.assert_array_equal(observation["global_state"], [[0, 1, 1, *joined], [1, 1, 3, *joined]])
    assert {array.dtype for array in observation.values()} == {np.dtype("float32")}
    assert observation in team.observation_space


def test_global_state_includes_environment_state():
    team = Team(Pair(state=True))
    check(team)
    team.reset()
    observation = team.step(np.array([2, 2]))[0]
    np.testing.assert_array_equal(observation["global_state"], [[0, 1, 2, 1, 51], [1, 1, 2, 1, 51]])
    assert observation in team.observation_space
    np.testing.assert_array_equal(team.observation_space["global_state"].high[1], [9, 9, 9, 99, 99])


def test_action_masks_are_stacked():
    team = Team(Pair(masked=True))
    check(team)
    np.testing.assert_array_equal(team.reset()[0]["action_mask"], [[1, 1, 0], [0, 1, 1]])
    team.step(np.array([1, 3]))
    observation = team.step(np.array([1, 3]))[0]
    np.testing.assert_array_equal(observation["action_mask"], [[1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(observation["agent_state"], [[0, 2, 1], [1, 2, 3]])
    assert observation in team.observation_space


@pytest.mark.parametrize(
    "y, x, expected", [("terminated", "terminated", (True, False)), ("terminated", "truncated", (False, True))]
)
def test_team_termination_and_truncation(y, x, expected):
    team = Team(Pair(ends={"2": {"y": y, "x": x}}))
    team.reset()
    assert team.step(np.array([1, 1]))[2:4] == (False, False)
    assert team.step(np.array([1, 1]))[2:4] == expected


def test_early_end_of_one_agent_raises():
    team = Team(Pair(ends={"1": {"x": "terminated"}}))
    team.reset()
    with pytest.raises(RuntimeError, match="all be done"):
        team.step(np.array([1, 1]))
    team.env.observe = dict
    with pytest.raises(RuntimeError, match="must stay"):
        team.step(np.array([1, 1]))


def test_agents_with_different_spaces_are_rejected():
    spaces = {"y": Pair.space, "x": Box(-1, 9, (2,), np.float64)}
    with pytest.raises(TfsacError, match="team"):
        Team(Pair(observation_space=spaces.get))


def test_pettingzoo_level_with_kwargs_and_time_limit(monkeypatch):
    module = types.ModuleType("pair_v0")
    module.parallel_env = Pair
    monkeypatch.setitem(sys.modules, "pair_v0", module)
    env = make("pettingzoo:pair_v0", max_episode_steps=2, masked=True)
    assert env.spec.id == "pettingzoo:pair_v0" and env.unwrapped.masked
    env.reset(seed=0)
    assert [env.step(np.array([1, 3]))[3] for _ in range(2)] == [False, True]
