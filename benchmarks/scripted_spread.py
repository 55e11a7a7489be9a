"""Computes the returns of scripted agents on simple_spread, as a reference for learned returns.

    python benchmarks/scripted_spread.py --agents=3

Every agent goes straight to a landmark, at full force and with its speed damped: to the nearest one, or to its own in
the assignment that minimises the total distance.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from mpe2 import simple_spread_v3


def chosen(script: str, distances: np.ndarray) -> list[int]:
    """Returns the landmark of each agent, for distances `[agent, landmark]`."""
    if script == "nearest":
        return distances.argmin(axis=1).tolist()
    agents = range(len(distances))
    return list(min(itertools.permutations(agents), key=lambda order: sum(distances[agents, order])))


def forces(towards: np.ndarray, velocity: np.ndarray, continuous: bool) -> np.ndarray | int:
    """Returns the action of an agent: no-op, left, right, down or up."""
    x, y = wanted = np.clip(4 * towards - 2 * velocity, -1, 1)
    if continuous:
        return np.array([0, max(-x, 0), max(x, 0), max(-y, 0), max(y, 0)], np.float32)
    if abs(wanted).max() < 0.2:
        return 0
    return (2 if x > 0 else 1) if abs(x) > abs(y) else (4 if y > 0 else 3)


def episode(script: str, agents: int, continuous: bool, seed: int) -> float:
    """Returns the mean of the agents' returns."""
    env = simple_spread_v3.parallel_env(N=agents, max_cycles=25, continuous_actions=continuous)
    observations, _ = env.reset(seed=seed)
    for i, name in enumerate(env.agents):
        env.action_space(name).seed(agents * seed + i)
    total = 0.0
    while env.agents:
        seen = np.array([observations[name] for name in env.agents])
        landmarks = seen[:, 4 : 4 + 2 * agents].reshape(agents, agents, 2)  # from each agent
        if script == "uniform actions":
            actions = {name: env.action_space(name).sample() for name in env.agents}
        else:
            goals = chosen(script, np.linalg.norm(landmarks, axis=-1))
            actions = {
                name: forces(landmarks[i, goals[i]], seen[i, :2], continuous) for i, name in enumerate(env.agents)
            }
        observations, rewards, *_ = env.step(actions)
        total += float(np.mean([*rewards.values()]))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=400)
    args = parser.parse_args()
    print("| actions | script | return, with its standard error |\n|---|---|---|")
    for continuous in (False, True):
        for script in ("uniform actions", "nearest", "divided"):
            returns = [episode(script, args.agents, continuous, seed) for seed in range(args.episodes)]
            error = np.std(returns) / args.episodes**0.5
            kind = "continuous" if continuous else "discrete"
            print(f"| {kind} | {script} | {np.mean(returns):.1f} ± {error:.1f} |")


if __name__ == "__main__":
    main()
