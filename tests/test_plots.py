"""Learning curves: hand numbers, intervals, pictures, error texts."""

import subprocess
import sys

import numpy as np
import pytest

from tfsac.experiments.figures import new_figure, save_figure
from tfsac.experiments.plots import interval, plot_actions, plot_curves, plot_run, read_curve

HEADER = "env_steps,updates,training/return_mean,evaluation/return_mean,evaluation/return_min,evaluation/return_max"
ROWS = ["1000,0,-5,,,", "2000,1000,-4.5,-4,-6,-2", "3000,2000,,,,", "4000,3000,-3,-2.5,-3,-2"]
PNG = b"\x89PNG\r\n\x1a\n"


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


def pixels(path):
    from matplotlib.image import imread

    return imread(path)


def test_a_curve_has_the_rows_in_which_its_column_is_not_empty(run):
    directory = run()
    steps, values = read_curve(directory)
    assert steps.tolist() == [2000, 4000] and values.tolist() == [-4.0, -2.5]
    steps, values = read_curve(directory / "metrics.csv", "training/return_mean")
    assert steps.tolist() == [1000, 2000, 4000] and values.tolist() == [-5.0, -4.5, -3.0]


def test_of_repeated_steps_the_last_counts_and_a_torn_row_is_left_out(run):
    directory = run(rows=[*ROWS, "2000,1000,,-7,-8,-6", "5000,40"])
    steps, values = read_curve(directory)
    assert steps.tolist() == [2000, 4000] and values.tolist() == [-7.0, -2.5]


def test_one_seed_has_no_interval():
    steps, mean, low, high = interval([(np.array([1, 2]), np.array([3.0, 5.0]))])
    assert steps.tolist() == [1, 2]
    assert mean.tolist() == low.tolist() == high.tolist() == [3.0, 5.0]


def test_mean_and_interval_of_two_seeds_by_hand():
    # Resamples of {0, 2} have the means 0, 1, 1, 2 with equal weight, so the middle 95 % reach from 0 to 2 and the
    # middle 40 % are 1.
    curves = [(np.array([10]), np.array([0.0])), (np.array([10]), np.array([2.0]))]
    for confidence, expected in ((0.95, (0.0, 2.0)), (0.4, (1.0, 1.0))):
        steps, mean, low, high = interval(curves, confidence)
        assert (steps[0], mean[0]) == (10, 1.0)
        assert (low[0], high[0]) == expected


def test_curves_of_other_steps_are_interpolated_where_they_overlap():
    one, other = (np.array([10, 20, 40]), np.array([0.0, 10.0, 30.0])), (np.array([15, 30]), np.array([1.0, 4.0]))
    steps, mean, _, _ = interval([one, other])
    assert steps.tolist() == [15, 20, 30] and mean.tolist() == [3.0, 6.0, 12.0]


def test_curves_are_cut_to_common_steps():
    long = np.array([1, 2, 3, 4]), np.array([1.0, 2.0, 3.0, 4.0])
    short = np.array([2, 3]), np.array([4.0, 5.0])
    steps, mean, _, _ = interval([long, short])
    assert steps.tolist() == [2, 3] and mean.tolist() == [3.0, 4.0]


def test_the_interval_holds_the_mean_shrinks_with_seeds_and_widens_with_confidence():
    values = np.random.default_rng(0).normal(100.0, 10.0, (64, 5))
    curves = [(np.arange(5), row) for row in values]

    def width(number, confidence=0.95):
        _, mean, low, high = interval(curves[:number], confidence)
        assert (low < mean).all() and (mean < high).all()
        return (high - low).mean()

    assert width(64) < 0.6 * width(8)
    assert width(8, 0.5) < width(8, 0.95)
    # Two deviations of the mean of 64 to each side.
    assert width(64) == pytest.approx(2 * 1.96 * 10.0 / 8.0, rel=0.2)
    assert all(np.array_equal(a, b) for a, b in zip(interval(curves[:8]), interval(curves[:8]), strict=True))


