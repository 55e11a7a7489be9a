"""Tables and pictures of learning.py, made from the committed records alone."""

import shlex

import numpy as np
from learning_runs import Machine, Records
from learning_suites import Suite

from tfsac.experiments.comparison import compare_evaluations, read_evaluations, statistics


def tabulate(suite: Suite, records: Records) -> str:
    """Writes `tables.md` and for each level, in a folder, what `tfsac compare` writes; returns the tables."""
    runs = suite.runs()
    finished = [run for run in runs if records.has(run)]
    columns = [
        "level",
        "group",
        "steps",
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
            steps = " to ".join(sorted({row["steps"] for row in rows[label]}, key=int))
            cells = [level.title, label, steps, str(len(read))]
            cells += [str(found["last_mean", label]), str(found["last_iqm", label])]
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
    trained = {(row["commit"][:7] or "unknown", row["cpu"]) for row in (records.rows[run.name] for run in finished)}
    notes += ["\n".join(f"* Trained at commit {commit} on {cpu}." for commit, cpu in sorted(trained))] * bool(trained)
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
