"""The command line, typed for real: every command on a tiny run, and a table of what cannot be carried out."""

import contextlib
import csv
import gc
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny
from cli_tools import RETURN, parts, png_size, tree

import tfsac
from tfsac import api, cli, user_code
from tfsac.catalog import load_preset, preset_names, read_config
from tfsac.cli import learning
from tfsac.cli.command import Command, help_of
from tfsac.cli.results import tell_untrained
from tfsac.exporting import loading
from tfsac.parameters import ParameterError, RunParameters, to_json
from tfsac.training import CheckpointError
from tfsac.types import ArraySpec

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A finished run with everything that can be written, and what was printed on the way."""
    tiny.register()
    folder = tmp_path_factory.mktemp("cli") / "pendulum"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = tiny.train(
            folder,
            "--histograms",
            "--stochastic_evaluation",
            "--memory_on_disk",
            "--print_networks_summary",
            "--evaluate=2",
            "--seed=4",
            "--checkpoint_save_steps=200",
            shorter=False,
        )
    assert status == 0
    return folder, printed.getvalue()


@pytest.fixture
def run_dir(tiny_run):
    return tiny_run[0]


@pytest.fixture(scope="module")
def switching_run(tmp_path_factory):
    """A finished run of a policy that keeps or switches trajectories."""
    folder = tmp_path_factory.mktemp("cli") / "taac"
    changes = {path: value for path, value in {**tiny.CHANGES, **tiny.SHORTER}.items() if ".v." not in path}
    changes |= {"agent.networks.q.head_parameters.init_w": 0.5, "environment.max_episode_steps": 30}
    flags = ["--preset=taac_simple_control", f"--run_dir={folder}", "--evaluate=2", *tiny.assignments(changes)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.run(["train", *flags]) == 0
    return folder, printed.getvalue()


def weights(run):
    with np.load(pathlib.Path(run) / "best.npz") as file:
        return dict(file)


# -- train -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_leaves_its_results_and_says_where_they_are(tiny_run):
    folder, printed = tiny_run
    names = {"best.npz", "checkpoints", "config.json", "events", "learning_curve.png", "metrics.csv", "policy"}
    assert {path.name for path in folder.iterdir()} == names
    assert [row["env_steps"] for row in tiny.rows(folder)] == ["250", "500"]
    best = max(float(row["evaluation/return_mean"]) for row in tiny.rows(folder))
    assert f"finished at step 500, best evaluation {best:.1f}" in printed
    assert str(folder / "learning_curve.png") in printed and str(folder / "policy") in printed
    assert re.search(r"the preset's threshold of -180 was (not )?reached", printed)
    assert ("not reached" in printed) == (best < -180)


@pytest.mark.slow
def test_the_config_tells_what_was_run_and_how(tiny_run):
    folder, _ = tiny_run
    config = json.loads((folder / "config.json").read_text())
    assert config["preset"]["schedule"]["improve_steps"] == "EnvironmentSteps(200)"
    assert config["preset"]["agent"]["networks"]["q"]["head_parameters"]["network_layers_sizes"] == [16]
    assert {network["batch_size"] for network in config["preset"]["agent"]["networks"].values()} == {32}
    run = config["run"]
    assert (run["seed"], run["checkpoint_save_steps"]) == (4, 200)
    assert all(run[name] for name in ("tensorboard", "histograms", "stochastic_evaluation", "memory_on_disk"))
    assert config["versions"]["tensorflow"] == tf.__version__
    assert config["resumed"] == []


def test_the_metrics_have_both_evaluations_and_finite_losses(run_dir):
    last = tiny.rows(run_dir)[-1]
    assert last["updates"] == "200"
    for name in ("return_mean", "return_std", "return_min", "return_max", "length_mean"):
        assert np.isfinite(float(last[f"evaluation/{name}"])) and np.isfinite(
            float(last[f"stochastic_evaluation/{name}"])
        )
    assert last["evaluation/return_mean"] != last["stochastic_evaluation/return_mean"]
    assert all(np.isfinite(float(last[name])) for name in ("loss/policy", "loss/v", "loss/q1", "loss/q2"))


def test_the_networks_summary_prints_every_network(tiny_run):
    for name in ("policy", "v", "v_target", "q"):
        assert f'Model: "{name}"' in tiny_run[1]


def test_the_evaluation_after_training_is_the_one_of_the_best_policy(tiny_run):
    folder, printed = tiny_run
    found = RETURN.search(printed)
    done = api.evaluate(folder, 2)
    assert list(found.groups()) == [*parts(done.returns), "2", "50"]


def test_tensorboard_events_have_every_metric_and_the_weights_of_every_network(run_dir):
    steps, histograms = {}, set()
    for path in (run_dir / "events").iterdir():
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "histograms":
                    histograms.add(value.tag)
                elif value.metadata.plugin_data.plugin_name == "scalars":
                    steps.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    table = tiny.rows(run_dir)
    assert steps.keys() == table[0].keys() | {"training/episode_return", "training/episode_length"}
    for name in ("evaluation/return_mean", "stochastic_evaluation/return_max", "loss/policy"):
        written = {int(row["env_steps"]): float(row[name]) for row in table if row[name]}
        assert steps[name] == pytest.approx(written, rel=1e-6)
    assert {tag.split("/")[0] for tag in histograms} == {"policy", "v", "v_target", "q"}


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


def test_without_names_the_folder_is_called_after_preset_and_level():
    from absl import flags

    values = flags.FlagValues()
    cli.COMMANDS["train"][1](values)
    values(["train", "--preset=presets/pendulum_sac.py"])
    folder = learning.default_run_dir(values, "ALE/Pong-v5", 3)
    assert folder.parts[:2] == ("runs", "pendulum_sac-ALE-Pong-v5") and folder.name.endswith("-seed3")


@pytest.mark.usefixtures("training_alone")
def test_a_run_stops_at_a_threshold_that_is_easily_reached(tmp_path, capsys):
    changes = {"validation.min_reward_threshold": -1e9}
    assert tiny.train(tmp_path / "run", "--stop_at_threshold", changes=changes) == 0
    printed = capsys.readouterr().out
    assert "threshold reached at step 50," in printed
    assert "the preset's threshold of -1e+09 was reached" in printed
    assert [row["env_steps"] for row in tiny.rows(tmp_path / "run")] == ["50"]


@pytest.mark.usefixtures("training_alone")
def test_a_run_begins_with_the_best_weights_of_another(run_dir, tmp_path, capsys):
    # It ends before its first update, so the weights it evaluates are those it began with.
    changes = {
        "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(1000)",
        "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)",
    }
    flags = [f"--checkpoint_restore_dir={run_dir}", "--seed=9"]
    assert tiny.train(tmp_path / "restored", *flags, changes=changes) == 0
    theirs, restored = weights(run_dir), weights(tmp_path / "restored")
    assert tiny.rows(tmp_path / "restored")[-1]["updates"] == "0"
    assert theirs.keys() == restored.keys()
    for name in theirs:
        np.testing.assert_array_equal(restored[name], theirs[name])
    tiny.untrained_run(tmp_path / "fresh", "Pendulum-v1")
    fresh = weights(tmp_path / "fresh")
    kernels = [name for name, value in fresh.items() if name != "filters" and value.any()]
    assert kernels and all(not np.array_equal(fresh[name], theirs[name]) for name in kernels)
    again = ["train", f"--preset={tmp_path / 'restored' / 'config.json'}"]
    assert cli.run([*again, flags[0], f"--run_dir={tmp_path / 'same'}"]) == 0
    advice = f"To begin with them, too: {flags[0]}"
    assert advice not in capsys.readouterr().out
    assert cli.run([*again, f"--run_dir={tmp_path / 'other'}"]) == 0
    assert advice in capsys.readouterr().out
    np.testing.assert_equal(weights(tmp_path / "same"), restored)


@pytest.mark.usefixtures("training_alone")
@pytest.mark.slow
def test_a_finished_run_is_extended_with_resume(tmp_path, capsys):
    folder = tmp_path / "run"
    assert tiny.train(folder) == 0
    first = tiny.rows(folder)
    assert [row["env_steps"] for row in first] == ["50", "60"]
    assert cli.run(["train", f"--run_dir={folder}", "--resume", "--set=schedule.improve_steps=60"]) == 0
    assert f"Continuing {folder} from step 60." in capsys.readouterr().out.replace("\n", " ")
    table = tiny.rows(folder)
    assert table[:2] == first
    assert [(row["env_steps"], row["updates"]) for row in table] == [("50", "10"), ("60", "20"), ("100", "60")]
    assert float(table[2]["wall_seconds"]) > float(table[1]["wall_seconds"])
    preset, _ = read_config(folder / "config.json")
    assert preset.schedule.improve_steps.num_steps == 60
    assert [entry["env_steps"] for entry in json.loads((folder / "config.json").read_text())["resumed"]] == [60]
    content = (folder / "config.json").read_bytes()
    with pytest.raises(
        ParameterError, match=r"trained 60 .*1000 more: --set=schedule.improve_steps=1060. Received: 30$"
    ):
        cli.run(["train", f"--run_dir={folder}", "--resume", "--set=schedule.improve_steps=30"])
    assert (folder / "config.json").read_bytes() == content


@pytest.mark.parametrize(
    ("updates", "untrained", "early"), [((0, 0), True, True), ((0, 9), False, True), ((5, 9), False, False)]
)
def test_a_policy_that_no_update_made_is_told(tmp_path, capsys, updates, untrained, early):
    rows = [f"50,{updates[0]},-1.0", "60,,", f"70,{updates[1]},-2.0"]
    (tmp_path / "metrics.csv").write_text("\n".join(["env_steps,updates,evaluation/return_mean", *rows]) + "\n")
    tell_untrained(tmp_path)
    assert ("untrained" in capsys.readouterr().out) is untrained
    tell_untrained(tmp_path, until=60)
    assert ("untrained" in capsys.readouterr().out) is early
    tell_untrained(tmp_path, until=40)
    tell_untrained(tmp_path / "no run")
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_sees_a_part_of_its_observations_is_resumed_evaluated_recorded_and_exported(tmp_path, capsys):
    folder, shown = tmp_path / "run", tmp_path / "shown.npz"
    assert (
        tiny.train(folder, changes={"environment.visible_entries": [0, 1]}) == 0
    )  # cosine and sine, without the velocity
    assert loading.load_policy(folder).acting.spec.observation == {"observation": ArraySpec((2,), "float32")}
    with pytest.raises(CheckpointError, match=r"has environment\.visible_entries.*Received: .*0, 2"):
        cli.run(["train", f"--run_dir={folder}", "--resume", "--set=environment.visible_entries=[0,2]"])
    assert cli.run(["train", f"--run_dir={folder}", "--resume", "--set=schedule.improve_steps=60"]) == 0
    assert [row["env_steps"] for row in tiny.rows(folder)] == ["50", "60", "100"]
    assert (
        cli.run(["evaluate", f"--run_dir={folder}", "--episodes=2", f"--plot_actions={tmp_path / 'actions.png'}"]) == 0
    )
    assert RETURN.search(capsys.readouterr().out)
    assert cli.run(["record", f"--run_dir={folder}", f"--out={shown}", "--episodes=2"]) == 0
    with np.load(shown) as file:
        seen = file["observation/observation"]
    assert seen.shape == (20, 2)
    np.testing.assert_allclose((seen**2).sum(axis=1), 1.0, rtol=1e-5)
    assert cli.run(["export", f"--run_dir={folder}", f"--out={tmp_path / 'out'}", "--verify"]) == 0


@pytest.mark.acceptance
def test_two_seeds_are_trained_one_after_the_other_and_drawn_together(tmp_path):
    changes = {**tiny.CHANGES, **tiny.SHORTER}
    arguments = ["train", "--num_seeds=2", "--seed=5", "--run_dir=both", *tiny.assignments(changes), "--use_cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "tfsac", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    names = ["comparison.csv", "comparison.png", "seed5", "seed5.log", "seed6", "seed6.log", "sweep.json"]
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == names
    assert done.stdout.index("finished  seed5") < done.stdout.index("started   seed6")
    for seed in (5, 6):
        preset, run = read_config(tmp_path / "both" / f"seed{seed}" / "config.json")
        assert (run.seed, preset.agent.batch_size, preset.schedule.improve_steps.num_steps) == (seed, 32, 20)
    first, second = (tiny.rows(tmp_path / "both" / f"seed{seed}") for seed in (5, 6))
    assert len(first) == len(second) == 2 and first[0]["loss/v"] != second[0]["loss/v"]
    assert "picture both/comparison.png" in done.stdout and min(png_size(tmp_path / "both" / "comparison.png")) > 300


def test_list_and_presets_print_a_line_for_every_preset(capsys):
    assert cli.run(["presets"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == preset_names()
    assert "Pendulum-v1 with Coach's soft actor-critic" in printed
    assert cli.run(["train", "--list"]) == 0
    assert capsys.readouterr().out == printed


# -- evaluate, record, export, plot ------------------------------------------------------------------------------------


def test_evaluate_prints_mean_std_min_and_max_of_the_best_policy(run_dir, capsys):
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6"]) == 0
    printed = capsys.readouterr().out
    done = api.evaluate(run_dir, 3, seed=6)
    assert list(RETURN.search(printed).groups()) == [*parts(done.returns), "3", "50"]
    mean, _, low, high = (float(x) for x in parts(done.returns))
    assert low < mean < high
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=7"]) == 0
    assert capsys.readouterr().out != printed
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=3", "--seed=6", "--stochastic"]) == 0
    assert capsys.readouterr().out != printed


def test_sampled_actions_depend_on_the_seed(tmp_path):
    class Same(gym.Wrapper):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=1, options=options)  # all episodes begin alike

    env_fn = lambda: Same(gym.make("Pendulum-v1", max_episode_steps=50))  # noqa: E731
    run = tmp_path / "run"
    tfsac.train(tiny.shrunk(tfsac.load_preset("pendulum_twin_sac")), run, quiet=True, env_fn=env_fn)
    drawn = [api.evaluate(run, 1, deterministic=False, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    played = [api.record(run, tmp_path / f"{n}.npz", 1, deterministic=False, seed=n, env_fn=env_fn) for n in (3, 4)]
    assert played[0].returns[0] == pytest.approx(drawn[0]) and played[1].returns[0] == pytest.approx(drawn[2])
    modes = [api.evaluate(run, 1, seed=seed, env_fn=env_fn).returns[0] for seed in (3, 4)]
    assert modes[0] == modes[1]


# imageio-ffmpeg leaves its pipes to the garbage collector.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_film_has_a_frame_for_every_step(run_dir, tmp_path, capsys, ending):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    film = tmp_path / "films" / f"pendulum.{ending}"
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=1", f"--dump_mp4={film}"]) == 0
    assert f"film    {film}" in capsys.readouterr().out
    with imageio.get_reader(film) as reader:
        frames = [np.asarray(frame)[..., :3] for frame in reader]
        # A GIF has a picture that stays the same once, for longer.
        milliseconds = [reader.get_meta_data(i)["duration"] if ending == "gif" else 33 for i in range(len(frames))]
    del reader
    gc.collect()
    assert sum(round(30 * duration / 1000) for duration in milliseconds) == 50  # 30 frames a second
    assert {frame.shape for frame in frames} == {(500, 500, 3)}
    assert np.abs(frames[0].astype(int) - frames[len(frames) // 2]).max() > 50  # the pendulum moved


def test_a_film_is_not_written_over_another_file(run_dir, tmp_path, capsys):
    film = tmp_path / "mine.gif"
    film.write_bytes(b"precious")
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", f"--run_dir={run_dir}", "--episodes=1", f"--dump_mp4={film}"])
    assert ended.value.code == 2
    assert "Received: " in capsys.readouterr().err
    assert film.read_bytes() == b"precious"


SWITCH = re.compile(r"^switch  in ([\d.]+) % of the steps; a trajectory lasts ([\d.]+) steps on average$", re.MULTILINE)


@pytest.mark.slow
def test_a_run_with_trajectories_is_trained_and_tells_how_often_it_switched(switching_run, capsys):
    folder, printed = switching_run
    names = {"best.npz", "checkpoints", "config.json", "events", "learning_curve.png", "metrics.csv", "policy"}
    assert {path.name for path in folder.iterdir()} == names
    assert [(row["env_steps"], row["updates"]) for row in tiny.rows(folder)] == [("50", "10"), ("60", "20")]
    assert SWITCH.search(printed)
    for flags, deterministic in (([], True), (["--stochastic"], False)):
        assert cli.run(["evaluate", f"--run_dir={folder}", "--episodes=3", "--seed=6", *flags]) == 0
        found, done = capsys.readouterr().out, api.evaluate(folder, 3, deterministic, seed=6)
        rate, repeats = done.switching()
        assert list(SWITCH.search(found).groups()) == [f"{100 * rate:.1f}", f"{repeats:.1f}"]
        assert 0.0 < rate == done.switched.mean() and len(done.switched) == 90
        assert list(RETURN.search(found).groups()) == [*parts(done.returns), "3", "30"]


def test_other_runs_know_no_switches(run_dir, capsys):
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=1"]) == 0
    assert "switch" not in capsys.readouterr().out
    assert api.evaluate(run_dir, 1).switched is None
    assert not [name for name in tiny.rows(run_dir)[0] if "switch" in name or "repeats" in name]


def drawn_actions(monkeypatch):
    """Returns a list that gets what the picture of an episode is made of."""
    from tfsac.experiments import plots

    drawn, plot = [], plots.plot_actions
    monkeypatch.setattr(plots, "plot_actions", lambda *given: drawn.append(given) or plot(*given))
    return drawn


@pytest.mark.slow
def test_the_actions_of_the_first_episode_are_drawn_with_its_switches(switching_run, tmp_path, capsys, monkeypatch):
    folder, drawn = switching_run[0], drawn_actions(monkeypatch)
    picture = tmp_path / "pictures" / "actions.png"
    assert cli.run(["evaluate", f"--run_dir={folder}", "--episodes=2", f"--plot_actions={picture}"]) == 0
    assert f"actions {picture}" in capsys.readouterr().out
    assert png_size(picture) == (720, 440)
    actions, _, switched, title = drawn[0]
    assert actions.shape == (30, 1) and np.abs(actions).max() <= 2.0
    np.testing.assert_array_equal(switched, api.evaluate(folder, 1).switched)
    assert (np.diff(actions[:, 0])[~switched[1:]] == 0.0).all()  # what is kept is repeated
    assert title == "taac, one episode"


def test_the_actions_of_a_policy_without_switches_are_drawn_too(run_dir, tmp_path, monkeypatch):
    drawn = drawn_actions(monkeypatch)
    assert cli.run(["evaluate", f"--run_dir={run_dir}", "--episodes=1", f"--plot_actions={tmp_path / 'a.png'}"]) == 0
    assert png_size(tmp_path / "a.png") == (720, 440)
    assert drawn[0][0].shape == (50, 1) and drawn[0][2] is None


def test_a_picture_of_actions_is_not_written_over_another_file(run_dir, tmp_path, capsys):
    picture = tmp_path / "mine.png"
    picture.write_bytes(b"precious")
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", f"--run_dir={run_dir}", "--episodes=1", f"--plot_actions={picture}"])
    assert ended.value.code == 2
    assert "over an existing file. Received: " in capsys.readouterr().err
    assert picture.read_bytes() == b"precious"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_a_policy_with_a_state_is_exported_and_verified(switching_run, tmp_path, capsys, format):
    if format == "tflite":
        pytest.importorskip("ai_edge_litert")
    flags = [f"--out={tmp_path / 'policy'}", f"--format={format}", "--verify", "--values"]
    assert cli.run(["export", f"--run_dir={switching_run[0]}", *flags]) == 0
    assert re.search(r"over 30 observations: \S+ \(within 1e-05\)", capsys.readouterr().out)


@pytest.mark.slow
def test_a_recording_of_a_policy_with_a_state_has_its_evaluations_returns(switching_run, tmp_path):
    out = tmp_path / "expert.npz"
    assert cli.run(["record", f"--run_dir={switching_run[0]}", f"--out={out}", "--episodes=2"]) == 0
    with np.load(out) as file:
        np.testing.assert_allclose(file["returns"], api.evaluate(switching_run[0], 2).returns)


def test_record_writes_the_episodes_and_counts_them(run_dir, tmp_path, capsys):
    out = tmp_path / "expert.npz"
    assert cli.run(["record", f"--run_dir={run_dir}", f"--out={out}", "--episodes=2"]) == 0
    returns = api.evaluate(run_dir, 2).returns
    assert capsys.readouterr().out == f"100 transitions of 2 episodes, mean return {returns.mean():.2f}, in {out}\n"
    with np.load(out) as file:
        assert file["action"].shape == (100, 1) and np.abs(file["action"]).max() <= 1.0
        np.testing.assert_allclose(file["returns"], returns)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_export_writes_the_policy_and_verifies_it(run_dir, tmp_path, capsys, format):
    if format == "tflite":
        pytest.importorskip("ai_edge_litert")
    out = tmp_path / "policy"
    assert (
        cli.run(["export", f"--run_dir={run_dir}", f"--out={out}", f"--format={format}", "--verify", "--values"]) == 0
    )
    printed = capsys.readouterr().out
    file = out if format == "saved_model" else out / "policy.tflite"
    assert f"exported to {file}\n" in printed
    found = re.search(r"over 50 observations: ([\d.e+-]+) \(within 1e-05\)", printed)
    assert 0.0 <= float(found[1]) <= 1e-5
    assert (out / "saved_model.pb").is_file() == (format == "saved_model")


def test_export_ends_with_status_1_where_the_exported_policy_acts_differently(run_dir, tmp_path, capsys, monkeypatch):
    from tfsac.exporting.exported import Exported

    monkeypatch.setattr(Exported, "__call__", lambda self, observation: np.full((1, 1), 9.0, np.float32))
    assert cli.run(["export", f"--run_dir={run_dir}", f"--out={tmp_path / 'out'}", "--verify"]) == 1
    assert "MORE THAN 1e-05" in capsys.readouterr().out


def test_the_policy_that_training_exports_is_the_best_one(run_dir):
    from tfsac import exporting

    policy = loading.load_policy(run_dir)
    (observations,) = api.observations_of(run_dir, policy)
    assert len(observations) == 50
    assert exporting.verify(policy, run_dir / "policy", observations) <= exporting.TOLERANCE


def test_plot_draws_one_run_into_its_folder_or_elsewhere(run_dir, tmp_path, capsys):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(run_dir / "metrics.csv", copy)
    assert cli.run(["plot", f"--run_dir={copy}"]) == 0
    assert capsys.readouterr().out == f"{copy / 'learning_curve.png'}\n"
    assert min(png_size(copy / "learning_curve.png")) > 300
    assert cli.run(["plot", str(copy), f"--out={tmp_path / 'elsewhere.png'}"]) == 0
    assert png_size(tmp_path / "elsewhere.png") == png_size(copy / "learning_curve.png")


def test_plot_draws_two_runs_together_by_flag_or_as_plain_words(run_dir, tmp_path, capsys):
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(run_dir / "config.json", copy)
    table = tiny.rows(run_dir)
    with (copy / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows({**row, "evaluation/return_mean": "-900"} for row in table)
    one, two, three = (tmp_path / f"{i}.png" for i in range(3))
    assert cli.run(["plot", f"--run_dir={run_dir}", f"--run_dir={copy}", f"--out={one}", "--title=Two"]) == 0
    assert cli.run(["plot", f"--out={two}", "--title=Two", str(run_dir), str(copy)]) == 0
    assert cli.run(["plot", f"--out={three}", "--title=Two", f"one={run_dir}", f"other={copy}"]) == 0
    assert capsys.readouterr().out == f"{one}\n{two}\n{three}\n"
    assert min(png_size(one)) > 300
    assert one.read_bytes() == two.read_bytes() != three.read_bytes()


def test_plot_draws_another_column_under_the_runs_level(run_dir, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: drawn.append(figure.axes[0]))
    assert cli.run(["plot", str(run_dir), "--column=q/q1", f"--out={tmp_path / 'q.png'}"]) == 0
    (axes,) = drawn
    assert (axes.get_title(loc="left"), axes.get_ylabel()) == ("Pendulum-v1", "q/q1")
    assert list(axes.lines[0].get_ydata()) == [float(row["q/q1"]) for row in tiny.rows(run_dir) if row["q/q1"]]


# -- levels of other packages ------------------------------------------------------------------------------------------

GAME, SPREAD = "ALE/Pong-v5", "pettingzoo:mpe2.simple_spread_v3"


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("ale_py", ["--preset=atari_discrete_sac", f"--grid=level={GAME},ALE/Breakout-v5"]),
        ("mpe2", ["--preset=simple_spread_discrete_sac", "--grid=environment.kwargs.N=2,4"]),
    ],
)
def test_a_sweep_makes_every_level_once_before_it_begins(package, arguments, tmp_path, monkeypatch, capsys):
    from tfsac import environments
    from tfsac.experiments import sweep

    pytest.importorskip(package)
    made, one = [], environments.maker
    monkeypatch.setattr(environments, "maker", lambda parameters: made.append(parameters) or one(parameters))
    monkeypatch.setattr(sweep.Sweep, "train", lambda series, **how: int(signal.SIGTERM))
    assert cli.run(["sweep", f"--run_dir={tmp_path / 'sweep'}", *arguments]) == 128 + signal.SIGTERM
    assert "resumes it" in capsys.readouterr().out
    if package == "ale_py":
        assert [parameters.level for parameters in made] == [GAME, "ALE/Breakout-v5"]
        assert all(parameters.atari is not None for parameters in made)
    else:
        assert [(parameters.level, parameters.kwargs["N"]) for parameters in made] == [(SPREAD, 2), (SPREAD, 4)]


TRAIN, SWEEP, TEAM = "train", "sweep --run_dir=new", "--preset=simple_spread_twin_sac"
WRONG_LEVELS = [  # of the commands that notice
    (
        [TRAIN, SWEEP],
        "ale_py",
        "--preset=atari_discrete_sac --level=ALE/Pnog-v5",
        "Did you mean 'ALE/Pong-v5'[?].* Received: 'ALE/Pnog-v5'$",
    ),
    (
        [TRAIN, SWEEP],
        "mpe2",
        f"{TEAM} --level=pettingzoo:mpe2.simple_spraed_v3",
        "mpe2 has no module 'simple_spraed_v3'. Did you mean 'simple_spread_v3'[?] Received: 'pettingzoo:.*'$",
    ),
    (
        [TRAIN, SWEEP],
        "mpe2",
        f"{TEAM} --set=environment.kwargs.M=3",
        "Received: {'N': 3, 'max_cycles': 25, 'continuous_actions': True, 'M': 3}$",
    ),
    (
        [TRAIN],
        "mpe2",
        f"{TEAM} --set=environment.kwargs.continuous_actions=false",
        "5 discrete actions: .* Received: 5 actions$",
    ),
    (
        [TRAIN],
        "mpe2",
        f"--level={SPREAD} --set=environment.kwargs.continuous_actions=true",
        "it gives agent_state, global_state.* Received: 'observation'$",
    ),
]


@pytest.mark.parametrize(
    ("command", "package", "arguments", "message"),
    [(command, *case) for commands, *case in WRONG_LEVELS for command in commands],
)
def test_a_wrong_game_or_team_is_refused_and_leaves_nothing(
    command, package, arguments, message, tmp_path, monkeypatch, capsys
):
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), *arguments.split()])
    assert ended.value.code == 2
    assert re.search(message, capsys.readouterr().err.strip())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_team_is_trained_in_a_folder_named_after_its_level(tmp_path, monkeypatch):
    pytest.importorskip("mpe2")
    monkeypatch.chdir(tmp_path)
    preset = tiny.shrunk(load_preset("simple_spread_discrete_sac"), **tiny.SHORTER)
    (tmp_path / "small.json").write_text(json.dumps({"preset": to_json(preset), "run": to_json(RunParameters())}))
    assert cli.run(["train", "--preset=small.json"]) == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name == "small-pettingzoo-mpe2.simple_spread_v3"
    [run] = folder.iterdir()
    assert [row["env_steps"] for row in tiny.rows(run)] == ["50", "60"] and (
        run / "policy" / "saved_model.pb"
    ).is_file()


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_command(arguments, capsys):
    assert cli.run(arguments) == 0
    printed = capsys.readouterr().out
    listed = [line.split()[0] for line in printed.splitlines() if line.startswith("  ") and "=" not in line]
    assert listed == list(cli.COMMANDS) and len(listed) >= 9


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_explains_every_flag_and_does_nothing(name, capsys, tmp_path, monkeypatch):
    from absl import flags

    monkeypatch.chdir(tmp_path)
    assert cli.run([name, "--help"]) == 0
    printed = capsys.readouterr().out
    values = flags.FlagValues()
    cli.COMMANDS[name][1](values)
    for flag in values:
        assert re.search(rf"^  --{flag} +{re.escape(help_of(values[flag]))}", printed, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_the_flags_that_coach_had_are_there():
    from absl import flags

    coach = {"preset", "level", "experiment_name", "seed", "checkpoint_save_steps", "checkpoint_restore_dir", "list"}
    coach |= {"evaluate", "render", "dump_mp4", "tensorboard", "print_networks_summary", "use_cpu"}
    values = flags.FlagValues()
    cli.COMMANDS["train"][1](values)
    cli.COMMANDS["evaluate"][1](evaluation := flags.FlagValues())
    assert coach <= {*values, *evaluation}


def test_help_and_presets_answer_quickly_without_tensorflow(run_python):
    printed = run_python(
        """
