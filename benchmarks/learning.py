"""Trains suites of runs that show how well tfsac learns, and makes tables and plots of them. Every command may be
stopped, even by SIGKILL, and repeated: it trains the missing runs.

    python benchmarks/learning.py --suite=taac                             # trains, then makes tables and plots
    python benchmarks/learning.py --suite=taac --only=Pendulum --jobs=2    # some of its runs, two at a time
    python benchmarks/learning.py --suite=mujoco --sb3_python=PYTHON       # PYTHON has Stable-Baselines3
    python benchmarks/learning.py --suite=mujoco --collect                 # only tables and plots

Runs with records are not trained again. A clone contains the committed records, so the command only redraws tables and
plots. To train again, use new folders: --results=runs/again/results --runs=runs/again/runs

learning_suites.py defines the suites. A suite's records, tables and plots are in a folder of its name below --results.
--only also selects the printed runs; the files have all runs. Without PYTHON the Stable-Baselines3 runs stay missing.
"""

import argparse
import pathlib
import re
import shutil

from learning_runs import Machine, Records, train
from learning_suites import SUITES
from learning_tables import missing, tabulate

RESULTS = pathlib.Path(__file__).parent / "results" / "learning"
NO_PYTHON = """--sb3_python must be an interpreter. To create one with Stable-Baselines3, and use it:

    python3 -m venv sb3 && sb3/bin/pip install stable-baselines3 'gymnasium[mujoco]'
    python benchmarks/learning.py --suite={} --sb3_python=sb3/bin/python

Received: {}"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(SUITES), required=True, help="the suite to train and to make tables of")
    parser.add_argument("--only", type=re.compile, default="", help="regular expression: only runs whose name matches")
    parser.add_argument(
        "--jobs", type=int, default=1, help="parallel runs (%(default)s); with more than one, each has one thread"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="nothing is started later; after 1.15 times as many, runs of tfsac save and end, and resume next time",
    )
    parser.add_argument("--sb3_python", help="a Python with stable-baselines3 and gymnasium[mujoco]")
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument(
        "--runs",
        type=pathlib.Path,
        default=pathlib.Path("runs/learning"),
        help="folder for the runs, with a subfolder for the suite (%(default)s)",
    )
    parser.add_argument(
        "--results",
        type=pathlib.Path,
        default=RESULTS,
        help="folder of records, tables and plots; a run with records there is not trained again (%(default)s)",
    )
    args = parser.parse_args(arguments)
    if args.sb3_python is not None and shutil.which(args.sb3_python) is None:
        parser.error(NO_PYTHON.format(args.suite, args.sb3_python))
    suite = SUITES[args.suite]
    runs = [run for run in suite.runs() if re.search(args.only, run.name)]
    if not runs:
        example = suite.runs()[0].name
        parser.error(f"--only must match the name of a run, such as {example}. Received: {args.only.pattern}")
    machine = Machine(args.runs / args.suite, args.jobs, args.sb3_python)
    records = Records(args.results / args.suite, suite.last_evaluations)
    status = 0
    if args.collect:
        records.collect(machine, runs)
    else:
        status = train(runs, machine, records, args.minutes)
    print(tabulate(suite, records, runs))
    print(*missing(runs, machine, records), sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
