"""Comparisons: statistics by hand, coverage of intervals by simulation, reading, tables, the picture, error texts."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pytest

from tfsac import cli
from tfsac.cli import grouping
from tfsac.errors import TfsacError
from tfsac.experiments import comparison, estimates
from tfsac.experiments.comparison import AGAINST, compare, compare_evaluations, curve
from tfsac.experiments.estimates import Estimate, estimate, improvement, iqm, mean, profile
from tfsac.experiments.evaluations import RunEvaluations, read_evaluations, read_groups, read_run

PENDULUM, CAR = "Pendulum-v1", "MountainCarContinuous-v0"


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a run directory with evaluations after 10, 20, ... steps and seconds."""

    def written(name, returns, level=PENDULUM, seconds=None, preset=None):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        content = preset or {"environment": {"level": level}}
        (folder / "config.json").write_text(json.dumps({"preset": content, "run": {}}))
        rows = [f"{10 * (i + 1)},{seconds[i] if seconds else i + 1},{value}" for i, value in enumerate(returns)]
        (folder / "metrics.csv").write_text("\n".join(["env_steps,wall_seconds,evaluation/return_mean", *rows]) + "\n")
        return folder

    return written


def scores(*values):
    return np.array(values, np.float64)


# -- statistics --------------------------------------------------------------------------------------------------------


def test_means_by_hand():
    # Of eight, two are cut at each end; of four, one; of three, none.
    assert iqm(scores(100, 1, 2, 3, 4, 5, 6, -100)) == (2 + 3 + 4 + 5) / 4
    assert iqm(scores(0, 10, 20, 90)) == 15.0
    assert iqm(scores(0, 10, 20)) == 10.0
    # Levels are pooled: one is cut at each end of all four together.
    assert iqm(scores(0, 10), scores(20, 90)) == 15.0
    assert mean(scores(0, 10), scores(20, 90)) == 30.0
    np.testing.assert_array_equal(iqm(np.array([[0.0, 1.0, 2.0, 9.0], [4.0, 4.0, 4.0, 4.0]])), [1.5, 4.0])


def test_the_probability_of_improvement_by_hand():
    # Pairs of {1, 3} over {2, 3}: 1 < 2, 1 < 3, 3 > 2, 3 = 3, so 1.5 of 4.
    assert improvement(scores(1, 3), scores(2, 3)) == 0.375
    assert improvement(scores(2, 3), scores(1, 3)) == 0.625
    assert improvement(scores(5), scores(5, 5, 5)) == 0.5
    # The mean of two levels: 0.375 and 1.
    assert improvement(scores(1, 3), scores(8, 9), scores(2, 3), scores(0, 1)) == 0.6875
    assert improvement(scores(1, 3)[:, None], scores(2, 3)[:, None], axis=0) == [0.375]


def test_the_profile_by_hand():
    taus = scores(0, 1, 1.5, 3)
    np.testing.assert_array_equal(profile([scores(1, 2), scores(2, 3)], taus), [1.0, 0.75, 0.75, 0.0])


def test_intervals_by_hand():
    # Resamples of {0, 2} have the means 0, 1, 1, 2 with equal weight.
    assert estimate(mean, [scores(0, 2)]) == (1.0, 0.0, 2.0)
    # Each level keeps its number of runs: {0, 0} and {2, 2} have one resample, pooled they would have the means 0 to 2.
    assert estimate(mean, [scores(0, 0), scores(2, 2)]) == (1.0, 1.0, 1.0)
    assert estimate(improvement, [scores(1, 2), scores(3, 4)]) == (0.0, 0.0, 0.0)
    assert estimate(iqm, [scores(1, 4, 2, 8)]) == estimate(iqm, [scores(1, 4, 2, 8)])


@pytest.mark.parametrize("strata", [[scores(3)], [scores(3, 3), scores(3)]])
def test_a_single_run_has_no_interval(strata):
    found = estimate(iqm, strata)
    assert found.value == 3.0 and np.isnan([found.low, found.high]).all()
    assert str(found) == "3.00" and str(Estimate(3.0, 1.0, 4.004)) == "3.00 [1.00, 4.00]"


