"""Comparisons: statistics and intervals, reading runs, tables, figures, and grouping."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pytest

from tfsac import cli
from tfsac.cli import groups_of_runs
from tfsac.errors import TfsacError
from tfsac.experiments import bootstrap
from tfsac.experiments.bootstrap import Estimate, combined, estimate, improvement, iqm, mean, profile
from tfsac.experiments.comparison import compare, compare_evaluations, remarks, statistics
from tfsac.experiments.learning_curves import RunEvaluations, read_groups, read_run
from tfsac.parameters import for_level, override, to_json
from tfsac.preset_lookup import load_preset

PENDULUM, CAR = "Pendulum-v1", "MountainCarContinuous-v0"


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a run folder with evaluations after 10, 20, ... steps and 1, 2, ... seconds."""

    def write_run(name, returns, level=PENDULUM, seconds=None, preset=None):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        content = preset or {"environment": {"level": level}}
        (folder / "config.json").write_text(json.dumps({"preset": content, "run": {}}))
        rows = [f"{10 * (i + 1)},{seconds[i] if seconds else i + 1},{value}" for i, value in enumerate(returns)]
        (folder / "metrics.csv").write_text("\n".join(["env_steps,wall_seconds,evaluation/return_mean", *rows]) + "\n")
        return folder

    return write_run


def scores(*values):
    return np.array(values, np.float64)


def test_statistics_match_hand_computation():
    # Of eight values, two are dropped at each end; of four, one; of three, none. Levels are pooled.
    assert iqm(scores(100, 1, 2, 3, 4, 5, 6, -100)) == (2 + 3 + 4 + 5) / 4
    assert iqm(scores(0, 10, 20, 90)) == iqm(scores(0, 10), scores(20, 90)) == 15.0
    assert iqm(scores(0, 10, 20)) == 10.0
    assert mean(scores(0, 10), scores(20, 90)) == 30.0
    np.testing.assert_array_equal(iqm(np.array([[0.0, 1.0, 2.0, 9.0], [4.0, 4.0, 4.0, 4.0]])), [1.5, 4.0])
    # Pairs of {1, 3} over {2, 3}: 1 < 2, 1 < 3, 3 > 2, 3 = 3, so 1.5 of 4.
    assert improvement(scores(1, 3), scores(2, 3)) == 0.375
    assert improvement(scores(5), scores(5, 5, 5)) == 0.5
    # The mean of two levels: 0.375 and 1.
    assert improvement(scores(1, 3), scores(8, 9), scores(2, 3), scores(0, 1)) == 0.6875
    assert improvement(scores(1, 3)[:, None], scores(2, 3)[:, None], axis=0) == [0.375]
    np.testing.assert_array_equal(profile([scores(1, 2), scores(2, 3)], scores(0, 1, 1.5, 3)), [1.0, 0.75, 0.75, 0.0])


def test_intervals_match_hand_computation():
    # Resamples of {0, 2} have the means 0, 1, 1, 2 with equal weight.
    assert estimate(mean, [scores(0, 2)]) == (1.0, 0.0, 2.0)
    # Resampling is stratified by level: {0, 0} and {2, 2} have one resample; pooled, their means would be 0 to 2.
    assert estimate(mean, [scores(0, 0), scores(2, 2)]) == (1.0, 1.0, 1.0)
    assert estimate(improvement, [scores(1, 2), scores(3, 4)]) == (0.0, 0.0, 0.0)
    assert estimate(iqm, [scores(1, 4, 2, 8)]) == estimate(iqm, [scores(1, 4, 2, 8)])


def test_single_run_has_no_interval():
    interval = estimate(iqm, [scores(3)])
    assert interval.value == 3.0 and np.isnan([interval.low, interval.high]).all()
    assert str(interval) == "3.00" and str(Estimate(3.0, 1.0, 4.004)) == "3.00 [1.00, 4.00]"


def test_curves_are_interpolated_over_common_steps():
    first, second = (np.array([10, 20, 40]), np.array([0.0, 10.0, 30.0])), (np.array([15, 30]), np.array([1.0, 4.0]))
    steps, estimates = combined([first, second], mean)
    assert steps.tolist() == [15, 20, 30] and estimates.value.tolist() == [3.0, 6.0, 12.0]
    assert estimates.low.tolist() == [1.0, 2.0, 4.0] and estimates.high.tolist() == [5.0, 10.0, 20.0]
    # Two levels with one run each have no interval. Curves have at most GRID points.
    many = np.arange(1000), np.arange(1000.0)
    steps, estimates = combined([many, (many[0], many[1] + 2)], iqm, ["A", "B"])
    assert len(steps) == bootstrap.GRID and np.isnan(estimates.low).all()
    np.testing.assert_allclose(estimates.value, steps + 1)
    assert len(combined([first, (np.array([50, 60]), np.zeros(2))], mean)[0]) == 0


