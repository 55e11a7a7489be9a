"""The command line: every command on a tiny run, and a table of commands that fail."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny
from cli_tools import RETURN, SUBPROCESS_ENV, error_line, folder_contents, format_returns, png_size
from pages import ROOT

from tfsac import api, cli
from tfsac.cli.command_registry import flag_values, help_of
from tfsac.exporting.exported import Exported
from tfsac.preset_lookup import load_preset, preset_names, read_config


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A finished run with all optional outputs, and what it printed."""
    tiny.register()
    folder = tmp_path_factory.mktemp("cli") / "pendulum"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        flags = "--histograms --stochastic_evaluation --memory_on_disk --print_networks_summary --evaluate=2 --seed=4"
        assert tiny.train(folder, *flags.split(), "--checkpoint_save_steps=200", shorter=False) == 0
    return folder, printed.getvalue()


@pytest.fixture
def run_dir(tiny_run):
    return tiny_run[0]


@pytest.mark.slow
def test_run_writes_and_reports_its_results(tiny_run):
    folder, printed = tiny_run
    names = {"best.npz", "checkpoints", "config.json", "events", "learning_curve.png", "metrics.csv", "policy"}
    assert {path.name for path in folder.iterdir()} - {".lock"} == names
    assert [row["env_steps"] for row in tiny.rows(folder)] == ["250", "500"]
    best = max(float(row["evaluation/return_mean"]) for row in tiny.rows(folder))
    assert f"finished at step 500, best evaluation {best:.1f}" in printed
    assert str(folder / "learning_curve.png") in printed and str(folder / "policy") in printed
    assert re.search(r"the preset's threshold of -180 was (not )?reached", printed)
    assert ("not reached" in printed) == (best < -180)
    assert all(f'Model: "{name}"' in printed for name in ("policy", "v", "v_target", "q"))


def test_config_and_metrics_describe_the_run(run_dir):
    config = json.loads((run_dir / "config.json").read_text())
    assert config["preset"]["schedule"]["improve_steps"] == "EnvironmentSteps(200)"
    assert {network["batch_size"] for network in config["preset"]["agent"]["networks"].values()} == {32}
    run = config["run"]
    assert (run["seed"], run["checkpoint_save_steps"]) == (4, 200)
    assert all(run[name] for name in ("tensorboard", "histograms", "stochastic_evaluation", "memory_on_disk"))
    assert config["versions"]["tensorflow"] == tf.__version__ and config["resumed"] == []
    assert load_preset(run_dir / "config.json") == read_config(run_dir / "config.json")[0]
    last = tiny.rows(run_dir)[-1]
    assert last["updates"] == "200"
    kinds = ("evaluation", "stochastic_evaluation")
    names = [f"{kind}/{name}" for kind in kinds for name in ("return_mean", "return_min", "length_mean")]
    assert all(np.isfinite(float(last[name])) for name in (*names, "loss/policy", "loss/v", "loss/q1", "loss/q2"))
    assert last["evaluation/return_mean"] != last["stochastic_evaluation/return_mean"]


@pytest.mark.usefixtures("no_export_or_plot")
@pytest.mark.slow
def test_flags_select_level_and_run_folder(tmp_path, monkeypatch, capsys):
    tiny.register()
    monkeypatch.chdir(tmp_path)
    flags = ["--level=TfsacCliff-v0", "--num_envs=2", "--seed=7", "--experiment_name=mine", "--preset=mujoco_sac"]
    assert cli.run(["train", *tiny.assignments({**tiny.CHANGES, **tiny.SHORTER}), *flags]) == 0
    [folder] = (tmp_path / "runs" / "mine").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}-seed7", folder.name)
    preset, run = read_config(folder / "config.json")
    assert (preset.environment.level, preset.environment.num_envs, run.seed) == ("TfsacCliff-v0", 2, 7)
    assert preset.environment.filters.reward_rescale_factor == 5.0
    assert preset.validation.min_reward_threshold is None
    assert "threshold" not in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.usefixtures("no_export_or_plot")
