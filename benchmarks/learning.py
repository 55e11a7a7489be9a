"""Trains what shows that the library learns, and makes tables and pictures of it. Every command may be stopped, also by
SIGKILL, and typed again: it trains what is missing.

    python benchmarks/learning.py --suite=mujoco --sb3_python=PYTHON       # trains, then tables and pictures
    python benchmarks/learning.py --suite=mujoco --collect                 # tables and pictures alone
    python benchmarks/learning.py --task=cart_pole --seeds=1,2,3           # a single task
    python benchmarks/learning.py --collect                                # table and pictures of the single tasks

Suites and tasks are data in learning_suites.py. A suite's records, tables and pictures are in a folder of its name below
--results, those of single tasks in --results itself. PYTHON has Stable-Baselines3; without it, its runs stay missing.
"""

import argparse
import json
import pathlib
import re

from learning_runs import Machine, Records, train
from learning_suites import SUITES, TASKS
from learning_tables import missing, tabulate, tabulate_tasks


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--suite", choices=list(SUITES))
    what.add_argument("--task", choices=list(TASKS))
    parser.add_argument("--seeds", default="1,2,3", help="of --task")
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
    if not (args.suite or args.task or args.collect):
        parser.error("choose --suite, --task or --collect")
    if args.suite:
        suite = SUITES[args.suite]
        runs, machine = suite.runs(), Machine(args.runs / args.suite, args.jobs, args.sb3_python)
        records = Records(args.results / args.suite, suite.last_evaluations)
    else:
        tasks = [TASKS[args.task]] if args.task else TASKS.values()
        runs = [task.run(seed) for task in tasks for seed in json.loads(f"[{args.seeds}]")]
        machine, records = Machine(args.runs, args.jobs), Records(args.results, 1)
    runs = [run for run in runs if re.search(args.only, run.name)]
    if args.collect:
        records.collect(machine, runs)
        status = 0
    else:
        status = train(runs, machine, records, args.minutes)
    if args.suite:
        print(tabulate(suite, records))
        print(*missing(suite, machine, records), sep="\n")
    elif args.collect:
        print(tabulate_tasks(args.results))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