def test_read_run_and_area_under_curve(write):
    run = read_run(write("a", [1, 3, 2], seconds=[5, 7, 11]))
    assert run.level == PENDULUM and run.steps.tolist() == [10, 20, 30]
    assert run.seconds.tolist() == [5.0, 7.0, 11.0] and run.returns.tolist() == [1.0, 3.0, 2.0]
    # Trapezoids of 10 steps: (1 + 3) / 2 and (3 + 2) / 2, by 20 steps.
    assert (run.last, run.area(10, 30)) == (2.0, 2.25)
    assert run.area(15, 20) == 2.5 and run.area(15, 15) == 2.0
    assert read_run(write("b", [4])).area(10, 10) == 4.0


def test_score_is_mean_of_last_evaluations(write):
    run = write("a", [1, 3, 2, 7])
    assert [read_run(run, n).last for n in (1, 2, 4)] == [7.0, 4.5, 3.25]
    assert [x.last for x in read_groups({"x": [run, run.parent / "." / "a"]}, 2)["x"]] == [4.5]  # duplicates count once
    with pytest.raises(TfsacError, match="last_evaluations"):
        read_run(run, 5)


def test_returns_are_normalised_for_several_levels_only(write):
    runs = [write("a", [0, 10]), write("b", [5, 20])]
    assert [run.returns.tolist() for run in read_groups({"x": runs})["x"]] == [[0, 10], [5, 20]]
    others = [write("c", [-100, -50], CAR), write("d", [-100, -100], CAR)]
    read = read_groups({"x": [runs[0], others[0]], "y": [runs[1], others[1]]})
    assert [run.returns.tolist() for run in read["x"]] == [[0.0, 0.5], [0.0, 1.0]]
    assert [run.returns.tolist() for run in read["y"]] == [[0.25, 1.0], [0.0, 0.0]]
    with pytest.raises(TfsacError, match="same levels"):
        read_groups({"x": [runs[0], others[0]], "y": [runs[1]]})


def test_area_uses_steps_common_to_all_runs_of_a_level():
    def run(steps):
        return RunEvaluations(PENDULUM, np.array(steps), np.array(steps) * 1.0, -1000.0 / np.array(steps))

    def areas(groups):
        return {row.group: row.estimate.value for row in statistics(groups) if row.statistic == "area_iqm"}

    groups = {"often": [run([10, 20, 30, 40])], "seldom": [run([20, 40])]}
    # Both cover 20 to 40: trapezoids of -50, -33.3 and -25.
    assert areas(groups) == {"often": pytest.approx(-(50 + 2 * 1000 / 30 + 25) / 4), "seldom": -37.5}
    apart = {"early": [run([10, 20])], "late": [run([30, 40])]}
    assert areas(apart)["early"] == -75.0
    assert any("different steps, from 20 to 40" in note for note in remarks(apart))