def test_plots_of_several_labels_and_seeds(run, tmp_path):
    slow = [run(f"slow{i}", curve_rows([i, i + 1, i + 2])) for i in range(3)]
    fast = [run("fast", curve_rows([5, 20, 40, 50]))]
    out = plot_curves({"slow": slow, "fast": fast}, tmp_path / "new" / "plot.png", "Level", smooth=2, threshold=45.0)
    assert out == tmp_path / "new" / "plot.png"
    assert out.read_bytes().startswith(PNG) and 5_000 < out.stat().st_size < 200_000
    height, width, _ = pixels(out).shape
    assert (height, width) == (440, 720)


def test_dollars_are_no_formulas(run, tmp_path):
    runs = [run("${NAME}_${SEED}", curve_rows([0, 2, 4])), run("b$", curve_rows([2, 4, 12]))]
    assert plot_run(runs[0]).read_bytes().startswith(PNG)
    assert plot_curves({"a=$x_$": runs}, tmp_path / "x.png", r"$\nothing$").read_bytes().startswith(PNG)


def test_a_long_note_is_wrapped_within_the_picture(tmp_path):
    figure = new_figure(6, 2)
    save_figure(figure, tmp_path / "wrapped.png", "\n".join(["a short line", "word " * 100]))
    lines = figure.get_supxlabel().splitlines()
    assert lines[0] == "a short line"
    assert " ".join(lines[1:]).split() == ["word"] * 100
    note = figure._supxlabel.get_window_extent(figure.canvas.get_renderer())
    assert note.x0 > 0
    assert 0.5 * figure.bbox.width < note.width < figure.bbox.width


def test_what_is_drawn(run, monkeypatch, tmp_path):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: drawn.append(figure.axes[0]))
    runs = [run("a", curve_rows([0, 2, 4])), run("b", curve_rows([2, 4, 12]))]
    plot_curves({"both": runs}, tmp_path / "x.png", "Title", smooth=2, threshold=3.0)
    seeds_and_mean = [line.get_ydata() for line in drawn[0].lines]
    np.testing.assert_allclose(seeds_and_mean[0], [0, 1, 3])
    np.testing.assert_allclose(seeds_and_mean[1], [2, 3, 8])
    np.testing.assert_allclose(seeds_and_mean[2], [1, 2, 5.5])
    assert list(seeds_and_mean[3]) == [3.0, 3.0]
    assert [text.get_text() for text in drawn[0].figure.legends[0].get_texts()] == ["both (2 seeds)", "threshold 3"]
    assert drawn[0].get_xlabel() == "environment steps"
    assert drawn[0].get_ylabel() == "mean return of an evaluation"

    plot_run(directory := run("c"))
    plot_run(directory, tmp_path / "y.png", "Other title")
    assert [axes.get_title(loc="left") for axes in drawn[1:]] == ["c", "Other title"]
    training, evaluation = drawn[1].lines
    assert list(training.get_xdata()) == [1000, 2000, 4000] and list(training.get_ydata()) == [-5.0, -4.5, -3.0]
    assert list(evaluation.get_xdata()) == [2000, 4000] and list(evaluation.get_ydata()) == [-4.0, -2.5]
    band = drawn[1].collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band.tolist()} == {(2000, -6), (2000, -2), (4000, -3), (4000, -2)}


@pytest.fixture
def figures(monkeypatch):
    """Returns a list that gets every figure instead of its file."""
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved


@pytest.mark.parametrize("first, limited", [(-4000, True), (-4, False)])
def test_first_values_far_outside_do_not_flatten_a_curve(run, figures, tmp_path, first, limited):
    values = [first, -4, -5, -3, -2, -1, 0, 1, 2, 3, 4]
    plot_curves({"one": [run("a", curve_rows(values))]}, tmp_path / "x.png")
    plot_run(run("b", curve_rows(values)), tmp_path / "y.png")
    for figure, lowest in zip(figures, (-5, -6), strict=True):  # of the values, and of the band
        low, high = figure.axes[0].get_ylim()
        assert low < lowest and high > 4
        assert low > (-10 if limited else 2 * first)
        assert ("outside: values from" in figure.legends[0].get_title().get_text()) == limited


