"""How long a policy takes for one observation, by how it is called: here, as a SavedModel, as a LiteRT file.

    python benchmarks/latency.py --run_dir=runs/pendulum

Each way is called in turn, so that all share what else the machine does. First calls are of objects just loaded.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf

from tfsac import exporting
from tfsac.environments import as_arrays
from tfsac.exporting import loading
from tfsac.exporting.exported import load_exported
from tfsac.exporting.litert import litert_interpreter


def ways(run_dir, folder):
    """Yields the name of each way to act, and a function of a raw observation."""
    policy = loading.load_policy(run_dir)
    exporting.export(policy, folder / "saved_model")
    file = exporting.export(policy, folder / "lite", "tflite")
    yield "`policy.act`", policy.act
    saved = tf.saved_model.load(str(folder / "saved_model"))
    serve = saved.signatures["serving_default"]

    def signature(observation):
        arrays = as_arrays(observation, policy.acting.spec)
        return serve(**{key: tf.constant(value[None]) for key, value in arrays.items()})["action"].numpy()

    yield "SavedModel, signature", signature
    yield "SavedModel, `load_exported`", load_exported(folder / "saved_model")
    runner = litert_interpreter(pathlib.Path(file)).get_signature_runner("serving_default")

    def lite(observation):
        arrays = as_arrays(observation, policy.acting.spec)
        return runner(**{key: value[None] for key, value in arrays.items()})["action"]

    yield "LiteRT, signature", lite
    yield "LiteRT, `load_exported`", load_exported(folder / "lite")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run_dir", required=True)
    parser.add_argument("--calls", type=int, default=5000)
    options = parser.parse_args()
    env = loading.environment_of(options.run_dir)
    observation, first, later = env.reset(seed=0)[0], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        acting = dict(ways(options.run_dir, pathlib.Path(folder)))
        for name, act in acting.items():
            first[name] = milliseconds(act, observation)
        for _ in range(options.calls):
            for name, act in acting.items():
                later.setdefault(name, []).append(milliseconds(act, observation))
    print("| way | first call, ms | median, ms | 99 of 100 within, ms |\n|---|---|---|---|")
    for name, times in later.items():
        print(f"| {name} | {first[name]:.1f} | {np.median(times):.3f} | {np.percentile(times, 99):.3f} |")


def milliseconds(act, observation):
    """Returns how long a call takes."""
    began = time.perf_counter()
    act(observation)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
