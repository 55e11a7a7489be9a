"""Teams: spaces with an agent axis, PettingZoo environments as one environment, real cooperative tasks."""

import re
import sys
import types

import gymnasium as gym
import numpy as np
import pytest

from tfsac.environments import EnvironmentFailure, Environments, Team, check, make, spec_of
from tfsac.environments.film import write_film
from tfsac.parameters import EnvironmentParameters
from tfsac.testing import TeamIdentity, team_spec
from tfsac.types import ArraySpec, DiscreteSpec

Box, Dict, Discrete = gym.spaces.Box, gym.spaces.Dict, gym.spaces.Discrete
MultiBinary, MultiDiscrete = gym.spaces.MultiBinary, gym.spaces.MultiDiscrete
SPREAD = "pettingzoo:mpe2.simple_spread_v3"


# -- spaces ------------------------------------------------------------------------------------------------------------

STATE = Box(-1, 1, (2, 3))


def team_env(action=None, **observation):
    env = gym.Env()
    env.observation_space = Dict(**{"agent_state": STATE, **observation})
    env.action_space = MultiDiscrete([4, 4]) if action is None else action
    return env


def test_spec_of_a_team_of_choices():
    env = team_env(
        MultiDiscrete([4, 4], start=[5, 5]), global_state=Box(-1, 1, (2, 7)), action_mask=MultiBinary((2, 4))
    )
    check(env)
    spec = spec_of(env)
    assert spec.num_agents == 2
    assert spec.action == DiscreteSpec(4, (2,), 5)
    assert spec.observation == {
        "action_mask": ArraySpec((2, 4), "bool"),
        "agent_state": ArraySpec((2, 3), "float32"),
        "global_state": ArraySpec((2, 7), "float32"),
    }
    assert spec.of_one_agent().observation["action_mask"] == ArraySpec((4,), "bool")


def test_spec_of_a_team_of_real_actions_and_images():
    low = np.array([[-1, -2], [-1, -2]], np.float32)
    env = team_env(Box(low, -low), agent_state=Box(0, 255, (2, 8, 8, 3), np.uint8))
    check(env)
    spec = spec_of(env)
    assert spec.num_agents == 2 and spec.action.shape == (2, 2)
    np.testing.assert_array_equal(spec.action.low, low)
    np.testing.assert_array_equal(spec.action.high, -low)
    assert spec.observation == {"agent_state": ArraySpec((2, 8, 8, 3), "uint8")}


REFUSED = {
    "a vector": (team_env(agent_state=Box(-1, 1, (2,))), "'agent_state' is a Box `(P, ...)`", "(2,)"),
    "no box": (team_env(agent_state=MultiBinary((2, 3))), "'agent_state' is a Box `(P, ...)`", "MultiBinary((2, 3))"),
    "one choice of all": (team_env(Discrete(4)), "a MultiDiscrete of P equal sizes", "Discrete(4)"),
    "choices of others": (
        team_env(MultiDiscrete([4, 4, 4])),
        "2 agents needs a MultiDiscrete of the shape (2,)",
        "MultiDiscrete([4 4 4])",
    ),
    "several choices": (
        team_env(MultiDiscrete([[4, 4], [4, 4]])),
        "needs a MultiDiscrete of the shape (2,)",
        "MultiDiscrete(",
    ),
    "unequal choices": (team_env(MultiDiscrete([4, 3])), "have the same discrete actions", "MultiDiscrete([4 3])"),
    "unequal numbers": (
        team_env(MultiDiscrete([4, 4], start=[0, 1])),
        "have the same discrete actions",
        "start=[0 1])",
    ),
    "no choice": (team_env(MultiDiscrete([1, 1])), "discrete actions are at least two", "MultiDiscrete([1 1])"),
    "a vector of actions": (team_env(Box(-1, 1, (2,))), "2 rows, one of each agent, of at least one number", "(2,)"),
    "rows of others": (team_env(Box(-1, 1, (3, 2))), "2 rows, one of each agent", "(3, 2)"),
    "no numbers": (team_env(Box(-1, 1, (2, 0))), "of at least one number", "(2, 0)"),
    "unbounded": (
        team_env(Box(-1, np.array([[1, 1], [np.inf, 1]], np.float32))),
        "finite bounds",
        "high=inf in dimension 0 of agent 1",
    ),
    "bounds of its own": (
        team_env(Box(-1, np.array([[1, 1], [1, 2]], np.float32))),
        "agents that share a policy have the same bounds",
        "Box(",
    ),
    "empty range": (
        team_env(Box(-1, np.array([[1, -1], [1, -1]], np.float32))),
        "low < high",
        "low=-1.0, high=-1.0 in dimension 1 of agent 0",
    ),
    "state of others": (
        team_env(global_state=Box(-1, 1, (3, 7))),
        "'global_state' has a row for each of the 2 agents of 'agent_state', shape (2, ...)",
        "(3, 7)",
    ),
    "one number each": (team_env(global_state=Box(-1, 1, (2,))), "'global_state' has a row for each", "(2,)"),
    "mask of one": (
        team_env(action_mask=MultiBinary(4)),
        "an entry for each action, shape (2, 4)",
        "(4,), MultiBinary(4)",
    ),
    "mask of others": (team_env(action_mask=MultiBinary((3, 4))), "shape (2, 4)", "(3, 4), MultiBinary((3, 4))"),
}


