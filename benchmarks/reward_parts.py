"""Splits the returns of a run's last policy into the parts of the reward that MuJoCo levels report.

    python benchmarks/reward_parts.py --run_dir=runs/ant --episodes=10

`policy/` in a run's folder is the policy of the best evaluation, which for Ant may be an untrained one. The last policy
comes from the last checkpoint.
"""

import argparse
import collections
import pathlib
import shutil
import tempfile

import gymnasium as gym

from tfsac.exporting import loading
from tfsac.parameters import EnvironmentEpisodes
from tfsac.training import Policy, RunDirectory, Trainer
from tfsac.training.evaluation import evaluate_policy

SEED = 500  # seed of the first episode


class Parts(gym.Wrapper):
    """Sums the rewards in `info`."""

    def __init__(self, env):
        super().__init__(env)
        self.totals = collections.Counter()

    def step(self, action):
        step = self.env.step(action)
        self.totals.update({name: value for name, value in step[4].items() if name.startswith("reward_")})
        return step


def last_policy(run_dir, copy):
    """Returns the policy of a run's last checkpoint; restoring writes to the copy."""
    shutil.copytree(run_dir, copy)
    preset, run = RunDirectory(copy).read()
    trainer = Trainer(preset, copy, run, resume=True, quiet=True)
    return Policy(trainer.agent.policy, trainer.filters)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run_dir", required=True)
    parser.add_argument("--episodes", type=int, default=10)
    options = parser.parse_args()
    env = Parts(loading.environment_of(options.run_dir))
    with tempfile.TemporaryDirectory() as folder:
        policy = last_policy(options.run_dir, pathlib.Path(folder) / "run")
        done = evaluate_policy(policy, env, EnvironmentEpisodes(options.episodes), seed=SEED)
    env.close()
    print(f"{'return':16} {done.returns.mean():9.1f}\n{'length':16} {done.lengths.mean():9.1f}")
    for name, total in env.totals.items():
        print(f"{name:16} {total / options.episodes:9.1f}")


if __name__ == "__main__":
    main()
