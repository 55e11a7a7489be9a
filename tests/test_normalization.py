"""Observation normalisation, reward normalisation and return scaling."""

import itertools
import json

import golden_tools
import numpy as np
import pytest
import tiny
from resume_tools import RUN, complete_run, crash_at, preset
from toys import statistics_of

from tfsac.environments import Filters
from tfsac.parameters import FilterParameters, ReturnScalingParameters
from tfsac.training import Trainer
from tfsac.types import ArraySpec, DiscreteSpec, Spec, Transition

SPEC = Spec({"state": ArraySpec((3,), "float32"), "camera": ArraySpec((2, 2, 1), "uint8")}, ArraySpec((1,), "float32"))
NOT_DONE = np.array(False)
SCALED = "environment.filters.return_scaling"


def make_filters(**fields):
    return Filters(FilterParameters(observation_normalization=True, **fields), SPEC)


def observations(rows, seed=0):
    rng = np.random.default_rng(seed)
    state = rng.normal([1000.0, -2.0, 0.0], [0.5, 3.0, 20.0], (rows, 3)).astype(np.float32)
    return {"state": state, "camera": rng.integers(0, 256, (rows, 2, 2, 1), np.uint8)}


def rows_of(observation, start, stop):
    return {key: value[start:stop] for key, value in observation.items()}