def test_initial_weights_and_stop_at_threshold(run_dir, tmp_path, capsys):
    changes = {"validation.min_reward_threshold": -1e9}
    flags = ["--stop_at_threshold", f"--checkpoint_restore_dir={run_dir}"]
    assert tiny.train(tmp_path / "run", *flags, changes=changes) == 0
    printed = capsys.readouterr().out
    assert "threshold reached at step 50," in printed
    assert "the preset's threshold of -1e+09 was reached" in printed
    assert [row["env_steps"] for row in tiny.rows(tmp_path / "run")] == ["50"]
    config = tmp_path / "run" / "config.json"
    assert json.loads(config.read_text())["initial_weights"] == str(run_dir)
    assert cli.run(["train", f"--preset={config}", f"--run_dir={tmp_path / 'again'}"]) == 0
    assert f"{config} began with the weights of --checkpoint_restore_dir={run_dir}" in capsys.readouterr().err


def test_list_and_presets_print_every_preset(capsys):
    for words in (["presets"], ["train", "--list"]):
        assert cli.run(words) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == preset_names()


def test_evaluate_prints_returns_of_best_policy(run_dir, capsys):
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6"]) == 0
    printed = capsys.readouterr().out
    evaluation = api.evaluate(run_dir, 3, seed=6)
    assert list(RETURN.search(printed).groups()) == [*format_returns(evaluation.returns), "3", "50"]
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=7"]) == 0
    assert capsys.readouterr().out != printed
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6", "--stochastic"]) == 0
    assert capsys.readouterr().out != printed


def test_sampled_actions_depend_on_the_seed(tmp_path):
    class SameStart(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=1, options=options)

    env_fn = lambda: SameStart(gym.make("Pendulum-v1", max_episode_steps=50))  # noqa: E731
    run = tiny.untrained_run(tmp_path / "run", "Pendulum-v1")
    sampled = [api.evaluate(run, 1, deterministic=False, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 3, 4)]
    assert sampled[0] == sampled[1] != sampled[2]
    modes = [api.evaluate(run, 1, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 4)]
    assert modes[0] == modes[1]


SWITCH = re.compile(r"^switch  in ([\d.]+) % of the steps; a trajectory lasts ([\d.]+) steps on average$", re.MULTILINE)


def test_evaluate_prints_switching_and_plots_actions(tmp_path, capsys):
    preset = tiny.taac(**{"environment.max_episode_steps": 30})
    run = tiny.untrained_run(tmp_path / "taac", "Pendulum-v1", preset)
    figure = tmp_path / "figures" / "actions.png"
    flags = ["--episodes=3", "--seed=6", "--stochastic", f"--plot_actions={figure}"]
    assert cli.run(["evaluate", f"--run_dir={run}", *flags]) == 0
    printed, evaluation = capsys.readouterr().out, api.evaluate(run, 3, False, seed=6)
    rate, repeats = evaluation.switching()
    assert list(SWITCH.search(printed).groups()) == [f"{100 * rate:.1f}", f"{repeats:.1f}"]
    assert list(RETURN.search(printed).groups()) == [*format_returns(evaluation.returns), "3", "30"]
    assert min(png_size(figure)) > 300


def test_record_writes_episodes_and_prints_counts(run_dir, tmp_path, capsys):
    out = tmp_path / "expert.npz"
    assert cli.run(["record", f"--run_dir={run_dir}", f"--out={out}", "--episodes=2"]) == 0
    returns = api.evaluate(run_dir, 2).returns
    assert capsys.readouterr().out == f"100 transitions of 2 episodes, mean return {returns.mean():.2f}, in {out}\n"
    with np.load(out) as file:
        np.testing.assert_allclose(file["returns"], returns)


