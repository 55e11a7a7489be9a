"""The scripts in examples/ run, with shorter schedules."""

import contextlib
import importlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

import gymnasium as gym
import numpy as np
import pytest
import tiny
from cli_tools import SUBPROCESS_ENV
from pages import ROOT

import tfsac

EXAMPLES = ROOT / "examples"
TRAINED = {f"own_{name}.py" for name in ("agent", "environment", "exploration", "head", "memory", "networks")}
TRAINED |= {"privileged_critic.py"}
OTHERS = {"serve_exported.py", "checkpoint_video.py", "image_reacher.py", "t_maze.py"}


def run_example(name, folder):
    """Runs a script in a folder with a tenth of its steps, and returns what it printed."""
    text = re.sub(r"\b(\d)_000\b", r"\g<1>00", (EXAMPLES / name).read_text(encoding="utf-8"))
    if "heatup_steps" not in text:
        text = text.replace('"schedule.improve_steps"', '"schedule.heatup_steps": 300, "schedule.improve_steps"')
    (folder / name).write_text(text, encoding="utf-8")
    command = [sys.executable, name]
    result = subprocess.run(command, cwd=folder, env=SUBPROCESS_ENV, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-3000:]
    return result.stdout


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == TRAINED | OTHERS


def test_image_reacher_is_valid_and_solvable(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module("image_reacher")
    assert tfsac.check_environment(module.ImageReacher, num_steps=100).usable
    env = gym.make("ImageReacher-v0")
    env.reset(seed=0)
    over = False
    while not over:
        reacher = env.unwrapped
        action = np.clip((reacher.target - reacher.point) / module.SPEED, -1.0, 1.0).astype(np.float32)
        image, reward, _, over, info = env.step(action)
    assert info["is_success"] and reward == pytest.approx(0.0, abs=1e-6)
    assert image.sum() == 9 * 255  # the point covers the target


@pytest.mark.parametrize("turns_right", [True, False])
def test_t_maze_is_valid_and_rewards_the_correct_turn(monkeypatch, turns_right):
    monkeypatch.syspath_prepend(EXAMPLES)
    module = importlib.import_module("t_maze")
    assert tfsac.check_environment(module.TMaze, num_steps=100).usable
    env = gym.make("TMaze-v0")
    env.reset(seed=0)
    assert [env.step(action)[1] for action in (1, 0, 2)] == [-0.1, 0.0, -0.1]  # not moving along the corridor loses
    (sign, _), _ = env.reset(seed=0)
    observations, total, over = [], 0.0, False
    while not over:
        side = sign if turns_right else -sign
        at_end = bool(observations and observations[-1][1])
        action = (1 if side < 0 else 2) if at_end else 0
        observation, reward, over, _, info = env.step(action)
        observations.append(observation)
        total += reward
    assert abs(sign) == 1 and not np.any([shown for shown, _ in observations]) and len(observations) == 11
    assert bool(info["is_success"]) == turns_right and total == (4.0 if turns_right else -0.1)


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("name", "kind", "steps"),
    [
        ("environment", None, None),
        ("networks", None, None),
        ("agent", "CautiousAgentParameters", 800),
        ("memory", "RecentReplayParameters", 1000),
        ("exploration", "DecayingNoiseParameters", 1000),
    ],
)
def test_custom_part_is_trained_and_resumed_in_new_process(name, kind, steps, tmp_path):
    printed, run_dir = run_example(f"own_{name}.py", tmp_path), tmp_path / "runs" / f"own_{name}"
    assert re.search(r"mean return -\d+\.\d", printed) and ("usable" in printed or name != "environment")
    assert (run_dir / "exported" / "saved_model.pb").is_file() == ("exported" in printed)
    if kind:
        assert f'"own_{name}:{kind}"' in (run_dir / "config.json").read_text()
        longer = ["--set=schedule.improve_steps=700", "--resume"]
        command = [sys.executable, "-m", "tfsac", "train", f"--run_dir={run_dir}", *longer]
        result = subprocess.run(command, cwd="/", env=SUBPROCESS_ENV, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
        assert max(int(float(row["env_steps"])) for row in tiny.rows(run_dir)) == steps  # the warm-up and 700 steps


@pytest.mark.acceptance
def test_privileged_critic_policy_is_exported_without_their_key(tmp_path):
    assert re.search(r"mean return -\d+\.\d\d without the simulator", run_example("privileged_critic.py", tmp_path))
    exported = tfsac.load_exported(tmp_path / "runs" / "privileged_critic" / "exported")
    assert [*exported.reads] == ["gauge"]


@pytest.mark.acceptance
def test_exported_custom_head_matches_live_policy(tmp_path, run_python):
    printed = run_example("own_head.py", tmp_path)
    assert re.search(r"best mean return -\d+\.\d; exported to runs/own_head/exported\n$", printed)
    run_dir = tmp_path / "runs" / "own_head"
    printed = run_python(
        f"""
import os, numpy as np, tensorflow as tf, tfsac
os.chdir("/")
policy = tfsac.load_policy({str(run_dir)!r})
head = policy.acting.networks["policy"].head
value = head.log_std.value.numpy()
assert type(head).__name__ == "ConstantStdHead" and value != -0.5, value  # trained
exported = tf.saved_model.load({str(run_dir / "exported")!r})
for seed in range(3):
    observation = np.random.default_rng(seed).uniform(-1, 1, (16, 3)).astype(np.float32)
    action = exported.signatures["serving_default"](observation=tf.constant(observation))["action"]
    np.testing.assert_allclose(action, policy.act(observation), atol=1e-5)
print("equal")
"""
    )
    assert printed.splitlines()[-1] == "equal"


@pytest.mark.acceptance
def test_checkpoint_policies_and_video_side_by_side(tmp_path):
    iio = pytest.importorskip("imageio.v2", reason="videos need: pip install 'tfsac[video]'")
    pytest.importorskip("imageio_ffmpeg", reason="videos need: pip install 'tfsac[video]'")
    run = tmp_path / "run"
    changes = {"schedule.improve_steps": 120}
    assert tiny.train(run, "--checkpoint_save_steps=50", "--num_checkpoints_to_keep=9", changes=changes) == 0
    steps = [int(path.name) for path in sorted((run / "checkpoints").glob("0*"))]
    assert steps == [50, 100, 150, 160]
    for step in steps:
        with np.load(run / "checkpoints" / f"{step:09d}" / "best.npz") as saved:
            (loaded, *_) = tfsac.load_policy(run, step=step).acting.variables.values()
            np.testing.assert_array_equal(loaded, saved["policy/0"])
    with pytest.raises(ValueError, match="step"):
        tfsac.load_policy(run, step=70)
    command = [sys.executable, str(EXAMPLES / "checkpoint_video.py"), str(run), "learning.gif", "--steps", "50", "160"]
    command += ["--width=64", "--every=1"]
    result = subprocess.run(command, cwd=tmp_path, env=SUBPROCESS_ENV, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    frames = iio.mimread(tmp_path / "learning.gif")
    assert frames[0].shape[:2] == (64, 128)


@contextlib.contextmanager
def served(path):
    """Serves an export on a free port; yields a function that posts a body and returns status and response."""
    command = [sys.executable, str(EXAMPLES / "serve_exported.py"), str(path), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = re.search(r"at (http://127\.0\.0\.1:\d+/v1/models/policy)$", process.stdout.readline())[1]
        with urllib.request.urlopen(address, timeout=60) as response:
            assert json.load(response)["model_version_status"][0]["state"] == "AVAILABLE"

        def post(body):
            try:
                with urllib.request.urlopen(f"{address}:predict", json.dumps(body).encode(), timeout=60) as response:
                    return response.status, json.load(response)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        yield post
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_served_policy_matches_live_policy_and_reports_errors(tmp_path):
    policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "run", "Pendulum-v1"), critics=True)
    observations = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)
    rows, acted = observations.tolist(), policy.act(observations)
    with served(tfsac.export(policy, tmp_path / "exported", values=True)) as post:
        for body, field in (
            ({"inputs": rows, "signature_name": "serving_default"}, "outputs"),
            ({"instances": [{"observation": row} for row in rows]}, "predictions"),
        ):
            status, response = post(body)
            assert status == 200 and response.keys() == {field}
            np.testing.assert_allclose(response[field], acted, atol=1e-5)
        both = [{"observation": row, "action": action.tolist()} for row, action in zip(rows, acted, strict=True)]
        values = post({"instances": both, "signature_name": "values"})[1]["predictions"]
        assert len(values) == 4 and values[0].keys() == {"q", "v"}
        status, answer = post({"inputs": [[0.0, 1.0]], "signature_name": "sample"})
        assert status == 400 and "shape" in answer["error"]


@pytest.mark.slow
def test_served_policy_state_is_passed_with_each_request(tmp_path):
    policy = tfsac.load_policy(tiny.untrained_run(tmp_path / "run", "Pendulum-v1", tiny.taac()))
    with served(tfsac.export(policy, tmp_path / "exported")) as post:
        state = post({"inputs": {"rows": 1}, "signature_name": "initial_state"})[1]["outputs"]
        for i in range(5):
            observation = np.float32([np.cos(i), np.sin(i), i])
            status, after = post({"inputs": {"observation": [observation.tolist()], **state}})
            assert status == 200
            state = after["outputs"]
            np.testing.assert_allclose(state.pop("action")[0], policy.act(observation), atol=1e-5)
