"""Measures resident memory over a run of 100 000 steps, the number of traces, and the time of imports.

    python benchmarks/resources.py

Pendulum-v1 with small networks; the replay holds 20 000 transitions, so it is full after a fifth of the run. Prints the
resident memory at several steps and writes benchmarks/results/resources.csv.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

import tfsac
from tfsac.training import Trainer

CHANGES = {
    "agent.memory.max_size": 20_000,
    "agent.networks.*.batch_size": 32,
    "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(50)",
    "agent.algorithm.num_consecutive_training_steps": 50,
    "schedule.improve_steps": 99_000,
    "schedule.evaluation_steps": "EnvironmentEpisodes(1)",
}
IMPORTS = """
import time
start = time.perf_counter(); import tensorflow; middle = time.perf_counter()
{what}
print(time.perf_counter() - middle)
"""


def resident_mb() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


class Watch(tfsac.Callback):
    def __init__(self):
        self.rows = []

    def on_evaluation(self, trainer, row):
        self.rows.append((row["env_steps"], round(resident_mb(), 1)))


def import_seconds(what: str) -> float:
    done = subprocess.run([sys.executable, "-c", IMPORTS.format(what=what)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    watch = Watch()
    preset = tfsac.override(tfsac.load_preset("pendulum_sac"), CHANGES)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(preset, folder, tfsac.RunParameters(seed=1), callbacks=[watch], quiet=True)
        trainer.run()
        traces = trainer.agent.compiled.traces
    full = [mb for steps, mb in watch.rows if steps >= 25_000]
    path = pathlib.Path(__file__).parent / "results" / "resources.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("env_steps", "resident_mb"), *watch.rows])
    print(
        f"resident memory after the replay is full: {full[0]:.0f} MB, at the end {full[-1]:.0f} MB "
        f"({full[-1] / full[0] - 1:+.1%})"
    )
    print(f"traces of the update over the run: {traces}")
    package, names = import_seconds("import tfsac"), import_seconds("import tfsac; tfsac.train, tfsac.export")
    print(f"on top of importing tensorflow: import tfsac {package:.2f} s, with training and export {names:.2f} s")


if __name__ == "__main__":
    main()