def test_tables_match_hand_computation(write, tmp_path, capsys):
    groups = {"good": [write("a", [0, 4]), write("b", [0, 6])], "bad, one": [write("c", [0, 5])]}
    out = tmp_path / "new" / "out"
    printed = compare(groups, out).splitlines()
    with (out / "comparison.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["statistic", "group", "other", "runs", "value", "low", "high"],
            ["last_mean", "good", "", "2", "5", "4", "6"],
            ["last_mean", "bad, one", "", "1", "5", "", ""],
            ["last_iqm", "good", "", "2", "5", "4", "6"],
            ["last_iqm", "bad, one", "", "1", "5", "", ""],
            ["area_iqm", "good", "", "2", "2.5", "2", "3"],
            ["area_iqm", "bad, one", "", "1", "2.5", "", ""],
        ]
    assert printed == [
        "          runs       mean of last        IQM of last     IQM over steps",
        "good         2  5.00 [4.00, 6.00]  5.00 [4.00, 6.00]  2.50 [2.00, 3.00]",
        "bad, one     1               5.00               5.00               2.50",  # no probability of improvement
        f"table   {out / 'comparison.csv'}",
        f"figure  {out / 'comparison.png'}",
    ]
    groups["bad, one"].append(write("d", [0, 5]))
    for run in [run for runs in groups.values() for run in runs]:
        (run / "policy").mkdir()
    words = [f"{label}={','.join(map(str, runs))}" for label, runs in groups.items()]
    assert cli.run(["compare", *words, f"--out={out}", "--last_evaluations=2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["good", "2", "2.50"]
    assert compare(groups, out).splitlines()[3:6] == [
        "better than                 (1)                (2)",
        "(1) good                      -  0.50 [0.00, 1.00]",
        "(2) bad, one  0.50 [0.00, 1.00]                  -",
    ]
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_figure_contents(write, tmp_path, figures):
    groups = {"good": [write("a", [0, 4]), write("b", [0, 6])], "_bad$": [write("c", [0, 1]), write("d", [0, 2])]}
    compare({**groups, "single": [write("e", [3])]}, tmp_path, "Title")
    steps, seconds, profiles, better = figures[0].axes
    assert figures[0].get_suptitle() == "Title"
    for axes, end in ((steps, 20), (seconds, 2)):
        assert [line.get_ydata()[-1] for line in axes.lines] == [5.0, 1.5, 3.0]
        assert axes.lines[0].get_xdata()[-1] == end
    labels = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert labels == ["(1) good (2)", r"(2) _bad\$ (2)", "(3) single (1)"]
    assert [(line.get_ydata()[0], line.get_ydata()[-1]) for line in profiles.lines] == [(1.0, 0.0)] * 3
    assert [text.get_text() for text in better.get_yticklabels()] == ["(2)"]  # against the best; not single runs
    assert better.lines[0].get_xdata() == [0.0]
    compare_evaluations(read_groups(groups), tmp_path, wall_clock=False)
    assert [axes.get_xlabel() for axes in figures[1].axes][:2] == ["environment steps", "tau, last return"]


def test_invalid_run_folder_is_reported_and_nothing_written(write, tmp_path):
    valid, new = write("valid", [1]), write("new", [])
    for other, error in ((tmp_path / "nowhere", FileNotFoundError), (new, TfsacError)):
        with pytest.raises(error, match=other.name):
            compare({"x": [valid], "y": [other]}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def write_preset_run(write):
    """Returns a function that writes a run of a preset."""

    def write_run(name, preset="pendulum_sac", level=None, **changes):
        experiment = load_preset(preset)
        experiment = for_level(experiment, level) if level else experiment
        experiment = override(experiment, {path.replace("__", "."): value for path, value in changes.items()})
        return write(name, [1], preset=to_json(experiment))

    return write_run


def test_runs_are_grouped_by_differing_parameters(write_preset_run):
    def labels(*runs):
        return groups_of_runs.by_difference([[run] for run in runs])

    a, b, d = write_preset_run("a"), write_preset_run("b"), write_preset_run("d", preset="pendulum_twin_sac")
    e = write_preset_run("e", level=CAR)
    assert labels(a, b) == {"soft_actor_critic": [a, b]} and labels(a, e) == {"soft_actor_critic": [a, e]}
    assert labels(a, d) == {"soft_actor_critic": [a], "twin_soft_actor_critic": [d]}
    c = write_preset_run("c", agent__algorithm__discount=0.98)
    assert labels(a, c, b) == {"discount=0.99": [a, b], "discount=0.98": [c]}
    f = write_preset_run("f", agent__algorithm__discount=0.98, environment__num_envs=2)
    assert [*labels(a, c, f)] == ["discount=0.99,num_envs=1", "discount=0.98,num_envs=1", "discount=0.98,num_envs=2"]
    much = {"schedule__improve_steps": 500, "schedule__evaluation_steps": "EnvironmentEpisodes(3)"}
    g = write_preset_run("g", agent__algorithm__discount=0.98, environment__num_envs=2, **much)
    assert [*labels(a, g)] == [str(a), str(g)]
    swimmer = write_preset_run("swimmer", preset="continuous", level="Swimmer-v5")  # has a level-specific discount
    far = write_preset_run("far", "continuous", "Swimmer-v5", agent__algorithm__discount=0.5)
    hopper = write_preset_run("h", "continuous")
    assert [*labels(hopper, swimmer, far).values()] == [[hopper, swimmer], [far]]
    x, y = write_preset_run("x", environment__kwargs={"x": "1"}), write_preset_run("y", environment__kwargs={"x": 1})
    assert labels(x, y) == {'x="1"': [x], "x=1": [y]}


@pytest.mark.parametrize(
    ("ours", "theirs", "labels"),
    [
        ({}, {"initial_weights": "/runs/mother"}, ["initial_weights=none", "initial_weights=/runs/mother"]),
        ({}, {"run": {"mixed_precision": "bfloat16"}}, ["mixed_precision=none", "mixed_precision=bfloat16"]),
        ({}, {"run": {"seed": 3, "tensorboard": False}}, ["soft_actor_critic"]),
        ({}, {"models": "__main__.wide"}, ["models=none", "models=wide"]),
        ({"env_fn": "tasks.light"}, {"env_fn": "tasks.heavy"}, ["env_fn=tasks.light", "env_fn=tasks.heavy"]),
    ],
)
def test_runs_are_grouped_by_config_outside_the_preset(write_preset_run, ours, theirs, labels):
    level = {"environment__level": "env_fn:Pendulum-v1"} if "env_fn" in ours else {}
    runs = [write_preset_run(name, **level) for name in "abc"]
    for run, more in zip(runs, (ours, theirs, theirs), strict=True):
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | more))
    groups = [runs[:1], runs[1:]] if len(labels) == 2 else [runs]
    assert groups_of_runs.by_difference([[run] for run in runs]) == dict(zip(labels, groups, strict=True))


def test_plots_have_a_curve_per_level(write_preset_run, tmp_path, monkeypatch):
    from tfsac.experiments import plots

    plotted = []
    monkeypatch.setattr(plots, "plot_curves", lambda groups, *rest: plotted.append(groups))
    a, b, c = write_preset_run("a"), write_preset_run("b"), write_preset_run("c", level=CAR)
    (other := tmp_path / "other").mkdir()  # another library's run has no config
    (other / "metrics.csv").write_bytes((a / "metrics.csv").read_bytes())
    labelled = {f"soft_actor_critic, {PENDULUM}": [a, b]}
    for words, labels in (([a, b], labelled), ([f"x={a},{b}", f"y={other}"], {f"x, {PENDULUM}": [a, b], "y": [other]})):
        assert cli.run(["plot", *map(str, words), f"--out={tmp_path}/x.png"]) == 0
        assert plotted.pop() == labels
    assert cli.run(["plot", f"x={a},{c},{b}", f"--out={tmp_path}/x.png"]) == 0
    assert plotted.pop() == {f"x, {PENDULUM}": [a, b], f"x, {CAR}": [c]}


def test_arguments_name_groups_runs_and_sweeps(write_preset_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ["rate=1/seed0", "rate=1/seed1", "rate=2/seed0"]
    for name in ["run", *(f"sweep/{name}" for name in names)]:
        (write_preset_run(name) / "policy").mkdir()
    grid = {"format": 1, "grid": [["a.rate", ["1", "2"]]], "first": {}}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(grid))
    one, two, three = (pathlib.Path("sweep") / name for name in names)
    run, sac = pathlib.Path("run"), "soft_actor_critic"
    for words, groups in {
        "sweep": {"rate=1": [one, two], "rate=2": [three]},
        "sweep run": {"sweep rate=1": [one, two], "sweep rate=2": [three], sac: [run]},
        "x=run,sweep y=sweep/rate=1/seed0": {"x": [run, one, two, three], "y": [one]},
        "sweep/rate=1": {sac: [one, two]},
        "x=sweep/rate=1": {"x": [one, two]},
        f"sweep/{names[0]}": {sac: [one]},  # a path with an equals sign is a path
    }.items():
        assert groups_of_runs.groups_of(words.split()) == groups
    for words in (["x=run", "y=run", "x=sweep"], [f"{sac}=sweep", "run"]):
        with pytest.raises(TfsacError, match=f"label '{words[0].partition('=')[0]}'"):
            groups_of_runs.groups_of(words)
    write_preset_run("mixed/seed0"), write_preset_run("mixed/seed1", agent__algorithm__discount=0.98)
    mixed = {"discount=0.99": [pathlib.Path("mixed/seed0")], "discount=0.98": [pathlib.Path("mixed/seed1")]}
    [(path / "policy").mkdir() for (path,) in mixed.values()]
    assert groups_of_runs.groups_of(["mixed"]) == mixed
    folder = "sweep/rate=1,discount=0.98"  # a comma within a path does not separate paths
    (write_preset_run(f"{folder}/seed0") / "policy").mkdir()
    assert groups_of_runs.groups_of([f"x={folder},run"]) == {"x": [pathlib.Path(folder, "seed0"), run]}
    shutil.rmtree(folder)
    (two / "policy").rmdir(), (three / "policy").rmdir()
    capsys.readouterr()
    assert groups_of_runs.groups_of(["sweep"]) == {"rate=1": [one]}
    assert capsys.readouterr().out == f"left out, not finished: {two}\nleft out, not finished: {three}\n"
    assert cli.run(["compare", "x=run", f"y={three}"]) == 0
    assert capsys.readouterr().out.startswith(f"not finished: {three}\n")
    with pytest.raises(ValueError, match="has finished"):
        groups_of_runs.groups_of(["sweep/rate=2"])
