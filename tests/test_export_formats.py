"""LiteRT exports with float16 weights."""

import re

import gymnasium as gym
import numpy as np
import pytest
import tiny

import tfsac
from tfsac import api, cli, exporting
from tfsac.exporting.litert import litert_interpreter
from tfsac.preset_lookup import load_preset

pytest.importorskip("ai_edge_litert")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "preset"),
    [
        pytest.param("Pendulum-v1", tiny.taac(), id="taac", marks=pytest.mark.acceptance),
        pytest.param("CartPole-v1", tiny.acer(lstm=True), id="lstm"),
    ],
)
def test_float16_export_matches_live_policy_approximately(level, preset, tmp_path, capsys):
    run = tiny.untrained_run(tmp_path / "run", level, preset)
    out = tmp_path / "float16"
    line = ["export", f"--run_dir={run}", f"--out={out}", "--format=tflite", "--quantize=float16", "--verify"]
    assert cli.run(line) == 0
    error = re.search(r"observations: (\S+) \(of float16, without a tolerance\)", capsys.readouterr().out)[1]
    assert 0 < float(error) < 5e-3


class Weather(gym.Env):
    """Has observations and action bounds that float16 cannot represent."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gym.spaces.Box(np.float32([-2.3, -0.7]), np.float32([2.3, 0.7]))

    def _observe(self):
        return np.float32([self.np_random.normal(101325, 100), self.np_random.normal(2010.3, 0.1), 9.81])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), 0.0, False, self.steps >= 60, {}


@pytest.mark.slow
def test_float16_export_keeps_statistics_and_bounds_exact(tmp_path):
    changes = {"environment.filters.observation_normalization": True, **tiny.SHORTER}
    preset = tiny.shrunk(load_preset("pendulum_twin_sac"), **changes)
    result = tfsac.train(preset, tmp_path / "run", env_fn=Weather, quiet=True)
    policy = tfsac.load_policy(result.run_dir, env_fn=Weather)
    observations = api.observations_of(result.run_dir, policy, env_fn=Weather)
    path = exporting.export(policy, tmp_path / "float16", "tflite", quantize="float16")
    assert 1e-7 < exporting.verify(policy, path, observations) < 5e-3
    sample = litert_interpreter(path).get_signature_runner("sample")
    rows = np.array(observations, np.float32)
    for noise in (-100.0, 100.0):  # saturated
        actions = sample(observation=rows, noise=np.full((len(rows), 2), noise, np.float32))["action"]
        assert all(Weather.action_space.contains(action) for action in actions)
        assert np.abs(actions).max() == np.float32(2.3)
