"""The command line around its commands: help, version, what it describes, and how it fails."""

import errno
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from absl import flags

from tfsac import cli, user_code
from tfsac.catalog import load_preset, preset_names, read_config
from tfsac.cli.command import Command, UsageError
from tfsac.cli.failure import in_one_line, reason, status_of
from tfsac.cli.parsing import parse
from tfsac.parameters import RunParameters, override, to_json
from tfsac.user_code import UserCodeError, calling

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
TFSAC = [sys.executable, "-m", "tfsac"]


def flags_of(name):
    cli.COMMANDS[name].define(values := flags.FlagValues())
    return list(values)


# -- help, version, the page -------------------------------------------------------------------------------------------


def test_the_version_is_printed(capsys):
    assert cli.run(["--version"]) == 0
    assert re.fullmatch(r"tfsac \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments", [["--helpfull"], ["--helpshort"], ["-?"], ["--help"], ["-h"], ["help"], ["--seed=1", "--help"]]
)
def test_every_way_to_ask_for_help_is_understood(arguments, capsys):
    assert cli.run(["train", *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tfsac train: train a preset\n\nusage: tfsac train [--flag=value ...]\n")
    assert cli.run(["help", "train"]) == 0
    assert capsys.readouterr().out == printed


def test_the_usage_of_a_command_with_words_names_them_and_nothing_of_absl_is_left(capsys):
    for name in cli.COMMANDS:
        assert cli.run([name, "--help"]) == 0
        printed = capsys.readouterr().out
        words = cli.COMMANDS[name].words
        assert f"usage: tfsac {name} {words}".rstrip() in printed
        assert "repeat this option" not in printed and "default: '[]'" not in printed
    assert cli.COMMANDS["compare"].words.startswith("RUN...")


def test_help_after_two_hyphens_is_a_word():
    with pytest.raises(UsageError, match=r"Flags are written --name=value\. Received: '--help'"):
        cli.run(["train", "--", "--help"])


def test_the_page_names_every_command_flag_and_status():
    for name in cli.COMMANDS:
        assert f"| `{name}` |" in PAGE
        missing = [flag for flag in flags_of(name) if f"`--{flag}" not in PAGE]
        assert not missing, (name, missing)
    assert all(f"| {status} |" in PAGE or f"{status}, " in PAGE for status in ("0", "1", "2", "130", "141"))
    known = {flag for name in cli.COMMANDS for flag in flags_of(name)} | {
        "help",
        "version",
        "noresume",
        "notensorboard",
        "flag",
    }
    assert set(re.findall(r"`--(\w+)", PAGE)) <= known


# -- show, info --------------------------------------------------------------------------------------------------------


def test_what_show_prints_is_what_set_takes(capsys):
    assert (
        cli.run(
            [
                "show",
                "--preset=mujoco_twin_sac",
                "--level=Hopper-v5",
                "--set=agent.algorithm.discount=0.9",
                "--num_envs=2",
                '--set=environment.kwargs.name="3"',
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if not line.startswith("#")]
    assert (
        "agent.algorithm.discount=0.9" in lines
        and "environment.level=Hopper-v5" in lines
        and "environment.num_envs=2" in lines
        and 'environment.kwargs.name="3"' in lines
        and "agent.networks.q.optimizer_kwargs={}" in lines
    )
    assert cli.run(["show", "--preset=mujoco_twin_sac", "--level=Hopper-v5", *(f"--set={line}" for line in lines)]) == 0
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize(
    "name", ["pendulum_sac", "cart_pole_sqil", "taac_locomotion", "acer_partially_observable", "atari_discrete_sac"]
)
def test_the_json_of_show_is_a_preset_file(name, tmp_path, capsys):
    assert cli.run(["show", f"--preset={name}", "--set=environment.max_episode_steps=7", "--json"]) == 0
    path = tmp_path / "mine.json"
    path.write_text(capsys.readouterr().out)
    assert (
        load_preset(path) == override(load_preset(name), {"environment.max_episode_steps": 7}) == read_config(path)[0]
    )
    assert cli.run(["show", f"--preset={path}", "--json"]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_the_json_of_show_knows_where_the_environment_of_a_preset_file_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(user_code, "FOLDERS", [])
    preset = tmp_path / "mine.py"
    preset.write_text((ROOT / "presets" / "pendulum_sac.py").read_text())
    assert cli.run(["show", f"--preset={preset}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["import_folders"][-1] == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["agent.networks.policy.learning_rate=1e-4", "agent.networks.*.learning_rate=2e-3"], "policy.*=0.0001, which"),
        (["agent.algorithm.temperature.initial_alpha=0.7", 'agent.algorithm.temperature={"kind":"auto"}'], "alpha=0.7"),
        (["agent.algorithm.discount=0.9", "agent.algorithm.discount=0.8"], "after 0.9$"),
        (["environment.level=MountainCarContinuous-v0"], "after Pendulum-v1$"),
    ],
)
def test_a_parameter_that_a_later_flag_sets_again_is_refused(given, message):
    flags = [f"--set={one}" for one in given]
    with pytest.raises(UsageError, match=f"^A parameter is set once. Received: .*{message}"):
        cli.run(["show", "--preset=pendulum_twin_sac", "--level=Pendulum-v1", *flags])


def test_a_later_flag_may_set_a_part_of_what_an_earlier_one_sets(capsys):
    flags = ["--set=agent.networks.*.learning_rate=2e-3", "--set=agent.networks.policy.learning_rate=1e-4"]
    assert cli.run(["show", "--preset=pendulum_twin_sac", *flags]) == 0
    printed = capsys.readouterr().out
    assert "policy.learning_rate=0.0001\n" in printed and "q.learning_rate=0.002\n" in printed


@pytest.mark.slow
def test_info_tells_versions_devices_and_threads(capsys):
    assert cli.run(["info"]) == 0
    printed = capsys.readouterr().out
    for name in (
        "tfsac",
        "tensorflow",
        "keras",
        "gymnasium",
        "platform",
        "cpu",
        "cpu flags",
        "memory",
        "devices",
        "threads",
    ):
        assert re.search(rf"^{name} +\S", printed, re.MULTILINE), name
    assert "CPU:0" in printed


# -- how it fails ------------------------------------------------------------------------------------------------------


class ResourceExhaustedError(Exception):
    """Named as TensorFlow's."""


FAILURES = [
    (
        OSError(errno.ENOSPC, "No space left on device", "/data/run"),
        "No space left on device. Free some space.* Received: /data/run$",
    ),
    (
        PermissionError(errno.EACCES, "Permission denied", "config.json"),
        "Permission denied. .*may read and write. Received: config.json$",
    ),
    (IsADirectoryError(errno.EISDIR, "Is a directory", "folder"), "Is a directory. Name a file. Received: folder$"),
    (OSError(errno.EROFS, "Read-only file system", "run"), "Read-only file system. .*can be written. Received: run$"),
    (OSError("something"), "something. .* Received: something$"),
    (
        MemoryError("Unable to allocate 2.7 TiB"),
        "not enough memory. .*max_size.* Received: Unable to allocate 2.7 TiB$",
    ),
    (MemoryError(), "not enough memory. .* Received: MemoryError$"),
    (
        ResourceExhaustedError("OOM when allocating tensor " + "x" * 999),
        "not enough memory. .* Received: OOM when .*\\.\\.\\.$",
    ),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UTF-8. Received: UnicodeDecodeError"),
    (RecursionError("maximum recursion depth exceeded"), "nested too deeply. Received: RecursionError"),
    (
        ModuleNotFoundError("No module named 'rich'", name="rich"),
        "install tfsac again.* Received: No module named 'rich'$",
    ),
    (UserCodeError("env_fn raised. Received: ValueError: no\nway"), "^env_fn raised. Received: ValueError: no way$"),
    (ValueError("What is wrong.\n  Received: 5"), "^What is wrong. Received: 5$"),
]


@pytest.mark.parametrize(("error", "text"), FAILURES, ids=[type(error).__name__ for error, _ in FAILURES])
def test_what_the_user_can_mend_is_one_line_with_what_was_received(error, text):
    line = reason(error)
    assert re.search(text, line) and "\n" not in line and len(line) < 600


@pytest.mark.parametrize(
    "error",
    [ValueError("shapes do not fit"), KeyError("x"), AssertionError(), ModuleNotFoundError("x", name="tfsac.nothing")],
)
def test_a_bug_is_no_line_of_the_users(error, capsys):
    assert reason(error) is None
    assert status_of(error) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].endswith("what `tfsac info` prints.") and type(error).__name__ in lines[-2]


def raising(error):
    def command(values, rest):
        raise error

    return Command("", lambda values: None, command)


class Ending(BaseException):
    """Is no Exception, so that few catch it."""


@pytest.mark.parametrize("error", [Ending("enough"), GeneratorExit("enough"), SystemExit("enough")])
def test_what_ends_the_program_is_one_line_and_no_success(error, monkeypatch, capsys):
    def end(values, rest):
        raise error

    monkeypatch.setitem(cli.COMMANDS, "info", Command("", lambda f: None, end))
    with pytest.raises(SystemExit) as ended:
        cli.main(["info"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert re.match(
        r"tfsac: Your own code.* Received: \w+: enough \(.*test_command_line\.py, line \d+, in end\)\n$", said
    ), said


def test_what_the_users_code_raises_is_no_bug():
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert re.match(
        r"Your own code raised\. Received: ZeroDivisionError: .*test_command_line\.py", reason(caught.value)
    )


@pytest.mark.parametrize("name", ["numpy", "gymnasium"])
@pytest.mark.parametrize(
    ("text", "said"), [("x = 1", "hides it; rename it"), ("raise ValueError('no')", "Your own code raised")]
)
def test_a_file_with_the_name_of_a_package_is_told(name, text, said, tmp_path):
    (tmp_path / f"{name}.py").write_text(text)
    done = subprocess.run(
        [*TFSAC, "check", "--level=Pendulum-v1"],
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.startswith("tfsac: ") and done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr and f"{name}.py" in done.stderr


def test_an_interruption_is_no_error_even_behind_another_one(monkeypatch, capsys):
    hidden = ImportError("numpy failed to import")
    hidden.__context__ = KeyboardInterrupt()
    for error in (KeyboardInterrupt(), hidden):
        monkeypatch.setitem(cli.COMMANDS, "presets", raising(error))
        with pytest.raises(SystemExit) as ended:
            cli.main(["presets"])
        assert ended.value.code == 130
        assert capsys.readouterr().err == "tfsac: interrupted\n"


def test_the_end_of_the_reader_of_the_output_is_no_error():
    program = f"{sys.executable} -m tfsac presets | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) in ((141, ""), (0, ""))  # 0 where head was slow to end
    assert done.stdout.startswith(preset_names()[0])
    closed = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); from tfsac import cli; cli.main(['presets'])"
    )
    done = subprocess.run([sys.executable, "-c", closed], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_shell_that_closes_the_output_changes_nothing():
    for line, status in (("presets >&-", 0), ("trian >&- 2>&-", 2), ("trian 2>&-", 2)):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m tfsac {line}"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), line


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error_in_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*TFSAC, "presets"], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr.startswith("tfsac: No space left on device. Free some space") and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_train_says_at_once_what_it_does_and_ctrl_c_before_the_run_ends_it_quietly(tmp_path):
    process = subprocess.Popen(
        [*TFSAC, "train", "--seed=3", "--run_dir=run"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "tfsac train: pendulum_sac, Pendulum-v1, seed 3\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    # Python itself ends by the signal, which a shell shows as 130 too, where Ctrl-C hit an exec of some library.
    assert process.returncode in (130, -signal.SIGINT) and errors == "tfsac: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_train_says_what_it_does_before_tensorflow_loads(run_python, tmp_path):
    program = """
import sys, time
from tfsac import cli
began = time.process_time()
try:
    cli.run(["train", "--preset=mujoco_sac", "--level=HalfCheta-v5", "--seed=1", "--run_dir=" + sys.argv[1]])
except ValueError as error:
    print(error, "tensorflow" in sys.modules, time.process_time() - began < 2)
"""
    said, error = run_python(program, str(tmp_path / "run")).splitlines()
    assert said == "tfsac train: mujoco_sac, HalfCheta-v5, seed 1"
    assert "Did you mean 'HalfCheetah-v5'?" in error and error.endswith("Received: 'HalfCheta-v5' False True")


def test_a_program_that_the_users_code_ends_is_told():
    with pytest.raises(UserCodeError, match=r"The preset raised\. Received: SystemExit: 0 \("), calling("The preset"):
        sys.exit(0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("preset.environment.kwargs['f'] = print", "their values are JSON: .* Received: "),
        ("preset.agent.networks['policy'] = 5", "networks.policy: Input should be an object. Received: 5"),
        ("object.__setattr__(preset, 'agent', 5)", "Preset.agent: Input should be an object of kind"),
    ],
)
def test_a_preset_that_was_changed_in_place_is_checked(change, text, tmp_path, capfd):
    (tmp_path / "mine.py").write_text(f"from tfsac.parameters import Preset\n\npreset = Preset()\n{change}\n")
    with pytest.raises(SystemExit) as ended:
        cli.main(["show", f"--preset={tmp_path / 'mine.py'}"])
    said = capfd.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1 and re.search(text, said), said


def test_a_preset_file_leaves_no_bytecode_beside_it(tmp_path):
    (tmp_path / "mine.py").write_text("from tfsac.parameters import Preset\n\npreset = Preset()\n")
    load_preset(tmp_path / "mine.py")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_the_program_of_a_preset_refuses_another_preset(tmp_path):
    done = subprocess.run(
        [sys.executable, "presets/pendulum_sac.py", "--preset=mujoco_sac"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("tfsac: --preset is given once. Received: '--preset=mujoco_sac'")


def test_levels_and_json_that_are_no_presets_are_refused_in_python_too():
    for wrong in (5, None, ["pendulum_sac"]):
        with pytest.raises(ValueError, match=r"loaded by its name or path\. Received: "):
            load_preset(wrong)
    with pytest.raises(ValueError, match="Received: ''"):
        load_preset("")


@pytest.mark.parametrize(
    ("line", "package", "extra"),
    [
        ("evaluate --run_dir=run --dump_mp4=film.mp4", "imageio_ffmpeg", "video"),
        ("evaluate --run_dir=run --dump_mp4=film.gif", "imageio", "video"),
        ("export --run_dir=run --out=new --format=tflite --verify", "ai_edge_litert", "litert"),
    ],
)
def test_a_package_that_is_missing_is_told_before_anything_is_done(line, package, extra, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.npz").touch()
    config = {"preset": to_json(load_preset("pendulum_sac")), "run": to_json(RunParameters())}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=rf"needs: pip install 'tfsac\[{extra}\]'\. Received: .*no {package}"):
        cli.run(line.split())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_plot_groups_runs_as_compare_does_also_while_they_run(tmp_path, monkeypatch):
    from tfsac.experiments import plots

    drawn = {}
    monkeypatch.setattr(plots, "plot_curves", lambda groups, out, title: drawn.update(groups) or out)
    for i, name in enumerate(("pendulum_sac", "pendulum_sac", "pendulum_twin_sac")):
        (tmp_path / str(i)).mkdir()
        config = {"preset": to_json(load_preset(name)), "run": to_json(RunParameters(seed=i))}
        (tmp_path / str(i) / "config.json").write_text(json.dumps(config))
    runs = [str(tmp_path / str(i)) for i in range(3)]
    assert cli.run(["plot", *runs, f"--out={tmp_path / 'picture.png'}"]) == 0
    assert {label: [path.name for path in paths] for label, paths in drawn.items()} == {
        "soft_actor_critic": ["0", "1"],
        "twin_soft_actor_critic": ["2"],
    }


def test_a_path_may_begin_with_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    values, _ = parse("train", ["--run_dir=~/runs/one"])
    assert values.run_dir == f"{tmp_path}/runs/one"


CLOSING = """
import sys
import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

class Closing(PendulumEnv):
    def step(self, action):
        {act}
        return super().step(action)

gym.register("Closing-v0", Closing, max_episode_steps=5)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "status", "said"),
    [
        (
            "sys.stdout.close()",
            2,
            r"tfsac: Your own code closed or replaced sys\.stdout, .*; leave it open\. Received: a closed file\n",
        ),
        ("sys.stderr.close()", 0, ""),
        ("sys.stdout.close(); sys.stderr.close()", 2, r"tfsac: Your own code closed .* Received: a closed file\n"),
        ("sys.stdout = None", 0, ""),
        ("sys.stdout = object()", 0, ""),
    ],
)
def test_an_environment_that_closes_or_replaces_the_output_is_told(tmp_path, act, status, said):
    (tmp_path / "closing.py").write_text(CLOSING.format(act=act))
    line = [*TFSAC, "check", "--level=closing:Closing-v0", "--num_steps=10"]
    done = subprocess.run(line, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == status and re.fullmatch(said, done.stderr), done
    assert ("usable" in done.stdout) == (status == 0)


@pytest.mark.parametrize("stream", [None, object()])
def test_an_output_that_cannot_be_written_is_no_bug(monkeypatch, capfd, stream):
    def replace(values, rest):
        sys.stdout = stream
        return 0

    monkeypatch.setitem(cli.COMMANDS, "info", Command("", lambda f: None, replace))
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) as ended:
        cli.main(["info"])
    assert ended.value.code == 2
    assert re.fullmatch(
        r"tfsac: Your own code closed or replaced sys\.stdout, .* Received: (None|<object .*>)\n",
        capfd.readouterr().err,
    )


def test_a_warning_of_tfsac_itself_has_no_place_in_the_code():
    assert in_one_line("It never ends.", RuntimeWarning, cli.__file__, 3) == "tfsac: It never ends.\n"
    assert in_one_line("Mine.", UserWarning, __file__, 1).startswith(f"{__file__}:1: UserWarning: Mine.\n")