@pytest.mark.parametrize("statistic", [mean, iqm])
def test_about_95_of_100_intervals_cover_the_truth(statistic, monkeypatch):
    monkeypatch.setattr(estimates, "RESAMPLES", 400)
    drawn = np.random.default_rng(0).normal(5.0, 2.0, (300, 2, 15))  # two levels with 15 runs each
    found = estimate(statistic, [drawn[:, 0], drawn[:, 1]])
    covered = ((found.low <= 5.0) & (found.high >= 5.0)).mean()
    # The deviation of a share of 300 is 0.013; percentile intervals of so few runs are a little too narrow.
    assert 0.89 <= covered <= 0.98
    assert (found.high - found.low).mean() == pytest.approx(2 * 1.96 * 2.0 / 30**0.5, rel=0.15)


def test_intervals_of_the_probability_cover_the_truth(monkeypatch):
    monkeypatch.setattr(estimates, "RESAMPLES", 400)
    random = np.random.default_rng(0)
    # P(X > Y) of two normals whose means are a deviation apart is Phi(1 / sqrt 2) = 0.760.
    found = estimate(improvement, [random.normal(1.0, 1.0, (300, 15)), random.normal(0.0, 1.0, (300, 15))])
    assert 0.89 <= ((found.low <= 0.760) & (found.high >= 0.760)).mean() <= 0.98


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_has_its_evaluations_against_steps_and_seconds(write):
    run = read_run(write("a", [1, 3, 2], seconds=[5, 7, 11]))
    assert run.level == PENDULUM and run.steps.tolist() == [10, 20, 30]
    assert run.seconds.tolist() == [5.0, 7.0, 11.0] and run.returns.tolist() == [1.0, 3.0, 2.0]
    # Trapezoids of 10 steps: (1 + 3) / 2 and (3 + 2) / 2, by 20 steps.
    assert (run.last, run.area(10, 30)) == (2.0, 2.25)
    assert run.area(15, 20) == 2.5 and run.area(15, 15) == 2.0
    assert read_run(write("b", [4])).area(10, 10) == 4.0


def test_a_score_is_the_mean_of_the_last_evaluations(write):
    run = write("a", [1, 3, 2, 7])
    assert [read_run(run, n).last for n in (1, 2, 4)] == [7.0, 4.5, 3.25]
    assert read_groups({"x": [run]}, 2)["x"][0].last == 4.5
    for n in (0, 5):
        with pytest.raises(ValueError, match=f"1 to as many .* Received: last_evaluations={n}, and 4 evaluations in "):
            read_run(run, n)


def test_one_level_has_raw_returns_and_several_are_normalised(write):
    runs = [write("a", [0, 10]), write("b", [5, 20])]
    assert [run.returns.tolist() for run in read_groups({"x": runs})["x"]] == [[0, 10], [5, 20]]
    others = [write("c", [-100, -50], CAR), write("d", [-100, -100], CAR)]
    read = read_groups({"x": [runs[0], others[0]], "y": [runs[1], others[1]]})
    assert [run.returns.tolist() for run in read["x"]] == [[0.0, 0.5], [0.0, 1.0]]
    assert [run.returns.tolist() for run in read["y"]] == [[0.25, 1.0], [0.0, 0.0]]


def test_curves_are_interpolated_where_all_runs_are():
    def run(steps, returns):
        return RunEvaluations(PENDULUM, np.array(steps), np.array(steps) * 2.0, np.array(returns, float))

    runs = [run([10, 20, 30], [0, 10, 20]), run([14, 26], [4, 4])]
    steps, found = curve(runs, AGAINST["steps"])
    assert (steps[0], steps[-1], len(steps)) == (14, 26, comparison.GRID)
    np.testing.assert_allclose(found.value, (steps - 10 + 4) / 2)
    np.testing.assert_allclose(found.low, np.minimum(steps - 10, 4))
    seconds, of_seconds = curve(runs, AGAINST["seconds"])
    np.testing.assert_allclose(seconds, 2 * steps)
    np.testing.assert_allclose(of_seconds.value, found.value)
    assert curve([run([10], [7])], AGAINST["steps"])[1].value.tolist() == [7.0]
    assert len(curve([run([10, 20], [0, 1]), run([30, 40], [0, 1])], AGAINST["steps"])[0]) == 0