def test_a_curve_that_ends_early_stays_in_the_picture(run, figures, tmp_path):
    long, short = run("long", curve_rows([-4000, *range(30)])), run("short", curve_rows([-4000, -3990]))
    plot_curves({"long": [long], "short": [short]}, tmp_path / "x.png")
    assert figures[0].axes[0].get_ylim()[0] < -4000


def test_the_threshold_stays_in_a_picture_whose_first_values_do_not(run, figures, tmp_path):
    plot_curves({"one": [run("a", curve_rows([-4000, *range(11)]))]}, tmp_path / "x.png", threshold=100.0)
    low, high = figures[0].axes[0].get_ylim()
    assert low > -20 and high > 100


def test_the_actions_of_an_episode_are_drawn_one_below_the_other(figures, tmp_path):
    actions = np.array([[0.5, -1.0], [0.5, -1.0], [0.1, 2.0], [0.3, 2.0]])
    switched = np.array([True, False, True, False])
    assert plot_actions(actions, tmp_path / "new" / "a.png", switched, "Title") == tmp_path / "new" / "a.png"
    (figure,) = figures
    assert len(figure.axes) == 2 and figure.axes[0].get_title(loc="left") == "Title"
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "step of the episode"]
    for i, axes in enumerate(figure.axes):
        line, dots = axes.lines
        assert axes.get_ylabel() == f"action {i}"
        assert list(line.get_xdata()) == [0, 1, 2, 3] and list(line.get_ydata()) == list(actions[:, i])
        # An action is held until the next step.
        assert line.get_drawstyle() == "steps-post"
        assert list(dots.get_xdata()) == [0, 2] and list(dots.get_ydata()) == list(actions[[0, 2], i])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["action", "new trajectory"]
    assert (
        figure.legends[0].get_title().get_text() == "2 new trajectories in 4 steps; shaded: the one before is repeated"
    )


def shaded(axes):
    """Returns where a picture is shaded, as intervals of steps."""
    spans = [
        path.vertices[:, 0] for collection in axes.collections for path in collection.get_paths() if len(path.vertices)
    ]
    return sorted((span.min(), span.max()) for span in spans)


def test_what_follows_a_kept_step_is_shaded(figures, tmp_path):
    actions, switched = np.arange(6.0)[:, None], np.array([True, False, True, False, False, True])
    plot_actions(actions, tmp_path / "a.png", switched)
    # The actions of steps 1, 3 and 4 are held until 2 and 5.
    assert shaded(figures[0].axes[0]) == [(1, 2), (3, 5)]


def test_choices_teams_and_policies_without_switches_are_drawn_without_dots(figures, tmp_path):
    for actions, rows in ((np.array([1, 0, 2]), 1), (np.zeros((3, 2), int), 2), (np.zeros((3, 2, 2)), 4)):
        plot_actions(actions, tmp_path / "a.png")
        axes = figures[-1].axes
        assert len(axes) == rows and all(len(axis.lines) == 1 and not axis.collections for axis in axes)
        assert figures[-1].get_supxlabel() == ""
    assert list(figures[0].axes[0].lines[0].get_ydata()) == [1, 0, 2]


def test_a_picture_of_actions_grows_with_their_number(tmp_path):
    for size, height in ((1, 440), (3, 700)):
        out = plot_actions(
            np.random.default_rng(0).uniform(-1, 1, (50, size)), tmp_path / "a.png", np.arange(50) % 3 == 0
        )
        assert out.read_bytes().startswith(PNG) and pixels(out).shape[:2] == (height, 720)


@pytest.mark.parametrize(
    ("steps", "switched", "received"), [(0, None, r"\(0, None\)"), (3, [True], r"\(3, 1\)"), (1, [], r"\(1, 0\)")]
)
def test_actions_without_steps_or_with_other_switches_are_refused(tmp_path, steps, switched, received):
    with pytest.raises(
        ValueError, match=rf"at least one step, and each tells whether it switched\. Received: {received}$"
    ):
        plot_actions(np.zeros((steps, 1)), tmp_path / "a.png", None if switched is None else np.array(switched, bool))
    assert not list(tmp_path.iterdir())


