"""Rollouts that an older policy played: their importance weights come from the distributions that were stored."""

import numpy as np
import pytest
import tiny

from tfsac.environments import Filters, make, spec_of
from tfsac.parameters import RunParameters
from tfsac.training import Trainer
from tfsac.training.build import build_agent, build_memory

STEPS, ENVS = 5, 3
LEVELS = {"discrete": "CartPole-v1", "gaussian": "Pendulum-v1"}


def preset_of(kind, **changes):
    given = {"environment.num_envs": ENVS, "agent.algorithm.t_max": STEPS, "agent.algorithm.n_times_replay": 0}
    return tiny.acer(LEVELS[kind], **{**given, **changes})


def log_prob(kind, outputs, action):
    """Returns log-probabilities of actions `[T * E]`, computed in NumPy."""
    if kind == "discrete":
        (logits,) = outputs
        shifted = logits - logits.max(axis=-1, keepdims=True)
        return (shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))[np.arange(len(action)), action]
    mean, variance = outputs
    return (-0.5 * ((action - mean) ** 2 / variance + np.log(2 * np.pi * variance))).sum(axis=-1)


def outputs_of(kind, agent, observation):
    """Returns the parameters of the policy's distribution as it is now."""
    found = agent.networks["policy"]({"observation": observation})
    return [found.numpy()] if kind == "discrete" else [found[0].numpy(), np.logaddexp(0.0, found[1].numpy()) + 1e-6]


def rollout_and_metrics(kind, stale):
    """Plays a rollout, changes the policy, and makes the update."""
    preset = preset_of(kind)
    env = make(LEVELS[kind])
    spec = spec_of(env)
    agent = build_agent(preset, RunParameters(seed=4, updates_between_diagnostics=1), spec)
    memory = build_memory(preset, agent.spec, Filters(preset.environment.filters, agent.spec), older_policies=stale)
    rng = np.random.default_rng(5)
    seen = rng.normal(size=(STEPS + 1, ENVS, *spec.observation["observation"].shape)).astype(np.float32)
    no, actions, stored = np.zeros(ENVS, bool), [], []
    for t in range(STEPS):
        found = agent.policy.act({"observation": seen[t]}, mode="explore")
        memory.add(
            {"observation": seen[t]},
            found.action,
            np.ones(ENVS),
            no,
            no,
            {"observation": seen[t + 1]},
            dict(found.extras),
        )
        actions.append(found.action)
        stored.append(found.extras)
    for variable in agent.networks["policy"].trainable_variables:  # as updates do meanwhile
        variable.assign_add(0.3 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    flat = seen[:STEPS].reshape(STEPS * ENVS, -1)
    action = np.concatenate(actions)
    behaviour = [np.concatenate([extras[name] for extras in stored]) for name in stored[0]]
    log_rho = log_prob(kind, outputs_of(kind, agent, flat), action) - log_prob(kind, behaviour, action)
    batch = memory.batches(0, preset.agent.batch_size, np.random.default_rng(0))
    metrics = dict(zip(agent.trace(), agent.update(batch).metrics[0], strict=True))
    return log_rho, metrics, batch


@pytest.mark.slow
@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.parametrize("kind", LEVELS)
def test_a_stale_rollout_has_the_ratio_of_its_stored_distributions_and_others_have_one(kind, stale):
    log_rho, metrics, batch = rollout_and_metrics(kind, stale)
    assert np.abs(log_rho).max() > 0.1 and (batch.on_policy[0, :, :ENVS] != stale).all()
    expected = np.exp(np.minimum(log_rho, 10)).mean() if stale else 1.0
    assert metrics["importance/ratio"] == pytest.approx(expected, rel=1e-4 if stale else 0)


RUNS = {
    "one after the other": ({}, {}, True),
    "beside the updates": ({}, {"asynchronous_collection": True}, False),
    "statistics that move": ({"environment.filters.observation_normalization": True}, {}, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_fresh_rollouts_are_on_policy_only_where_the_policy_that_learns_played_them(tmp_path, case):
    changes, run, on_policy = RUNS[case]
    trainer = Trainer(
        preset_of("discrete", **{"agent.networks.*.learning_rate": 0.03, **changes}),
        tmp_path / "run",
        RunParameters(updates_between_diagnostics=1, **run),
        quiet=True,
    )
    trainer.run()
    ratios = {float(row["importance/ratio"]) for row in tiny.rows(tmp_path / "run") if row["importance/ratio"]}
    assert ratios and (ratios == {1.0}) == on_policy
    assert all(abs(ratio - 1.0) < 0.5 for ratio in ratios)
