"""A fast replacement for `tfsac train`, for tests of sweeps and tuning, and helpers that signal or kill processes.

A run is evaluated five times: once before its first update, then with returns of 25, 50, 75 and 100 % of 100 * discount,
plus its seed. Environment variables name runs or their folders. WAIT: evaluate three times with -1000, wait for a signal,
and save. BREAK: fail. TOGETHER, for all runs: wait for a second process. controls.json next to a copy of this file sets
them for processes on other machines.
"""

import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HEADER = "env_steps,wall_seconds,updates,evaluation/return_mean\n5,0,0,-7\n"


def train(arguments):
    controls = pathlib.Path(__file__).with_name("controls.json")
    os.environ.update(json.loads(controls.read_text()) if controls.exists() else {})
    text = " ".join(arguments)
    run = pathlib.Path(re.search("--run_dir=([^ ]+)", text)[1])
    resumed, config = "--resume" in arguments, run / "config.json"
    assert resumed == run.exists(), "the folder must exist if and only if the run is resumed"
    run.mkdir(exist_ok=True)
    lock = (run / ".lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    before = json.loads(config.read_text()) if resumed else {"starts": []}
    seed = before["run"]["seed"] if resumed else int(re.search("--seed=([0-9]+)", text)[1])
    discount = float(re.search("discount=([0-9.]+)", text)[1])
    level = (re.search("--level=([^ ]+)", text) or ["", "Pendulum-v1"])[1]
    preset = {"environment": {"level": level}, "agent": {"algorithm": {"discount": discount}}}
    content = {
        "preset": preset,
        "run": {"seed": seed},
        "starts": [*before["starts"], arguments],
        "parent": os.getppid(),
    }
    content["threads"] = [os.environ.get(f"TF_NUM_{kind}_THREADS") for kind in ("INTRAOP", "INTEROP")]
    config.write_text(json.dumps({**content, "initial_weights": "runs/first"}))
    chosen = {name for name in ("BREAK", "WAIT") if os.environ.get(name) in (run.name, run.parent.name)}
    if "BREAK" in chosen:
        sys.exit("tfsac: broken")
    end = time.monotonic() + 20
    while "TOGETHER" in os.environ and len(list(run.parent.glob("*/config.json"))) < 2:
        assert time.monotonic() < end, "no second process"
        time.sleep(0.01)
    returns = [-1000] * 3 if "WAIT" in chosen else [25 * n * discount + seed for n in (1, 2, 3, 4)]
    rows = [f"{10 * (i + 1)},{i + 1},{i + 1},{value}\n" for i, value in enumerate(returns)]
    (run / "metrics.csv").write_text(HEADER + "".join(rows))
    if "WAIT" in chosen:

        def save(number, frame):
            (run / "checkpoints" / "000000010").mkdir(parents=True)
            sys.exit(128 + number)

        signal.signal(signal.SIGINT, save), signal.signal(signal.SIGTERM, save)
        (run / "waiting").touch()
        time.sleep(60)
        sys.exit("no signal")
    (run / "policy").mkdir()
    print("done")


def send_when(path, number):
    """Sends this process a signal once a file exists."""

    def send():
        wait_for(path)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()


def wait_for(path):
    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


def kill_when(path, program, arguments, **variables):
    """Runs a tfsac command in a process, with `program` for its runs, and kills it once a file exists."""
    code = f"""
import sys
from tfsac import cli
from tfsac.experiments import run_processes
run_processes.TRAIN = {program!r}
cli.main(sys.argv[1:])
"""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)
    wait_for(path)
    time.sleep(0.5)  # lets it finish writing its journal, whose lock would remain
    assert process.poll() is None
    process.kill()
    process.wait()


if __name__ == "__main__":
    train(sys.argv[1:])
