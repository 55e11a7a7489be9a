"""Tables and plots of learning.py, made only from the records."""

import shlex
from collections.abc import Sequence

import numpy as np
from learning_runs import Machine, Records
from learning_suites import Run, Suite

from tfsac.experiments.comparison import compare_evaluations, statistics
from tfsac.experiments.learning_curves import read_evaluations


def tabulate(suite: Suite, records: Records, chosen: Sequence[Run]) -> str:
    """Writes `tables.md` and, in a folder for each level, the files of `tfsac compare` for all runs; prints the
    comparisons of the chosen runs' levels.

    Args:
        suite: the suite.
        records: records of its runs.
        chosen: the runs to print.

    Returns:
        The rows of the chosen runs' groups, with all their seeds, and notes.
    """
    rates = {run.name: rate for run in suite.runs() if records.has(run) and (rate := records.success(run)) is not None}
    columns = [
        "level",
        "group",
        "steps",
        "seeds",
        "mean",
        "interquartile mean",
        *["success rate of each seed"] * bool(rates),
        "wall clock, s",
        *["published"] * bool(suite.published),
    ]
    head = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines, pictures = {}, []
    for level in suite.levels:
        groups, rows = {}, {}
        for run in suite.runs():
            if run.level == level.title and records.has(run):
                read = read_evaluations(records.curve(run), run.level, suite.last_evaluations)
                groups.setdefault(run.group, []).append(read)
                rows.setdefault(run.group, []).append(records.rows[run.name])
        if not groups:
            continue
        alone = all(row["shared_clock"] == "no" for of_group in rows.values() for row in of_group)
        compared = compare_evaluations(groups, records.folder / level.place, level.title, wall_clock=alone)
        if any(run.level == level.title for run in chosen):
            print(compared, end="\n\n")
        pictures.append(f"![{level.title}]({level.place}/comparison.png)")
        found = {(row.statistic, row.group): row.estimate for row in statistics(groups)}
        for label, read in groups.items():
            steps = " to ".join(sorted({row["steps"] for row in rows[label]}, key=int))
            cells = [level.title, label, steps, str(len(read))]
            cells += [str(found["last_mean", label]), str(found["last_iqm", label])]
            if rates:
                cells.append(", ".join(f"{rates[row['name']]:.2f}" for row in rows[label] if row["name"] in rates))
            clocks = [float(row["wall_seconds"]) for row in rows[label] if row["shared_clock"] == "no"]
            cells.append(f"{np.median(clocks):.0f} ({len(clocks)})" if clocks else "")
            lines[level.title, label] = "| " + " | ".join(cells + [level.published] * bool(suite.published)) + " |"
    page = ["\n".join([*head, *lines.values()]), *notes(suite, records, suite.runs()), *pictures]
    records.folder.mkdir(parents=True, exist_ok=True)
    (records.folder / "tables.md").write_text("\n\n".join(page) + "\n")
    wanted = {(run.level, run.group) for run in chosen}
    shown = [line for group, line in lines.items() if group in wanted]
    return "\n\n".join(["\n".join([*head, *shown]), *notes(suite, records, chosen)])


def notes(suite: Suite, records: Records, runs: Sequence[Run]) -> list[str]:
    """Returns the notes below a table of these runs."""
    finished = [run for run in runs if records.has(run)]
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
    trained = {(short(row["commit"]), row["cpu"]) for row in (records.rows[run.name] for run in finished)}
    notes += ["\n".join(f"* Trained at commit {commit} on {cpu}." for commit, cpu in sorted(trained))] * bool(trained)
    failures = [
        f"* `{run.name}` failed: {records.rows[run.name]['failure']}"
        for run in runs
        if run.name in records.rows and records.rows[run.name]["failure"]
    ]
    notes += ["\n".join(failures)] * bool(failures)
    notes += [f"{len(finished)} of {len(runs)} runs have ended."] * (len(finished) < len(runs))
    return notes


def short(commit: str) -> str:
    """Returns a commit's short hash, and whether the working tree differed from it."""
    number, _, changes = commit.partition(" ")
    return " ".join(filter(None, (number[:7], changes))) or "unknown"


def missing(runs: Sequence[Run], machine: Machine, records: Records) -> list[str]:
    """Returns a line for each missing run, with the command if it cannot be trained here."""
    lines = []
    for run in runs:
        if not records.has(run):
            command = shlex.join([*run.command, f"--out={machine.runs / run.name}"])
            lines.append(
                f"missing   {run.name}" + ("" if machine.can_train(run) else f"  (--sb3_python, or {command})")
            )
    return lines
