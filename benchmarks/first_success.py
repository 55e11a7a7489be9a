"""Measures how long the random actions of a warm-up take to finish a task that is rewarded only at its end.

    python benchmarks/first_success.py --preset=taac_simple_control --level=MountainCarContinuous-v0

Plays uniform actions (TAAC: uniform trajectories, kept or switched with equal probability) and the untrained policy of
each seed, without learning, and counts the episodes that terminate.
"""

from __future__ import annotations

import argparse
import math

import tfsac
from tfsac.environments import Environments, Filters
from tfsac.parameters import RunParameters, override
from tfsac.training.build import build_agent
from tfsac.training.collection import Collector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="taac_simple_control")
    parser.add_argument("--level", default="MountainCarContinuous-v0")
    parser.add_argument("--steps", type=int, default=50_000, help="environment steps of each seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--num_envs", type=int, default=16)
    args = parser.parse_args()
    changes = {"environment.level": args.level, "environment.num_envs": args.num_envs}
    preset = override(tfsac.load_preset(args.preset), changes)
    print("| actions | seed | episodes that terminated | steps for one | probability of none in 10 000, 30 000 |")
    print("|---|---|---|---|---|")
    for actions, random_until in (("uniform", math.inf), ("untrained policy", 0)):
        successes = []
        for seed in range(1, args.seeds + 1):
            environments = Environments(preset.environment, seed)
            agent = build_agent(preset, RunParameters(seed=seed), environments.spec)
            collector = Collector(agent.policy, Filters(preset.environment.filters, environments.spec), environments)
            steps = range(args.steps // args.num_envs)
            successes.append(sum(int(collector.step(random_until, 0).terminated.sum()) for _ in steps))
            environments.close()
            print(f"| {actions} | {seed} | {successes[-1]} | | |")
        rate = sum(successes) / (args.steps * args.seeds)
        none = [f"{math.exp(-rate * steps):.2f}" for steps in (10_000, 30_000)]
        each = f"{1 / rate:.0f}" if rate else "more than all"
        print(f"| {actions} | all | {sum(successes)} in {args.steps * args.seeds} steps | {each} | {', '.join(none)} |")


if __name__ == "__main__":
    main()
