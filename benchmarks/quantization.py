"""What int8 costs a policy: the same episodes with the LiteRT files of a run in float32 and in int8.

    python benchmarks/quantization.py --run_dir=runs/pendulum --episodes=20

The calibration takes the observations of 10 other episodes, as `tfsac export --quantize=int8` does.
"""

import argparse
import pathlib
import tempfile

import numpy as np

from tfsac import api, exporting
from tfsac.cli.results import CALIBRATION_EPISODES
from tfsac.environments import as_arrays
from tfsac.parameters import EnvironmentEpisodes
from tfsac.training import evaluate

SEED = 100  # of the episodes; the calibration's have seed 0


def played(run_dir, path, spec, episodes):
    """Returns returns, observations and actions of a file's episodes."""
    policy, observations = exporting.load_exported(path), []
    env = api.environment_of(run_dir)

    def act(observation):
        observations.append({key: value[None] for key, value in as_arrays(observation, spec).items()})
        return policy(observations[-1])[0]

    try:
        return evaluate(act, env, EnvironmentEpisodes(episodes), SEED, begin=policy.reset), observations
    finally:
        env.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run_dir", required=True)
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    policy = api.load_policy(options.run_dir)
    spec, seen = policy.acting.spec, api.observations_of(options.run_dir, policy, CALIBRATION_EPISODES)
    with tempfile.TemporaryDirectory() as folder:
        files = {
            name: exporting.export(policy, pathlib.Path(folder) / name, "tflite", quantize_with=episodes)
            for name, episodes in (("float32", None), ("int8", seen))
        }
        done = {name: played(options.run_dir, path, spec, options.episodes) for name, path in files.items()}
        for name, (evaluation, _) in done.items():
            print(
                f"{name:<8} return mean {evaluation.returns.mean():.2f}  std {evaluation.returns.std():.2f}  "
                f"over {options.episodes} episodes  {files[name].stat().st_size} bytes"
            )
        lost = done["float32"][0].returns - done["int8"][0].returns
        error = lost.std(ddof=1) / np.sqrt(len(lost))
        print(f"float32 - int8, paired by episode: {lost.mean():.2f} +/- {error:.2f} (standard error)")
        both = [exporting.load_exported(path) for path in files.values()]
        differences = []
        for arrays in done["float32"][1]:
            live, int8 = (exported(arrays)[0] for exported in both)
            both[1].state = dict(both[0].state)
            differences.append(np.abs(np.asarray(live, np.float64) - int8).max())
        low_high = f"{np.mean(differences):.4f}, 99th percentile {np.percentile(differences, 99):.4f}"
        print(
            f"difference of an action: mean {low_high}, largest {max(differences):.4f}, over {len(differences)} steps"
        )


if __name__ == "__main__":
    main()
