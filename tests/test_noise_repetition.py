"""Noise repetition: the policy's noise is used for several steps, in collection alone."""

import golden_tools as golden
import numpy as np
import pytest
from toys import team_spec, tiny_preset, vector_spec

from tfsac.environments import EnvironmentFailure, Environments, Filters, maker
from tfsac.parameters import (
    NoiseRepetitionParameters,
    RunParameters,
    SoftActorCriticAgentParameters,
    TwinSoftActorCriticAgentParameters,
    twin_soft_actor_critic_networks,
)
from tfsac.policies import NoiseRepetition, SquashedGaussianPolicy
from tfsac.training.build import build_policy
from tfsac.training.collection import Collector
from tfsac.training.ray_collector import RolloutActor, RolloutRequest

ROWS = 4
EVERY_5 = {"agent__exploration": {"kind": "noise_repetition", "every": 5}}


def policy_of(agent=TwinSoftActorCriticAgentParameters, **repetition):
    exploration = NoiseRepetitionParameters(**repetition)
    return SquashedGaussianPolicy.build(agent(exploration=exploration), vector_spec(3, 2), seed=5)


def acted(policy, steps, state=None, **given):
    """Returns actions `[T, B, A]` on the same observations, and the state after the last one."""
    seen = {"observation": np.linspace(-1, 1, ROWS * 3, dtype=np.float32).reshape(ROWS, 3)}
    actions = []
    for _ in range(steps):
        action, state, _ = policy.act(seen, state, mode="explore", **given)
        actions.append(action)
    return np.array(actions), state


def fresh_steps(actions):
    """Returns whether the actions of each step differ from those before, of every environment alike."""
    differs = (actions[1:] != actions[:-1]).all(axis=-1)
    assert (differs == differs[:, :1]).all()
    return [True, *differs[:, 0].tolist()]


def test_numbers_of_steps_follow_the_zeta_distribution():
    vectors, meta = golden.read("modern_tables.npz")
    exploration = NoiseRepetition(NoiseRepetitionParameters(meta["zeta_mu"], meta["zeta_max"]))
    np.testing.assert_allclose(exploration.cdf, vectors["zeta/cdf"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.diff(exploration.cdf, prepend=0.0), vectors["zeta/pmf"], rtol=0, atol=1e-6)
    assert [exploration.repeats(float(u)) for u in vectors["zeta/u"]] == vectors["zeta/n"].tolist()
    assert exploration.repeats(np.nextafter(1.0, 0.0)) == meta["zeta_max"]


def test_noise_is_drawn_when_the_steps_of_the_one_before_are_over():
    vectors, _ = golden.read("modern_tables.npz")
    policy, counts = policy_of(), iter(vectors["zeta/repeats"].tolist())
    policy.exploration.repeats = lambda u: next(counts)
    actions, _ = acted(policy, len(vectors["zeta/fresh"]))
    assert fresh_steps(actions) == vectors["zeta/fresh"].astype(bool).tolist()


def test_the_noise_moves_the_sample_of_the_policy_of_now():
    policy = policy_of(every=3)
    first, state = acted(policy, 1)
    for variable in policy.networks["policy"].trainable_variables:
        variable.assign(variable * 0.5 + 0.01)
    policy.refresh()
    second, state = acted(policy, 1, state)
    mean, log_std = policy.networks["policy"]({"observation": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)})
    np.testing.assert_allclose(second[0], np.tanh(mean + np.exp(log_std) * state["noise"]), atol=1e-5)
    assert (first != second).all() and abs(state["noise"]).max() > 0.5


@pytest.mark.parametrize("agent", [SoftActorCriticAgentParameters, TwinSoftActorCriticAgentParameters])
def test_a_fixed_number_of_steps_is_not_cut_off_by_the_end_of_an_episode(agent):
    actions, _ = acted(policy_of(agent=agent, every=3), 7, is_first=np.array([True, False, True, False]))
    assert fresh_steps(actions) == [True, False, False, True, False, False, True]


def test_other_modes_neither_use_the_noise_nor_touch_it():
    policy, plain = (
        policy_of(every=4),
        SquashedGaussianPolicy.build(TwinSoftActorCriticAgentParameters(), vector_spec(3, 2), seed=5),
    )
    seen = {"observation": np.ones((ROWS, 3), np.float32)}
    for mode in ("sample", "greedy", "random", "sample"):
        ours, theirs = (p.act(seen, mode=mode) for p in (policy, plain))
        np.testing.assert_array_equal(ours.action, theirs.action)
        assert not ours.state
    actions, state = acted(policy, 1)
    for mode in ("sample", "greedy", "random"):
        found = policy.act(seen, state, mode=mode)
        assert found.state is state
    assert (policy.act(seen, state).action != policy.act(seen, state).action).all()
    more, _ = acted(policy, 4, state)
    assert fresh_steps(np.concatenate([actions, more])) == [True, False, False, False, True]


def test_agents_that_share_a_policy_have_noise_of_their_own_for_as_many_steps():
    spec = team_spec(2, discrete=False)
    networks = twin_soft_actor_critic_networks((8,), policy_input="agent_state", critic_input="global_state")
    agent = TwinSoftActorCriticAgentParameters(exploration=NoiseRepetitionParameters(every=2), networks=networks)
    policy = SquashedGaussianPolicy.build(agent, spec)
    seen = {key: np.zeros((ROWS, *array.shape), np.float32) for key, array in spec.observation.items()}
    one = policy.act(seen, mode="explore")
    two = policy.act(seen, one.state, mode="explore")
    three = policy.act(seen, two.state, mode="explore")
    np.testing.assert_array_equal(one.action, two.action)
    assert (three.action != two.action).all() and len(np.unique(one.action)) == one.action.size


# -- runs --------------------------------------------------------------------------------------------------------------


def collector_of(seed=0):
    preset = tiny_preset(**EVERY_5, environment__num_envs=2)
    environments = Environments(preset.environment, seed, maker(preset.environment, None), 0)
    policy = build_policy(preset, RunParameters(seed=seed), environments.spec)
    return Collector(policy, Filters(preset.environment.filters, policy.spec), environments)


def test_a_step_that_an_environment_did_not_make_uses_up_no_noise():
    collector, reference = collector_of(), collector_of()
    expected = [reference.step(0, 2 * i).action for i in range(8)]
    step = collector.environments.step

    def failing(action):
        raise EnvironmentFailure("broken. Received: nothing")

    found = []
    for i in range(8):
        collector.environments.step = failing
        with pytest.raises(EnvironmentFailure):
            collector.step(0, 2 * i)
        collector.environments.step = step
        found.append(collector.step(0, 2 * i).action)
    np.testing.assert_array_equal(found, expected)


def test_an_actor_keeps_its_noise_from_one_rollout_to_the_next():
    actor, reference = RolloutActor(0, tiny_preset(), RunParameters(), None, None), collector_of()
    actor.collector = collector_of()
    expected = [reference.step(0, 2 * i).action for i in range(7)]
    requests = [RolloutRequest(n, 0, at, np.zeros(2), actor.collector.filters.state()) for n, at in ((3, 0), (4, 6))]
    weights = reference.policy.actor_weights()
    found = [actor.rollout(request, weights)[1].action for request in requests]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    assert actor.collector.policy_state["noise_steps_left"].tolist() == [3, 3]
