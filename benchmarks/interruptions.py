"""Interrupts tiny runs at random moments and compares them with uninterrupted runs.

    python benchmarks/interruptions.py --interruptions=200 --seed=0

Each run is a process, interrupted by SIGKILL, SIGTERM or SIGINT after a random time and resumed, until its share of the
interruptions is used up; then it runs to its end. With one environment, the rows of metrics.csv (without clocks), the
best weights and everything in the last checkpoint must be bitwise equal to the uninterrupted run. With several
environments the running episodes are lost, so the run must only finish with all rows.

Processes are forked after the import of TensorFlow and before its first operation, so interruptions during the import
are not tested.
"""

import argparse
import csv
import os
import pathlib
import signal
import sys
import tempfile
import time

import numpy as np

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CLOCKS = ("wall_seconds", "steps_per_second")
FORMATS = "{:<34} {:>13} {:>8} {:>8} {:>8} {:>9} {:>11} {:>7}"
SECONDS = 300  # a process that takes longer counts as hanging


def cases():
    """Returns presets and run parameters by description."""
    from tiny import acer, shrunk, taac

    from tfsac.parameters import RunParameters, override
    from tfsac.preset_lookup import load_preset

    changes = {"schedule.improve_steps": 300, "schedule.steps_between_evaluation_periods": "EnvironmentSteps(60)"}
    heatup = {"schedule.heatup_steps": 60, "environment.max_episode_steps": 30}
    twin = shrunk(load_preset("pendulum_twin_sac"), **changes, **heatup)
    with_v = shrunk(load_preset("pendulum_sac"), **changes, **heatup)
    discrete = shrunk(load_preset("cart_pole_discrete_sac"), **changes, **heatup)
    normalised = {"environment.filters.observation_normalization": True}
    run, beside = (
        RunParameters(seed=1, checkpoint_save_steps=50),
        RunParameters(seed=1, checkpoint_save_steps=50, asynchronous_collection=True),
    )
    return {
        "SAC with V": (with_v, run),
        "twin SAC": (twin, run),
        "twin SAC, prioritised, n-step": (
            override(twin, {"agent.memory": {"kind": "prioritized", "max_size": 1000}, "agent.algorithm.n_step": 3}),
            run,
        ),
        "twin SAC, observations normalised": (override(twin, normalised), run),
        "twin SAC, asynchronous": (twin, beside),
        "discrete SAC": (discrete, run),
        "TAAC": (taac(**changes), run),
        "ACER with an LSTM": (acer(lstm=True, **changes), run),
        "twin SAC, 3 environments": (override(twin, {"environment.num_envs": 3}), run),
    }


def train(preset, run, folder):
    """Trains or resumes in this child process, and exits with the exit status of the command line."""
    import tfsac
    from tfsac.utils.machine import SIGNALLED

    resume = any((folder / "checkpoints").glob("[0-9]*"))
    result = tfsac.train(preset, folder, run, resume=resume, quiet=True)
    return 0 if result.signal is None else SIGNALLED + result.signal


