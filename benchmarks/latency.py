"""Measures how long a policy takes for one observation: in this process, as a SavedModel, and as a LiteRT file.

    python benchmarks/latency.py --run_dir=runs/pendulum

The variants take turns, so that other load affects all of them equally. First calls are those of newly loaded objects.
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


def ways(run_dir, folder):
    """Yields the name of each variant, and a function of a raw observation."""
    policy = loading.load_policy(run_dir)
    exporting.export(policy, folder / "saved_model")
    exporting.export(policy, folder / "lite", "tflite")
    yield "`policy.act`", told(policy, policy.act)
    for name, kind in (("SavedModel", "saved_model"), ("LiteRT", "lite")):
        yield f"{name}, signature", signature(load_exported(folder / kind), policy.acting.spec)
        exported = load_exported(folder / kind)
        yield f"{name}, `load_exported`", told(exported, exported)


def told(policy, act):
    """Returns a function that acts, and passes a reward to a policy that reads rewards."""

    def function(observation):
        act(observation)
        policy.observe(1.0)

    return function


def signature(exported, spec):
    """Returns a function that calls the signature and keeps the state."""
    state = {} if exported.initial is None else exported._run(exported.initial, {"rows": np.int32(1)})
    value = np.asarray if exported.lite else tf.constant

    def function(observation):
        inputs = {key: array[None] for key, array in as_arrays(observation, spec).items()} | state
        outputs = exported.serve(**{name: value(array) for name, array in inputs.items()})
        outputs["action"] = np.asarray(outputs["action"])
        state.update({name: outputs[name] for name in state if name in outputs})

    return function


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
    """Returns the duration of a call."""
    began = time.perf_counter()
    act(observation)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
