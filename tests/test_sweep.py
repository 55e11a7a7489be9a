"""Sweeps: grids and names by hand, the processes with a stand-in for `tfsac train`, and once the real thing."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
import stand_in as stand_in_for_train
import tiny
from cli_tools import tree
from filelock import FileLock
from stand_in import kill_when, send_when, wait_for

from tfsac import cli
from tfsac.distributed import ray_cluster
from tfsac.errors import TfsacError
from tfsac.experiments import run_processes
from tfsac.experiments import sweep as sweeps
from tfsac.preset_lookup import read_config

DISCOUNT, RATE = "agent.algorithm.discount", "agent.networks.*.learning_rate"

# -- grids and names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.98, 0.99", ["0.98", "0.99"]),
        ("[64,64],[[1,2],[3]],{}", ["[64,64]", "[[1,2],[3]]", "{}"]),
        ('{"a":1,"b":[2,3]},null', ['{"a":1,"b":[2,3]}', "null"]),
        ("EnvironmentSteps(1),TrainingSteps(2)", ["EnvironmentSteps(1)", "TrainingSteps(2)"]),
    ],
)
def test_values_are_split_at_the_outer_commas(text, values):
    assert sweeps.split_values(text) == values


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([DISCOUNT, RATE], ["discount", "learning_rate"]),
        (["a.q.rate", "a.v.rate", "a.v.size"], ["q.rate", "v.rate", "size"]),
        (["a.*.rate", "a.q.rate"], ["all.rate", "q.rate"]),
    ],
)
def test_names_are_as_short_as_they_can_be(paths, names):
    assert list(sweeps.short_names(paths).values()) == names


def plan(*grid):
    return sweeps.plan(grid, ["level", "num_envs"], lambda flags: {"flags": flags})


def test_a_grid_is_every_combination_in_order():
    made = plan(f"{DISCOUNT}=0.98", f"{RATE}=1e-3,3e-4", "level=A/B-v1", f"{DISCOUNT}=.99e0")
    assert [c.name for c in made] == [
        "discount=0.98,learning_rate=0.001,level=A%2FB-v1",
        "discount=0.98,learning_rate=0.0003,level=A%2FB-v1",
        "discount=.99e0,learning_rate=0.001,level=A%2FB-v1",
        "discount=.99e0,learning_rate=0.0003,level=A%2FB-v1",
    ]
    assert made[1].flags == [f"--set={DISCOUNT}=0.98", f"--set={RATE}=0.0003", "--level=A/B-v1"]
    assert made[1].texts == {DISCOUNT: "0.98", RATE: "0.0003", "level": "A/B-v1"}
    assert made[1].experiment == {"flags": made[1].flags}
    [only] = plan()
    assert (only.name, only.texts, only.flags) == ("", {}, [])
    names = sweeps.combination_names({f"{i}{'long' * 7}": ["1", "2"] for i in range(9)})
    assert len({*names}) == 2**9 and max(map(len, names)) < 255  # a folder's name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("[64, 64],[128,128]", ["(64,64)", "(128,128)"]),
        ("../x,*", ["..%2Fx", "%2A"]),
        ("b,[" + "1," * 30 + "1]", ["b", "value2"]),
    ],
)
def test_values_in_names_are_short_and_fit_into_one_folder(values, words):
    assert [c.name for c in plan(f"a.b={values}")] == [f"b={word}" for word in words]


@pytest.mark.parametrize(
    ("grid", "message"), [("a.b", "PATH=VALUE"), ("seed=1,2", "level, num_envs"), ("a.b=[1],(1)", "must differ")]
)
def test_a_grid_that_cannot_be_understood_is_refused(grid, message):
    with pytest.raises(TfsacError, match=message):
        plan(grid)


# -- processes, with a stand-in for training ---------------------------------------------------------------------------


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    shutil.copy(stand_in_for_train.__file__, tmp_path / "train.py")
    monkeypatch.setattr(run_processes, "TRAIN", [str(tmp_path / "train.py")])
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tfsac.experiments.comparison.draw", lambda groups, rows, out, *rest: out.touch() or out)
    return tmp_path / "sweep"


def run(folder, *more, grid="0.2,0.9", seeds=2, command="sweep"):
    grids = [f"--grid={DISCOUNT}={grid}"] if grid else []
    jobs = [] if command == "train" or any("jobs" in flag or "ray" in flag for flag in more) else ["--jobs=1"]
    return cli.run(
        [command, f"--run_dir={folder}", f"--num_seeds={seeds}", "--seed=1", "--eager", *grids, *jobs, *more]
    )


def table(folder, statistic="last_mean"):
    """Returns the rows of a statistic of the comparison, without its name."""
    with (folder / "comparison.csv").open(newline="") as file:
        return [row[1:] for row in csv.reader(file) if row[0] == statistic]


def starts(folder):
    return {
        str(path.parent.relative_to(folder)): json.loads(path.read_text())["starts"]
        for path in sorted(folder.rglob("config.json"))
    }


ALL = [f"discount={discount}/seed{seed}" for discount in ("0.2", "0.9") for seed in (1, 2)]


def test_every_combination_and_seed_is_a_run_and_they_are_compared(stand_in, capsys):
    assert run(stand_in, seeds=1) == 0
    assert table(stand_in)[0] == ["discount=0.2", "", "1", "21", "", ""]
    capsys.readouterr()
    assert run(stand_in) == 0  # more seeds are added
    made = starts(stand_in)
    assert list(made) == ALL
    for name, [arguments] in made.items():
        discount, seed = re.findall(r"[\d.]+", name)
        expected = [f"--set={DISCOUNT}={discount}", f"--seed={seed}", f"--run_dir={stand_in / name}"]
        assert arguments == ["--eager", *expected]
        assert (stand_in / f"{name}.log").read_text().splitlines()[1:] == ["done"]
    assert table(stand_in) == [
        ["discount=0.2", "", "2", "21.5", "21", "22"],
        ["discount=0.9", "", "2", "91.5", "91", "92"],
    ]
    assert [row[3] for row in table(stand_in, "improvement")] == ["0", "1"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [f"{stand_in}: 2 of 4 runs are finished", f"started   {ALL[1]}"]
    assert printed[-2:] == [f"table   {stand_in / 'comparison.csv'}", f"figure  {stand_in / 'comparison.png'}"]

    before = tree(stand_in)
    for again in (lambda: run(stand_in), lambda: cli.run(["compare", str(stand_in)])):
        (stand_in / "comparison.csv").unlink()
        assert again() == 0
        assert tree(stand_in) == before


def test_a_signal_is_passed_on_and_the_same_command_continues(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("WAIT", "seed2")
    handler, number = signal.getsignal(signal.SIGTERM), signal.SIGTERM
    send_when(stand_in / ALL[1] / "waiting", number)
    assert run(stand_in) == 128 + number
    assert signal.getsignal(number) == handler
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == f"stopped   {ALL[1]}" and number.name in printed[-1] and f"{stand_in}" in printed[-1]
    assert list(starts(stand_in)) == ALL[:2] and not (stand_in / "comparison.csv").exists()
    finished = tree(stand_in / ALL[0])

    monkeypatch.delenv("WAIT")
    assert run(stand_in, "--level=Pendulum-v1", "--preset=pendulum_sac", "--num_envs=1") == 0
    made = starts(stand_in)
    assert {name: len(calls) for name, calls in made.items()} == dict(zip(ALL, [1, 2, 1, 1], strict=True))
    assert tree(stand_in / ALL[0]) == finished
    # What a resumed run has from its config is not given to it again.
    assert made[ALL[1]][1] == ["--eager", f"--set={DISCOUNT}=0.2", "--resume", f"--run_dir={stand_in / ALL[1]}"]
    assert "--level=Pendulum-v1" in made[ALL[2]][0] and "--num_envs=1" in made[ALL[2]][0]
    assert f"resumed   {ALL[1]}" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="a run ends with its parent on Linux")
@pytest.mark.slow
def test_a_killed_sweep_is_continued_by_the_same_command(stand_in):
    flags = [f"--run_dir={stand_in}", "--num_seeds=2", "--seed=1", "--eager", f"--grid={DISCOUNT}=0.2,0.9", "--jobs=1"]
    kill_when(stand_in / ALL[1] / "waiting", run_processes.TRAIN, ["sweep", *flags], WAIT="seed2")
    assert run(stand_in) == 0  # it waits for the run that the killed one left, which saves
    assert [len(calls) for calls in starts(stand_in).values()] == [1, 2, 1, 1]


def test_a_run_that_was_killed_in_its_first_file_starts_again(stand_in):
    folder = stand_in / "discount=0.5" / "seed1"
    folder.mkdir(parents=True)
    (folder / ".config.json.123").write_text("{")
    (folder / ".lock").touch()
    flags = [f"--set={DISCOUNT}=0.5", "--seed=1"]
    planned = run_processes.PlannedRun(folder, flags)
    assert planned.start(1).wait() == 0 and planned.finished and not (folder / ".config.json.123").exists()
    (other := folder.with_name("seed2")).mkdir()
    (other / "notes.txt").touch()
    assert run_processes.PlannedRun(other, flags).start(1).wait() and (other / "notes.txt").exists()


def test_several_jobs_run_at_the_same_time_and_share_the_cores(stand_in, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setenv("TOGETHER", "1")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "9")
    assert cli.run(["sweep", f"--run_dir={stand_in}", "--num_seeds=2", f"--set={DISCOUNT}=0.5"]) == 0  # a job a core
    threads = [json.loads(path.read_text())["threads"] for path in stand_in.rglob("config.json")]
    assert threads == [["1", "9"]] * 2


def test_a_failing_run_is_named_and_does_not_stop_the_others(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("BREAK", "seed1")
    assert run(stand_in, seeds=1) == 1
    assert "not compared: no run" in capsys.readouterr().out
    with pytest.raises(TfsacError, match="has finished"):
        cli.run(["compare", str(stand_in)])
    assert run(stand_in) == 1
    printed = capsys.readouterr().out
    for name in ALL[::2]:
        assert f"failed    {name}  status 1, see {stand_in / name}.log\n          tfsac: broken" in printed
    assert [row[2:] for row in table(stand_in)] == [["1", "22", "", ""], ["1", "92", "", ""]]
    # It left a folder without a checkpoint, so it begins again; its log goes on.
    monkeypatch.delenv("BREAK")
    assert run(stand_in) == 0
    assert {name: len(calls) for name, calls in starts(stand_in).items()} == dict.fromkeys(ALL, 1)


def test_without_a_folder_one_is_made_and_printed(stand_in, monkeypatch, capsys):
    monkeypatch.chdir(stand_in.parent)
    assert cli.run(["sweep", "--eager", f"--grid={DISCOUNT}=0.2"]) == 0
    [folder] = pathlib.Path("runs/pendulum_sac-Pendulum-v1").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}", folder.name)
    assert capsys.readouterr().out.startswith(f"{folder}: 0 of 1 runs are finished\n")


def test_a_folder_of_another_sweep_is_refused_and_stays_as_it_is(stand_in):
    run(stand_in, seeds=1)
    before = tree(stand_in)
    for more, grid, message in (([], "0.2,0.8", "grid"), (["--set=agent.memory.max_size=5000"], "0.2,0.9", "max_size")):
        with pytest.raises(TfsacError, match=message):
            run(stand_in, *more, grid=grid)
    assert tree(stand_in) == before
    (mine := stand_in.with_name("mine")).mkdir()
    (mine / "notes").touch()
    with pytest.raises(FileExistsError, match="empty folder"):
        run(mine)


def test_one_sweep_at_a_time_trains_in_a_folder_and_one_process_a_run(stand_in, monkeypatch):
    monkeypatch.setattr(ray_cluster, "LOCK_TIMEOUT", 0.0)
    run(stand_in, seeds=1)
    before = tree(stand_in)
    with FileLock(stand_in / ".lock"), pytest.raises(BlockingIOError, match="is being trained"):
        run(stand_in)
    assert tree(stand_in) == before
    (stand_in / ALL[3]).mkdir()
    with FileLock(stand_in / ALL[3] / ".lock"), pytest.raises(BlockingIOError, match=ALL[3]):
        run(stand_in)
    assert [path.name for path in (stand_in / ALL[3]).iterdir()] == [".lock"]


def test_several_seeds_of_train_are_a_sweep_without_a_grid(stand_in):
    exploration = '{\n  "noise_std": 0.1\n}'
    flags = [f"--set={DISCOUNT}=0.5", f"--set=agent.exploration={exploration}"]
    assert run(stand_in, *flags, grid=None, command="train") == 0
    assert list(starts(stand_in)) == ["seed1", "seed2"]
    assert f"--set=agent.exploration={exploration}" in starts(stand_in)["seed1"][0]
    assert table(stand_in) == [["soft_actor_critic", "", "2", "51.5", "51", "52"]]
    assert run(stand_in, *flags, grid=None) == 0
    assert {len(calls) for calls in starts(stand_in).values()} == {1}


# -- on a cluster, with the stand-in -----------------------------------------------------------------------------------


def control(folder, **variables):
    (folder.parent / "controls.json").write_text(json.dumps(variables))


@pytest.mark.acceptance
def test_a_cluster_trains_every_run_and_they_are_compared(stand_in, cluster, monkeypatch):
    monkeypatch.chdir(stand_in.parent)
    control(stand_in, BREAK="seed2")
    assert run("sweep", "--ray_address=auto") == 1
    made = starts(stand_in)
    assert list(made) == ALL and {len(calls) for calls in made.values()} == {1}
    described = json.loads((stand_in / ALL[0] / "config.json").read_text())
    assert described["threads"] == ["1", "1"] and described["parent"] != os.getpid()
    assert [row[2:4] for row in table(stand_in)] == [["1", "21"], ["1", "91"]]
    control(stand_in)
    assert run("sweep", "--ray_address=auto") == 0
    assert [row[2:4] for row in table(stand_in)] == [["2", "21.5"], ["2", "91.5"]]


# -- the real thing ----------------------------------------------------------------------------------------------------


@pytest.mark.acceptance
def test_a_real_sweep_that_was_stopped_goes_on_and_trains_nothing_again(tmp_path):
    changes = {**tiny.CHANGES, **tiny.SHORTER, "schedule.improve_steps": 400}
    flags = [f"--run_dir={tmp_path / 'sweep'}", "--seed=3", "--jobs=1", "--use_cpu", *tiny.assignments(changes)]
    command = [sys.executable, "-m", "tfsac", "sweep", f"--grid={DISCOUNT}=0.5,0.9", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first, second = (tmp_path / "sweep" / f"discount={discount}" / "seed3" for discount in (0.5, 0.9))
    wait_for(first / "policy")
    wait_for(second / "metrics.csv")
    process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM; " in process.communicate(timeout=120)[0] and process.returncode == 143
    before = tree(first)
    [entry] = (second / "checkpoints").glob("0*")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "resumed   discount=0.9/seed3\n" in done.stdout, done.stdout + done.stderr
    assert tree(first) == before and len(table(tmp_path / "sweep")) == 2
    resumed = json.loads((second / "config.json").read_text())["resumed"]
    assert [entry["env_steps"] for entry in resumed] == [int(entry.name)]
    for path, discount in ((first, 0.5), (second, 0.9)):
        preset, parameters = read_config(path / "config.json")
        assert (preset.agent.algorithm.discount, parameters.seed) == (discount, 3)
        assert [row["env_steps"] for row in tiny.rows(path)] == [str(step) for step in [*range(50, 440, 50), 440]]
