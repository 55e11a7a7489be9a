"""Rollouts of an older policy have importance weights from the stored distributions."""

import pytest
import tiny

from tfsac.parameters import RunParameters
from tfsac.training import Trainer

ON_POLICY = {"environment.num_envs": 3, "agent.algorithm.t_max": 5, "agent.algorithm.n_times_replay": 0}
RUNS = {
    "synchronous": ({}, {}, True),
    "asynchronous": ({}, {"asynchronous_collection": True}, False),
    "observation normalisation": ({"environment.filters.observation_normalization": True}, {}, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RUNS)
def test_importance_ratio_of_fresh_rollouts(tmp_path, case):
    changes, run, on_policy = RUNS[case]
    preset = tiny.acer(**ON_POLICY, **{"agent.networks.*.learning_rate": 0.03, **changes})
    Trainer(preset, tmp_path / "run", RunParameters(updates_between_diagnostics=1, **run), quiet=True).run()
    ratios = {float(row["importance/ratio"]) for row in tiny.rows(tmp_path / "run") if row["importance/ratio"]}
    assert ratios and (ratios == {1.0}) == on_policy
    assert all(abs(ratio - 1.0) < 0.5 for ratio in ratios)
