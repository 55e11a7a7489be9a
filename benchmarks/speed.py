"""Measures how fast a bare TensorFlow loop, tfsac, Stable-Baselines3 (PyTorch) and SBX (JAX) train the same soft
actor-critic on a CPU, or a GPU.

The algorithm is twin-target soft actor-critic with automatic temperature, with Stable-Baselines3's defaults.

Each library runs in its own virtual environment; libraries that are not named are skipped:

    pip install 'tfsac[mujoco]'                             # 1st environment, or a checkout with its requirements
    pip install stable-baselines3 'gymnasium[mujoco]'       # 2nd
    pip install sbx-rl 'gymnasium[mujoco]'                  # 3rd
    python benchmarks/speed.py --tfsac=PYTHON1 --sb3=PYTHON2 --sbx=PYTHON3 --rounds=5 --steps=2000

The bare loop (`bare_loop.py`) runs in the first environment. `tfsac` is `tfsac.train` in a fresh Python process, and
`command` is `tfsac train`; on a GPU `xla` is `tfsac` with `--jit_compile`. Every measurement is a separate process.
Rounds are interleaved, so that other load affects all libraries equally. Modes:

    loop1, loop50        environment steps/s of the whole training loop, K updates after every K steps, without
                         start-up, random steps and the first updates
    updates1, updates50  updates/s from a full replay memory, including sampling, K per call
    act                  microseconds from one raw observation to one sampled action in the environment's bounds
    floor                share of the machine's own rate of float32 matrix products that tfsac's updates reach

Adds the measurements, under the name of the processor, to speed.csv, and writes speed.md (medians, ranges and ratios)
for all machines.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

COLUMNS = ("machine", "versions", "round", "mode", "library", "name", "value")

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("bare", "tfsac", "xla", "command", "sb3", "sbx")
OURS = ("xla", "command")  # other ways to run tfsac
MODES = ("loop1", "loop50", "updates1", "updates50", "act", "floor")
LOOPS = ("loop1", "loop50")
# Minimum ratio to the bare loop, or an absolute bound for tfsac.
BARS = {"loop1": 0.95, "loop50": 0.95, "updates50": 0.95, "act": 40.0, "floor": 0.7}

BATCH, HIDDEN, CAPACITY, DISCOUNT, LEARNING_RATE, TAU = 256, [256, 256], 1_000_000, 0.99, 3e-4, 0.005
RANDOM_STEPS, FIRST_UPDATES = 1_000, 200  # before the clock starts
STORED = 10_000  # transitions in the memory when only updates are measured
FLOOR_ROUNDS = 5
PACKAGES = ("tensorflow", "keras", "stable-baselines3", "torch", "sbx-rl", "jax", "gymnasium", "mujoco", "numpy")


# -- arithmetic --------------------------------------------------------------------------------------------------------


def forward(rows: int, *sizes: int) -> int:
    """FLOPs of a forward pass through dense layers: one multiplication and one addition per row and weight.

    The backward pass through a layer is one such product for its inputs and one for its weights. So a training step
    costs three forward passes, and a gradient through a network to the action, without weight gradients, costs two.
    (This is 2 % too high: the first layer of a training step needs no gradient for its inputs.)
    """
    return 2 * rows * sum(a * b for a, b in itertools.pairwise(sizes))


def flops(observation: int, action: int, hidden: Sequence[int] = HIDDEN, batch: int = BATCH) -> dict[str, int]:
    """FLOPs of the matrix products of one update by part, the same in all libraries."""
    policy = forward(batch, observation, *hidden, 2 * action)
    q = forward(batch, observation + action, *hidden, 1)
    return {
        "policy, training step": 3 * policy,
        "policy of the next observation": policy,
        "twin Q, gradient to the action": 2 * 2 * q,
        "twin Q_target of the next observation": 2 * q,
        "twin Q, training step": 2 * 3 * q,
    }


def flops_text(observation: int, action: int) -> str:
    parts = flops(observation, action)
    terms = " + ".join(f"{part} {count / 1e6:.1f}" for part, count in parts.items())
    return f"**{sum(parts.values()) / 1e6:.0f} MFLOP** an update = {terms}"


# -- measuring ---------------------------------------------------------------------------------------------------------


class LoopClock:
    """Times the steps from `start` to `stop` of a training loop; both are multiples of every K."""

    def __init__(self, steps: int):
        self.start, self.stop = RANDOM_STEPS + FIRST_UPDATES, RANDOM_STEPS + FIRST_UPDATES + steps
        self.steps, self.began, self.rate = steps, 0.0, 0.0

    def finished(self, step: int) -> bool:
        """Call it after every step; returns whether the measurement is complete."""
        if step == self.start:
            self.began = time.perf_counter()
        elif step == self.stop:
            self.rate = self.steps / (time.perf_counter() - self.began)
        return step >= self.stop


def updates_per_second(call: Callable[[], Any], updates_per_call: int, updates: int) -> float:
    calls = updates // updates_per_call
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return calls * updates_per_call / (time.perf_counter() - began)


def microseconds(call: Callable[[], Any], calls: int = 2_000) -> float:
    times = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times[100:]) / 1e3


def random_transition(rng: Any, observation: int, action: int) -> tuple[Any, ...]:
    """Returns observation, action, reward and next observation of a random step of one environment."""
    return (
        rng.standard_normal((1, observation)).astype("float32"),
        rng.uniform(-1.0, 1.0, (1, action)).astype("float32"),
        rng.standard_normal(1).astype("float32"),
        rng.standard_normal((1, observation)).astype("float32"),
    )


# -- Stable-Baselines3 and SBX, which share their interface ------------------------------------------------------------


def measure_sb(library: str, mode: str, args: argparse.Namespace) -> dict[str, float]:
    import gymnasium as gym
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger

    if library == "sb3":
        from stable_baselines3 import SAC
    else:
        from sbx import SAC

    together = 50 if mode.endswith("50") else 1
    env = gym.make(args.level)
    model = SAC(
        "MlpPolicy",
        env,
        seed=1,
        device="cuda" if args.device == "gpu" else "cpu",
        batch_size=BATCH,
        buffer_size=CAPACITY,
        learning_starts=RANDOM_STEPS,
        learning_rate=LEARNING_RATE,
        gamma=DISCOUNT,
        tau=TAU,
        train_freq=together,
        gradient_steps=together,
        policy_kwargs={"net_arch": HIDDEN},
    )
    if mode.startswith("loop"):
        clock = LoopClock(args.steps)

        class Watch(BaseCallback):
            def _on_step(self) -> bool:
                return not clock.finished(self.num_timesteps)

        model.learn(clock.stop + together, callback=Watch())
        return {"value": clock.rate}

    if mode == "act":
        observation, _ = env.reset(seed=1)
        return {"value": microseconds(lambda: model.predict(observation, deterministic=False))}

    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(1)
    sizes = (*env.observation_space.shape, *env.action_space.shape)
    for _ in range(STORED):
        observation, action, reward, following = random_transition(rng, *sizes)
        model.replay_buffer.add(observation, following, action, reward, np.zeros(1, bool), [{}])

    def call() -> None:
        model.train(gradient_steps=together, batch_size=BATCH)

    updates_per_second(call, together, 100)
    return {"value": updates_per_second(call, together, args.steps)}


# -- tfsac -------------------------------------------------------------------------------------------------------------


def measure_tfsac(library: str, mode: str, args: argparse.Namespace) -> dict[str, float]:
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from tfsac.agents import TwinSoftActorCriticAgent
    from tfsac.environments import Environments, Filters
    from tfsac.memories import TransitionMemory
    from tfsac.parameters import RunParameters
    from tfsac.training import Policy
    from tfsac.training.devices import configure

    together = 50 if mode.endswith("50") or mode == "floor" else 1
    preset = tfsac_preset(args.level, together)
    compiled = {"jit_compile": library == "xla"}
    if mode in LOOPS:
        return {"value": tfsac_loop(preset, args.steps, **compiled)}

    configure()
    environments = Environments(preset.environment, seed=1)
    spec = environments.spec
    agent = TwinSoftActorCriticAgent(preset.agent, spec, seed=1, **compiled)
    agent.compiled.updates_between_diagnostics = RunParameters().updates_between_diagnostics
    filters = Filters(preset.environment.filters, spec)
    memory = TransitionMemory(spec, CAPACITY, discount=DISCOUNT, reward_filter=filters.reward)
    rng = np.random.default_rng(1)
    sizes = (*spec.observation["observation"].shape, *spec.action.shape)
    for _ in range(STORED):
        observation, action, reward, following = random_transition(rng, *sizes)
        never = np.zeros(1, bool)
        memory.add({"observation": observation}, action, reward, never, never, {"observation": following})

    def call() -> None:
        agent.update(filters.batch(memory.sample(together, BATCH, rng)))

    updates_per_second(call, together, 100)
    if mode == "floor":
        updates = max(together, args.steps // FLOOR_ROUNDS)
        return floor(lambda: updates_per_second(call, together, updates), sum(flops(*sizes).values()))
    if mode == "act":
        policy, raw = Policy(agent.policy, filters), rng.standard_normal(sizes[0])
        return {"value": microseconds(lambda: policy.act(raw, deterministic=False))}
    return {"value": updates_per_second(call, together, args.steps)}


def tfsac_preset(level: str, together: int, improve: int | None = None, every: int = 10**9) -> Any:
    """Returns the experiment, with `improve` steps after the random steps, evaluated after every `every` steps."""
    from tfsac import parameters as p

    algorithm = p.TwinSoftActorCriticAlgorithmParameters(
        discount=DISCOUNT,
        num_consecutive_playing_steps=p.EnvironmentSteps(together),
        num_consecutive_training_steps=together,
        rate_for_copying_weights_to_target=TAU,
        temperature=p.AutoAlphaParameters(initial_alpha=1.0, learning_rate=LEARNING_RATE),
    )
    networks = p.twin_soft_actor_critic_networks(
        tuple(HIDDEN), critic_loss_weight=0.5, learning_rate=LEARNING_RATE, batch_size=BATCH
    )
    return p.Preset(
        agent=p.TwinSoftActorCriticAgentParameters(
            algorithm=algorithm, memory=p.ExperienceReplayParameters(CAPACITY), networks=networks
        ),
        environment=p.EnvironmentParameters(level),
        schedule=p.ScheduleParameters(
            heatup_steps=p.EnvironmentSteps(RANDOM_STEPS),
            **({} if improve is None else {"improve_steps": p.EnvironmentSteps(improve)}),
            evaluation_steps=p.EnvironmentEpisodes(1),
            steps_between_evaluation_periods=p.EnvironmentSteps(every),
        ),
    )


def tfsac_loop(preset: Any, steps: int, jit_compile: bool = False) -> float:
    """Returns environment steps/s of a training run, without evaluations or checkpoints in the timed part."""
    import tfsac
    from tfsac.parameters import RunParameters
    from tfsac.training import Callback, Trainer

    clock = LoopClock(steps)

    class Watch(Callback):
        def on_step(self, trainer: Trainer) -> None:
            if clock.finished(trainer.counters.env_steps):
                trainer.stop("measured")

    run = RunParameters(seed=1, checkpoint_save_steps=10**9, jit_compile=jit_compile)
    tfsac.train(preset, "run", run, callbacks=[Watch()], quiet=True)
    return clock.rate


def measure_command(library: str, mode: str, args: argparse.Namespace) -> dict[str, float]:
    """Returns the steps/s that `tfsac train` reports between its first and second evaluation."""
    together, steps = 50 if mode.endswith("50") else 1, RANDOM_STEPS + args.steps
    pathlib.Path("preset.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'benchmarks')!r})\nimport speed\n"
        f"preset = speed.tfsac_preset({args.level!r}, {together}, improve={steps + args.steps - RANDOM_STEPS}, every={steps})\n"
    )
    command = [sys.executable, "-m", "tfsac", "train", "--preset=preset.py", "--run_dir=run", "--seed=1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, f"--checkpoint_save_steps={10**9}"], check=True, env=environ, stdout=subprocess.DEVNULL)
    with pathlib.Path("run", "metrics.csv").open(newline="") as file:
        return {"value": float(list(csv.DictReader(file))[1]["steps_per_second"])}


# -- the bare loop -----------------------------------------------------------------------------------------------------


def measure_bare(library: str, mode: str, args: argparse.Namespace) -> dict[str, float]:
    from bare_loop import BareLoop

    together = 50 if mode.endswith("50") else 1
    loop = BareLoop(args.level, together)
    if mode in LOOPS:
        clock, step = LoopClock(args.steps), 0
        while not clock.finished(step):
            loop.play(random=step < RANDOM_STEPS)
            step += 1
            if step > RANDOM_STEPS and step % together == 0:
                loop.update()
        return {"value": clock.rate}
    for _ in range(STORED):
        loop.play(random=True)
    updates_per_second(loop.update, together, 100)
    return {"value": updates_per_second(loop.update, together, args.steps)}


def floor(update_rate: Callable[[], float], flops: int) -> dict[str, float]:
    """Compares updates with bare matrix products, taking turns in one process."""
    import numpy as np
    import tensorflow as tf

    def products(size: int, chains: int, repeats: int) -> Callable[[], float]:
        v = np.random.default_rng(1).standard_normal((size, 1))
        reflection = tf.constant(np.eye(size) - 2 * v @ v.T / (v.T @ v), tf.float32)  # keeps norms, however often

        @tf.function
        def run(first: tf.Tensor) -> list[tf.Tensor]:
            xs = [first + i for i in range(chains)]
            for _ in tf.range(repeats):
                xs = [x @ reflection for x in xs]
            return xs

        first = tf.random.stateless_normal([size, size], [1, 1])

        def gflops() -> float:
            began = time.perf_counter()
            for x in run(first):
                x.numpy()
            return 2 * size**3 * chains * repeats / (time.perf_counter() - began) / 1e9

        gflops()
        return gflops

    # Independent products can use threads that sequential products cannot.
    large = [products(2048, 1, 8), products(2048, 4, 2)]
    small = [products(256, 1, 2000), products(256, 4, 500)]
    names = ("gflops_2048", "gflops_256", "updates_per_second", "value", "share_256")
    rounds = []
    for _ in range(FLOOR_ROUNDS):
        gflops_large, gflops_small, rate = max(run() for run in large), max(run() for run in small), update_rate()
        done = rate * flops / 1e9
        rounds.append((gflops_large, gflops_small, rate, done / gflops_large, done / gflops_small))
    return dict(zip(names, map(statistics.median, zip(*rounds, strict=True)), strict=True))


# -- processes and tables ----------------------------------------------------------------------------------------------


MEASURE = {
    "bare": measure_bare,
    "tfsac": measure_tfsac,
    "xla": measure_tfsac,
    "command": measure_command,
    "sb3": measure_sb,
    "sbx": measure_sb,
}


def measured(library: str, mode: str, device: str) -> bool:
    """Returns whether a library has this mode on this device."""
    if library == "bare":
        return mode not in ("act", "floor")
    if library == "xla":  # slower on a CPU
        return device == "gpu" and mode not in ("act", "floor")
    if library == "command":
        return mode in LOOPS
    return mode != "floor" or library == "tfsac"


def work(args: argparse.Namespace) -> None:
    """Makes one measurement and prints it as the last line."""
    result = MEASURE[args.worker](args.worker, args.mode, args)
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**result, "peak_rss_mb": kilobytes / 1024, "versions": versions}))


def start_worker(library: str, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    python = getattr(args, library, args.tfsac)  # the bare loop and the command line run in tfsac's environment
    command = [python, str(pathlib.Path(__file__).resolve()), f"--worker={library}", f"--mode={mode}"]
    command += [f"--{name}={getattr(args, name)}" for name in ("steps", "level", "device")]
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if args.device == "cpu" else {}
    environ = {**os.environ, **hidden, "TF_CPP_MIN_LOG_LEVEL": "2"}
    with tempfile.TemporaryDirectory() as folder:  # for run directories and simulator logs
        done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=folder, check=False)
    if done.returncode:
        raise SystemExit(f"{library} {mode} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_all(args: argparse.Namespace, out: pathlib.Path) -> None:
    """Makes all measurements and writes speed.csv as it goes, next to the runs of other machines."""
    path, name = out / "speed.csv", machine(args.device)
    kept = [row for row in read(path) if row["machine"] != name]
    libraries = [library for library in LIBRARIES if getattr(args, library, args.tfsac)]
    with path.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        rows.writerows(kept)
        for number, mode in itertools.product(range(args.rounds), args.modes.split(",")):
            # Every other round in the opposite order, for machines that slow down under load.
            for library in libraries[:: 1 if number % 2 else -1]:
                if not measured(library, mode, args.device):
                    continue
                result = start_worker(library, mode, args)
                versions = ", ".join(f"{package} {version}" for package, version in result.pop("versions").items())
                for key, value in result.items():
                    values = (name, versions, number + 1, mode, library, key, f"{value:.5g}")
                    rows.writerow(dict(zip(COLUMNS, values, strict=True)))
                file.flush()
                print(f"round {number + 1}  {mode:9}  {library:7}  {result['value']:.4g} {unit(mode)}", file=sys.stderr)


def read(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def machine(device: str = "cpu") -> str:
    """Returns the GPU if it is used, the processor, its cores, and the instruction sets that determine the speed of
    matrix products.
    """
    text = pathlib.Path("/proc/cpuinfo").read_text()
    model = next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name"))
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if f" {flag} " in text.replace("\n", " ")]
    gpu = ""
    if device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0] + ", "
    return f"{gpu}{model}, {os.cpu_count()} cores, {' '.join(flags)}"


def unit(mode: str) -> str:
    return {"act": "us", "floor": "of the floor"}.get(mode, "steps/s" if mode.startswith("loop") else "updates/s")


def span(values: list[float] | None) -> str:
    if not values:
        return "-"

    def text(x: float) -> str:
        return f"{x:.2f}" if x < 10 else f"{x:.0f}"

    return f"{text(statistics.median(values))} [{text(min(values))}-{text(max(values))}]"


def ratio(mode: str, medians: dict[str, float], other: str) -> float | None:
    """Returns how many times as fast tfsac is."""
    if other not in medians or "tfsac" not in medians:
        return None
    return medians[other] / medians["tfsac"] if mode == "act" else medians["tfsac"] / medians[other]


def bar(mode: str, medians: dict[str, float]) -> str:
    """Returns the bar for tfsac, and whether it is reached."""
    value = ratio(mode, medians, "bare") if mode not in ("act", "floor") else medians.get("tfsac")
    if mode not in BARS or value is None:
        return ""
    reached = value <= BARS[mode] if mode == "act" else value >= BARS[mode]
    return f"{'<=' if mode == 'act' else '>='} {BARS[mode]:g}: {'reached' if reached else 'missed'}"


def section(name: str, rows: list[dict[str, str]]) -> list[str]:
    """Returns the tables of one machine."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["mode"], row["library"], row["name"]), []).append(float(row["value"]))
    # Few machines have a GPU; the other columns are the same everywhere.
    libraries = [name for name in LIBRARIES if name != "xla" or any(library == "xla" for _, library, _ in found)]
    others = [library for library in libraries if library != "tfsac"]
    head = [*libraries, *(f"tfsac/{other}" for other in others if other not in OURS), "bar"]
    lines = [f"## {name}", "", f"Medians [min-max] of {max(int(row['round']) for row in rows)} interleaved rounds.", ""]
    lines += ["| mode | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for mode in dict.fromkeys(row["mode"] for row in rows):
        values = {library: found.get((mode, library, "value")) for library in libraries}
        medians = {library: statistics.median(numbers) for library, numbers in values.items() if numbers}
        ratios = [ratio(mode, medians, other) for other in others if other not in OURS]
        cells = [f"{mode}, {unit(mode)}", *(span(values[library]) for library in libraries)]
        cells += ["-" if x is None else f"{x:.2f}" for x in ratios]
        lines.append("| " + " | ".join([*cells, bar(mode, medians)]) + " |")
    memory = [(library, found.get(("loop1", library, "peak_rss_mb"))) for library in libraries if library not in OURS]
    lines += [
        "",
        "Peak resident memory of loop1, MB: " + ", ".join(f"{name} {span(mb)}" for name, mb in memory if mb) + ".",
    ]
    if ("floor", "tfsac", "gflops_2048") in found:
        names = ("gflops_2048", "gflops_256", "updates_per_second", "share_256")
        large, small, rate, share = (span(found["floor", "tfsac", name]) for name in names)
        lines += [
            "",
            f"The floor, measured in the process that made the updates: {large} GFLOP/s in float32 products of "
            f"2048 x 2048 matrices, {small} in 256 x 256; beside them {rate} updates/s, which is {share} of the rate "
            "of the small ones.",
        ]
    versions = {row["library"]: row["versions"] for row in rows}
    return [*lines, "", *(f"- {library}: {packages}" for library, packages in versions.items()), ""]


def report(rows: list[dict[str, str]]) -> str:
    """Returns speed.md: one section per machine, the newest last."""
    lines = [
        "# Speed",
        "",
        f"HalfCheetah-v5, batch {BATCH}, hidden layers {HIDDEN}, on the machine that a section names: a CPU, or a GPU where one is named. `bare` is a TensorFlow loop of the "
        "same arithmetic, `tfsac` is `tfsac.train` in a fresh Python process, `command` is `tfsac train`; each library "
        "chooses its own threads. A ratio says how many times as fast tfsac is. Absolute figures hold for the machine and "
        "the minute: compare ratios. Repeat with `python benchmarks/speed.py`, which adds a section.",
        "",
    ]
    for name in dict.fromkeys(row["machine"] for row in rows):
        lines += section(name, [row for row in rows if row["machine"] == name])
    lines += [f"Matrix products: {flops_text(17, 6)}.", ""]
    lines.append("SB3 also computes gradients of Q's weights in the policy step and drops them: not counted.")
    return "\n".join(lines) + "\n"


def python(path: str) -> str:
    """Returns the absolute path of a library's Python, which workers start in other folders."""
    if path and shutil.which(path) is None:
        raise argparse.ArgumentTypeError(f"no such program: {path}")
    return os.path.abspath(shutil.which(path)) if path else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tfsac", type=python, default=sys.executable, help="its Python")
    parser.add_argument("--sb3", type=python, default="", help="its Python")
    parser.add_argument("--sbx", type=python, default="", help="its Python")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="steps or updates per measurement, a multiple of 50")
    parser.add_argument("--level", default="HalfCheetah-v5")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="device for updates (%(default)s)")
    parser.add_argument("--modes", default=",".join(MODES), help="modes to measure, separated by commas")
    parser.add_argument("--out", default=str(ROOT / "benchmarks" / "results"), help="folder of speed.csv and speed.md")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps < 50 or args.steps % 50:
        parser.error(f"--steps must be a multiple of 50. Received: {args.steps}")
    unknown = set(args.modes.split(",")) - set(MODES)
    if unknown:
        parser.error(f"--modes must be among {','.join(MODES)}. Received: {','.join(sorted(unknown))}")
    if args.worker:
        work(args)
        return
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    measure_all(args, out)
    text = report(read(out / "speed.csv"))
    (out / "speed.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
