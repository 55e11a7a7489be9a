"""Sweeps: grids, names and processes with a stand-in for `tfsac train`, and one real sweep."""

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
from cli_tools import folder_contents
from filelock import FileLock
from stand_in import kill_when, send_when, wait_for

from tfsac import cli
from tfsac.distributed import ray_cluster
from tfsac.errors import TfsacError
from tfsac.experiments import run_processes
from tfsac.experiments import sweep as sweeps
from tfsac.preset_lookup import read_config

DISCOUNT, RATE = "agent.algorithm.discount", "agent.networks.*.learning_rate"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.98, 0.99", ["0.98", "0.99"]),
        ("[64,64],[[1,2],[3]],{}", ["[64,64]", "[[1,2],[3]]", "{}"]),
        ('{"a":1,"b":[2,3]},null', ['{"a":1,"b":[2,3]}', "null"]),
        ("EnvironmentSteps(1),TrainingSteps(2)", ["EnvironmentSteps(1)", "TrainingSteps(2)"]),
    ],
)
def test_split_values(text, values):
    assert sweeps.split_values(text) == values


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([DISCOUNT, RATE], ["discount", "learning_rate"]),
        (["a.q.rate", "a.v.rate", "a.v.size"], ["q.rate", "v.rate", "size"]),
        (["a.*.rate", "a.q.rate"], ["all.rate", "q.rate"]),
    ],
)
def test_short_names(paths, names):
    assert list(sweeps.short_names(paths).values()) == names


def plan(*grid):
    return sweeps.plan(grid, ["level", "num_envs"], lambda flags: {"flags": flags})


def test_grid_is_every_combination_in_order():
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
    assert len({*names}) == 2**9 and max(map(len, names)) < 255  # folder names are at most 255 long


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("[64, 64],[128,128]", ["(64,64)", "(128,128)"]),
        ("../x,*", ["..%2Fx", "%2A"]),
        ("b,[" + "1," * 30 + "1]", ["b", "value2"]),
    ],
)
def test_values_in_folder_names(values, words):
    assert [c.name for c in plan(f"a.b={values}")] == [f"b={word}" for word in words]


@pytest.mark.parametrize(
    ("grid", "message"), [("a.b", "PATH=VALUE"), ("seed=1,2", "level, num_envs"), ("a.b=[1],(1)", "must differ")]
)
def test_invalid_grid_is_rejected(grid, message):
    with pytest.raises(TfsacError, match=message):
        plan(grid)


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
    """Returns the rows of one statistic in comparison.csv, without its name."""
    with (folder / "comparison.csv").open(newline="") as file:
        return [row[1:] for row in csv.reader(file) if row[0] == statistic]


def starts(folder):
    return {
        str(path.parent.relative_to(folder)): json.loads(path.read_text())["starts"]
        for path in sorted(folder.rglob("config.json"))
    }


ALL = [f"discount={discount}/seed{seed}" for discount in ("0.2", "0.9") for seed in (1, 2)]


def test_sweep_trains_and_compares_all_runs(stand_in, capsys):
    assert run(stand_in, seeds=1) == 0
    assert table(stand_in)[0] == ["discount=0.2", "", "1", "21", "", ""]
    capsys.readouterr()
    assert run(stand_in) == 0  # adds seeds
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

    before = folder_contents(stand_in)
    for repeat in (lambda: run(stand_in), lambda: cli.run(["compare", str(stand_in)])):
        (stand_in / "comparison.csv").unlink()
        assert repeat() == 0
        assert folder_contents(stand_in) == before