@pytest.mark.parametrize("cuts", [(0, 1000), (0, 1, 2, 500, 1000), (0, 999, 1000)])
def test_running_statistics_match_numpy(cuts):
    data, filters = observations(1000), make_filters(observation_clipping=100.0)
    for start, stop in itertools.pairwise(cuts):
        filters.learn(rows_of(data, start, stop))
    float64_data = data["state"].astype(np.float64)
    mean, inverse = filters.scale()["state"]
    np.testing.assert_allclose(mean, float64_data.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(1 / inverse, float64_data.std(axis=0), rtol=1e-6)
    filtered = filters.observation(data)["state"]
    assert filtered.dtype == np.float32 and filters.observation(data)["camera"] is data["camera"]
    np.testing.assert_allclose(
        filtered, (float64_data - float64_data.mean(axis=0)) / float64_data.std(axis=0), atol=2e-3
    )
    extreme = filters.observation({**rows_of(data, 0, 1), "state": np.array([[1e6, -2.0, -1e6]], np.float32)})["state"]
    np.testing.assert_array_equal(extreme[0, [0, 2]], [100.0, -100.0])


def test_team_members_share_statistics():
    team = Spec({"agent_state": ArraySpec((4, 3), "float32")}, DiscreteSpec(2, (4,)), num_agents=4)
    filters, single_filters, data = (
        Filters(FilterParameters(observation_normalization=True), team),
        make_filters(),
        observations(40),
    )
    filters.learn({"agent_state": data["state"].reshape(10, 4, 3)})
    single_filters.learn(data)
    assert filters.count == single_filters.count == 40
    for shared, single in zip(filters.scale()["agent_state"], single_filters.scale()["state"], strict=True):
        np.testing.assert_array_equal(shared, single)
    filtered = filters.observation({"agent_state": data["state"].reshape(10, 4, 3)})["agent_state"]
    np.testing.assert_array_equal(filtered, single_filters.observation(data)["state"].reshape(10, 4, 3))


def test_batch_filters_only_observations_and_copies_them():
    filters = make_filters(reward_rescale_factor=2.0)  # the memory has already filtered rewards
    filters.learn(observations(50))
    before, after, reward = observations(4, 1), observations(4, 2), np.ones(4, np.float32)
    batch = Transition(before, np.zeros((4, 1)), reward, np.full(4, 0.9), after)
    filtered = filters.batch(batch)
    np.testing.assert_array_equal(filtered.observation["state"], filters.observation(before)["state"])
    np.testing.assert_array_equal(filtered.next_observation["state"], filters.observation(after)["state"])
    assert filtered.reward is batch.reward and filtered.action is batch.action and filtered.discount is batch.discount
    np.testing.assert_array_equal(before["state"], observations(4, 1)["state"])


def reward_filters(num_rewards=None, **fields):
    spec = SPEC._replace(num_rewards=num_rewards)
    return Filters(FilterParameters(reward_normalization=True, **fields), spec)


@pytest.mark.parametrize("cuts", [(0, 600), (0, 1, 2, 250, 600)])
@pytest.mark.parametrize("num_rewards", [None, 2])
def test_rewards_are_divided_by_their_std(num_rewards, cuts):
    rewards = np.random.default_rng(0).normal([30.0, -0.5], [4.0, 0.1], (600, 2)).astype(np.float32)
    rewards = rewards[:, 0] if num_rewards is None else rewards
    filters = reward_filters(num_rewards)
    for start, stop in itertools.pairwise(cuts):
        filters.learn_reward(rewards[start:stop], NOT_DONE)
    filtered = filters.reward(rewards.reshape(3, 200, *rewards.shape[1:]))
    assert filtered.dtype == np.float32
    expected = rewards.astype(np.float64) / rewards.astype(np.float64).std(axis=0)
    np.testing.assert_allclose(filtered.reshape(rewards.shape), expected, rtol=1e-5)


def test_reward_normalization_precedes_rescaling_and_clipping():
    filters = reward_filters(reward_rescale_factor=3.0, reward_clipping_range=(-5.0, 5.0))
    filters.learn_reward(np.float32([8.0, 8.0]), NOT_DONE)  # a constant reward is not normalised
    np.testing.assert_allclose(filters.reward(np.float32([1.0])), [3.0])
    filters = reward_filters(reward_rescale_factor=3.0, reward_clipping_range=(-5.0, 5.0))
    filters.learn_reward(np.float32([8.0, 12.0]), NOT_DONE)  # deviation 2
    filtered = filters.reward(np.float32([-8.0, -2.0, 0.0, 3.0, 12.0]))
    np.testing.assert_allclose(filtered, [-5.0, -3.0, 0.0, 4.5, 5.0], rtol=1e-6)


def test_restore_without_reward_statistics():
    old, filters, rewards = make_filters(), make_filters(reward_normalization=True), np.float32([8.0, 12.0])
    old.learn(observations(50))
    assert "reward" not in old.state()
    filters.restore(json.loads(json.dumps(old.state())))
    data = observations(9, seed=6)
    np.testing.assert_array_equal(filters.observation(data)["state"], old.observation(data)["state"])
    np.testing.assert_array_equal(filters.reward(rewards), rewards)
    filters.learn_reward(rewards, NOT_DONE)  # deviation 2
    np.testing.assert_allclose(filters.reward(rewards), [4.0, 6.0], rtol=1e-6)


def return_filters(bound=None, discount=0.9, **fields):
    return Filters(FilterParameters(return_scaling=ReturnScalingParameters(bound), **fields), SPEC, discount)


@pytest.fixture(scope="module")
def golden():
    return golden_tools.read("modern_return_scaling.npz")


@pytest.mark.parametrize(("bounded", "name"), [(True, "divisor"), (False, "divisor_unbounded")])
def test_return_scaling_matches_golden_statistics(golden, bounded, name):
    z, meta = golden
    filters = return_filters(meta["bound"] if bounded else None, meta["gamma"])
    ended = (z["input/terminated"] | z["input/truncated"]).astype(bool)
    assert ended.any()
    before = np.zeros(meta["envs"])
    for t, reward in enumerate(z["input/reward"]):
        filters.learn_reward(reward, ended[t])
        returns = filters.returns
        actual = {"mean": returns.mean, "var": returns.squares / returns.count, "max": returns.largest}
        actual[name] = returns.divisor()
        for key, value in actual.items():
            np.testing.assert_allclose(value, z[f"scaling/{key}"][t], rtol=1e-6, atol=1e-6, err_msg=f"{key} {t}")
        np.testing.assert_allclose(meta["gamma"] * before + reward, z["scaling/g"][t], rtol=1e-6, atol=1e-6)
        before = returns.running
        assert not before[ended[t]].any()
        if bounded:
            np.testing.assert_allclose(
                filters.reward(z["input/batch_reward"]), z["scaling/batch_reward"][t], rtol=5e-6, atol=5e-6
            )


@pytest.mark.parametrize(
    ("shape", "fields"),
    [((4, 2), {"reward_normalization": True}), ((4,), {"return_scaling": ReturnScalingParameters(5.0)})],
    ids=["several rewards", "returns"],
)
def test_restored_statistics_continue_exactly(shape, fields):
    parameters = FilterParameters(observation_normalization=True, **fields)
    spec = SPEC._replace(num_rewards=shape[1] if shape[1:] else None)
    first, second = (Filters(parameters, spec, 0.9) for _ in range(2))
    rng = np.random.default_rng(0)
    first.learn(observations(333))
    for _ in range(7):
        first.learn_reward(rng.normal(1e3, 3.0, shape).astype(np.float32), rng.random(4) < 0.3)
    second.restore(json.loads(json.dumps(first.state())))
    later, data = rng.normal(size=shape).astype(np.float32), observations(9, seed=6)
    for filters in (first, second):
        filters.learn(observations(77, seed=5))
        filters.learn_reward(later, np.zeros(4, bool))
    assert first.state() == second.state() and first.count == 410
    np.testing.assert_array_equal(first.observation(data)["state"], second.observation(data)["state"])
    np.testing.assert_array_equal(first.reward(later), second.reward(later))


def check_return_statistics(filters, rows, discount):
    returns, running = statistics_of(rows, discount)
    assert filters.returns.count == returns.size
    np.testing.assert_allclose(filters.returns.mean, returns.mean(), rtol=1e-9)
    np.testing.assert_allclose(filters.returns.squares / returns.size, returns.var(), rtol=1e-9)
    assert filters.returns.largest == np.abs(returns).max()
    np.testing.assert_array_equal(filters.returns.running, running)


@pytest.mark.slow
def test_run_scales_returns_with_the_discount(tmp_path):
    trainer = complete_run(tmp_path / "run", preset(**{SCALED: {"bound": 5.0}, "agent.memory.max_size": 1000}))
    filters, memory = trainer.filters, trainer.memory
    discount = trainer.preset.agent.algorithm.discount
    check_return_statistics(filters, memory.between(0, memory.total_rows), discount)  # the warm-up included
    batch = memory.gather(np.arange(50))
    raw = memory.ring["reward"].reshape(-1)[:50]
    assert filters.returns.divisor() > 1.5
    np.testing.assert_allclose(batch.reward, raw / filters.returns.divisor(), rtol=1e-6)


@pytest.mark.slow
def test_resumed_environments_restart_their_returns(tmp_path):
    several = preset(**{SCALED: {}, "environment.num_envs": 3, "agent.memory.max_size": 1000})
    crash_at(tmp_path / "run", 180, several)
    resumed = Trainer(several, tmp_path / "run", RUN, resume=True, quiet=True)
    assert 0 < resumed.counters.env_steps < 180 and resumed.environments.is_first.all()
    assert not resumed.filters.returns.running.any()
    resumed.run()
    memory = resumed.memory  # marks the truncated episodes
    check_return_statistics(resumed.filters, memory.between(0, memory.total_rows), several.agent.algorithm.discount)


@pytest.mark.usefixtures("no_tracing")
@pytest.mark.parametrize("make", [tiny.taac, tiny.acer], ids=["sequences", "segments"])
def test_sequences_and_segments_scale_rewards(make, tmp_path):
    trainer = Trainer(make(**{SCALED: {"bound": 2.0}}), tmp_path / "run", quiet=True)
    for _ in range(5):
        trainer.collect()
    divisor = trainer.filters.returns.divisor()
    assert divisor != 1.0 and trainer.filters.returns.discount == trainer.preset.agent.algorithm.discount
    np.testing.assert_allclose(trainer.memory.reward_filter(np.float32([3.0])), [3.0 / divisor], rtol=1e-6)
    trainer.close()
