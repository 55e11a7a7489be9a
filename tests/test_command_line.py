"""The command line: documented flags, show, version and info, and errors."""

import re
import signal
import subprocess
import sys
import time

import pytest
from absl import flags
from cli_tools import SUBPROCESS_ENV, error_line
from pages import ROOT

from tfsac import cli
from tfsac.cli.command_registry import Command, flag_values
from tfsac.errors import TfsacError
from tfsac.parameters import override
from tfsac.preset_lookup import load_preset, read_config

PAGE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")


def flags_of(name):
    return list(flag_values(cli.COMMANDS[name].defines))


def test_page_documents_every_command_flag_and_status():
    for name in cli.COMMANDS:
        assert f"| `{name}` |" in PAGE
        missing = [flag for flag in flags_of(name) if f"`--{flag}" not in PAGE]
        assert not missing, (name, missing)
    assert all(f"| {status} |" in PAGE or f"{status}, " in PAGE for status in ("0", "1", "2", "130", "141"))
    known = {flag for name in cli.COMMANDS for flag in flags_of(name)}
    known |= {"help", "version", "noresume", "notensorboard", "flag"}
    assert set(re.findall(r"`--(\w+)", PAGE)) <= known


def test_show_output_is_valid_for_set(capsys):
    words = ["show", "--preset=mujoco_twin_sac", "--level=Hopper-v5"]
    changed = ["agent.algorithm.discount=0.9", 'environment.kwargs.camera_name="3"']
    assert cli.run([*words, *(f"--set={line}" for line in changed), "--num_envs=2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    expected = ["environment.level=Hopper-v5", "environment.num_envs=2", "agent.networks.q.optimizer_kwargs={}"]
    assert {*changed, *expected} <= {*printed}
    assert cli.run([*words, *(f"--set={line}" for line in printed)]) == 0
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize("name", ["cart_pole_sqil", "taac_locomotion", "acer_partially_observable"])
def test_show_json_is_a_preset_file(name, tmp_path, capsys):
    assert cli.run(["show", f"--preset={name}", "--set=environment.max_episode_steps=7", "--json"]) == 0
    path = tmp_path / "mine.json"
    path.write_text(capsys.readouterr().out)
    changed = override(load_preset(name), {"environment.max_episode_steps": 7})
    assert load_preset(path) == changed == read_config(path)[0]
    assert cli.run(["show", f"--preset={path}", "--json"]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_later_set_may_override_a_part_but_not_repeat(capsys):
    all_rates, one_rate = "--set=agent.networks.*.learning_rate=2e-3", "--set=agent.networks.policy.learning_rate=1e-4"
    assert cli.run(["show", "--preset=pendulum_twin_sac", all_rates, one_rate]) == 0
    printed = capsys.readouterr().out
    assert "policy.learning_rate=0.0001\n" in printed and "q.learning_rate=0.002\n" in printed
    with pytest.raises(TfsacError, match="twice"):
        cli.run(["show", "--preset=pendulum_twin_sac", one_rate, all_rates])


@pytest.mark.slow
def test_version_and_info_print_versions_and_devices(capsys):
    assert cli.run(["--version"]) == 0
    assert re.fullmatch(r"tfsac \d+\.\d+\.\d+\n", capsys.readouterr().out)
    assert cli.run(["info"]) == 0
    printed = capsys.readouterr().out
    for name in ("tfsac", "tensorflow", "platform", "cpu", "memory", "devices", "threads"):
        assert re.search(rf"^{name} +\S", printed, re.MULTILINE), name
    assert "CPU:0" in printed


def exit_status(error, monkeypatch, name="presets"):
    """Returns the exit status when a command raises an error."""

    def broken(values, rest):
        raise error

    monkeypatch.setitem(cli.COMMANDS, name, Command("", broken))
    with pytest.raises(SystemExit) as exit_info:
        cli.main([name])
    return exit_info.value.code


@pytest.mark.parametrize(
    "error",
    [
        TfsacError("discount must be in\n [0, 1), got 1.5"),
        OSError(28, "No space left on device", "/data/run"),
        flags.IllegalFlagValueError("flag --seed=x: not an integer"),
    ],
)
def test_user_errors_are_one_line(error, monkeypatch, capsys):
    assert exit_status(error, monkeypatch) == 2
    assert capsys.readouterr().err == f"tfsac: {' '.join(str(error).split())}\n"
    monkeypatch.setenv("TFSAC_TRACEBACK", "1")
    with pytest.raises(type(error)):
        exit_status(error, monkeypatch)


def test_other_errors_keep_their_traceback(monkeypatch):
    with pytest.raises(ValueError):
        exit_status(ValueError("shapes do not fit"), monkeypatch)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian", "'train'"),
        ("train --sed=1", "Did you mean: seed ?.*--help.*--set"),
        ("train pendulum_sac", "--name=value.*'pendulum_sac'"),
        ("evaluate", "--run_dir is required"),
    ],
)
def test_invalid_command_line_is_one_line(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert re.search(words, error_line(line.split(), capsys)) and not list(tmp_path.iterdir())


def test_closed_stdout_is_no_error():
    closed = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); from tfsac import cli; cli.main(['presets'])"
    )
    command = [sys.executable, "-c", closed]
    result = subprocess.run(command, env=SUBPROCESS_ENV, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.slow
def test_train_prints_summary_and_handles_early_ctrl_c(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "tfsac", "train", "--seed=3", "--run_dir=run"]
    process = subprocess.Popen(command, cwd=tmp_path, env=SUBPROCESS_ENV, **pipes)
    try:
        assert process.stdout.readline() == "tfsac train: pendulum_sac, Pendulum-v1, seed 3\n"
        while process.poll() is None:  # an importing library may ignore a signal
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    # If Ctrl-C interrupts an exec in a library, Python is killed by the signal, which shells report as 130 too.
    assert process.returncode in (130, -signal.SIGINT) and errors in ("", "tfsac: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_paths_expand_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    outs = []
    plot = cli.COMMANDS["plot"]._replace(function=lambda values, rest: outs.append(values.out) or 0)
    monkeypatch.setitem(cli.COMMANDS, "plot", plot)
    assert cli.run(["plot", "--out=~/one.png", "--title=~/x"]) == 0
    assert outs == [f"{tmp_path}/one.png"]