def test_interrupted_sweep_is_continued(stand_in, monkeypatch, capsys):
    monkeypatch.setenv("WAIT", "seed2")
    handler, number = signal.getsignal(signal.SIGTERM), signal.SIGTERM
    send_when(stand_in / ALL[1] / "waiting", number)
    assert run(stand_in) == 128 + number
    assert signal.getsignal(number) == handler
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == f"stopped   {ALL[1]}" and number.name in printed[-1] and f"{stand_in}" in printed[-1]
    assert list(starts(stand_in)) == ALL[:2] and not (stand_in / "comparison.csv").exists()
    finished = folder_contents(stand_in / ALL[0])

    monkeypatch.delenv("WAIT")
    assert run(stand_in, "--level=Pendulum-v1", "--preset=pendulum_sac", "--num_envs=1") == 0
    made = starts(stand_in)
    assert {name: len(calls) for name, calls in made.items()} == dict(zip(ALL, [1, 2, 1, 1], strict=True))
    assert folder_contents(stand_in / ALL[0]) == finished
    # A resumed run gets no flags that are in its config.
    assert made[ALL[1]][1] == ["--eager", f"--set={DISCOUNT}=0.2", "--resume", f"--run_dir={stand_in / ALL[1]}"]
    assert "--level=Pendulum-v1" in made[ALL[2]][0] and "--num_envs=1" in made[ALL[2]][0]
    assert f"resumed   {ALL[1]}" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="runs end with their parent only on Linux")
@pytest.mark.slow
def test_killed_sweep_is_continued(stand_in):
    flags = [f"--run_dir={stand_in}", "--num_seeds=2", "--seed=1", "--eager", f"--grid={DISCOUNT}=0.2,0.9", "--jobs=1"]
    kill_when(stand_in / ALL[1] / "waiting", run_processes.TRAIN, ["sweep", *flags], WAIT="seed2")
    assert run(stand_in) == 0  # waits for the run of the killed sweep, which saves
    assert [len(calls) for calls in starts(stand_in).values()] == [1, 2, 1, 1]


def test_run_killed_at_its_start_is_started_again(stand_in):
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


def test_jobs_run_in_parallel_and_share_the_cores(stand_in, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setenv("TOGETHER", "1")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "9")
    assert cli.run(["sweep", f"--run_dir={stand_in}", "--num_seeds=2", f"--set={DISCOUNT}=0.5"]) == 0
    threads = [json.loads(path.read_text())["threads"] for path in stand_in.rglob("config.json")]
    assert threads == [["1", "9"]] * 2


def test_failed_run_does_not_stop_the_others(stand_in, monkeypatch, capsys):
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
    # A failed run without a checkpoint starts again; its log is kept.
    monkeypatch.delenv("BREAK")
    assert run(stand_in) == 0
    assert {name: len(calls) for name, calls in starts(stand_in).items()} == dict.fromkeys(ALL, 1)


def test_default_folder_is_printed(stand_in, monkeypatch, capsys):
    monkeypatch.chdir(stand_in.parent)
    assert cli.run(["sweep", "--eager", f"--grid={DISCOUNT}=0.2"]) == 0
    [folder] = pathlib.Path("runs/pendulum_sac-Pendulum-v1").iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}", folder.name)
    assert capsys.readouterr().out.startswith(f"{folder}: 0 of 1 runs are finished\n")


def test_folder_of_another_sweep_is_rejected(stand_in):
    run(stand_in, seeds=1)
    before = folder_contents(stand_in)
    for more, grid, message in (([], "0.2,0.8", "grid"), (["--set=agent.memory.max_size=5000"], "0.2,0.9", "max_size")):
        with pytest.raises(TfsacError, match=message):
            run(stand_in, *more, grid=grid)
    assert folder_contents(stand_in) == before
    (other_folder := stand_in.with_name("mine")).mkdir()
    (other_folder / "notes").touch()
    with pytest.raises(FileExistsError, match="empty folder"):
        run(other_folder)


def test_sweeps_and_runs_are_locked(stand_in, monkeypatch):
    monkeypatch.setattr(ray_cluster, "LOCK_TIMEOUT", 0.0)
    run(stand_in, seeds=1)
    before = folder_contents(stand_in)
    with FileLock(stand_in / ".lock"), pytest.raises(BlockingIOError, match="is being trained"):
        run(stand_in)
    assert folder_contents(stand_in) == before
    (stand_in / ALL[3]).mkdir()
    with FileLock(stand_in / ALL[3] / ".lock"), pytest.raises(BlockingIOError, match=ALL[3]):
        run(stand_in)
    assert [path.name for path in (stand_in / ALL[3]).iterdir()] == [".lock"]