def started(preset, run, folder, log):
    """Forks a process that trains and returns its number."""
    if process := os.fork():
        return process
    status = 1
    try:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        status = train(preset, run, folder)
    except KeyboardInterrupt:  # before the run handles signals itself
        status = 128 + signal.SIGINT
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def ended(process):
    """Waits for a process and returns its exit status, negative for a signal; None if it hangs."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if name not in CLOCKS} for row in csv.DictReader(file)]


def arrays(path):
    with np.load(path) as content:
        return {name: content[name] for name in content.files}


def differences(folder, reference):
    """Returns the differences between two finished runs."""
    import tensorflow as tf

    found = [] if rows(folder) == rows(reference) else ["metrics.csv"]
    ours, theirs = (sorted((run / "checkpoints").glob("[0-9]*"))[-1] for run in (folder, reference))
    if ours.name != theirs.name:
        return [*found, "last checkpoint"]
    for name, one, other in [
        ("best weights", folder / "best.npz", reference / "best.npz"),
        ("memory", ours / "memory.npz", theirs / "memory.npz"),
        ("environments", ours / "state.npz", theirs / "state.npz"),
    ]:
        left, right = arrays(one), arrays(other)
        if left.keys() != right.keys() or any(not np.array_equal(left[key], right[key]) for key in left):
            found.append(name)
    left, right = (tf.train.load_checkpoint(str(place / "agent")) for place in (ours, theirs))
    names = left.get_variable_to_shape_map()
    if names != right.get_variable_to_shape_map() or any(
        not np.array_equal(left.get_tensor(name), right.get_tensor(name))
        for name in names
        if not name.startswith(("_CHECKPOINTABLE", "save_counter"))
    ):
        found.append("agent")
    return found


def interrupted(words, preset, run, count, rng, folder):
    """Interrupts one kind of run `count` times, over as many runs as necessary, and returns its table row and its
    problems.
    """
    reference, log = folder / "reference", folder / "errors"
    began = time.monotonic()
    assert ended(started(preset, run, reference, log)) == 0, log.read_text()
    length = time.monotonic() - began
    sent, made, runs, whole, equal, problems = dict.fromkeys(SIGNALS, 0), 0, 0, 0, 0, []
    while made < count:
        place, runs = folder / f"run{runs}", runs + 1
        for _ in range(8):
            if made == count:
                break
            process, number = started(preset, run, place, log), rng.choice(SIGNALS)
            time.sleep(rng.uniform(0.0, length))
            found, status = os.waitpid(process, os.WNOHANG)
            if found:  # it had already ended
                if os.waitstatus_to_exitcode(status):
                    problems.append(f"{words}: ended with {os.waitstatus_to_exitcode(status)}")
                break
            os.kill(process, number)
            made, sent[number] = made + 1, sent[number] + 1
            status = ended(process)
            if status not in (0, -number, 128 + number):
                problems.append(f"{words}: {signal.Signals(number).name} ended it with {status}")
            if (
                not (place / "checkpoints").is_dir() and place.exists()
            ):  # nothing was saved yet: the same run from its start
                place.rename(folder / f"early{made}")
        if not (place / "metrics.csv").is_file() or not (place / "policy").is_dir():
            status = ended(started(preset, run, place, log))
            if status != 0:
                problems.append(f"{words}: the resumed run ended with {status}")
                continue
        whole += len(rows(place)) == len(rows(reference))
        if preset.environment.num_envs == 1:
            different = differences(place, reference)
            equal += not different
            problems += [f"{words}: other {', '.join(different)} in {place}"] if different else []
        elif len(rows(place)) != len(rows(reference)):
            problems.append(f"{words}: {len(rows(place))} rows instead of {len(rows(reference))}")
    exact = f"{equal}/{runs}" if preset.environment.num_envs == 1 else "-"
    return FORMATS.format(words, made, *sent.values(), runs, f"{whole}/{runs}", exact), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=pathlib.Path, help="folder for the runs; a temporary one by default")
    given = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
    import tfsac.api
    import tfsac.experiments.plots  # noqa: F401  (before the processes are forked)

    rng = np.random.default_rng(given.seed)
    folder = given.folder or pathlib.Path(tempfile.mkdtemp(prefix="interruptions."))
    kinds = cases()
    print(f"$ python benchmarks/interruptions.py --interruptions={given.interruptions} --seed={given.seed}")
    print(
        FORMATS.format("run", "interruptions", "SIGKILL", "SIGTERM", "SIGINT", "runs", "all rows", "equal"), flush=True
    )
    problems = []
    for i, (words, (preset, run)) in enumerate(kinds.items()):
        count = given.interruptions * (i + 1) // len(kinds) - given.interruptions * i // len(kinds)
        place = folder / str(i)
        place.mkdir(parents=True)
        line, found = interrupted(words, preset, run, count, rng, place)
        print(line, flush=True)
        problems += found
    print(*problems or ["no difference, nothing lost"], sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
