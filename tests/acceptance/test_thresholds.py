"""Small presets reach their thresholds, also in episodes with another seed."""

import pytest

import tfsac
from tfsac.parameters import RunParameters, override

pytestmark = pytest.mark.acceptance
LINEAR = {"agent.algorithm.trajectory": "linear"}


@pytest.mark.parametrize(
    ("name", "changes", "episodes", "threshold"),
    [
        ("cart_pole_discrete_sac", {}, 20, 400),
        ("cart_pole_sqil", {}, 20, 400),
        ("pendulum_sqil", {}, 20, -250),
        ("pendulum_sac", {}, 100, -250),
        ("pendulum_twin_sac", {}, 100, -250),
        ("taac_simple_control", LINEAR, 100, -250),
        ("acer_cartpole", {}, 20, 400),
        ("acer_pendulum", {}, 20, -750),
    ],
)
def test_preset_reaches_its_threshold(tmp_path, name, changes, episodes, threshold):
    preset = override(tfsac.load_preset(name), changes)
    result = tfsac.train(preset, tmp_path / "run", RunParameters(seed=1, stop_at_threshold=True), quiet=True)
    assert result.accepted, result
    # Training stops at the first evaluation of ten episodes that is good enough. Pendulum's returns then deviate by 110
    # to 220, and it swings up from nearly everywhere.
    returns = tfsac.evaluate(tmp_path / "run", episodes, seed=7).returns
    assert returns.mean() > threshold and (threshold != -250 or episodes < 100 or (returns > -1000).mean() >= 0.97)
