"""Analyses why a lander hovers: how often a run of LunarLanderContinuous landed and crashed in training, and how its
best policy and critics treat a lander that stands still.

    python benchmarks/landings.py --run_dir=runs/lander

The lander gets its 100 points once its body sleeps: at rest, with no engine firing, for Box2D's time to sleep.
"""

import argparse
import pathlib

import Box2D
import numpy as np
from gymnasium.envs.box2d.lunar_lander import FPS

import tfsac

STANDING = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.float32)  # on the pad, at rest, both legs on the ground
ENGINES = {"both engines off": (-1, 0), "main engine at its least": (0.01, 0), "main engine at its most": (1, 0)}


def steps_of(run_dir):
    """Yields the chunks of the run's memory in the order of collection."""
    for path in sorted((pathlib.Path(run_dir) / "checkpoints" / "memory").glob("rows-*.npy")):
        rows = np.load(path).reshape(-1)
        yield rows["reward"], rows["terminated"], rows["observation/observation"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run_dir", required=True)
    options = parser.parse_args()
    print(f"a lander sleeps after {round(Box2D.b2_timeToSleep * FPS)} steps at rest, and has landed then")
    total = 0
    for reward, ended, observation in steps_of(options.run_dir):
        total += len(reward)
        landed, crashed = (reward[ended] > 50).sum(), (reward[ended] < -50).sum()
        standing = (observation[:, 6:] > 0.5).all(axis=-1).sum()
        print(f"to step {total:7}  landed {landed:3}  crashed {crashed:3}  steps on both legs {standing:5}")
    policy = tfsac.load_policy(options.run_dir, critics=True)
    print(f"standing: the policy sets the main engine to {policy.act(STANDING)[0]:.2f}")
    for name, action in ENGINES.items():
        print(f"standing: Q {policy.values(STANDING, np.float32(action))['q']:7.1f} with {name}")


if __name__ == "__main__":
    main()