def test_train_with_several_seeds(stand_in):
    exploration = '{\n  "noise_std": 0.1\n}'
    flags = [f"--set={DISCOUNT}=0.5", f"--set=agent.exploration={exploration}"]
    assert run(stand_in, *flags, grid=None, command="train") == 0
    assert list(starts(stand_in)) == ["seed1", "seed2"]
    assert f"--set=agent.exploration={exploration}" in starts(stand_in)["seed1"][0]
    assert table(stand_in) == [["soft_actor_critic", "", "2", "51.5", "51", "52"]]
    assert run(stand_in, *flags, grid=None) == 0
    assert {len(calls) for calls in starts(stand_in).values()} == {1}


def control(folder, **variables):
    (folder.parent / "controls.json").write_text(json.dumps(variables))


@pytest.mark.acceptance
def test_sweep_on_a_cluster(stand_in, cluster, monkeypatch):
    monkeypatch.chdir(stand_in.parent)
    control(stand_in, BREAK="seed2")
    assert run("sweep", "--ray_address=auto") == 1
    made = starts(stand_in)
    assert list(made) == ALL and {len(calls) for calls in made.values()} == {1}
    config = json.loads((stand_in / ALL[0] / "config.json").read_text())
    assert config["threads"] == ["1", "1"] and config["parent"] != os.getpid()
    assert [row[2:4] for row in table(stand_in)] == [["1", "21"], ["1", "91"]]
    control(stand_in)
    assert run("sweep", "--ray_address=auto") == 0
    assert [row[2:4] for row in table(stand_in)] == [["2", "21.5"], ["2", "91.5"]]


@pytest.mark.acceptance
def test_real_sweep_is_continued(tmp_path):
    changes = {**tiny.CHANGES, **tiny.SHORTER, "schedule.improve_steps": 400}
    flags = [f"--run_dir={tmp_path / 'sweep'}", "--seed=3", "--jobs=1", "--use_cpu", *tiny.assignments(changes)]
    command = [sys.executable, "-m", "tfsac", "sweep", f"--grid={DISCOUNT}=0.5,0.9", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first, second = (tmp_path / "sweep" / f"discount={discount}" / "seed3" for discount in (0.5, 0.9))
    wait_for(first / "policy")
    wait_for(second / "metrics.csv")
    process.send_signal(signal.SIGTERM)
    assert "stopped by SIGTERM; " in process.communicate(timeout=120)[0] and process.returncode == 143
    before = folder_contents(first)
    [entry] = (second / "checkpoints").glob("0*")
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0 and "resumed   discount=0.9/seed3\n" in result.stdout, result.stdout + result.stderr
    assert folder_contents(first) == before and len(table(tmp_path / "sweep")) == 2
    resumed = json.loads((second / "config.json").read_text())["resumed"]
    assert [entry["env_steps"] for entry in resumed] == [int(entry.name)]
    for path, discount in ((first, 0.5), (second, 0.9)):
        preset, parameters = read_config(path / "config.json")
        assert (preset.agent.algorithm.discount, parameters.seed) == (discount, 3)
        assert [row["env_steps"] for row in tiny.rows(path)] == [str(step) for step in [*range(50, 440, 50), 440]]


def test_resumed_run_leaves_out_fixed_flags(monkeypatch, tmp_path):
    monkeypatch.setattr(run_processes.PlannedRun, "interrupted", True)
    run = run_processes.PlannedRun(tmp_path, ["--restore_memory", "--noquiet", "--seed=1", "--eager"])
    assert run._flags_to_continue() == ["--noquiet", "--eager", "--resume"]
