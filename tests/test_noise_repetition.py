"""Noise repetition: exploration reuses the policy's noise for several steps."""

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


def make_policy(agent=TwinSoftActorCriticAgentParameters, **repetition):
    exploration = NoiseRepetitionParameters(**repetition)
    return SquashedGaussianPolicy.build(agent(exploration=exploration), vector_spec(3, 2), seed=5)


def act_repeatedly(policy, steps, state=None, **kwargs):
    """Acts several times on the same observations; returns the actions `[T, B, A]` and the last state."""
    observations = {"observation": np.linspace(-1, 1, ROWS * 3, dtype=np.float32).reshape(ROWS, 3)}
    actions = []
    for _ in range(steps):
        action, state, _ = policy.act(observations, state, mode="explore", **kwargs)
        actions.append(action)
    return np.array(actions), state


def noise_changes(actions):
    """Returns for each step whether the actions of all environments differ from the last step's."""
    differs = (actions[1:] != actions[:-1]).all(axis=-1)
    assert (differs == differs[:, :1]).all()
    return [True, *differs[:, 0].tolist()]


def test_repeats_follow_the_zeta_distribution():
    vectors, meta = golden.read("modern_tables.npz")
    exploration = NoiseRepetition(NoiseRepetitionParameters(meta["zeta_mu"], meta["zeta_max"]))
    np.testing.assert_allclose(exploration.cdf, vectors["zeta/cdf"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(np.diff(exploration.cdf, prepend=0.0), vectors["zeta/pmf"], rtol=0, atol=1e-6)
    assert [exploration.repeats(float(u)) for u in vectors["zeta/u"]] == vectors["zeta/n"].tolist()
    assert exploration.repeats(np.nextafter(1.0, 0.0)) == meta["zeta_max"]


def test_noise_is_kept_for_its_number_of_repeats():
    vectors, _ = golden.read("modern_tables.npz")
    policy, counts = make_policy(), iter(vectors["zeta/repeats"].tolist())
    policy.exploration.repeats = lambda u: next(counts)
    actions, _ = act_repeatedly(policy, len(vectors["zeta/fresh"]))
    assert noise_changes(actions) == vectors["zeta/fresh"].astype(bool).tolist()


def test_repeated_noise_uses_current_policy_weights():
    policy = make_policy(every=3)
    first, state = act_repeatedly(policy, 1)
    for variable in policy.networks["policy"].trainable_variables:
        variable.assign(variable * 0.5 + 0.01)
    policy.refresh()
    second, state = act_repeatedly(policy, 1, state)
    mean, log_std = policy.networks["policy"]({"observation": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)})
    np.testing.assert_allclose(second[0], np.tanh(mean + np.exp(log_std) * state["noise"]), atol=1e-5)
    assert (first != second).all() and abs(state["noise"]).max() > 0.5


@pytest.mark.parametrize("agent", [SoftActorCriticAgentParameters, TwinSoftActorCriticAgentParameters])
def test_fixed_repeats_continue_across_episodes(agent):
    actions, _ = act_repeatedly(make_policy(agent=agent, every=3), 7, is_first=np.array([True, False, True, False]))
    assert noise_changes(actions) == [True, False, False, True, False, False, True]


def test_other_modes_leave_the_noise_unchanged():
    policy, plain = (
        make_policy(every=4),
        SquashedGaussianPolicy.build(TwinSoftActorCriticAgentParameters(), vector_spec(3, 2), seed=5),
    )
    observations = {"observation": np.ones((ROWS, 3), np.float32)}
    for mode in ("sample", "greedy", "random", "sample"):
        ours, theirs = (p.act(observations, mode=mode) for p in (policy, plain))
        np.testing.assert_array_equal(ours.action, theirs.action)
        assert not ours.state
    actions, state = act_repeatedly(policy, 1)
    for mode in ("sample", "greedy", "random"):
        actual = policy.act(observations, state, mode=mode)
        assert actual.state is state
    assert (policy.act(observations, state).action != policy.act(observations, state).action).all()
    more, _ = act_repeatedly(policy, 4, state)
    assert noise_changes(np.concatenate([actions, more])) == [True, False, False, False, True]


def test_team_members_have_separate_noise():
    spec = team_spec(2, discrete=False)
    networks = twin_soft_actor_critic_networks((8,), policy_input="agent_state", critic_input="global_state")
    agent = TwinSoftActorCriticAgentParameters(exploration=NoiseRepetitionParameters(every=2), networks=networks)
    policy = SquashedGaussianPolicy.build(agent, spec)
    observations = {key: np.zeros((ROWS, *array.shape), np.float32) for key, array in spec.observation.items()}
    first_step = policy.act(observations, mode="explore")
    second_step = policy.act(observations, first_step.state, mode="explore")
    third = policy.act(observations, second_step.state, mode="explore")
    np.testing.assert_array_equal(first_step.action, second_step.action)
    assert (third.action != second_step.action).all() and len(np.unique(first_step.action)) == first_step.action.size


def make_collector(seed=0):
    preset = tiny_preset(**EVERY_5, environment__num_envs=2)
    environments = Environments(preset.environment, seed, maker(preset.environment, None), 0)
    policy = build_policy(preset, RunParameters(seed=seed), environments.spec)
    return Collector(policy, Filters(preset.environment.filters, policy.spec), environments)


def test_failed_environment_step_keeps_the_noise():
    collector, reference = make_collector(), make_collector()
    expected = [reference.step(0, 2 * i).action for i in range(8)]
    step = collector.environments.step

    def fail(action):
        raise EnvironmentFailure("broken")

    actual = []
    for i in range(8):
        collector.environments.step = fail
        with pytest.raises(EnvironmentFailure):
            collector.step(0, 2 * i)
        collector.environments.step = step
        actual.append(collector.step(0, 2 * i).action)
    np.testing.assert_array_equal(actual, expected)


def test_actor_keeps_noise_between_rollouts():
    actor, reference = RolloutActor(0, tiny_preset(), RunParameters(), None, None), make_collector()
    actor.collector = make_collector()
    expected = [reference.step(0, 2 * i).action for i in range(7)]
    requests = [RolloutRequest(n, 0, at, np.zeros(2), actor.collector.filters.state()) for n, at in ((3, 0), (4, 6))]
    weights = reference.policy.actor_weights()
    actual = [actor.rollout(request, weights)[1].action for request in requests]
    np.testing.assert_array_equal(np.concatenate(actual), expected)
    assert actor.collector.policy_state["noise_steps_left"].tolist() == [3, 3]
