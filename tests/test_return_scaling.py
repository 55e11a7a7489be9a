"""Return scaling: rewards divided by the running deviation of the discounted returns of training."""

import json

import golden_tools
import numpy as np
import pytest
import tiny
from resume_tools import RUN, complete_run, crashed, preset, same_run
from return_tools import statistics_of

from tfsac.environments import Filters
from tfsac.parameters import FilterParameters, ParameterError, ReturnScalingParameters, from_json, override, to_json
from tfsac.training import Trainer
from tfsac.training.run_directory import RunDirectory
from tfsac.training.weights import save_weights
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((3,), "float32")}, ArraySpec((1,), "float32"))
SCALED = "environment.filters.return_scaling"


def scaling(bound=None, discount=0.9, **fields):
    return Filters(FilterParameters(return_scaling=ReturnScalingParameters(bound), **fields), SPEC, discount)


@pytest.fixture(scope="module")
def golden():
    return golden_tools.read("modern_return_scaling.npz")


@pytest.mark.parametrize(("bounded", "name"), [(True, "divisor"), (False, "divisor_unbounded")])
def test_statistics_and_divisor_are_those_of_the_reference_after_every_step(golden, bounded, name):
    z, meta = golden
    filters = scaling(meta["bound"] if bounded else None, meta["gamma"])
    ended = (z["input/terminated"] | z["input/truncated"]).astype(bool)
    assert ended.any()
    before = np.zeros(meta["envs"])
    for t, reward in enumerate(z["input/reward"]):
        filters.learn_reward(reward, ended[t])
        returns = filters.returns
        found = {"mean": returns.mean, "var": returns.squares / returns.count, "max": returns.largest}
        found[name] = returns.divisor()
        for key, value in found.items():
            np.testing.assert_allclose(value, z[f"scaling/{key}"][t], rtol=1e-6, atol=1e-6, err_msg=f"{key} {t}")
        np.testing.assert_allclose(meta["gamma"] * before + reward, z["scaling/g"][t], rtol=1e-6, atol=1e-6)
        before = returns.running
        assert not before[ended[t]].any()
        if bounded:
            np.testing.assert_allclose(
                filters.reward(z["input/batch_reward"]), z["scaling/batch_reward"][t], rtol=5e-6, atol=5e-6
            )


def test_the_last_reward_of_an_episode_counts_in_it_and_not_in_the_next_one():
    filters = scaling(bound=1.0, discount=0.5)
    for reward, ended in ([1.0, 4.0], [False, False]), ([1.0, 4.0], [True, False]), ([1.0, 4.0], [False, True]):
        filters.learn_reward(np.float32(reward), np.array(ended))
    assert filters.returns.largest == 7.0  # 4 + 4 / 2 + 4 / 4
    np.testing.assert_array_equal(filters.returns.running, [1.0, 0.0])
    np.testing.assert_allclose(filters.returns.mean, (1.0 + 1.5 + 1.0 + 4.0 + 6.0 + 7.0) / 6)


def test_the_order_of_environments_does_not_matter():
    rng = np.random.default_rng(0)
    rewards, ended = rng.normal(3.0, 2.0, (50, 6)).astype(np.float32), rng.random((50, 6)) < 0.2
    filters, shuffled, order = scaling(), scaling(), rng.permutation(6)
    for reward, end in zip(rewards, ended, strict=True):
        filters.learn_reward(reward, end)
        shuffled.learn_reward(reward[order], end[order])
    assert shuffled.returns.divisor() == pytest.approx(filters.returns.divisor(), rel=1e-12)
    np.testing.assert_array_equal(shuffled.returns.running, filters.returns.running[order])


def test_rewards_keep_their_mean_and_are_scaled_before_they_are_rescaled_and_clipped():
    filters = scaling(discount=0.0, reward_rescale_factor=3.0, reward_clipping_range=(-5.0, 5.0))
    np.testing.assert_allclose(filters.reward(np.float32([1.0])), [3.0])  # nothing was learned yet
    filters.learn_reward(np.float32([8.0, 12.0]), np.array([False, False]))  # deviation 2
    np.testing.assert_allclose(filters.reward(np.float32([-8.0, -2.0, 0.0, 3.0, 12.0])), [-5.0, -3.0, 0.0, 4.5, 5.0])
    assert filters.reward(np.float32([3.0])).dtype == np.float32


def test_restored_statistics_and_running_returns_continue_exactly_also_through_json():
    rng, (first, second) = np.random.default_rng(0), (scaling(5.0), scaling(5.0))
    for _ in range(7):
        first.learn_reward(rng.normal(30.0, 3.0, 4).astype(np.float32), rng.random(4) < 0.3)
    second.restore(json.loads(json.dumps(first.state())))
    later = rng.normal(size=4).astype(np.float32)
    for filters in (first, second):
        filters.learn_reward(later, np.zeros(4, bool))
    assert first.state() == second.state() and first.returns.count == 32 and first.returns.running.all()


# -- runs --------------------------------------------------------------------------------------------------------------


