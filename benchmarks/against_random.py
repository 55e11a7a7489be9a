"""Compares trained policies with the uniform random policy on the same episodes, with 95 % bootstrap intervals.

    python benchmarks/against_random.py --run_dir=RUN --run_dir=RUN --episodes=200

Writes results/against_random.csv. The policy is the deterministic one of the run's best evaluation.
"""

import argparse
import csv
import pathlib

import numpy as np

import tfsac
from tfsac.exporting.loading import environment_of
from tfsac.parameters import EnvironmentEpisodes
from tfsac.preset_lookup import read_config
from tfsac.training.evaluation import evaluate

RESULTS = pathlib.Path(__file__).parent / "results" / "against_random.csv"


def interval(returns: np.ndarray) -> tuple[float, float]:
    """Returns the 95 % percentile bootstrap interval of the mean."""
    rng = np.random.default_rng(0)
    means = rng.choice(returns, (10_000, len(returns))).mean(axis=1)
    return tuple(np.percentile(means, [2.5, 97.5]))


def random_actions(policy: tfsac.Policy):
    """Returns a function that acts uniformly at random, as in the warm-up."""
    spec = policy.acting.spec

    def act(observation):
        given = observation if isinstance(observation, dict) else {"observation": observation}
        arrays = {key: np.asarray(given[key], array.dtype)[None] for key, array in spec.observation.items()}
        return policy.to_environment(policy.acting.act(arrays, mode="random").action)[0]

    return act


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run_dir", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args()
    rows = []
    for run in args.run_dir:
        policy, env = tfsac.load_policy(run), environment_of(run)
        environment = read_config(run / "config.json")[0].environment
        for name, act in (("trained", policy.act), ("random", random_actions(policy))):
            returns = evaluate(act, env, EnvironmentEpisodes(args.episodes)).returns
            low, high = interval(returns)
            rows.append(
                [
                    run.name,
                    environment.level,
                    name,
                    args.episodes,
                    *(round(float(x), 3) for x in (returns.mean(), low, high)),
                ]
            )
            print(f"{run.name:<60} {name:<8} mean {returns.mean():8.2f}   95 % interval {low:8.2f} to {high:8.2f}")
        env.close()
    with RESULTS.open("w", newline="") as file:
        csv.writer(file).writerows([["run", "level", "policy", "episodes", "mean", "low", "high"], *rows])


if __name__ == "__main__":
    main()