def test_runs_of_one_curve_have_one_mean_over_steps_however_often_they_were_evaluated():
    def run(steps):
        return RunEvaluations(PENDULUM, np.array(steps), np.array(steps) * 1.0, -1000.0 / np.array(steps))

    groups = {"often": [run([10, 20, 30, 40])], "seldom": [run([20, 40])]}
    score = comparison.area_of(groups)
    # From 20 to 40, which both cover: trapezoids of -50, -33.3 and -25.
    assert score(groups["often"][0]) == pytest.approx(-(50 + 2 * 1000 / 30 + 25) / 4)
    assert score(groups["seldom"][0]) == -37.5
    assert "IQM over steps is over the steps that all runs of a level cover." in comparison.remarks(groups)
    apart = {"early": [run([10, 20])], "late": [run([30, 40])]}
    assert comparison.area_of(apart)(apart["early"][0]) == -75.0
    notes = comparison.remarks(apart)
    assert "All runs of Pendulum-v1 share no steps: their IQM over steps is over each run's own." in notes
    assert not any("all runs of a level cover" in note for note in notes)


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_the_table_of_two_groups_by_hand(write, tmp_path):
    groups = {"good": [write("a", [0, 4]), write("b", [0, 6])], "bad, one": [write("c", [0, 5])]}
    printed = compare(groups, tmp_path / "new" / "out").splitlines()
    with (tmp_path / "new" / "out" / "comparison.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["statistic", "group", "other", "runs", "value", "low", "high"],
            ["last_mean", "good", "", "2", "5", "4", "6"],
            ["last_mean", "bad, one", "", "1", "5", "", ""],
            ["last_iqm", "good", "", "2", "5", "4", "6"],
            ["last_iqm", "bad, one", "", "1", "5", "", ""],
            ["area_iqm", "good", "", "2", "2.5", "2", "3"],
            ["area_iqm", "bad, one", "", "1", "2.5", "", ""],
        ]
    assert printed[:3] == [
        "          runs       mean of last        IQM of last     IQM over steps",
        "good         2  5.00 [4.00, 6.00]  5.00 [4.00, 6.00]  2.50 [2.00, 3.00]",
        "bad, one     1               5.00               5.00               2.50",
    ]
    assert printed[3] == "No interval for a single run of a level: bad, one."  # and no probability
    out = tmp_path / "new" / "out"
    assert printed[4:] == [f"table   {out / 'comparison.csv'}", f"picture {out / 'comparison.png'}"]


def test_the_same_curve_twice_in_a_group_is_told(write, tmp_path):
    groups = {"twice": [write("a", [0, 4]), write("b", [0, 4])], "other": [write("c", [0, 4]), write("d", [1, 4])]}
    printed = compare(groups, tmp_path / "out")
    assert printed.count("has runs with equal returns in every evaluation: a training that is counted twice?") == 1
    assert "twice has runs with equal returns" in printed


def test_csv_files_are_compared_by_the_mean_of_their_last_evaluations(write, tmp_path):
    runs = [
        read_evaluations(write(name, returns) / "metrics.csv", "A level", 2)
        for name, returns in (("a", [9, 2, 4]), ("b", [9, 4, 8]))
    ]
    printed = compare_evaluations({"x": runs}, tmp_path / "out").splitlines()
    assert printed[1].count("4.50 [3.00, 6.00]") == 2
    assert "Last: the mean of the last 2 evaluations of a run." in printed


def test_the_flag_chooses_how_many_last_evaluations_count(write, tmp_path):
    runs = [write("a", [9, 2, 4]), write("b", [9, 4, 8])]
    for run in runs:
        (run / "policy").mkdir()
    for chosen, value in (([], "6"), (["--last_evaluations=2"], "4.5")):
        assert cli.run(["compare", f"x={runs[0]},{runs[1]}", f"--out={tmp_path}", *chosen]) == 0
        with (tmp_path / "comparison.csv").open(newline="") as file:
            assert next(row for row in csv.DictReader(file) if row["statistic"] == "last_mean")["value"] == value


