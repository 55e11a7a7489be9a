"""Trains Stable-Baselines3's SAC and writes its evaluation curve as CSV, for comparison with tfsac's.

Run it in an environment of its own:

    pip install stable-baselines3 'gymnasium[mujoco]'
    python benchmarks/learning_sb3.py --level=HalfCheetah-v5 --seed=1 --steps=100000

Stable-Baselines3's defaults (automatic temperature, 2 x 256, batch 256, one update a step) with the 10 000 random
steps that its model zoo gives MuJoCo tasks. The columns have the names of a tfsac run's metrics.csv.
"""

import argparse
import csv
import pathlib
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

HEADER = ["env_steps", "wall_seconds"] + [f"evaluation/return_{name}" for name in ("mean", "std", "min", "max")]


def episode_return(model: SAC, env: gym.Env, seed: int) -> float:
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        action, _ = model.predict(observation, deterministic=True)
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        done = terminated or truncated
    return total


class Evaluate(BaseCallback):
    def __init__(self, level: str, every: int, episodes: int, path: pathlib.Path):
        super().__init__()
        self.env = gym.make(level)
        self.every, self.episodes, self.path = every, episodes, path
        self.start = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            first = 1_000_000 + self.num_timesteps
            returns = np.array([episode_return(self.model, self.env, first + i) for i in range(self.episodes)])
            row = [self.num_timesteps, round(time.perf_counter() - self.start, 1)]
            row += [round(float(x), 3) for x in (returns.mean(), returns.std(), returns.min(), returns.max())]
            with self.path.open("a", newline="") as file:
                csv.writer(file).writerow(row)
            print(*row, flush=True)
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", default="HalfCheetah-v5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--evaluate_every", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", default="benchmarks/results/learning")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    path = pathlib.Path(args.out) / f"sb3_{args.level}_seed{args.seed}.csv"
    if path.exists():
        raise SystemExit(f"{path} exists already; move it away to measure again.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerow(HEADER)
    model = SAC("MlpPolicy", gym.make(args.level), seed=args.seed, learning_starts=10_000, device="cpu")
    model.learn(args.steps, callback=Evaluate(args.level, args.evaluate_every, args.episodes, path))


if __name__ == "__main__":
    main()