def test_export_verifies_and_fails_if_actions_differ(run_dir, tmp_path, capsys, monkeypatch):
    out = tmp_path / "policy"
    assert cli.run(["export", f"--run_dir={run_dir}", f"--out={out}", "--verify", "--values"]) == 0
    printed = capsys.readouterr().out
    assert f"exported to {out}\n" in printed and (out / "saved_model.pb").is_file()
    error = re.search(r"over 50 observations: ([\d.e+-]+) \(within 1e-05\)", printed)
    assert 0.0 <= float(error[1]) <= 1e-5
    monkeypatch.setattr(Exported, "__call__", lambda self, observation: np.full((1, 1), 9.0, np.float32))
    assert cli.run(["export", f"--run_dir={run_dir}", f"--out={tmp_path / 'out'}", "--verify"]) == 1
    assert "MORE THAN 1e-05" in capsys.readouterr().out


def test_plot_of_one_run_and_of_several(run_dir, tmp_path, capsys):
    copy, together = shutil.copytree(run_dir, tmp_path / "copy"), tmp_path / "together.png"
    (copy / "learning_curve.png").unlink()
    assert cli.run(["plot", f"--run_dir={copy}"]) == 0
    assert cli.run(["plot", f"--out={together}", "--title=Two", str(run_dir), str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy / 'learning_curve.png'}\n{together}\n"
    assert min(png_size(copy / "learning_curve.png")) > 300 and min(png_size(together)) > 300


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_overview_lists_every_command(arguments, capsys):
    assert cli.run(arguments) == 0
    printed = capsys.readouterr().out
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and "=" not in line]
    assert listed == list(cli.COMMANDS) and len(listed) >= 9


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_lists_every_flag_and_has_no_side_effects(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run([name, "--help"]) == 0
    printed = capsys.readouterr().out
    values = flag_values(cli.COMMANDS[name].defines)
    for flag in values:
        assert re.search(rf"^  --{flag} +{re.escape(help_of(values[flag]))}", printed, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_preset_script_trains_and_prints_help_without_tensorflow(monkeypatch):
    calls = []
    with monkeypatch.context() as patch:
        patch.setattr(cli, "main", calls.append)
        patch.setattr(sys, "argv", ["presets/pendulum_sac.py", "--seed=1", "--num_envs=2"])
        cli.run_preset("presets/pendulum_sac.py")
    assert calls == [["train", "--preset=presets/pendulum_sac.py", "--seed=1", "--num_envs=2"]]
    program = [sys.executable, "-X", "importtime", "presets/pendulum_sac.py", "--help"]
    result = subprocess.run(program, cwd=ROOT, env=SUBPROCESS_ENV, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stdout.startswith("tfsac train: ")
    assert "tfsac.cli" in result.stderr and not re.search(r"\| +(tensorflow|keras)\b", result.stderr)


# Arguments, with {run} a finished run, {tmp} a folder and {file}.npz a file in it, and a word of the error message. One of
# each kind: parameters, environments and files have their own tests.
WRONG = {
    "unknown preset": ("train --preset=pendulum_sca", "pendulum_sac"),
    "conflicting run parameters": ("train --jit_compile --eager", "eager"),
    "wrong action space": ("train --preset=pendulum_sac --level=CartPole-v1", "'discrete'"),
    "resume without a run": ("train --resume --run_dir={tmp}/none", "config.json"),
    "record over a file": ("record --run_dir={run} --out={file}.npz", "file.npz"),
    "plot two runs without out": ("plot {run} {run}", "--out"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_failing_command_prints_one_line_and_writes_nothing(name, run_dir, tmp_path, monkeypatch, capsys):
    line, word = WRONG[name]
    (tmp_path / "file.npz").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before, run_before = folder_contents(tmp_path), folder_contents(run_dir)
    words = line.format(run=run_dir, tmp=tmp_path, file=tmp_path / "file").split(" ")
    assert word in error_line(words, capsys)
    assert folder_contents(tmp_path) == before and folder_contents(run_dir) == run_before


def test_weights_of_another_network_are_rejected(run_dir, tmp_path, capsys):
    shutil.copy(run_dir / "config.json", tmp_path)
    with np.load(run_dir / "best.npz") as file:
        np.savez(tmp_path / "best.npz", **{**file, "policy/0": np.zeros((3, 8), np.float32)})
    assert "policy/0" in error_line(["evaluate", f"--run_dir={tmp_path}", "--episodes=1"], capsys)