def same_statistics(filters, rows, discount):
    returns, running = statistics_of(rows, discount)
    assert filters.returns.count == returns.size
    np.testing.assert_allclose(filters.returns.mean, returns.mean(), rtol=1e-9)
    np.testing.assert_allclose(filters.returns.squares / returns.size, returns.var(), rtol=1e-9)
    assert filters.returns.largest == np.abs(returns).max()
    np.testing.assert_array_equal(filters.returns.running, running)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    changes = {SCALED: {"bound": 5.0}, "agent.memory.max_size": 1000, "environment.max_episode_steps": 40}
    return complete_run(tmp_path_factory.mktemp("uninterrupted") / "run", preset(**changes))


@pytest.mark.slow
def test_a_run_learns_from_all_steps_with_the_algorithms_discount_and_samples_scaled_rewards(uninterrupted):
    filters, memory = uninterrupted.filters, uninterrupted.memory
    discount = uninterrupted.preset.agent.algorithm.discount
    same_statistics(filters, memory.between(0, memory.total_rows), discount)  # those of the warm-up too
    batch = memory.gather(np.arange(50))
    raw = memory.ring["reward"].reshape(-1)[:50]
    assert filters.returns.divisor() > 1.5
    np.testing.assert_allclose(batch.reward, raw / filters.returns.divisor(), rtol=1e-6)


@pytest.mark.slow
def test_a_crashed_and_resumed_run_equals_the_uninterrupted_one(uninterrupted, tmp_path):
    crashed(tmp_path / "run", 163, uninterrupted.preset)
    resumed = Trainer(uninterrupted.preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.filters.returns.running.any()  # in the middle of an episode
    resumed.run()
    same_run(resumed, uninterrupted)
    assert resumed.filters.state() == uninterrupted.filters.state()


@pytest.mark.slow
def test_returns_of_several_environments_start_anew_with_their_new_episodes(tmp_path):
    several = preset(**{SCALED: {}, "environment.num_envs": 3, "agent.memory.max_size": 1000})
    crashed(tmp_path / "run", 180, several)
    resumed = Trainer(several, tmp_path / "run", RUN, resume=True, quiet=True)
    assert 0 < resumed.counters.env_steps < 180 and resumed.environments.is_first.all()
    assert not resumed.filters.returns.running.any()
    resumed.run()
    memory = resumed.memory  # which marks where the episodes were cut off
    same_statistics(resumed.filters, memory.between(0, memory.total_rows), several.agent.algorithm.discount)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("make", [tiny.taac, tiny.acer], ids=["sequences", "segments"])
def test_other_memories_sample_rewards_divided_by_the_same(make, tmp_path):
    trainer = Trainer(make(**{SCALED: {"bound": 2.0}}), tmp_path / "run", quiet=True)
    for _ in range(5):
        trainer.collect()
    divisor = trainer.filters.returns.divisor()
    assert divisor != 1.0 and trainer.filters.returns.discount == trainer.preset.agent.algorithm.discount
    np.testing.assert_allclose(trainer.memory.reward_filter(np.float32([3.0])), [3.0 / divisor], rtol=1e-6)
    trainer.close()


@pytest.mark.usefixtures("untraced")
@pytest.mark.slow
def test_weights_bring_the_statistics_but_no_running_episodes(tmp_path):
    scaled = preset(**{SCALED: {"bound": None}})
    source = Trainer(scaled, tmp_path / "unused", quiet=True)
    for _ in range(5):
        source.collect()
    directory = RunDirectory(tmp_path / "source")
    directory.create(source.preset, source.settings)
    save_weights(directory.best, source.agent, source.filters)
    trainer = Trainer(scaled, tmp_path / "run", quiet=True, initial_weights=tmp_path / "source")
    assert trainer.filters.returns.count == 5 and trainer.filters.returns.divisor() == source.filters.returns.divisor()
    assert source.filters.returns.running.any() and not trainer.filters.returns.running.any()
    for some in (source, trainer):
        some.close()


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "bound"), [({}, None), ({"bound": None}, None), ({"bound": 5.0}, 5.0)])
def test_the_bound_is_a_number_or_none_and_comes_back_from_json(given, bound):
    changed = override(preset(), {SCALED: given})
    assert changed.environment.filters.return_scaling == ReturnScalingParameters(bound)
    again = from_json(type(changed), json.dumps(to_json(changed)))
    assert again == changed and preset().environment.filters.return_scaling is None


def test_what_cannot_be_scaled_by_returns_is_refused():
    with pytest.raises(ParameterError, match=r"greater than 0\. Received: 0"):
        ReturnScalingParameters(0.0)
    message = (
        "set reward_normalization=False or return_scaling=None. Received: reward_normalization=True, return_scaling"
    )
    with pytest.raises(ParameterError, match=message):
        FilterParameters(reward_normalization=True, return_scaling=ReturnScalingParameters())
    message = r"set discount instead of reward_discounts, or return_scaling=None.*Received: reward_discounts=\(0.9,\)"
    with pytest.raises(ParameterError, match=message):
        tiny.taac(**{SCALED: {}, "agent.algorithm.reward_discounts": [0.9]})
    message = "returns of one reward a step.* reward_normalization=True divides each.*Received: .* for 2 rewards a step"
    with pytest.raises(ParameterError, match=message):
        Filters(FilterParameters(return_scaling=ReturnScalingParameters()), SPEC._replace(num_rewards=2))