import sys, time
from tfsac import cli
heavy = {"tensorflow", "keras", "tensorflow_probability", "gymnasium", "matplotlib", "scipy", "optuna"}
commands = [[name, "--help"] for name in ("train", "sweep", "tune", "evaluate")]
for arguments in (["--help"], *commands, ["presets"], ["train", "--list"]):
    assert cli.run(arguments) == 0
    assert not heavy & set(sys.modules), (arguments, heavy & set(sys.modules))
print("processor seconds", time.process_time())
"""
    )
    assert float(printed.split()[-1]) < 3.0


def test_wrong_parameters_are_refused_without_tensorflow(run_python):
    printed = run_python(
        """
import sys
from tfsac import cli
for arguments in (["--preset=x"], ["--set=a.b=1"], ["--seed=3000000000"], ["--set=agent.algorithm.discount=2"]):
    try:
        cli.run(["train", *arguments])
    except ValueError as error:
        print("Received: " in str(error), "tensorflow" in sys.modules)
for arguments in (["--grid=a.b=1"], ["--level=Pendulm-v1"]):
    try:
        cli.run(["sweep", "--run_dir=none", *arguments])
    except ValueError as error:
        print("Received: " in str(error), "tensorflow" in sys.modules)
"""
    )
    assert printed.splitlines() == ["True False"] * 6


@pytest.mark.parametrize(
    ("program", "title"),
    [
        (["-m", "tfsac"], "tfsac: the soft actor-critic family"),
        (["presets/pendulum_sac.py", "--help"], "tfsac train: "),
    ],
)
def test_the_package_and_a_preset_are_programs(program, title):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.startswith(title)
    assert "tfsac.cli" in done.stderr and not re.search(r"\| +(tensorflow|keras)\b", done.stderr)


def test_a_preset_file_run_as_a_program_trains_that_file_with_the_flags_given(monkeypatch):
    seen = []
    monkeypatch.setattr(cli, "main", seen.append)
    monkeypatch.setattr(sys, "argv", ["presets/pendulum_sac.py", "--seed=1", "--num_envs=2"])
    cli.run_preset("presets/pendulum_sac.py")
    assert seen == [["train", "--preset=presets/pendulum_sac.py", "--seed=1", "--num_envs=2"]]


def test_the_traceback_is_shown_on_request(monkeypatch, capsys):
    monkeypatch.setenv("TFSAC_TRACEBACK", "1")
    with pytest.raises(SystemExit) as ended:
        cli.main(["trian"])
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert lines[0].startswith("Traceback") and lines[-1].startswith(
        "tfsac: There is no such command. Did you mean 'train'?"
    )


def test_a_bug_keeps_its_traceback(monkeypatch, capsys):
    def broken(values, rest):
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(user_code, "LIBRARIES", (*user_code.LIBRARIES, pathlib.Path(__file__).parent))
    monkeypatch.setitem(cli.COMMANDS, "presets", Command("", lambda values: None, broken))
    with pytest.raises(SystemExit) as ended:
        cli.main(["presets"])
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert "Traceback" in printed and "could not be broadcast" in printed and "in broken" in printed
    assert printed.splitlines()[-1].startswith("tfsac: this is an error in tfsac itself. Please report it")


# -- what cannot be carried out ----------------------------------------------------------------------------------------


def damaged(run_dir, folder, damage):
    """Copies what evaluating a run needs, and spoils one file of it."""
    folder.mkdir()
    shutil.copy(run_dir / "config.json", folder)
    shutil.copy(run_dir / "best.npz", folder)
    config, best = folder / "config.json", folder / "best.npz"
    content = best.read_bytes()
    if damage == "config cut":
        config.write_text(config.read_text()[:100])
    elif damage == "config is a list":
        config.write_text("[]")
    elif damage == "config is binary":
        config.write_bytes(b"\xff\xfe\x00")
    elif damage == "config with an unknown field":
        config.write_text(config.read_text().replace('"discount"', '"discont"'))
    elif damage == "config without run":
        config.write_text(json.dumps({"preset": json.loads(config.read_text())["preset"]}))
    elif damage == "weights cut":
        best.write_bytes(content[: len(content) // 2])
    elif damage == "weights with a byte changed":
        best.write_bytes(content[:3000] + bytes([content[3000] ^ 0xFF]) + content[3001:])
    elif damage == "weights are text":
        best.write_text("weights")
    elif damage == "weights empty":
        best.write_bytes(b"")
    elif damage == "weights of another network":
        with np.load(best) as file:
            arrays = dict(file)
        np.savez(best, **{**arrays, "policy/0": np.zeros((3, 8), np.float32)})
    elif damage == "weights without statistics":
        with np.load(best) as file:
            arrays = dict(file)
        del arrays["filters"]
        np.savez(best, **arrays)
    else:
        assert damage == "no weights"
        best.unlink()


def demonstrations(folder):
    """Fills a folder with files of demonstrations, most of which cannot be used."""
    shown = ROOT / "presets" / "demonstrations"
    shutil.copy(shown / "cart_pole.npz", folder / "pole.npz")
    shutil.copy(shown / "pendulum.npz", folder / "whole.npz")
    with np.load(folder / "whole.npz") as file:
        arrays = dict(file)
    steps = {name for name in arrays if name not in ("meta", "returns")}

    def write(name, **changed):
        np.savez(folder / f"{name}.npz", **{**arrays, **changed})

    write("empty", returns=arrays["returns"][:0], **{name: arrays[name][:0] for name in steps})
    write("endless", **{name: arrays[name][:-1] for name in steps})
    seen, taken = arrays["observation/observation"].copy(), arrays["action"].copy()
    seen[17, 1], taken[3] = np.nan, 1.5
    write("nan", **{"observation/observation": seen})
    write("far", action=taken)
    (folder / "cut.npz").write_bytes((folder / "whole.npz").read_bytes()[:20_000])
    (folder / "nothing.npz").touch()
    return folder


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return demonstrations(tmp_path_factory.mktemp("shown"))


def setting(path, **value):
    """Returns a flag that sets an object."""
    return f"--set={path}={{{json.dumps(value, separators=(',', ':'))}}}"


def sqil(name, **more):
    """Returns the flag that imitates a file of this folder."""
    return setting("agent.memory", kind="sqil", demonstrations=f"{{shown}}/{name}.npz", **more)


def taac(*flags):
    """Returns the command line of a run with trajectories."""
    return " ".join(["train --preset=taac_simple_control", *flags])


def auto(**given):
    """Returns the flags of a discrete preset with an automatic temperature."""
    return f"--preset=cart_pole_discrete_sac {setting('agent.algorithm.temperature', kind='auto', **given)}"


# Arguments, with {run} a finished run, {tmp} a folder, {file} a file in it and {shown} a folder of demonstrations; and
# the text that must be printed.
WRONG = {
    # the command
    "unknown command": (
        "trian",
        "There is no such command. Did you mean 'train'? Commands: train, sweep, tune, evaluate, .*. Received: 'trian'$",
    ),
    "flag before the command": ("--seed=1 train", "There is no such command.* Received: '--seed=1'"),
    "parameter as a flag": (
        "train --gamma=0.9 --preset=pendulum_sac",
        "no flag --gamma. Did you mean --set=agent.algorithm.discount=0.9[?] Received: '--gamma=0.9'$",
    ),
    "fixed temperature as a flag": (
        "train --preset=pendulum_twin_sac --ent_coef 0.1",
        "no flag --ent_coef. Did you mean --set='agent.algorithm.temperature=.*' .the usual one is learned.[?] Received: '--ent_coef'$",
    ),
    "several unknown flags": (
        "train --env=CartPole-v1 --total_timesteps=3 --seed=1",
        "no flag --env. Did you mean --level[?] Nor has it --total_timesteps. Did you mean --set=schedule.improve_steps=3 "
        ".counted from the end of the warm-up.[?] Received: '--env=CartPole-v1'$",
    ),
    "parameter as a flag without a preset": (
        "train --gamma=0.9",
        "no flag --gamma. Did you mean --set=agent.algorithm.discount=0.9[?] Received: '--gamma=0.9'$",
    ),
    "parameter of a run as a flag": (
        "train --run_dir={run} --resume --improve_steps=4500",
        "no flag --improve_steps. Did you mean --set=schedule.improve_steps=4500 .counted from the end of the warm-up",
    ),
    "layers as a flag": (
        "train --preset=small_crossq_mujoco --net_arch=64,64",
        "--set='agent.networks.policy.input_embedders_parameters.observation.scheme=..' "
        "--set='agent.networks.policy.middleware_parameters.scheme=.64,64.' "
        "--set='agent.networks.q.head_parameters.body_parameters.scheme=.64,64.'[?]",
    ),
    "temperature of an agent without one": (
        "train --ent_coef=auto",
        "no flag --ent_coef. Agents with twin critics have a temperature: see the preset pendulum_twin_sac. Received",
    ),
    "a temperature": (
        "train --preset=pendulum_twin_sac --ent_coef=0.1",
        """Did you mean --set='agent.algorithm.temperature={{"kind": "fixed", "alpha": 0.1}}' .the usual one is""",
    ),
    "a learned temperature": (
        "train --preset=pendulum_twin_sac --temperature=auto_0.3",
        "Did you mean --set=agent.algorithm.temperature.initial_alpha=0.3[?] Received",
    ),
    "a GPU": ("train --device=cuda", "Did you mean '--use_cpu' .without it a GPU is used, if TensorFlow sees one.[?]"),
    "another library's flag": (
        "train --env_id=Pendulum-v1",
        "no flag --env_id. Did you mean --level[?] Received: '--env_id=Pendulum-v1'$",
    ),
    "unknown flag": ("train --sed=1", "tfsac train has no flag --sed. Did you mean '--seed'? Received: '--sed=1'$"),
    "flag of another command": (
        "evaluate --run_dir={run} --num_envs=2",
        "has no flag --num_envs. It is a flag of tfsac train, sweep.* Received: '--num_envs=2'$",
    ),
    "word after train": (
        "train pendulum_sac",
        "Flags are written --name=value. Did you mean --preset=pendulum_sac? Received: 'pendulum_sac'$",
    ),
    "word after presets": ("presets mine", "Flags are written --name=value. Received: 'mine'"),
    # presets
    "misspelt preset": (
        "train --preset=pendulum_sca",
        "no preset of this name. Did you mean 'pendulum_sac'?.* Received: 'pendulum_sca'$",
    ),
    "missing preset file": ("train --preset=nothing.py", "no preset file of this path. Received: nothing.py$"),
    "missing config": ("train --preset={tmp}/nothing.json", "Received: .*"),
    "misspelt preset for seeds": ("train --preset=pendulum_sca --num_seeds=2", "Received: 'pendulum_sca'$"),
    # parameters
    "unknown parameter": (
        "train --set=agent.algorithm.discont=0.9",
        "no parameter 'agent.algorithm.discont'. Did you mean 'discount'?.* Received: 'discont'$",
    ),
    "unknown branch": ("train --set=agnt.algorithm.discount=0.9", "Did you mean 'agent'?.* Received: 'agnt'$"),
    "parameter of a number": ("train --set=agent.algorithm.discount.x=1", "Received: 'x'$"),
    "no equals sign": (
        "train --set=agent.algorithm.discount",
        "written path=value. Received: 'agent.algorithm.discount'$",
    ),
    "wrong type": ("train --set=agent.algorithm.discount=high", "discount: .*number. Received: 'high'$"),
    "out of range": ("train --set=agent.algorithm.discount=1.5", "less than or equal to 1. Received: 1.5$"),
    "not finite": ("train --set=environment.filters.reward_rescale_factor=NaN", "Received: "),
    "negative batch": ("train --set=agent.networks.*.batch_size=-1", "greater than 0. Received: -1$"),
    "unequal batches": ("train --set=agent.networks.q.batch_size=64", "equal batch_size. Received: {{'policy': 128"),
    "negative memory": ("train --set=agent.memory.max_size=-5", "max_size: .*greater than 0. Received: -5$"),
    "memory below a batch": ("train --set=agent.memory.max_size=5", "at least one batch. Received: max_size=5"),
    "negative steps": ("train --set=schedule.improve_steps=-5", "improve_steps: .* Received: .*-5.*$"),
    "unknown unit": ("train --set=schedule.improve_steps=Minutes(5)", "improve_steps: .* Received: 'Minutes[(]5[)]'$"),
    "no training at all": ("train --set=schedule.improve_steps=0", "improve_steps is at least 1. Received: "),
    "negative environments": ("train --set=environment.num_envs=-2", "num_envs: .*greater than 0. Received: -2$"),
    "no environments": ("train --num_envs=0", "--num_envs is a positive integer. Received: --num_envs=0$"),
    "environments in words": ("train --num_envs=two", "--num_envs is a positive integer. Received: --num_envs=two$"),
    "negative seed": ("train --seed=-1", "--seed is a non-negative integer. Received: --seed=-1$"),
    "large seed": ("train --seed=3000000000", "seed: .*less than 2147483648. Received: 3000000000$"),
    "no seeds": ("train --num_seeds=0", "--num_seeds is a positive integer. Received: --num_seeds=0$"),
    "no steps between checkpoints": (
        "train --checkpoint_save_steps=0",
        "--checkpoint_save_steps is a positive integer. Received: --checkpoint_save_steps=0$",
    ),
    "unknown strategy": (
        "train --strategy=both",
        "--strategy is none or one_device or mirrored or multi_worker. Received: --strategy=both$",
    ),
    "unsuitable boolean": (
        "train --tensorboard=maybe",
        "--tensorboard is true or false. Received: --tensorboard=maybe$",
    ),
    "no evaluation episodes": ("train --evaluate=0", "--evaluate is a positive integer. Received: --evaluate=0$"),
    "XLA and eager": (
        "train --jit_compile --eager",
        "not with eager. Received: jit_compile=True, eager=True, strategy='none', ",
    ),
    "XLA and bfloat16": ("train --jit_compile --mixed_precision=bfloat16", "in float32 .*mixed_precision='bfloat16'$"),
    "XLA and a strategy": (
        "train --jit_compile --strategy=mirrored",
        "Received: jit_compile=True, eager=False, strategy='mirrored', ",
    ),
    "histograms alone": ("train --histograms --notensorboard", "add tensorboard=True. Received: histograms=True$"),
    "no threshold to stop at": (
        "train --stop_at_threshold --level=MountainCarContinuous-v0",
        "needs validation.min_reward_threshold. Received: None for MountainCarContinuous-v0$",
    ),
    # environments
    "misspelt level": ("train --level=Pendulm-v1", "Did you mean 'Pendulum-v1'?.* Received: 'Pendulm-v1'$"),
    "unknown version": ("train --level=Pendulum-v9", "Received: 'Pendulum-v9'$"),
    "old version": ("train --level=Pendulum-v0", "Received: 'Pendulum-v0'$"),
    "malformed level": ("train --level=Pendulum_v1!", "Received: 'Pendulum_v1!'$"),
    "unknown namespace": ("train --level=Nowhere/Pong-v5", "Received: 'Nowhere/Pong-v5'$"),
    "level of a package that is not there": (
        "train --level=no_such_package:Pong-v5",
        "no module 'no_such_package'.* Received: 'no_such_package:Pong-v5'$",
    ),
    "discrete level": (
        "train --level=CartPole-v1",
        "has continuous actions, .* 2 discrete actions: .*'discrete_soft_actor_critic', as in the preset "
        "cart_pole_discrete_sac. Received: 2 actions$",
    ),
    "level of continuous actions": (
        "train --preset=cart_pole_discrete_sac --level=Pendulum-v1",
        "has discrete actions, .*'twin_soft_actor_critic', as in the preset pendulum_twin_sac. "
        "Received: actions of shape [(]1,[)]$",
    ),
    "unknown pettingzoo package": (
        "train --preset=simple_spread_twin_sac --level=pettingzoo:no_such_package.simple_spread_v3",
        "no module 'no_such_package'.* Received: 'pettingzoo:no_such_package.simple_spread_v3'$",
    ),
    "malformed pettingzoo level": (
        "train --preset=simple_spread_twin_sac --level=pettingzoo:",
        "'pettingzoo:' and a module, such as mpe2.simple_spread_v3. Received: 'pettingzoo:'$",
    ),
    "preprocessing of a level that is no game": (
        "train --set=environment.atari={{}}",
        "levels that begin with 'ALE/'. For images of your own .* cart_pole_discrete_sac, .* Received: 'Pendulum-v1'$",
    ),
    "unknown preprocessing": (
        'train --set=environment.atari={{"frameskip":4}}',
        "no parameter 'frameskip'. Did you mean 'frame_skip'?.* Received: frameskip=4$",
    ),
    "entry that is not there": ("train --set=environment.visible_entries=[0,3]", "from 0 to 2. Received: [(]0, 3[)]$"),
    "entry named twice": ("train --set=environment.visible_entries=[1,1]", "each once. Received: [(]1, 1[)]$"),
    "unknown argument of the level": ("train --set=environment.kwargs.gravty=3", "Received: {{'gravty': 3}}$"),
    "embedder for another observation": (
        'train --set=agent.networks.v.input_embedders_parameters={{"camera":{{}}}}',
        "it gives observation.*Received: 'camera'$",
    ),
    # temperatures and shared encoders of discrete actions
    "unreachable entropy": (
        f"train {auto(target_entropy=0.7)}",
        "between 0 and log[(]2[)] = 0.6931 nats, and target_entropy between them. Received: 0.7$",
    ),
    "unreachable ratio": (f"train {auto(target_entropy_ratio=1.0)}", "ratio lies between 0 and 1. Received: 1.0$"),
    "two targets": (
        f"train {auto(target_entropy=0.6, target_entropy_ratio=0.5)}",
        "by target_entropy or by target_entropy_ratio; the other one is None .* Received: target_entropy=0.6, "
        "target_entropy_ratio=0.5$",
    ),
    "shared encoder without layers": (
        "train --preset=cart_pole_discrete_sac --set=agent.shared_encoder=true",
        "needs embedders with layers to share. Received: .*Empty.*$",
    ),
    "unequal shared encoders": (
        "train --preset=cart_pole_discrete_sac --set=agent.shared_encoder=true "
        "--set=agent.networks.q.input_embedders_parameters.observation.scheme=[8]",
        "policy and q have equal input_embedders_parameters, .* Received: .*$",
    ),
    "exploration of other actions": (
        'train --preset=cart_pole_discrete_sac --set=agent.exploration={{"noise_std":0.1}}',
        "no parameter 'noise_std'.* Received: noise_std=0.1$",
    ),
    "uncertain exploration": (
        'train --preset=cart_pole_discrete_sac --set=agent.exploration={{"initial_epsilon":1.5}}',
        "initial_epsilon: .*less than or equal to 1. Received: 1.5$",
    ),
    # demonstrations
    "imitate nobody": (
        'train --set=agent.memory={{"kind":"sqil"}}',
        "needs the parameter 'demonstrations'. Received: ",
    ),
    "missing demonstrations": (f"train {sqil('none')}", "There is no demonstration file. Received: .*/none.npz$"),
    "demonstrations of another level": (
        f"train {sqil('pole')}",
        "pole.npz comes from another environment, CartPole-v1; this one is Pendulum-v1. Record .* Received: CartPole-v1$",
    ),
    "demonstrations for another level": (
        f"train --preset=cart_pole_discrete_sac {sqil('whole')}",
        "whole.npz comes from another environment, Pendulum-v1; this one is CartPole-v1. Record .* Received: Pendulum-v1$",
    ),
    "empty demonstrations": (
        f"train {sqil('empty')}",
        "empty.npz is empty or truncated. Received: {{.*'action': 0.*}}$",
    ),
    "no bytes of demonstrations": (f"train {sqil('nothing')}", "not a demonstration file.* Received: 0 bytes$"),
    "cut demonstrations": (
        f"train {sqil('cut')}",
        "cut.npz is damaged or not a demonstration file.* Received: 20000 bytes$",
    ),
    "demonstrations without an end": (
        f"train {sqil('endless')}",
        "endless.npz is truncated: .* Received: 9 ends of episodes and returns of shape [(]10,[)] in 1999 steps$",
    ),
    "demonstrations that are no numbers": (
        f"train {sqil('nan')}",
        "nan.npz must be finite. Received: observation/observation with 1 bad entries$",
    ),
    "demonstrations out of bounds": (f"train {sqil('far')}", "actions are in .* Received: 1.5 in .*/far.npz$"),
    "more demonstrations than there are": (
        f"train {sqil('whole', num_episodes=11)}",
        "num_episodes is 1 to 10, which .*/whole.npz has. Received: 11$",
    ),
    "unknown dataset": (
        'train --set=agent.memory={{"kind":"sqil","demonstrations":"minari:none-v0"}}',
        "Received: (none-v0|.*minari.*)$",
    ),
    "half of an odd batch": (
        f"train --set=agent.networks.*.batch_size=127 {sqil('whole')}",
        "demonstrated, so batch_size is even. Received: 127$",
    ),
    # run directories
    "existing run": ("train --run_dir={run}", "exists already; .*--resume.* Received: .*/pendulum$"),
    "run at the place of a file": ("train --run_dir={file}", "exists already.* Received: .*/file$"),
    "run under a file": (
        "train --run_dir={file}/run",
        "cannot be made, because .*/file is no folder. Received: .*/file/run$",
    ),
    "weights of no run": (
        "train --checkpoint_restore_dir={tmp}/none --run_dir={tmp}/new",
        "This is no run directory: it has no config.json. Received: .*none$",
    ),
    "weights of other networks": (
        "train --checkpoint_restore_dir={run} --run_dir={tmp}/new",
        "belongs to other networks: .* Received: ",
    ),
    "weights of another agent": (
        "train --preset=cart_pole_discrete_sac --checkpoint_restore_dir={run} --run_dir={tmp}/new",
        "belongs to other networks: .* Received: ",
    ),
    "resume nothing": ("train --resume", "--resume needs --run_dir. Received: no --run_dir$"),
    "resume with a level": (
        "train --resume --run_dir={run} --level=Pendulum-v1",
        "keeps its .*level.* Received: --level$",
    ),
    "resume with a preset": ("train --resume --run_dir={run} --preset=pendulum_sac", "Received: --preset$"),
    "resume with a seed": ("train --resume --run_dir={run} --seed=1", "Received: --seed$"),
    "resume with environments": ("train --resume --run_dir={run} --num_envs=1", "Received: --num_envs$"),
    "resume with weights": (
        "train --resume --run_dir={run} --checkpoint_restore_dir={run}",
        "Received: --checkpoint_restore_dir$",
    ),
    "resume no run": ("train --resume --run_dir={tmp}/none", "it has no config.json. Received: .*/none$"),
    "resume another algorithm": (
        "train --resume --run_dir={run} --set=agent.algorithm.discount=0.5",
        r"keeps its agent and environment; .* has agent.algorithm.discount=0\.99\. Received: agent.algorithm.discount=0\.5$",
    ),
    "seeds of actors": ("train --num_seeds=2 --ray_address=local", "Received: --num_seeds with --ray_address$"),
    "actors of unequal shares": (
        "train --num_envs=3 --ray_address=local --num_actors=2",
        "the number of actors, 2; see --num_envs. Received: 3$",
    ),
    "actors on no cluster": ("train --num_actors=2", "give a ray_address. Received: num_actors=2$"),
    "resume seeds": ("train --resume --num_seeds=2 --run_dir={run}", "Received: --num_seeds with --resume$"),
    # sweep
    "word after sweep": (
        "sweep pendulum_sac",
        "Flags are written --name=value. Did you mean --preset=pendulum_sac? Received: 'pendulum_sac'$",
    ),
    "no jobs": ("sweep --run_dir=new --jobs=0", "--jobs is a positive integer. Received: --jobs=0$"),
    "more jobs than cores": (
        "sweep --run_dir=new --jobs=100000",
        "number of usable cores of this machine, [0-9]+. Received: 100000$",
    ),
    "jobs on a cluster": (
        "sweep --run_dir=new --jobs=2 --ray_address=local",
        "its cores allow. Received: --jobs with --ray_address$",
    ),
    "cores on no cluster": (
        "sweep --run_dir=new --cpus_per_run=2",
        "a Ray cluster. Received: --cpus_per_run without --ray_address$",
    ),
    "sweep on no cluster": ("sweep --run_dir=new --ray_address=here", "is local, auto or HOST:PORT. Received: 'here'$"),
    "sweep where no cluster is": (
        "sweep --run_dir=new --ray_address=127.0.0.1:1",
        "No Ray answers at this address .* Received: '127.0.0.1:1'$",
    ),
    "sweep an unknown parameter": (
        "sweep --run_dir=new --grid=agent.algorithm.discont=0.9,0.98",
        "no parameter 'agent.algorithm.discont'. Did you mean 'discount'?.* Received: 'discont'$",
    ),
    "sweep part of a path": ("sweep --run_dir=new --grid=discount=0.9,1", "by its whole path.* Received: 'discount'$"),
    "sweep an unknown flag": ("sweep --run_dir=new --grid=levle=x", "Did you mean 'level'? Received: 'levle'$"),
    "sweep seeds": ("sweep --run_dir=new --grid=seed=1,2", "or a flag of preset, .* Received: 'seed'$"),
    "sweep a flag to a wrong value": (
        "sweep --run_dir=new --grid=num_envs=1,two",
        "--num_envs is a positive integer. Received: --num_envs=two$",
    ),
    "sweep to a wrong value": (
        "sweep --run_dir=new --grid=agent.algorithm.discount=0.9,1.5",
        "less than or equal to 1. Received: 1.5$",
    ),
    "sweep to values that do not fit": (
        "sweep --run_dir=new --grid=agent.memory.max_size=64,1000 --grid=agent.networks.*.batch_size=64,128",
        "at least one batch. Received: max_size=64, batch_size=128$",
    ),
    "sweep the same twice": (
        "sweep --run_dir=new --grid=schedule.improve_steps=5,EnvironmentSteps(5)",
        "must differ. Received: improve_steps=5 and improve_steps=EnvironmentSteps[(]5[)]$",
    ),
    "sweep to no values": ("sweep --run_dir=new --grid=agent.algorithm.discount=", "path=value,value,... Received: "),
    "sweep a misspelt level": (
        "sweep --run_dir=new --grid=level=Pendulm-v1",
        "Did you mean 'Pendulum-v1'?.*Received: ",
    ),
    "sweep a misspelt preset": ("sweep --run_dir=new --preset=pendulum_sca", "Received: 'pendulum_sca'$"),
    "sweep beyond the seeds": (
        "sweep --run_dir=new --seed=2147483646 --num_seeds=3",
        "seed: .*less than 2147483648. Received: 2147483648$",
    ),
    "sweep in the folder of a run": (
        "sweep --run_dir={run}",
        "new or empty folder, or its own. Received: .*/pendulum$",
    ),
    "sweep at the place of a file": ("sweep --run_dir={file}", "new or empty folder, or its own. Received: .*/file$"),
    "sweep under a file": ("sweep --run_dir={file}/sweep", "Received: .*"),
    # trajectories
    "trajectories of choices": (
        taac("--level=CartPole-v1"),
        " 2 discrete actions: .*'discrete_soft_actor_critic', as in the preset cart_pole.*Received: ",
    ),
    "unknown trajectory": (
        taac("--set=agent.algorithm.trajectory=cubic"),
        "trajectory: .*'constant', 'linear' or 'quadratic'. Received: 'cubic'$",
    ),
    "derivatives of a constant": (
        taac("--set=agent.algorithm.inverse_mode=false"),
        "linear and quadratic trajectories.*Received: inverse_mode=False with .*'constant'$",
    ),
    "stretches of one row": (
        taac("--set=agent.memory.sequence_length=1"),
        "sequence_length is at least 2.* Received: sequence_length=1, max_size=",
    ),
    "stretches beyond the memory": (
        taac("--set=agent.memory.max_size=1000", "--set=agent.memory.sequence_length=1001"),
        "sequence_length is at least 2, .* at most what the memory holds. Received: sequence_length=1001, "
        "max_size=1000$",
    ),
    "stretches beyond an environment's part": (
        taac("--num_envs=100", "--set=agent.memory.max_size=399"),
        "hold sequence_length steps of every environment. Received: max_size=399, num_envs=100, sequence_length=4$",
    ),
    "heat-up below a stretch": (
        taac("--num_envs=100", "--set=schedule.heatup_steps=399"),
        "collect sequence_length steps of every environment. Received: heatup_steps=",
    ),
    "several steps beside trajectories": (
        taac("--set=agent.algorithm.n_step=3"),
        "n_step is 1; .*sequence_length.* Received: n_step=3$",
    ),
    "no probability": (taac("--set=agent.algorithm.min_prob=0"), "min_prob.*greater than 0.* Received: 0$"),
    "certain": (taac("--set=agent.algorithm.min_prob=1"), "min_prob.*less than 1.* Received: 1$"),
    "more than certain": (taac("--set=agent.algorithm.min_prob=1.5"), "min_prob.*less than 1.* Received: 1.5$"),
    "clipping the wrong way round": (
        taac("--set=agent.algorithm.b1_advantage_clipping=[1,0]"),
        "low < high. Received: [(]1.0, 0.0[)]$",
    ),
    "weights of other rewards": (
        taac("--set=agent.algorithm.reward_weights=[1,2]"),
        "gives 1 reward.*reward_weights.* Received: [(]1.0, 2.0[)]$",
    ),
    "discounts of other rewards": (
        taac("--set=agent.algorithm.reward_discounts=[0.9,0.9]"),
        "gives 1 reward.*reward_discounts.* Received: [(]0.9, 0.9[)]$",
    ),
    "noise on trajectories": (
        taac(setting("agent.exploration", noise_std=0.1)),
        "exploration: Input should be null. Received: ",
    ),
    "imitated trajectories": (taac(sqil("whole")), "memory.kind: Input should be 'sequences'. Received: 'sqil'$"),
    "trajectories from single rows": (
        taac(setting("agent.memory", kind="uniform")),
        "memory.kind: Input should be 'sequences'. Received: 'uniform'$",
    ),
    # evaluate
    "evaluate nothing": ("evaluate", "--run_dir is required. Received: no --run_dir$"),
    "evaluate no run": ("evaluate --run_dir={tmp}", "no run directory: it has no config.json. Received: "),
    "evaluate no folder": (
        "evaluate --run_dir={tmp}/none",
        "no run directory: it has no config.json. Received: .*/none$",
    ),
    "no episodes": (
        "evaluate --run_dir={run} --episodes=0",
        "--episodes is a positive integer. Received: --episodes=0$",
    ),
    "film under a file": ("evaluate --run_dir={run} --episodes=1 --dump_mp4={file}/film.gif", "Received: .*"),
    "film of an unknown kind": (
        "evaluate --run_dir={run} --episodes=1 --dump_mp4={tmp}/film.xyz",
        "Received: .*film.xyz",
    ),
    "actions in a picture of another kind": (
        "evaluate --run_dir={run} --episodes=1 --plot_actions={tmp}/actions.pdf",
        "name ends in .png. Received: .*actions.pdf$",
    ),
    "actions under a file": ("evaluate --run_dir={run} --episodes=1 --plot_actions={file}/a.png", "Received: .*"),
    # export
    "export nothing": ("export --out={tmp}/out", "--run_dir is required. Received: no --run_dir$"),
    "export to nowhere": ("export --run_dir={run}", "--out is required. Received: no --out$"),
    "export into an existing folder": (
        "export --run_dir={run} --out={run}",
        "new or empty folder. Received: .*/pendulum$",
    ),
    "export over a file": ("export --run_dir={run} --out={file}", "new or empty folder. Received: .*/file$"),
    "export under a file": ("export --run_dir={run} --out={file}/out", "Received: .*"),
    "export to a file of LiteRT": (
        "export --run_dir={run} --out={tmp}/tank.tflite --format=tflite",
        r"--out is a folder, which gets policy\.tflite. Received: --out=.*tank\.tflite$",
    ),
    "export as something else": (
        "export --run_dir={run} --out={tmp}/out --format=onnx",
        "--format is saved_model or tflite. Received: --format=onnx$",
    ),
    "export perhaps with values": (
        "export --run_dir={run} --out={tmp}/out --values=perhaps",
        "--values is true or false. Received: --values=perhaps$",
    ),
    # record
    "record to nowhere": ("record --run_dir={run}", "--out is required. Received: no --out$"),
    "record into a file of another kind": (
        "record --run_dir={run} --out={tmp}/expert",
        "ends in .npz. Received: .*/expert$",
    ),
    "record over a file": ("record --run_dir={run} --out={file}.npz", "over an existing file. Received: .*/file.npz$"),
    "record under a file": ("record --run_dir={run} --episodes=1 --out={file}/expert.npz", "Received: .*"),
    # plot
    "plot nothing": ("plot", "Plotting needs a run, as words: tfsac plot RUN, .* Received: none$"),
    "plot no run": ("plot {tmp}", "run directory with metrics.csv.* Received: "),
    "plot two runs to nowhere": ("plot {run} {run}", "--out is required. Received: no --out$"),
    "plot two of which one is no run": ("plot {run} {tmp} --out={tmp}/a.png", "it has no config.json. Received: "),
    # compare
    "compare nothing": ("compare", "A comparison needs runs, as in: .* Received: none$"),
    "compare no run": ("compare {tmp}", "no run directory: it has no config.json. Received: "),
    "compare no folder": ("compare a={run},{tmp}/none", "no run directory: it has no config.json. Received: .*/none$"),
    "compare a run with itself": (
        "compare {run} {run}",
        "A group has each run once. Received: 'soft_actor_critic' with ",
    ),
    "compare no runs": ("compare a={run} b=", "a run or a sweep, or LABEL=RUN,RUN. Received: 'b='$"),
    "compare under a file": ("compare {run} --out={file}/a", "The folder cannot be made, .* Received: .*"),
    "plot under a file": ("plot {run} --out={file}/a.png", "Received: .*"),
}


# Gymnasium warns about old versions before it refuses them.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_refused_with_a_reason_and_leaves_nothing(
    name, run_dir, shown, tmp_path, monkeypatch, capsys
):
    line, message = WRONG[name]
    for file in ("file", "file.npz"):
        (tmp_path / file).write_text("mine")
    monkeypatch.chdir(tmp_path)
    before, run_before = tree(tmp_path), tree(run_dir)
    with pytest.raises(SystemExit) as ended:
        cli.main(line.format(run=run_dir, tmp=tmp_path, file=tmp_path / "file", shown=shown).split(" "))
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.err.startswith("tfsac: ") and "Traceback" not in printed.err
    assert re.search(message.format().replace("?", r"\?"), printed.err.strip(), re.DOTALL), printed.err
    assert tree(tmp_path) == before
    assert tree(run_dir) == run_before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("config cut", r"config\.json is not the config of a run .* Received: 100 bytes$"),
        ("config is a list", r"is not the config of a run .* Received: 2 bytes$"),
        ("config is binary", r"is not the config of a run .* Received: 3 bytes$"),
        (
            "config with an unknown field",
            r"has no parameter 'discont'\. Did you mean 'discount'\?.* Received: discont=",
        ),
        ("config without run", r"is not the config of a run .* Received: \d+ bytes$"),
        ("weights cut", r"best\.npz is damaged .* Received: \d+ bytes$"),
        ("weights with a byte changed", r"best\.npz is damaged .* Received: \d+ bytes$"),
        ("weights are text", r"best\.npz is damaged .* Received: 7 bytes$"),
        ("weights empty", r"best\.npz is damaged .* Received: 0 bytes$"),
        ("weights of another network", r"policy/0 should be \(3, 16\)\. Received: \(3, 8\)$"),
        ("weights without statistics", r"best\.npz is damaged .* Received: \d+ bytes$"),
        ("no weights", r"no saved weights yet.* Received: .*best\.npz$"),
    ],
)
def test_a_damaged_run_is_refused_by_the_name_of_its_file(damage, message, run_dir, tmp_path, capsys):
    damaged(run_dir, tmp_path / "run", damage)
    before = tree(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", f"--run_dir={tmp_path / 'run'}", "--episodes=1"])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert re.search(message, printed.err.strip(), re.DOTALL), printed.err
    assert printed.out == "" and tree(tmp_path) == before


def test_a_resumed_run_that_was_damaged_is_refused_and_stays_as_it_is(run_dir, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    for manifest in (copy / "checkpoints").glob("0*/manifest.json"):
        manifest.write_text("{")
    before = tree(copy)
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--resume", f"--run_dir={copy}"])
    assert ended.value.code == 2
    assert "There is no checkpoint to continue from. Received: " in capsys.readouterr().err
    assert tree(copy) == before


def test_the_config_of_a_run_is_a_preset_of_its_own(run_dir):
    assert load_preset(run_dir / "config.json") == read_config(run_dir / "config.json")[0]


@pytest.mark.slow
def test_show_has_the_networks_of_a_level_and_what_sets_their_widths(capsys):
    level = ["--preset=pendulum_twin_sac", "--level=Pendulum-v1"]
    width = "--set=agent.networks.policy.middleware_parameters.scheme=[32,16]"
    assert cli.run(["show", *level, width]) == 0
    lines = capsys.readouterr().out.splitlines()
    (policy,) = [line for line in lines if line.startswith("# network policy: ")]
    kernels = [[int(n) for n in kernel.split("x")] for kernel in policy.partition("kernels ")[2].split()]
    assert [kernel[1] for kernel in kernels[-3:]] == [32, 16, 2] and kernels[-2][0] == 32
    weights = sum(rows * columns + columns for rows, columns in kernels)  # with biases
    assert f"{weights:,} weights" in policy
    assert f"#   --set='{width.removeprefix('--set=')}'" in lines
    assert any(line.startswith("# network q: ") for line in lines)
    assert cli.run(["show", "--level=Pendulum-v1", "--set=environment.kwargs.unknown=1"]) == 0
    assert "# networks: Pendulum-v1 does not take these arguments" in capsys.readouterr().out
