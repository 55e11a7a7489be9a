"""Tables and pictures of learning.py, made from the committed records alone."""

import pathlib
import shlex

import numpy as np
from learning_runs import Machine, Records
from learning_suites import LABELS, SUITES, TASKS, Suite

from tfsac.experiments.comparison import compare_evaluations, read_evaluations, statistics
from tfsac.experiments.plots import plot_curves, read_curve


def tabulate(suite: Suite, records: Records) -> str:
    """Writes `tables.md` and for each level, in a folder, what `tfsac compare` writes; returns the tables."""
    runs = suite.runs()
    finished = [run for run in runs if records.has(run)]
    columns = [
        "level",
        "group",
        "seeds",
        "mean",
        "interquartile mean",
        "wall clock, s",
        *["published"] * bool(suite.published),
    ]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    pictures = []
    for level in suite.levels:
        of_level = [run for run in finished if run.level == level.title]
        groups, rows = {}, {}
        for run in of_level:
            read = read_evaluations(records.curve(run), run.level, suite.last_evaluations)
            groups.setdefault(run.group, []).append(read)
            rows.setdefault(run.group, []).append(records.rows[run.name])
        if not groups:
            continue
        folder = records.folder / level.place
        print(compare_evaluations(groups, folder, level.title), end="\n\n")
        pictures.append(f"![{level.title}]({level.place}/comparison.png)")
        found = {(row.statistic, row.group): row.estimate for row in statistics(groups)}
        for label, read in groups.items():
            cells = [level.title, label, str(len(read)), str(found["last_mean", label]), str(found["last_iqm", label])]
            clocks = [float(row["wall_seconds"]) for row in rows[label] if row["shared_clock"] == "no"]
            cells.append(f"{np.median(clocks):.0f} ({len(clocks)})" if clocks else "")
            lines.append("| " + " | ".join(cells + [level.published] * bool(suite.published)) + " |")
    counted = (
        f"the mean of its last {suite.last_evaluations} evaluations"
        if suite.last_evaluations > 1
        else "its last evaluation"
    )
    notes = [
        f"The score of a run is {counted}; in brackets 95 % bootstrap intervals over seeds. Wall clock: the median of "
        "the runs, in brackets how many, that were trained without interruption and with no other run of the suite "
        "beside them."
    ]
    notes += [f"Published: {suite.published}"] * bool(suite.published)
    failures = [
        f"* `{run.name}` failed: {records.rows[run.name]['failure']}"
        for run in runs
        if run.name in records.rows and records.rows[run.name]["failure"]
    ]
    notes += ["\n".join(failures)] * bool(failures)
    notes += [f"{len(finished)} of {len(runs)} runs have ended."] * (len(finished) < len(runs))
    text = "\n".join(lines)
    page = "\n\n".join([text, *notes, *pictures])
    records.folder.mkdir(parents=True, exist_ok=True)
    (records.folder / "tables.md").write_text(page + "\n")
    return "\n\n".join([text, *notes])


def missing(suite: Suite, machine: Machine, records: Records) -> list[str]:
    """Returns a line for each run that is missing; with the command where it cannot be trained here."""
    lines = []
    for run in suite.runs():
        if not records.has(run):
            command = shlex.join([*run.command, f"--out={machine.runs / run.name}"])
            lines.append(
                f"missing   {run.name}" + ("" if machine.can_train(run) else f"  (--sb3_python, or {command})")
            )
    return lines


def tabulate_tasks(folder: pathlib.Path) -> str:
    """Writes learning.md and a picture for each level of the single tasks; returns the table.

    Runs of a suite on the same level stand beside them.
    """
    lines = ["| level | group | last evaluation of each seed (at step) | mean | bar |", "|---|---|---|---|---|"]
    for level in dict.fromkeys(task.level for task in TASKS.values()):
        tasks = {task.name: task for task in TASKS.values() if task.level == level}
        place = next(iter(tasks.values())).place
        pictures = {}  # runs of one length together
        for name in LABELS:
            found = (
                sorted(where.glob(f"{name}_{place}_seed*.csv"))
                for where in (*(folder / suite for suite in SUITES), folder)
            )
            paths = next(filter(None, found), [])
            if not paths:
                continue
            ends = [(int(at[-1]), float(values[-1])) for at, values in map(read_curve, paths)]
            task = tasks.get(name)
            steps = task.steps if task else max(step for step, _ in ends)
            pictures.setdefault(steps, {})[LABELS[name]] = paths
            shown = ", ".join(f"{value:.1f} ({step})" for step, value in ends)
            mean = np.mean([value for _, value in ends])
            goal = f"{task.bar:g} by {task.steps}" if task and task.bar is not None else ""
            lines.append(f"| {level} | {LABELS[name]} | {shown} | {mean:.1f} | {goal} |")
        for i, (steps, groups) in enumerate(pictures.items()):
            bars = [task.bar for task in tasks.values() if task.bar is not None and task.steps == steps]
            out = folder / (f"{place}.png" if i == 0 else f"{place}_{steps}.png")
            plot_curves(groups, out, title=level, threshold=max(bars, default=None))
    (folder / "learning.md").write_text("\n".join(lines) + "\n")
    return "\n".join(lines)