@pytest.fixture
def figures(monkeypatch):
    """Returns a list that gets every figure instead of its file."""
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved


def test_what_is_drawn(write, tmp_path, figures):
    good = [write("a", [0, 4]), write("b", [0, 6])]
    compare(
        {"good": good, "bad": [write("c", [0, 1]), write("d", [0, 2])], "single": [write("e", [3])]}, tmp_path, "Title"
    )
    [figure] = figures
    steps, seconds, profiles, last, better = figure.axes
    assert figure.get_suptitle() == "Title"
    for axes, end in ((steps, 20), (seconds, 2)):
        assert [line.get_ydata()[-1] for line in axes.lines] == [5.0, 1.5, 3.0]
        assert axes.lines[0].get_xdata()[-1] == end
    assert [steps.get_xlabel(), seconds.get_xlabel()] == ["environment steps", "wall clock, seconds"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["good (2)", "bad (2)", "single (1)"]
    assert [(line.get_ydata()[0], line.get_ydata()[-1]) for line in profiles.lines] == [(1.0, 0.0)] * 2
    assert [text.get_text() for text in last.get_yticklabels()] == ["good", "bad"]  # single ends earlier
    assert list(last.lines[0].get_xdata()) == [4.0, 6.0] and last.lines[1].get_xdata() == [5.0]
    # Against the best: it has no row of its own.
    assert better.get_xlabel() == "probability of being better than good"
    assert [text.get_text() for text in better.get_yticklabels()] == ["bad"]
    assert better.lines[1].get_xdata()[0] == 0.0
    assert "different steps; all are from 10 to 20." in figure.get_supxlabel()
    assert "they end at other steps than most: 1 of single." in figure.get_supxlabel().replace("\n", " ")


def test_curves_of_runs_that_shared_a_machine_are_drawn_against_steps_alone(write, tmp_path, figures):
    read = read_groups({"x": [write("a", [0, 4]), write("b", [0, 6])], "y": [write("c", [1, 2]), write("d", [1, 3])]})
    compare_evaluations(read, tmp_path, wall_clock=False)
    labels = [axes.get_xlabel() for axes in figures[0].axes]
    assert labels[:2] == ["environment steps", "tau, last return"] and len(labels) == 4
    assert figures[0].axes[0].lines[0].get_xdata()[-1] == 20


def test_a_panel_without_common_seconds_says_so(write, tmp_path, figures):
    compare({"x": [write("a", [1], seconds=[5]), write("b", [2], seconds=[7])]}, tmp_path)
    assert [text.get_text() for text in figures[0].axes[1].texts] == ["no seconds that all runs of a group cover"]
    assert not figures[0].axes[0].texts


def test_runs_of_other_lengths_are_in_the_curves_and_in_no_lower_panel(write, tmp_path, figures):
    full = {name: [write(f"{name}{i}", [0, i, 2 * i]) for i in (1, 2)] for name in ("a", "b")}
    printed = compare({**full, "a": [*full["a"], write("short", [90])]}, tmp_path)
    assert "they end at other steps than most: 1 of a." in printed
    steps, _, profiles, last, better = figures[0].axes
    assert len(steps.lines) == 2 and all(line.get_xdata().max() < 5 for line in profiles.lines)
    assert list(last.lines[0].get_xdata()) == [2.0, 4.0]  # the interval of a's runs of full length
    assert better.lines[1].get_xdata()[0] == 0.5


def test_long_labels_have_numbers_in_the_panels(write, tmp_path, figures):
    long = "discount=0.98,learning_rate=0.001,batch_size=256"
    runs = {long: [write("a", [0, 4]), write("b", [0, 5])], "_short": [write("c", [0, 3]), write("d", [0, 2])]}
    compare(runs, tmp_path)
    legend, (*_, last, better) = figures[0].legends[0], figures[0].axes
    assert [text.get_text() for text in legend.get_texts()] == [f"(1) {long} (2)", "(2) _short (2)"]
    assert [text.get_text() for text in last.get_yticklabels()] == ["(1)", "(2)"]
    assert better.get_xlabel() == "probability of being better than (1)" and legend._ncols == 1


def test_a_label_with_an_underscore_is_in_the_legend(write, tmp_path, figures):
    compare({"_old": [write("a", [0, 4])], "new": [write("b", [0, 3])]}, tmp_path)
    assert [text.get_text().strip() for text in figures[0].legends[0].get_texts()] == ["_old (1)", "new (1)"]


def test_what_the_panel_of_seconds_leaves_out_is_told_too(write, tmp_path, figures):
    seconds = [1, *range(100, 1100, 100)]
    compare({"x": [write("a", [-4000, *range(10)], seconds=seconds)]}, tmp_path)
    note = figures[0].get_supxlabel()
    assert "up to step 20" in note and "up to second 101" in note


def test_one_group_has_no_probabilities_and_several_levels_say_how_they_are_normalised(write, tmp_path, figures):
    runs = [write("a", [0, 10]), write("b", [-100, -50], CAR)]
    printed = compare({"only": runs}, tmp_path)
    assert "better" not in printed and "0 is the lowest and 1 the highest evaluation" in printed
    [figure] = figures
    assert len(figure.axes) == 4 and figure.get_suptitle() == f"{PENDULUM}, {CAR}"
    assert figure.axes[0].get_ylabel() == "IQM of normalised return"
    assert "0 is the lowest and 1 the highest evaluation" in figure.get_supxlabel()


def test_the_picture_is_written_over_an_earlier_one(write, tmp_path):
    run = write("a", [0, 10])
    for _ in range(2):
        compare({"a": [run]}, tmp_path)
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, r"at least one group, and each group at least one run\. Received: {}$"),
        ({"x": []}, r"each group at least one run\. Received: {'x': \[\]}$"),
        ({"x": ["none"]}, r"no run directory: it has no config\.json\. Received: .*none$"),
        ({"x": ["text"]}, r"text.config\.json is not the config of a run .* Received: 1 bytes$"),
        ({"x": ["list"]}, r"is not the config of a run .* Received: 2 bytes$"),
        ({"x": ["new"]}, r"has no values yet in this column\. Received: column='evaluation/return_mean'$"),
        ({"x": ["bare"]}, r"run directory with metrics\.csv.* Received: "),
        ({"x": ["one", "one"]}, r"A group has each run once\. Received: 'x' with \['.*one', '.*one'\]$"),
        (
            {"x": ["one"], "y": ["car"]},
            r"cover the same levels .* Received: {'x': \['Pendulum-v1'\], 'y': \['MountainCar",
        ),
        ({"x": ["one", "car"], "y": ["one"]}, r"cover the same levels .* Received: {'x': \['MountainCar"),
    ],
)
def test_what_cannot_be_compared_is_named_and_nothing_is_written(write, tmp_path, groups, message):
    write("one", [1]), write("car", [1], CAR), write("new", []), write("text", [1]), write("list", [1])
    (tmp_path / "text" / "config.json").write_text("x")
    (tmp_path / "list" / "config.json").write_text("[]")
    (write("bare", [1]) / "metrics.csv").unlink()
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        compare({label: [tmp_path / name for name in names] for label, names in groups.items()}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def described(write):
    """Returns a function that writes a run of a preset."""
    from tfsac.catalog import load_preset
    from tfsac.parameters import for_level, override, to_json

    def written(name, preset="pendulum_sac", level=None, **changes):
        made = load_preset(preset)
        made = for_level(made, level) if level else made
        return write(
            name,
            [1],
            preset=to_json(override(made, {path.replace("__", "."): value for path, value in changes.items()})),
        )

    return written


def test_runs_are_grouped_by_what_differs_in_them(described):
    a, b = described("a"), described("b")
    assert grouping.by_difference([[a], [b]]) == {"soft_actor_critic": [a, b]}
    c = described("c", agent__algorithm__discount=0.98)
    assert grouping.by_difference([[a], [c], [b]]) == {"discount=0.99": [a, b], "discount=0.98": [c]}
    d = described("d", preset="pendulum_twin_sac")
    assert grouping.by_difference([[a], [d]]) == {"soft_actor_critic": [a], "twin_soft_actor_critic": [d]}
    e = described("e", level=CAR)
    assert grouping.by_difference([[a], [e]]) == {"soft_actor_critic": [a, e]}
    f = described("f", agent__algorithm__discount=0.98, environment__num_envs=2)
    labels = ["discount=0.99,num_envs=1", "discount=0.98,num_envs=1", "discount=0.98,num_envs=2"]
    assert list(grouping.by_difference([[a], [c], [f]])) == labels
    assert list(grouping.by_difference([[a], [f]])) == ["discount=0.99 and 1 more", "discount=0.98 and 1 more"]
    assert grouping.by_difference([]) == {}


def test_runs_that_began_with_weights_of_another_run_are_another_group(described):
    a, b, c = described("a"), described("b"), described("c")
    for run, source in ((a, None), (b, "/runs/mother"), (c, "/runs/mother")):
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**config, "initial_weights": source}))
    groups = {"initial_weights=none": [a], "initial_weights=/runs/mother": [b, c]}
    assert grouping.by_difference([[a], [b], [c]]) == groups
    before = described("before")  # configs did not say it
    assert grouping.by_difference([[a], [before]]) == {"soft_actor_critic": [a, before]}


