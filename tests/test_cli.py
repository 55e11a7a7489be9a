"""The command line, typed for real: every command on a tiny run, and a table of what cannot be carried out."""

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
from cli_tools import ENVIRONMENT, RETURN, parts, png_size, refusal, tree
from pages import ROOT

from tfsac import api, cli
from tfsac.cli.command_registry import flag_values, help_of
from tfsac.exporting.exported import Exported
from tfsac.preset_lookup import load_preset, preset_names, read_config


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A finished run with everything that can be written, and what was printed on the way."""
    tiny.register()
    folder = tmp_path_factory.mktemp("cli") / "pendulum"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        flags = "--histograms --stochastic_evaluation --memory_on_disk --print_networks_summary --evaluate=2 --seed=4"
        assert tiny.train(folder, *flags.split(), "--checkpoint_save_steps=200", shorter=False) == 0
    return folder, printed.getvalue()


@pytest.fixture
def run_dir(tiny_run):
    return tiny_run[0]


# -- train -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_leaves_its_results_and_says_where_they_are(tiny_run):
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


def test_the_config_tells_what_was_run_and_the_metrics_how_well(run_dir):
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


@pytest.mark.usefixtures("training_alone")
@pytest.mark.slow
def test_level_num_envs_and_experiment_name_make_a_run_in_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
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


@pytest.mark.usefixtures("training_alone")
def test_a_run_begins_with_the_weights_of_another_and_stops_at_a_threshold(run_dir, tmp_path, capsys):
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


def test_list_and_presets_print_a_line_for_every_preset(capsys):
    for words in (["presets"], ["train", "--list"]):
        assert cli.run(words) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == preset_names()


# -- evaluate, record, export, plot ------------------------------------------------------------------------------------


def test_evaluate_prints_mean_std_min_and_max_of_the_best_policy(run_dir, capsys):
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6"]) == 0
    printed = capsys.readouterr().out
    done = api.evaluate(run_dir, 3, seed=6)
    assert list(RETURN.search(printed).groups()) == [*parts(done.returns), "3", "50"]
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=7"]) == 0
    assert capsys.readouterr().out != printed
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6", "--stochastic"]) == 0
    assert capsys.readouterr().out != printed


def test_sampled_actions_depend_on_the_seed(tmp_path):
    class Same(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=1, options=options)  # all episodes begin alike

    env_fn = lambda: Same(gym.make("Pendulum-v1", max_episode_steps=50))  # noqa: E731
    run = tiny.untrained_run(tmp_path / "run", "Pendulum-v1")
    drawn = [api.evaluate(run, 1, deterministic=False, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    modes = [api.evaluate(run, 1, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 4)]
    assert modes[0] == modes[1]


SWITCH = re.compile(r"^switch  in ([\d.]+) % of the steps; a trajectory lasts ([\d.]+) steps on average$", re.MULTILINE)


def test_evaluate_tells_how_often_a_policy_with_trajectories_switched_and_draws_it(tmp_path, capsys):
    preset = tiny.taac(**{"environment.max_episode_steps": 30})
    run = tiny.untrained_run(tmp_path / "taac", "Pendulum-v1", preset)
    picture = tmp_path / "pictures" / "actions.png"
    flags = ["--episodes=3", "--seed=6", "--stochastic", f"--plot_actions={picture}"]
    assert cli.run(["evaluate", f"--run_dir={run}", *flags]) == 0
    printed, done = capsys.readouterr().out, api.evaluate(run, 3, False, seed=6)
    rate, repeats = done.switching()
    assert list(SWITCH.search(printed).groups()) == [f"{100 * rate:.1f}", f"{repeats:.1f}"]
    assert list(RETURN.search(printed).groups()) == [*parts(done.returns), "3", "30"]
    assert min(png_size(picture)) > 300


def test_record_writes_the_episodes_and_counts_them(run_dir, tmp_path, capsys):
    out = tmp_path / "expert.npz"
    assert cli.run(["record", f"--run_dir={run_dir}", f"--out={out}", "--episodes=2"]) == 0
    returns = api.evaluate(run_dir, 2).returns
    assert capsys.readouterr().out == f"100 transitions of 2 episodes, mean return {returns.mean():.2f}, in {out}\n"
    with np.load(out) as file:
        np.testing.assert_allclose(file["returns"], returns)


def test_export_writes_the_policy_and_ends_with_status_1_where_it_acts_differently(
    run_dir, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "policy"
    assert cli.run(["export", f"--run_dir={run_dir}", f"--out={out}", "--verify", "--values"]) == 0
    printed = capsys.readouterr().out
    assert f"exported to {out}\n" in printed and (out / "saved_model.pb").is_file()
    found = re.search(r"over 50 observations: ([\d.e+-]+) \(within 1e-05\)", printed)
    assert 0.0 <= float(found[1]) <= 1e-5
    monkeypatch.setattr(Exported, "__call__", lambda self, observation: np.full((1, 1), 9.0, np.float32))
    assert cli.run(["export", f"--run_dir={run_dir}", f"--out={tmp_path / 'out'}", "--verify"]) == 1
    assert "MORE THAN 1e-05" in capsys.readouterr().out


def test_plot_draws_one_run_into_its_folder_and_several_together(run_dir, tmp_path, capsys):
    copy, together = shutil.copytree(run_dir, tmp_path / "copy"), tmp_path / "together.png"
    (copy / "learning_curve.png").unlink()
    assert cli.run(["plot", f"--run_dir={copy}"]) == 0
    assert cli.run(["plot", f"--out={together}", "--title=Two", str(run_dir), str(copy)]) == 0
    assert capsys.readouterr().out == f"{copy / 'learning_curve.png'}\n{together}\n"
    assert min(png_size(copy / "learning_curve.png")) > 300 and min(png_size(together)) > 300


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_overview_names_every_command(arguments, capsys):
    assert cli.run(arguments) == 0
    printed = capsys.readouterr().out
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and "=" not in line]
    assert listed == list(cli.COMMANDS) and len(listed) >= 9


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_explains_every_flag_and_does_nothing(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run([name, "--help"]) == 0
    printed = capsys.readouterr().out
    values = flag_values(cli.COMMANDS[name].defines)
    for flag in values:
        assert re.search(rf"^  --{flag} +{re.escape(help_of(values[flag]))}", printed, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_a_preset_is_a_program_that_trains_it_with_the_flags_given_and_helps_without_tensorflow(monkeypatch):
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(cli, "main", seen.append)
        patch.setattr(sys, "argv", ["presets/pendulum_sac.py", "--seed=1", "--num_envs=2"])
        cli.run_preset("presets/pendulum_sac.py")
    assert seen == [["train", "--preset=presets/pendulum_sac.py", "--seed=1", "--num_envs=2"]]
    program = [sys.executable, "-X", "importtime", "presets/pendulum_sac.py", "--help"]
    done = subprocess.run(program, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("tfsac train: ")
    assert "tfsac.cli" in done.stderr and not re.search(r"\| +(tensorflow|keras)\b", done.stderr)


# -- what cannot be carried out ----------------------------------------------------------------------------------------

# Arguments, with {run} a finished run, {tmp} a folder and {file}.npz a file in it, and a word that must be printed: one
# of a kind, for parameters, environments and files have tests of their own.
WRONG = {
    "preset": ("train --preset=pendulum_sca", "pendulum_sac"),
    "run parameters that do not fit": ("train --jit_compile --eager", "eager"),
    "actions": ("train --preset=pendulum_sac --level=CartPole-v1", "'discrete'"),
    "resume no run": ("train --resume --run_dir={tmp}/none", "config.json"),
    "record over a file": ("record --run_dir={run} --out={file}.npz", "file.npz"),
    "plot two runs to nowhere": ("plot {run} {run}", "--out"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_carried_out_is_one_line_and_leaves_nothing(name, run_dir, tmp_path, monkeypatch, capsys):
    line, word = WRONG[name]
    (tmp_path / "file.npz").write_text("mine")
    monkeypatch.chdir(tmp_path)
    before, run_before = tree(tmp_path), tree(run_dir)
    words = line.format(run=run_dir, tmp=tmp_path, file=tmp_path / "file").split(" ")
    assert word in refusal(words, capsys)
    assert tree(tmp_path) == before and tree(run_dir) == run_before


def test_weights_of_another_network_are_refused_by_their_name(run_dir, tmp_path, capsys):
    shutil.copy(run_dir / "config.json", tmp_path)
    with np.load(run_dir / "best.npz") as file:
        np.savez(tmp_path / "best.npz", **{**file, "policy/0": np.zeros((3, 8), np.float32)})
    assert "policy/0" in refusal(["evaluate", f"--run_dir={tmp_path}", "--episodes=1"], capsys)