@pytest.mark.parametrize("env, words, received", REFUSED.values(), ids=REFUSED.keys())
def test_teams_that_cannot_be_used_are_refused_with_words_that_help(env, words, received):
    with pytest.raises(ValueError) as error:
        check(env)
    message, _, tail = str(error.value).rpartition("Received: ")
    assert words in message and message.startswith("Env: ")
    assert received in tail


# -- the adapter -------------------------------------------------------------------------------------------------------


class Pair:
    """Two agents of a parallel environment without PettingZoo.

    Each sees who it is, the steps and its last action. The reward of an agent is its action; x gets ten times as much.
    """

    possible_agents = ["y", "x"]  # not in alphabetical order
    metadata = {"name": "pair", "render_fps": 7}
    render_mode = "rgb_array"
    seen = Box(-1, 9, (3,), np.float64)

    def __init__(self, ends=None, masked=False, state=False, **changes):
        self.ends, self.masked, self.closed, self.seeds = ends or {}, masked, False, []
        if state:
            self.state_space = Box(0, 99, (2,), np.float64)
            self.state = lambda: np.array([self.steps, 50.0 + self.steps])
        for name, value in changes.items():
            setattr(self, name, value)

    def __str__(self):
        return "pair"

    def observation_space(self, agent):
        return Dict(observation=self.seen, action_mask=Box(0, 1, (3,), np.int8)) if self.masked else self.seen

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
        how = self.ends.get(str(self.steps), {})
        rewards = {"y": float(actions["y"]), "x": 10.0 * actions["x"]}
        terminated, truncated = ({a: how.get(a) == word for a in rewards} for word in ("terminated", "truncated"))
        return self.observe(), rewards, terminated, truncated, {a: {} for a in rewards}

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)

    def close(self):
        self.closed = True


def test_a_team_is_one_environment_in_the_order_of_its_agents():
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
    everyone = [0, 1, 1, 1, 1, 3]
    np.testing.assert_array_equal(observation["global_state"], [[0, 1, 1, *everyone], [1, 1, 3, *everyone]])
    assert {array.dtype for array in observation.values()} == {np.dtype("float32")}
    assert observation in team.observation_space


def test_the_critic_sees_the_state_of_an_environment_that_has_one():
    team = Team(Pair(state=True))
    check(team)
    team.reset()
    observation = team.step(np.array([2, 2]))[0]
    np.testing.assert_array_equal(observation["global_state"], [[0, 1, 2, 1, 51], [1, 1, 2, 1, 51]])
    assert observation in team.observation_space
    np.testing.assert_array_equal(team.observation_space["global_state"].high[1], [9, 9, 9, 99, 99])