def test_runs_of_another_precision_are_another_group(described):
    a, b, c = described("a"), described("b"), described("c")
    for run, parameters in ((b, {"mixed_precision": "bfloat16"}), (c, {"seed": 3, "tensorboard": False})):
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**config, "run": {**config["run"], **parameters}}))
    groups = {"mixed_precision=none": [a, c], "mixed_precision=bfloat16": [b]}
    assert grouping.by_difference([[a], [b], [c]]) == groups


def test_runs_in_environments_of_different_functions_are_different_groups(described):
    runs = [described(name, environment__level="env_fn:Pendulum-v1") for name in "abc"]
    for run, function in zip(runs, ("tasks.light", "tasks.heavy", "tasks.heavy"), strict=True):
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**config, "env_fn": function}))
    groups = {"env_fn=tasks.light": runs[:1], "env_fn=tasks.heavy": runs[1:]}
    assert grouping.by_difference([[run] for run in runs]) == groups


def test_a_preset_with_numbers_for_single_levels_is_one_experiment(described, tmp_path):
    levels, runs = ("Hopper-v5", "Ant-v5"), []
    for level in levels:  # with target entropies of their own
        runs.append(described(f"sweep/level={level}/seed0", preset="droq_mujoco", level=level))
        (runs[-1] / "policy").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text(
        json.dumps({"format": 1, "grid": [["level", list(levels)]], "first": {}})
    )
    assert grouping.groups_of([str(tmp_path / "sweep")]) == {"twin_soft_actor_critic": runs}
    more = described("more", levels__X={"agent.algorithm.discount": 0.5})
    assert grouping.by_difference([[described("a")], [more]]) == {"soft_actor_critic": [tmp_path / "a", more]}