def test_a_run_is_plotted_beside_its_metrics(run, tmp_path):
    directory = run()
    out = plot_run(directory)
    assert out == directory / "learning_curve.png"
    assert out.read_bytes().startswith(PNG) and out.stat().st_size > 5_000
    assert (pixels(out)[:, :, :3].min(axis=2) < 0.9).mean() > 0.01
    elsewhere = plot_run(directory / "metrics.csv", tmp_path / "other.png")
    assert elsewhere.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("rows", [["1000,0,-5,,,", "2000,0,-4,,,"], curve_rows([1, 2])])
def test_a_run_with_only_training_or_only_evaluations_is_plotted(run, rows):
    assert plot_run(run(rows=rows)).stat().st_size > 5_000


@pytest.mark.parametrize(
    ("path", "column", "message"),
    [
        ("nowhere", "updates", r"run directory with metrics.csv, or a CSV file. Received: '.*nowhere'"),
        ("empty", "updates", r"and there is no '.*metrics.csv'$"),
        ("run", "evaluation/return", r"Did you mean 'evaluation/return_m\w+'\? Received: column='evaluation/return'$"),
        ("run", "evaluation/entropy", r"It has evaluation/return_mean, .*\. Received: column='evaluation/entropy'$"),
        ("run", "zzz", r"has no column of this name. Received: column='zzz'$"),
        ("steps", "updates", r"has no column of this name. Received: column='env_steps'$"),
        ("header", "updates", r"has no values yet in this column. Received: column='updates'$"),
        ("blank", "updates", r"has no column of this name. Received: column='env_steps'$"),
        (
            "words",
            "updates",
            r"must hold finite numbers in \['updates'\], and numbers from 0 in env_steps. Received: \['1000', "
            r"'many'\]$",
        ),
        ("nan", "updates", r"must hold finite numbers in .* Received: \['1000', 'nan'\]$"),
        ("inf", "updates", r"must hold finite numbers in .* Received: \['inf', '1'\]$"),
        ("negative", "updates", r"and numbers from 0 in env_steps. Received: \['-5', '1'\]$"),
        ("wide", "updates", r"has 6 columns, and a row of more. Received: 8 cells$"),
    ],
)
def test_what_cannot_be_read_is_named(run, tmp_path, path, column, message):
    (tmp_path / "empty").mkdir()
    run()
    run("steps", ["1"], "updates")
    run("header", [])
    run("blank", [], "")
    run("words", ["1000,many,,,,"])
    run("nan", ["1000,nan,,,,"])
    run("inf", ["inf,1,,,,"])
    run("negative", ["-5,1,,,,"])
    run("wide", ["1000,1,,,,,2,3"])
    with pytest.raises(ValueError, match=message):
        read_curve(tmp_path / path, column)


def test_bad_arguments_are_refused(run, tmp_path):
    one = np.array([1]), np.array([1.0])
    with pytest.raises(ValueError, match=r"at least one curve. Received: \[\]$"):
        interval([])
    with pytest.raises(ValueError, match=r"confidence lies between 0 and 1. Received: 95$"):
        interval([one], 95)
    with pytest.raises(ValueError, match=r"no step in common. Received: curves over the steps \[\(1, 1\), \(2, 2\)\]$"):
        interval([one, (np.array([2]), np.array([1.0]))])
    with pytest.raises(ValueError, match=r"each label at least one run. Received: {'a': \[\]}$"):
        plot_curves({"a": []}, tmp_path / "x.png")
    with pytest.raises(ValueError, match=r"smooth is at least 1. Received: 0$"):
        plot_curves({"a": [run()]}, tmp_path / "x.png", smooth=0)
    with pytest.raises(ValueError, match=r"no values yet in this column. Received: column='evaluation/return_mean'$"):
        plot_run(run("new", []))
    assert not list(tmp_path.glob("**/*.png"))


def test_heavy_packages_load_only_when_used():
    code = "import sys, tfsac.experiments.plots; print([m for m in ('tensorflow', 'scipy', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