def test_masks_of_the_agents_become_one():
    team = Team(Pair(masked=True))
    check(team)
    np.testing.assert_array_equal(team.reset()[0]["action_mask"], [[1, 1, 0], [0, 1, 1]])
    team.step(np.array([1, 3]))
    observation = team.step(np.array([1, 3]))[0]
    np.testing.assert_array_equal(observation["action_mask"], [[1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(observation["agent_state"], [[0, 2, 1], [1, 2, 3]])
    assert observation in team.observation_space


@pytest.mark.parametrize(
    "y, x, expected",
    [
        ("terminated", "terminated", (True, False)),
        ("truncated", "truncated", (False, True)),
        ("terminated", "truncated", (False, True)),
    ],
)
def test_an_episode_ends_for_the_whole_team(y, x, expected):
    team = Team(Pair(ends={"2": {"y": y, "x": x}}))
    team.reset()
    assert team.step(np.array([1, 1]))[2:4] == (False, False)
    assert team.step(np.array([1, 1]))[2:4] == expected


def test_an_agent_that_leaves_early_is_refused():
    team = Team(Pair(ends={"1": {"x": "terminated"}}))
    team.reset()
    with pytest.raises(RuntimeError, match=re.escape("each one is done when another does. Received: all but ['y']")):
        team.step(np.array([1, 1]))


def test_an_agent_that_is_not_there_is_refused():
    pair = Pair()
    everyone = pair.observe
    pair.observe = lambda: {"y": everyone()["y"]}
    with pytest.raises(RuntimeError, match=re.escape("each one sees when another does. Received: all but ['x']")):
        Team(pair).reset()


def test_an_agent_whose_observation_or_mask_does_not_fit_is_named():
    pair = Pair(masked=True)
    everyone = pair.observe
    pair.observe = lambda: {**everyone(), "x": {"observation": np.zeros(3), "action_mask": np.ones(1)}}
    with pytest.raises(RuntimeError, match=re.escape("'action_mask' of x must have the shape (3,). Received: (1,)")):
        Team(pair).reset()
    pair.observe = lambda: {**everyone(), "y": {"observation": np.zeros(5), "action_mask": np.ones(3)}}
    with pytest.raises(RuntimeError, match=re.escape("'agent_state' of y must have the shape (3,). Received: (5,)")):
        Team(pair).reset()


def test_drawing_and_closing_reach_the_environment():
    team = Team(Pair())
    assert team.render_mode == "rgb_array" and team.metadata["render_fps"] == 7
    team.reset()
    team.step(np.array([1, 1]))
    np.testing.assert_array_equal(team.render(), np.ones((2, 2, 3)))
    team.close()
    assert team.env.closed


def by_agent(y, x):
    return lambda agent: {"y": y, "x": x}[agent]


NO_TEAMS = {
    "nobody": (dict(possible_agents=[]), "pair: a team has agents, which `possible_agents` names. Received: none"),
    "different observations": (
        dict(observation_space=by_agent(Pair.seen, Box(-1, 9, (2,), np.float64))),
        "have the same observation space, Box(-1.0, 9.0, (3,), float64) as y has. Received: Box(-1.0, 9.0, (2,), "
        "float64) of x",
    ),
    "different actions": (
        dict(action_space=by_agent(Discrete(3), Discrete(4))),
        "have the same action space, Discrete(3) as y has. Received: Discrete(4) of x",
    ),
    "images": (dict(seen=Box(0, 1, (4, 4))), "each agent sees a vector, or a Dict with a vector 'observation'"),
    "other keys": (
        dict(observation_space=lambda agent: Dict(observation=Pair.seen, mask=Pair.seen)),
        "an 'action_mask'. Received: Dict(",
    ),
    "tuples of actions": (
        dict(action_space=lambda agent: gym.spaces.Tuple([Discrete(2)])),
        "has a Box `(A,)` of floats or a Discrete as actions. Received: Tuple(",
    ),
}


@pytest.mark.parametrize("changes, words", NO_TEAMS.values(), ids=NO_TEAMS.keys())
def test_agents_that_cannot_share_a_policy_are_refused(changes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Team(Pair(**changes))


# -- levels ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair_module(monkeypatch):
    """A module of a PettingZoo environment, and the pairs that it made."""
    module, made = types.ModuleType("pair_v0"), []

    def parallel_env(ends=None, **changes):
        made.append(Pair(ends, **changes))
        return made[-1]

    module.parallel_env = parallel_env
    monkeypatch.setitem(sys.modules, "pair_v0", module)
    return made


def test_arguments_and_time_limit_reach_a_pettingzoo_level(pair_module):
    env = make("pettingzoo:pair_v0", max_episode_steps=2, masked=True)
    assert env.spec.id == "pettingzoo:pair_v0" and pair_module[0].masked
    env.reset(seed=0)
    assert [env.step(np.array([1, 3]))[3] for _ in range(2)] == [False, True]


def test_spaces_of_a_pettingzoo_level_are_checked_and_the_level_is_named(pair_module):
    words = "pettingzoo:pair_v0: discrete actions are at least two. Received: MultiDiscrete([1 1])"
    with pytest.raises(ValueError, match=re.escape(words)):
        make("pettingzoo:pair_v0", action_space=lambda agent: Discrete(1))
    assert pair_module[0].closed


def test_a_failing_team_is_named_with_the_step(pair_module):
    parameters = EnvironmentParameters("pettingzoo:pair_v0", kwargs={"ends": {"2": {"x": "truncated"}}}, num_envs=2)
    envs = Environments(parameters, 0)
    envs.step(np.zeros((2, 2), np.int32))
    words = "pettingzoo:pair_v0: step raised (environment 0, step 2). Received: RuntimeError: The agents"
    with pytest.raises(EnvironmentFailure, match=re.escape(words)):
        envs.step(np.zeros((2, 2), np.int32))


@pytest.mark.parametrize(
    "level, words",
    [
        ("pettingzoo:", "A PettingZoo level is 'pettingzoo:' and a module, such as mpe2.simple_spread_v3."),
        ("pettingzoo:simple spread", "A PettingZoo level is 'pettingzoo:' and a module"),
        ("pettingzoo:mpe2.simple_spreat_v3", "mpe2 has no module 'simple_spreat_v3'. Did you mean 'simple_spread_v3'?"),
        ("pettingzoo:mpe2.qqqq.simple_v3", "mpe2 has no module 'qqqq'."),
        (
            "pettingzoo:json.decoder",
            "json.decoder has no `parallel_env`; only PettingZoo's parallel environments can be teams.",
        ),
    ],
)
def test_an_unknown_pettingzoo_level_is_answered_with_what_there_is(level, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make(level)
    assert str(error.value).endswith(f"Received: {level!r}")


@pytest.mark.parametrize(
    "missing, level, command",
    [
        ("mpe2", SPREAD, "type: pip install 'tfsac[multi-agent]'."),
        ("pettingzoo", "pettingzoo:pettingzoo.sisl.pursuit_v4", "type: pip install 'tfsac[multi-agent]'."),
        ("my_teams", "pettingzoo:my_teams.football_v1", "among the installed packages."),
    ],
)
def test_a_missing_package_of_a_team_is_answered_with_the_command_that_installs_it(
    monkeypatch, missing, level, command
):
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(missing), *sys.meta_path])
    with pytest.raises(ImportError, match=re.escape(f"{command} Received: {level!r}")):
        make(level)


class NotInstalled:
    """Finds no module of one package, as where it is not installed."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}", name=self.package)


def test_an_argument_that_a_team_does_not_take_is_refused():
    with pytest.raises(ValueError, match=r"simple_spread_v3 does not take these arguments.*Received: {'agents': 3}"):
        make(SPREAD, agents=3)


def test_a_team_of_opponents_is_refused():
    with pytest.raises(ValueError, match=r"simple_tag_v3: agents that share a policy .* of agent_0"):
        make("pettingzoo:mpe2.simple_tag_v3")


# -- a real task -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorization", ["sync", "subprocess"])
@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
def test_whole_episodes_of_simple_spread(continuous, vectorization):
    kwargs = {"continuous_actions": continuous, "max_cycles": 25, "N": 3}
    parameters = EnvironmentParameters(SPREAD, num_envs=2, vectorization=vectorization, kwargs=kwargs)
    envs, rng = Environments(parameters, seed=1), np.random.default_rng(0)
    try:
        assert envs.spec.num_agents == 3
        assert {key: array.shape for key, array in envs.spec.observation.items()} == {
            "agent_state": (3, 18),
            "global_state": (3, 72),
        }
        assert envs.spec.action.shape == ((3, 5) if continuous else (3,))
        for step in range(1, 51):
            action = rng.uniform(-1, 1, (2, 3, 5)).astype(np.float32) if continuous else rng.integers(0, 5, (2, 3))
            result = envs.step(action)
            assert result.reward.shape == (2,) and (result.reward < 0).all()
            assert result.truncated.tolist() == [step % 25 == 0] * 2 and not result.terminated.any()
        seen = result.next_observation
        assert seen["agent_state"].shape == (2, 3, 18) and seen["agent_state"].dtype == np.float32
        everyone = seen["agent_state"].reshape(2, 54)
        for agent in range(3):
            np.testing.assert_array_equal(seen["global_state"][:, agent, :18], seen["agent_state"][:, agent])
            np.testing.assert_array_equal(seen["global_state"][:, agent, 18:], everyone)
        assert envs.episode.tolist() == [2, 2]
    finally:
        envs.close()


def test_episodes_of_simple_spread_follow_from_their_seeds_and_come_back():
    parameters = EnvironmentParameters(SPREAD, kwargs={"max_cycles": 25})
    old, new = Environments(parameters, seed=1), Environments(parameters, seed=1)
    actions = np.random.default_rng(0).integers(0, 5, (7, 3)).astype(np.int32)
    for action in actions:
        old.step(action[None])
    assert new.restore(old.state(), actions, old.observation) is True
    for key, value in old.observation.items():
        np.testing.assert_array_equal(new.observation[key], value)
    other = Environments(parameters, seed=2)
    assert not np.array_equal(other.observation["agent_state"], Environments(parameters, 1).observation["agent_state"])


def test_a_team_is_filmed(tmp_path):
    import imageio.v2 as imageio

    parameters = EnvironmentParameters(SPREAD, kwargs={"max_cycles": 4, "N": 2})
    write_film(parameters, [1, 2], [np.full((4, 2), 1), np.full((4, 2), 3)], tmp_path / "team.gif")
    frames = imageio.mimread(tmp_path / "team.gif")
    assert len(frames) == 8 and frames[0].shape[:2] == (700, 700)
    assert not np.array_equal(frames[0], frames[3])


# -- what the package offers for tests ---------------------------------------------------------------------------------


def test_team_identity_of_choices():
    env = make("tfsac.testing:TeamIdentity-v0")
    observation, _ = env.reset(seed=5)
    targets = observation["agent_state"].argmax(axis=1)
    assert observation["agent_state"].shape == (3, 3) and set(observation["agent_state"].sum(axis=1)) == {1.0}
    for agent in range(3):
        shown = observation["global_state"][agent]
        np.testing.assert_array_equal(shown[:9].reshape(3, 3).argmax(axis=1), targets)
        np.testing.assert_array_equal(shown[9:], np.eye(3)[agent])
    assert env.step((targets + np.array([0, 1, 0])) % 3)[1:4] == (pytest.approx(2 / 3), True, False)
    env.reset(seed=5)
    assert env.step(targets)[1] == 1.0


def test_team_identity_of_real_actions():
    env = TeamIdentity(num_agents=2, discrete=False)
    check(env)
    targets = env.reset(seed=5)[0]["agent_state"].copy()
    assert targets.shape == (2, 2) and len(np.unique(targets)) == 4
    assert env.step(targets)[1:4] == (0.0, True, False)
    env.reset(seed=5)
    assert env.step(targets + np.array([[0.5, 0], [0, -0.1]], np.float32))[1] == pytest.approx(-(0.25 + 0.01) / 2)


def test_team_spec_is_that_of_a_team():
    spec = team_spec(3, masked=True)
    assert spec.num_agents == 3 and spec.action == DiscreteSpec(3, (3,))
    assert {key: array.shape for key, array in spec.of_one_agent().observation.items()} == {
        "agent_state": (4,),
        "global_state": (6,),
        "action_mask": (3,),
    }
    assert team_spec(discrete=False).of_one_agent().action.shape == (2,)
