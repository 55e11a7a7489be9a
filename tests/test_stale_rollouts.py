"""Rollouts that an older policy played: their importance weights come from the distributions that were stored."""

import pytest
import tiny

from tfsac.parameters import RunParameters
from tfsac.training import Trainer

ONLINE = {"environment.num_envs": 3, "agent.algorithm.t_max": 5, "agent.algorithm.n_times_replay": 0}
RUNS = {
    "one after the other": ({}, {}, True),
    "beside the updates": ({}, {"asynchronous_collection": True}, False),
    "statistics that move": ({"environment.filters.observation_normalization": True}, {}, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_fresh_rollouts_are_on_policy_only_where_the_policy_that_learns_played_them(tmp_path, case):
    changes, run, on_policy = RUNS[case]
    preset = tiny.acer(**ONLINE, **{"agent.networks.*.learning_rate": 0.03, **changes})
    Trainer(preset, tmp_path / "run", RunParameters(updates_between_diagnostics=1, **run), quiet=True).run()
    ratios = {float(row["importance/ratio"]) for row in tiny.rows(tmp_path / "run") if row["importance/ratio"]}
    assert ratios and (ratios == {1.0}) == on_policy
    assert all(abs(ratio - 1.0) < 0.5 for ratio in ratios)
