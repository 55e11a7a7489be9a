"""Measures the cost of float16 for a policy: the same episodes with a run's LiteRT files in float32 and float16.

python benchmarks/quantization.py --run_dir=runs/pendulum --episodes=20
"""

import argparse
import pathlib
import tempfile

import numpy as np

from tfsac import exporting
from tfsac.environments import as_arrays
from tfsac.exporting import loading
from tfsac.parameters import EnvironmentEpisodes
from tfsac.training import evaluate

SEED = 100  # seed of the episodes


def played(run_dir, path, spec, episodes):
    """Returns the returns, observations and actions of episodes with a LiteRT file."""
    policy, observations = exporting.load_exported(path), []
    env = loading.environment_of(run_dir)

    def act(observation):
        observations.append({key: value[None] for key, value in as_arrays(observation, spec).items()})
        return policy(observations[-1])[0]

    try:
        return evaluate(act, env, EnvironmentEpisodes(episodes), SEED, begin=policy.reset), observations
    finally:
        env.close()


def compared(exact, rounded, observations):
    """Returns the largest difference of an action entry in each step, with the states of the exact file."""
    exact, rounded = exporting.load_exported(exact), exporting.load_exported(rounded)
    differences = []
    for arrays in observations:
        rounded.state = dict(exact.state)
        differences.append(np.abs(np.asarray(exact(arrays)[0], np.float64) - rounded(arrays)[0]).max())
    return np.array(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run_dir", required=True)
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    policy = loading.load_policy(options.run_dir)
    with tempfile.TemporaryDirectory() as folder:
        files = {
            name: exporting.export(policy, pathlib.Path(folder) / name, "tflite", quantize=name)
            for name in ("none", "float16")
        }
        done = {
            name: played(options.run_dir, path, policy.acting.spec, options.episodes) for name, path in files.items()
        }
        for name, (evaluation, _) in done.items():
            print(
                f"{name:<8} return mean {evaluation.returns.mean():.2f}  std {evaluation.returns.std():.2f}  "
                f"over {options.episodes} episodes  {files[name].stat().st_size} bytes"
            )
        exact, observations = done.pop("none")
        for name, (evaluation, _) in done.items():
            lost = exact.returns - evaluation.returns
            error = lost.std(ddof=1) / np.sqrt(len(lost))
            differences = compared(files["none"], files[name], observations)
            print(
                f"{name:<8} loses {lost.mean():.2f} +/- {error:.2f} (standard error), paired by episode; an action differs "
                f"by {differences.mean():.4f} on average, {np.percentile(differences, 99):.4f} at the 99th percentile, "
                f"{differences.max():.4f} at most, over {len(differences)} steps"
            )


if __name__ == "__main__":
    main()
