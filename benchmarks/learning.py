"""Trains what shows that the library learns, and makes tables and pictures of it. Every command may be stopped, also by
SIGKILL, and typed again: it trains what is missing.

    python benchmarks/learning.py --suite=taac                             # trains, then tables and pictures
    python benchmarks/learning.py --suite=taac --only=Pendulum --jobs=2    # some of its runs, two at a time
    python benchmarks/learning.py --suite=mujoco --sb3_python=PYTHON       # PYTHON has Stable-Baselines3
    python benchmarks/learning.py --suite=mujoco --collect                 # tables and pictures alone

Suites are data in learning_suites.py. A suite's records, tables and pictures are in a folder of its name below --results.
Without PYTHON the runs of Stable-Baselines3 stay missing.
"""

import argparse
import pathlib
import re

from learning_runs import Machine, Records, train
from learning_suites import SUITES
from learning_tables import missing, tabulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=list(SUITES), required=True)
    parser.add_argument("--only", type=re.compile, default="", help="regular expression: runs whose name has it")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; with more than one, each has one thread")
    parser.add_argument(
        "--minutes",
        type=float,
        help="afterwards nothing is started; after 1.15 times as many, runs of tfsac save and end, and go on next time",
    )
    parser.add_argument("--sb3_python", help="a Python with stable-baselines3 and gymnasium[mujoco]")
    parser.add_argument("--collect", action="store_true", help="train nothing")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs/learning"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "learning")
    args = parser.parse_args(arguments)
    suite = SUITES[args.suite]
    machine = Machine(args.runs / args.suite, args.jobs, args.sb3_python)
    records = Records(args.results / args.suite, suite.last_evaluations)
    runs = [run for run in suite.runs() if re.search(args.only, run.name)]
    status = 0
    if args.collect:
        records.collect(machine, runs)
    else:
        status = train(runs, machine, records, args.minutes)
    print(tabulate(suite, records))
    print(*missing(suite, machine, records), sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
