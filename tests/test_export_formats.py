"""Exports as small devices take them: LiteRT with float16 and int8."""

import re
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import tiny

import tfsac
from tfsac import api, cli, exporting
from tfsac.catalog import load_preset
from tfsac.errors import TfsacError
from tfsac.exporting.litert import calibrate, litert_interpreter

pytest.importorskip("ai_edge_litert")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "preset"),
    [
        pytest.param("Pendulum-v1", tiny.taac(), id="taac", marks=pytest.mark.acceptance),
        pytest.param("CartPole-v1", tiny.acer(lstm=True), id="lstm"),
    ],
)
def test_a_float16_file_acts_as_the_live_policy_but_for_its_rounded_weights(level, preset, tmp_path, capsys):
    run = tiny.untrained_run(tmp_path / "run", level, preset)
    out = tmp_path / "float16"
    line = ["export", f"--run_dir={run}", f"--out={out}", "--format=tflite", "--quantize=float16", "--verify"]
    assert cli.run(line) == 0
    told = re.search(r"observations: (\S+) \(of float16, without a tolerance\)", capsys.readouterr().out)[1]
    assert 0 < float(told) < 5e-3


class Observed(gym.Env):
    """Draws its observations, whatever one does, for 60 steps."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(), {}

    def step(self, action):
        self.steps += 1
        return self._observed(), 0.0, False, self.steps >= 60, {}


class Weather(Observed):
    """Observes pressure, a clock and a constant, which float16 does not hold; acts between bounds that it does not."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gym.spaces.Box(np.float32([-2.3, -0.7]), np.float32([2.3, 0.7]))

    def _observed(self):
        return np.float32([self.np_random.normal(101325, 100), self.np_random.normal(2010.3, 0.1), 9.81])


@pytest.mark.slow
def test_a_float16_file_rounds_neither_statistics_nor_bounds(tmp_path):
    changes = {"environment.filters.observation_normalization": True, **tiny.SHORTER}
    preset = tiny.shrunk(load_preset("pendulum_twin_sac"), **changes)
    result = tfsac.train(preset, tmp_path / "run", env_fn=Weather, quiet=True)
    policy = tfsac.load_policy(result.run_dir, env_fn=Weather)
    (observations,) = api.observations_of(result.run_dir, policy, env_fn=Weather)
    path = exporting.export(policy, tmp_path / "float16", "tflite", quantize="float16")
    assert 1e-7 < exporting.verify(policy, path, observations) < 5e-3
    sample = litert_interpreter(path).get_signature_runner("sample")
    rows = np.array(observations, np.float32)
    for noise in (-100.0, 100.0):  # saturated
        actions = sample(observation=rows, noise=np.full((len(rows), 2), noise, np.float32))["action"]
        assert all(Weather.action_space.contains(action) for action in actions)
        assert np.abs(actions).max() == np.float32(2.3)


@pytest.mark.slow
def test_an_int8_file_is_smaller_and_acts_nearly_as_the_live_policy(tmp_path, capsys):
    parts = ("input_embedders_parameters.*", "middleware_parameters")
    wide = {f"agent.networks.policy.{part}.scheme": [64] for part in parts}
    run = tiny.untrained_run(tmp_path / "run", "Pendulum-v1", tiny.shrunk(load_preset("pendulum_sac"), **wide))
    plain = exporting.export(tfsac.load_policy(run), tmp_path / "float", "tflite")
    line = [
        "export",
        f"--run_dir={run}",
        f"--out={tmp_path / 'int8'}",
        "--format=tflite",
        "--quantize=int8",
        "--verify",
    ]
    assert cli.run(line) == 0
    told = re.search(r"over 50 observations: (\S+) \(of int8, without a tolerance\)", capsys.readouterr().out)[1]
    assert 1e-5 < float(told) < 0.2  # of a range of 4
    int8 = tmp_path / "int8" / plain.name
    assert int8.stat().st_size < 0.8 * plain.stat().st_size
    details = litert_interpreter(int8).get_tensor_details()
    assert sum(tensor["dtype"] == np.int8 and tensor["shape"].prod() >= 192 for tensor in details) >= 2  # weights
    sampled = litert_interpreter(int8).get_signature_runner("sample")
    noise = np.array([[3.0], [-3.0]], np.float32)
    high, low = sampled(observation=np.zeros((2, 3), np.float32), noise=noise)["action"][:, 0]
    assert low < high and low >= -2.0 and high <= 2.0


class Crossroads(Observed):
    """Of six ways two are open, and marked."""

    observation_space = gym.spaces.Dict(
        {"marks": gym.spaces.Box(-1, 1, (6,)), "action_mask": gym.spaces.Box(0, 1, (6,), np.int8)}
    )
    action_space = gym.spaces.Discrete(6)

    def _observed(self):
        mask = np.zeros(6, np.int8)
        mask[self.np_random.choice(6, 2, replace=False)] = 1
        return {"marks": self.np_random.uniform(-1, 1, 6).astype(np.float32), "action_mask": mask}


gym.register("TfsacCrossroads-v0", Crossroads)


def test_each_episode_of_the_calibration_begins_with_the_first_state_of_a_policy(tmp_path):
    policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "run", "CartPole-v1", tiny.acer(lstm=True)))
    signature = exporting.PolicyGraph(policy).signatures(noise_as_input=True)["serving_default"]
    converter, episodes = SimpleNamespace(), [[np.full(4, 0.1, np.float32)] * steps for steps in (3, 1, 4)]
    calibrate(converter, {"serving_default": signature}, policy, episodes)
    rows = [row for _, row in converter.representative_dataset()]
    states = [np.concatenate([value.ravel() for key, value in row.items() if key != "observation"]) for row in rows]
    assert [bool(state.any()) for state in states] == [False, True, True, False, False, True, True, True]


@pytest.mark.slow
def test_an_int8_file_chooses_among_the_valid_actions_as_the_live_policy(tmp_path):
    preset = tiny.shrunk(load_preset("cart_pole_discrete_sac"))
    run = tiny.untrained_run(tmp_path / "run", "TfsacCrossroads-v0", preset)
    policy = tfsac.load_policy(run, critics=True)
    episodes = api.observations_of(run, policy, 2)
    path = exporting.export(policy, tmp_path / "int8", "tflite", values=True, quantize="int8", quantize_with=episodes)
    observations = [seen for episode in episodes for seen in episode]
    exported = exporting.load_exported(path)
    same = [int(exported(seen)) == int(policy.act(seen)) for seen in observations]
    assert np.mean(same) > 0.8
    sample = litert_interpreter(path).get_signature_runner("sample")
    for seen in observations[:20]:
        mask, noise = seen["action_mask"][None].astype(bool), np.random.default_rng(3).uniform(size=(1, 6))
        chosen = sample(marks=seen["marks"][None], action_mask=mask, noise=noise.astype(np.float32))["action"]
        assert mask[0, chosen[0]]
    with pytest.raises(TfsacError, match="action"):
        exported({**observations[0], "action_mask": np.zeros(6)})
