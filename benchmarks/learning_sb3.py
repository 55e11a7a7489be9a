"""Trains Stable-Baselines3's SAC and writes its evaluation curve as CSV, for comparison with tfsac.

Run it in a separate virtual environment:

    pip install stable-baselines3 'gymnasium[mujoco]'
    python benchmarks/learning_sb3.py --level=HalfCheetah-v5 --seed=1 --steps=100000

Stable-Baselines3's defaults (automatic temperature, 2 x 256, batch 256, one update per step) with the 10 000 random
steps that its model zoo uses for MuJoCo tasks. The folder of a run gets `versions.json` and, at the end of the run,
`metrics.csv` with the column names of a tfsac run; until then the rows are in `metrics.csv.partial`.

The same command resumes an interrupted run from its last evaluation, with its models, optimizers and replay memory. The
result differs from an uninterrupted run: a new episode starts, and random numbers are drawn anew.
"""

import argparse
import csv
import importlib.metadata
import json
import pathlib
import platform
import shutil
import subprocess
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")  # of the replay memory
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
    def __init__(self, env: gym.Env, every: int, episodes: int, out: pathlib.Path, seconds: float):
        super().__init__()
        self.env, self.every, self.episodes = env, every, episodes
        self.path, self.checkpoint = partial(out), out / "checkpoint"
        self.start = time.perf_counter() - seconds

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            first = 1_000_000 + self.num_timesteps
            returns = np.array([episode_return(self.model, self.env, first + i) for i in range(self.episodes)])
            row = [self.num_timesteps, round(time.perf_counter() - self.start, 1)]
            row += [round(float(x), 3) for x in (returns.mean(), returns.std(), returns.min(), returns.max())]
            with self.path.open("a", newline="") as file:
                csv.writer(file).writerow(row)
            save(self.model, self.checkpoint)
            print(*row, flush=True)
        return True


def partial(out: pathlib.Path) -> pathlib.Path:
    return out / "metrics.csv.partial"


def save(model: SAC, folder: pathlib.Path) -> None:
    """Writes the model and the filled part of its replay memory."""
    aside, before = (folder.with_name(f"checkpoint.{age}") for age in ("new", "old"))
    buffer = model.replay_buffer
    for left in (aside, before):  # left by a killed process
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir()
    model.save(aside / "model.zip")
    arrays = {name: getattr(buffer, name)[: buffer.size()] for name in ARRAYS}
    np.savez(aside / "memory.npz", pos=buffer.pos, full=buffer.full, **arrays)
    if folder.exists():  # deleting may be interrupted by a kill
        folder.rename(before)
    aside.rename(folder)
    shutil.rmtree(before, ignore_errors=True)


def restored(folder: pathlib.Path, env: gym.Env, seed: int) -> SAC:
    """Restores a model from `save`."""
    model = SAC.load(folder / "model.zip", env=env, device="cpu")
    with np.load(folder / "memory.npz") as memory:
        model.replay_buffer.pos, model.replay_buffer.full = int(memory["pos"]), bool(memory["full"])
        for name in ARRAYS:
            getattr(model.replay_buffer, name)[: len(memory[name])] = memory[name]
    model.set_random_seed(seed + model.num_timesteps)
    return model


def rows_until(path: pathlib.Path, steps: int) -> list[list[str]]:
    with path.open(newline="") as file:
        return [row for row in list(csv.reader(file))[1:] if int(row[0]) <= steps]


def provenance() -> dict[str, dict[str, str]]:
    """Returns versions and the commit, with the names of a tfsac run's config."""
    packages = ("stable-baselines3", "torch", "gymnasium", "numpy", "mujoco")
    here = pathlib.Path(__file__).parent
    commit, changed = (
        subprocess.run(["git", *words], cwd=here, capture_output=True, text=True).stdout.strip()
        for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    )
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}
    return {"versions": versions, "git": {"commit": commit, "changed_files": changed}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="HalfCheetah-v5")
    parser.add_argument("--env_kwargs", type=json.loads, default={}, help="JSON, passed to gymnasium.make")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--learning_starts", type=int, default=10_000)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--evaluate_every", type=int, default=5_000)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=pathlib.Path, help="folder (default: runs/learning/sb3_LEVEL_seedSEED)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    out = args.out or pathlib.Path(f"runs/learning/sb3_{args.level}_seed{args.seed}")
    path = out / "metrics.csv"
    if path.exists():
        raise SystemExit(f"{path} exists already; move it away to measure again.")
    env, evaluated = (gym.make(args.level, **args.env_kwargs) for _ in range(2))
    if (out / "checkpoint").is_dir():
        model = restored(out / "checkpoint", env, args.seed)
        rows, origin = rows_until(partial(out), model.num_timesteps), json.loads((out / "versions.json").read_text())
        origin["resumed"] = [*origin.get("resumed", []), model.num_timesteps]
        print(f"resumed at {model.num_timesteps} steps", flush=True)
    else:
        out.mkdir(parents=True, exist_ok=True)
        rows, origin = [], provenance()
        model = SAC(
            "MlpPolicy",
            env,
            seed=args.seed,
            learning_rate=args.learning_rate,
            learning_starts=args.learning_starts,
            device="cpu",
        )
    (out / "versions.json").write_text(json.dumps(origin, indent=2))
    with partial(out).open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    evaluate = Evaluate(evaluated, args.evaluate_every, args.episodes, out, float(rows[-1][1]) if rows else 0.0)
    model.learn(args.steps - model.num_timesteps, callback=evaluate, reset_num_timesteps=False)
    partial(out).rename(path)
    shutil.rmtree(out / "checkpoint")


if __name__ == "__main__":
    main()
