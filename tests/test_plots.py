"""Learning curves and action plots."""

import numpy as np
import pytest

from tfsac.errors import TfsacError
from tfsac.experiments.plots import plot_actions, plot_curves, plot_run, read_curve, trained_evaluations

HEADER = "env_steps,updates,training/return_mean,evaluation/return_mean,evaluation/return_min,evaluation/return_max"
ROWS = ["1000,0,-5,,,", "2000,1000,-4.5,-4,-6,-2", "3000,2000,,,,", "4000,3000,-3,-2.5,-3,-2"]


@pytest.fixture
def run(tmp_path):
    """Returns a function that writes a run directory."""

    def write(name="run", rows=ROWS, header=HEADER):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
        return directory

    return write


def curve_rows(values, every=1000):
    return [f"{(i + 1) * every},0,,{value},{value - 1},{value + 1}" for i, value in enumerate(values)]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def note(figure):
    return figure.legends[0].get_title().get_text()


def test_read_curve(run):
    directory = run()
    steps, values = read_curve(directory)
    assert steps.tolist() == [2000, 4000] and values.tolist() == [-4.0, -2.5]
    steps, values = read_curve(directory / "metrics.csv", "training/return_mean")
    assert steps.tolist() == [1000, 2000, 4000] and values.tolist() == [-5.0, -4.5, -3.0]
    # Repeated steps and a partial line.
    steps, values = read_curve(run("resumed", rows=[*ROWS, "2000,1000,,-7,-8,-6", "5000,40"]))
    assert steps.tolist() == [2000, 4000] and values.tolist() == [-7.0, -2.5]
    recent = run("recent", ["10,1", "20,2"], "env_steps,training/recent_return_mean")  # no evaluation columns
    assert read_curve(recent)[1].tolist() == [1.0, 2.0]


def test_trained_evaluations_start_after_the_first_update(run):
    warm_up = ["500,0,,9,9,9", "1000,0,,8,8,8"]
    steps, returns = trained_evaluations(run(rows=[*warm_up, "1500,1,,1,1,1", "2000,5,,2,2,2"]))
    assert steps.tolist() == [1500, 2000] and returns.tolist() == [1.0, 2.0]
    with pytest.raises(TfsacError, match="after an update"):
        trained_evaluations(run("untrained", warm_up))


@pytest.mark.parametrize(("cell", "message"), [("many", "numbers"), ("", "no values")])
def test_read_curve_errors(run, cell, message):
    with pytest.raises(TfsacError, match=message):
        read_curve(run(rows=[f"1000,{cell}"], header="env_steps,q/q2"), "q/q2")


def test_plot_curves_with_labels_and_seeds(run, figures, tmp_path):
    runs = [run("a", curve_rows([0, 2, 4])), run("b", curve_rows([2, 4, 12]))]
    out = plot_curves({"both": [*runs, runs[0]], "_one$": [runs[0]]}, tmp_path / "new" / "x.png", "Title")
    assert out == tmp_path / "new" / "x.png" and out.exists()
    (axes,) = figures[0].axes
    drawn = [list(line.get_ydata()) for line in axes.lines]
    assert drawn == [[0, 2, 4], [2, 4, 12], [1, 3, 8], [0, 2, 4]]  # duplicates count once
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band.tolist()} >= {(1000, 0), (1000, 2), (3000, 4), (3000, 12)}
    assert legend(figures[0]) == ["both (2 seeds)", r" _one\$"] and note(figures[0]).startswith("band: 95 %")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "mean return of an evaluation")
    assert axes.get_title(loc="left") == "Title"


def test_plot_run(run, figures, tmp_path):
    directory = run("c")
    assert plot_run(directory) == directory / "learning_curve.png"
    (directory / "config.json").write_text('{"preset": {"environment": {"level": "L-v0"}, "agent": {"kind": "sac"}}}')
    assert plot_run(directory / "metrics.csv", tmp_path / "y.png") == tmp_path / "y.png"
    plot_run(directory, tmp_path / "y.png", "Other title")
    titles = [figure.axes[0].get_title(loc="left") for figure in figures]
    assert titles == ["c", "L-v0, sac, c", "Other title"]
    (axes,) = figures[0].axes
    training, evaluation = axes.lines
    assert list(training.get_xdata()) == [1000, 2000, 4000] and list(training.get_ydata()) == [-5.0, -4.5, -3.0]
    assert list(evaluation.get_xdata()) == [2000, 4000] and list(evaluation.get_ydata()) == [-4.0, -2.5]
    band = axes.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band.tolist()} == {(2000, -6), (2000, -2), (4000, -3), (4000, -2)}


def shaded(axes):
    """Returns the shaded intervals of steps."""
    spans = [
        path.vertices[:, 0] for collection in axes.collections for path in collection.get_paths() if len(path.vertices)
    ]
    return sorted((span.min(), span.max()) for span in spans)


def test_plot_actions_with_switches(figures, tmp_path):
    actions = np.array([[0.5, -1.0], [0.5, -1.0], [0.1, 2.0], [0.3, 2.0], [0.3, 2.0]])
    plot_actions(actions, tmp_path / "a.png", np.array([True, False, True, False, False]), "Title")
    (figure,) = figures
    assert len(figure.axes) == 2 and figure.axes[0].get_title(loc="left") == "Title"
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "step of the episode"]
    for i, axes in enumerate(figure.axes):
        line, dots = axes.lines
        assert axes.get_ylabel() == f"action {i}"
        assert list(line.get_xdata()) == [0, 1, 2, 3, 4] and list(line.get_ydata()) == list(actions[:, i])
        assert line.get_drawstyle() == "steps-post"  # an action is held until the next step
        assert list(dots.get_xdata()) == [0, 2] and list(dots.get_ydata()) == list(actions[[0, 2], i])
        assert shaded(axes) == [(1, 2), (3, 5)]
    assert legend(figure) == ["action", "new trajectory"] and note(figure).startswith("2 new trajectories in 5 steps")


def test_plot_actions_without_switches(figures, tmp_path):
    for actions, rows in ((np.array([1, 0, 2]), 1), (np.zeros((3, 2), int), 2), (np.zeros((3, 2, 2)), 4)):
        plot_actions(actions, tmp_path / "a.png")
        axes = figures[-1].axes
        assert len(axes) == rows and all(len(axis.lines) == 1 and not axis.collections for axis in axes)
    assert list(figures[0].axes[0].lines[0].get_ydata()) == [1, 0, 2]