def test_plots_have_a_curve_for_each_level(described, tmp_path, monkeypatch):
    from tfsac.experiments import plots

    drawn = []
    monkeypatch.setattr(plots, "plot_curves", lambda groups, out, title: drawn.append(groups))
    a, b, c = described("a"), described("b"), described("c", level=CAR)
    (other := tmp_path / "other").mkdir()  # of another library, without a config
    (other / "metrics.csv").write_bytes((a / "metrics.csv").read_bytes())
    assert grouping.by_level({"x": [other]}) == {"x": [other]}
    for words, labels in (([a, b], {"soft_actor_critic": [a, b]}), ([f"x={a},{b}"], {"x": [a, b]})):
        assert cli.run(["plot", *map(str, words), f"--out={tmp_path}/x.png"]) == 0
        assert drawn.pop() == labels
    assert cli.run(["plot", f"x={a},{c},{b}", f"--out={tmp_path}/x.png"]) == 0
    assert drawn.pop() == {f"x, {PENDULUM}": [a, b], f"x, {CAR}": [c]}


def test_dollars_in_labels_are_no_formulas(write, tmp_path):
    compare({"a=$x_$": [write("a", [1, 2])], "b=$y_$": [write("b", [3, 4])]}, tmp_path, "$level_$")
    assert (tmp_path / "comparison.png").stat().st_size > 10_000


