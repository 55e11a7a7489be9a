"""Rollouts that an older policy played: their importance weights come from the distributions that were stored."""

import numpy as np
import pytest
import tiny

from tfsac.environments import Filters, make, spec_of
from tfsac.parameters import RunParameters
from tfsac.training import Trainer
from tfsac.training.build import build_agent, build_memory

STEPS, ENVS = 5, 3


def preset_of(**changes):
    given = {"environment.num_envs": ENVS, "agent.algorithm.t_max": STEPS, "agent.algorithm.n_times_replay": 0}
    return tiny.acer(**{**given, **changes})


def log_prob(logits, action):
    """Returns log-probabilities of actions `[T * E]`, computed in NumPy."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))[np.arange(len(action)), action]


@pytest.mark.slow
@pytest.mark.parametrize("stale", [True, False])
def test_a_stale_rollout_has_the_ratio_of_its_stored_distributions_and_others_have_one(stale):
    preset = preset_of()
    env = make(preset.environment.level)
    spec = spec_of(env)
    agent = build_agent(preset, RunParameters(seed=4, updates_between_diagnostics=1), spec)
    memory = build_memory(preset, agent.spec, Filters(preset.environment.filters, agent.spec), older_policies=stale)
    rng = np.random.default_rng(5)
    seen = rng.normal(size=(STEPS + 1, ENVS, *spec.observation["observation"].shape)).astype(np.float32)
    no, actions, stored = np.zeros(ENVS, bool), [], []
    for t in range(STEPS):
        found = agent.policy.act({"observation": seen[t]}, mode="explore")
        before, after = ({"observation": seen[i]} for i in (t, t + 1))
        memory.add(before, found.action, np.ones(ENVS), no, no, after, dict(found.extras))
        actions.append(found.action)
        stored.append(found.extras)
    for variable in agent.networks["policy"].trainable_variables:  # as updates do meanwhile
        variable.assign_add(0.3 * rng.standard_normal(variable.shape))
    agent.policy.refresh()
    flat = seen[:STEPS].reshape(STEPS * ENVS, -1)
    action = np.concatenate(actions)
    (behaviour,) = (np.concatenate([extras[name] for extras in stored]) for name in stored[0])
    now = agent.networks["policy"]({"observation": flat}).numpy()
    log_rho = log_prob(now, action) - log_prob(behaviour, action)
    batch = memory.batches(0, preset.agent.batch_size, np.random.default_rng(0))
    metrics = dict(zip(agent.trace(), agent.update(batch).metrics[0], strict=True))
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
        preset_of(**{"agent.networks.*.learning_rate": 0.03, **changes}),
        tmp_path / "run",
        RunParameters(updates_between_diagnostics=1, **run),
        quiet=True,
    )
    trainer.run()
    ratios = {float(row["importance/ratio"]) for row in tiny.rows(tmp_path / "run") if row["importance/ratio"]}
    assert ratios and (ratios == {1.0}) == on_policy
    assert all(abs(ratio - 1.0) < 0.5 for ratio in ratios)