def test_runs_that_differ_in_the_type_of_a_value_alone_are_two_groups(described):
    a, b, c = (
        described("a", environment__kwargs={"x": "1"}),
        described("b", environment__kwargs={"x": 1}),
        described("c"),
    )
    assert grouping.by_difference([[a], [b]]) == {'x="1"': [a], "x=1": [b]}
    assert len(grouping.by_difference([[a], [b], [c], [described("d", environment__kwargs={"x": None})]])) == 4


def test_custom_models_are_a_difference_with_the_name_of_their_function(described):
    a, b = described("a"), described("b", agent__networks__policy__middleware_parameters__scheme=[8])
    config = json.loads((b / "config.json").read_text())
    (b / "config.json").write_text(json.dumps(config | {"models": "__main__.wide"}))
    assert grouping.by_difference([[a], [b]]) == {"models=none and 1 more": [a], "models=wide and 1 more": [b]}


def test_words_name_groups_runs_and_sweeps(described, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["rate=1/seed0", "rate=1/seed1", "rate=2/seed0"]
    for name in ["run", *(f"sweep/{name}" for name in names)]:
        (described(name) / "policy").mkdir()
    grid = {"format": 1, "grid": [["a.rate", ["1", "2"]]], "first": {}}
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps(grid))
    one, two, three = (pathlib.Path("sweep") / name for name in names)
    run = pathlib.Path("run")
    assert grouping.groups_of(["sweep"]) == {"rate=1": [one, two], "rate=2": [three]}
    assert grouping.groups_of(["sweep", "run"]) == {
        "sweep rate=1": [one, two],
        "sweep rate=2": [three],
        "soft_actor_critic": [run],
    }
    assert grouping.groups_of(["x=run,sweep", "y=sweep/rate=1/seed0"]) == {"x": [run, one, two, three], "y": [one]}
    for words in (["x=run", "y=run", "x=sweep"], ["soft_actor_critic=sweep", "run"]):
        label = words[0].partition("=")[0]
        with pytest.raises(
            TfsacError,
            match=f"label '{label}'",
        ):
            grouping.groups_of(words)
    for words in (["sweep/rate=1"], ["x=sweep/rate=1"]):
        assert grouping.is_group(words[0]) and list(grouping.groups_of(words).values()) == [[one, two]]
    folder = "sweep/rate=1,discount=0.98"
    (described(f"{folder}/seed0") / "policy").mkdir()
    assert grouping.groups_of([f"x={folder},{folder}/seed0,run"]) == {
        "x": [pathlib.Path(folder, "seed0"), pathlib.Path(folder, "seed0"), run]
    }
    with pytest.raises(FileNotFoundError, match=r"Received: \S*sweep/rate=3,discount=0.98"):
        grouping.groups_of(["sweep/rate=3,discount=0.98"])
    shutil.rmtree(folder)
    # A path with an equals sign is a path.
    assert grouping.groups_of([f"sweep/{names[0]}"]) == {"soft_actor_critic": [one]}
    (two / "policy").rmdir(), (three / "policy").rmdir()
    with pytest.raises(ValueError, match=r"sweep/rate=2/seed0.*--resume"):
        grouping.refuse_unfinished(grouping.groups_of(["run", "sweep/rate=2/seed0"]))
    assert grouping.groups_of(["sweep"]) == {"rate=1": [one]}
    assert grouping.left_out(["sweep", "run"]) == [two, three] == grouping.left_out(["x=run,sweep"])
    assert grouping.left_out(["sweep/rate=1"]) == [two] and grouping.left_out(["run", str(one)]) == []
    assert grouping.groups_of(["sweep/rate=1"]) == {"soft_actor_critic": [one]}
    with pytest.raises(ValueError, match=r"^No run in this folder has finished\. Received: sweep/rate=2$"):
        grouping.groups_of(["sweep/rate=2"])
