"""Measures updates and the whole training loop on a GPU that is available only for minutes.

    python benchmarks/gpu.py --seconds=400
    python benchmarks/gpu.py --seconds=400 --yardstick=xla_loop.py --torch=PYTHON --sb3=PYTHON
    python benchmarks/gpu.py --small --out=rehearsal.csv        # a few minutes, also without a GPU

Groups of cases, each in one process, the most important first. Every row is appended to results/gpu.csv as soon as it
is measured. A case that takes longer than `--limit` seconds is stopped and skipped; nothing starts after `--seconds`.
Autotuning is on.

Updates: `mujoco_twin_sac` with 17 observation entries and 6 action dimensions, two layers of 256, batch 256; K updates
per call. Batches are drawn within the measured time from a full memory of 100 000 random transitions, or from a larger
memory that holds as many ("capacity"). Median, minimum and maximum over the calls in `--measure` seconds, at least
three. "frames" is discrete SAC on stacks of four frames, 84 x 84.
The whole loop: one environment, and VectorEnvs of 16 and 1024, of negligible cost; one update per environment step, at
most 64 per step of all environments. "acting" is one call of a policy, in NumPy and through a graph; see acting.py.
"""

import argparse
import contextlib
import csv
import io
import itertools
import json
import os
import pathlib
import queue
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
RESULTS = ROOT / "benchmarks" / "results" / "gpu.csv"
FIELDS = [
    "case",
    "library",
    "memory",
    "compiled",
    "K",
    "unrolled",
    "flags",
    "value",
    "unit",
    "least",
    "most",
    "first_call_seconds",
    "where",
]
BARE = "bare TensorFlow, XLA"


def bare(together, unrolled):
    return {"case": BARE, "kind": "yardstick", "K": together, "unrolled": unrolled}


def ours(memory, compiled, together, case="SAC, 2 x 256, batch 256", **more):
    return {
        "case": case,
        "kind": "updates",
        "memory": memory,
        "compiled": compiled,
        "K": together,
        "unrolled": None,
    } | more


def frames(memory, compiled, together):
    return ours(memory, compiled, together, "discrete SAC, 84 x 84 x 4, batch 64", preset="atari_discrete_sac")


def room_for(millions):
    return ours("device", "XLA", 50, f"memory of {millions} million transitions", capacity=millions * 10**6)


def loop(num_envs, memory, compiled):
    return {
        "case": f"whole loop, {num_envs} environments",
        "kind": "loop",
        "K": min(num_envs, 64),
        "memory": memory,
        "compiled": compiled,
        "num_envs": num_envs,
    }


# Each group runs in one process; the most important first.
GROUPS = {
    "main": [bare(500, 1), ours("device", "XLA", 500), ours("device", "XLA", 50), ours("device", "XLA", 1),
             ours("RAM", "XLA", 50), ours("RAM", "XLA", 1), ours("RAM", "graph", 50), ours("RAM", "graph", 1)],
    "loop": [loop(1024, "device", "XLA"), loop(1, "device", "XLA"), loop(16, "device", "XLA"), loop(1, "RAM", "graph")],
    "acting": [{"case": f"acting, {name}, {num_envs} environments", "kind": "acting", "policy": name, "num_envs": num_envs}
               for name in ("SAC, 2 x 256", "SAC, 2 x 512") for num_envs in (64, 256, 1024, 4096, 16384)],
    "tests": [{"case": "pytest -m gpu", "kind": "tests"}],
    "rounding": [{"case": "mirrored", "kind": "mirrored"}],
    "frames": [frames("device", "XLA", 50), frames("RAM", "XLA", 50), frames("device", "graph", 50)],
    "capacity": [room_for(10), room_for(100), room_for(200), room_for(400)],
    "sb3": [{"case": "Stable-Baselines3", "kind": "sb3", "K": 50}],
    "torch": [{"case": "PyTorch", "kind": "torch", "K": 50}],
    "others": [ours("device", "graph", 50), ours("device", "graph", 500), ours("device", "graph", 1),
               ours("RAM", "XLA", 500), ours("RAM", "graph", 500)],
    "sizes": [ours("device", "XLA", 500, "SAC, 2 x 256, batch 4096", batch=4096),
              ours("device", "XLA", 500, "SAC, 2 x 1024, batch 256", width=1024),
              ours("device", "XLA", 100, "SAC, 2 x 1024, batch 4096", width=1024, batch=4096),
              ours("device", "XLA", 100, "REDQ, 10 critics, batch 256", preset="redq_mujoco"),
              ours("device", "XLA", 100, "CrossQ, 2 x 2048, batch 256", preset="crossq_mujoco")],
}  # fmt: skip


def measured(call, together, args):
    """Returns median, minimum and maximum of calls per second, times K, and the duration of the first call."""
    began, times = time.perf_counter(), []
    call()
    first = time.perf_counter() - began
    call()
    began = time.perf_counter()
    while len(times) < args.calls or time.perf_counter() - began < args.measure:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    values = [together / seconds for seconds in (statistics.median(times), max(times), min(times))]
    return {"value": values[0], "unit": "updates/s", "least": values[1], "most": values[2], "first_call_seconds": first}


def where():
    import tensorflow as tf

    from tfsac.training import devices

    return f"{devices.device()}, tensorflow {tf.__version__}"


def measure_yardstick(case, args):
    """Runs xla_loop.py in this process: a lower bound for TensorFlow's cost of this algorithm."""
    import tensorflow as tf

    if not args.yardstick:
        return None
    calls = max(3, min(args.calls * 10, 2000 // case["K"]))
    sys.argv = ["xla_loop.py", f"--k={case['K']}", f"--unroll={case['unrolled']}", f"--calls={calls}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(args.yardstick)
    found = re.search(r"(\d+) updates/s a seed.*first calls ([\d.]+) s; error against eager (\S+)", printed.getvalue())
    place = tf.config.experimental.get_device_details(gpu).get("device_name") if (gpu := first_gpu(tf)) else "CPU"
    row = {"library": "bare", "memory": "device", "compiled": "XLA", "value": float(found[1]), "unit": "updates/s"}
    return row | {
        "first_call_seconds": float(found[2]),
        "where": f"{place}, tensorflow {tf.__version__}, error against eager {found[3]}",
    }


def first_gpu(tf):
    return next(iter(tf.config.list_physical_devices("GPU")), None)


def measure_updates(case, args):
    import numpy as np
    from toys import random_batches, vector_spec

    import tfsac
    from tfsac.environments import Filters
    from tfsac.memories import TransitionMemory
    from tfsac.parameters import RunParameters, override
    from tfsac.training import devices
    from tfsac.training.build import build_agent, build_device_memory
    from tfsac.types import ArraySpec, DiscreteSpec, Spec

    devices.configure_once()
    changes = {"agent.memory.device": "accelerator" if case["memory"] == "device" else "cpu"}
    if batch := case.get("batch"):
        changes["agent.networks.*.batch_size"] = batch
    if width := case.get("width"):
        changes["agent.hidden_layers"] = (width, width)
    preset = override(tfsac.load_preset(case.get("preset", "mujoco_twin_sac")), changes)
    images = "atari" in case.get("preset", "")
    stored = args.stored // 20 if images else args.stored
    stack = ArraySpec((84, 84, 4), "uint8", stacked=True)
    spec = Spec({"observation": stack}, DiscreteSpec(6)) if images else vector_spec(17, 6)
    agent = build_agent(preset, RunParameters(seed=1, jit_compile=case["compiled"] == "XLA"), spec)
    filters, rng = Filters(preset.environment.filters, spec), np.random.default_rng(1)
    memory = TransitionMemory(spec, case.get("capacity", stored), reward_filter=filters.reward)
    batch = random_batches(spec, 100, 1)
    for i in range(stored):
        ended = np.full(1, i % 1000 == 999), np.zeros(1, bool)
        shown = batch.observation, batch.next_observation
        before, after = ({key: x[i % 100] for key, x in arrays.items()} for arrays in shown)
        memory.add(before, batch.action[i % 100], batch.reward[i % 100], *ended, after)
    device = build_device_memory(memory, preset, filters, agent, 1)
    together = case["K"]

    def batches():
        return device.sample(together) if device else memory.sample(together, agent.batch_size, rng)

    call = measured(lambda: agent.update(batches()), together, args)
    return {"library": "tfsac", "where": where()} | call


def measure_loop(case, args):
    """Environment steps/s of `tfsac.train` after the warm-up, without evaluations and checkpoints."""
    import gymnasium as gym
    import numpy as np

    import tfsac
    from tfsac.parameters import RunParameters, override
    from tfsac.training import Callback

    class Level(gym.Env):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
        seen = np.zeros(17, np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = 1000
            return self.seen.copy(), {}

        def step(self, action):
            self.left -= 1
            return np.full(17, action[0], np.float32), float(action[1]), False, self.left == 0, {}

    class Levels(gym.vector.VectorEnv):
        metadata = {"autoreset_mode": gym.vector.AutoresetMode.DISABLED}
        single_observation_space, single_action_space = Level.observation_space, Level.action_space

        def __init__(self, num_envs):
            self.num_envs = num_envs
            self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
            self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = 1000
            return np.zeros((self.num_envs, 17), np.float32), {}

        def step(self, action):
            self.left -= 1
            ended = np.full(self.num_envs, self.left == 0)
            return np.repeat(action[:, :1], 17, axis=1), action[:, 1], np.zeros_like(ended), ended, {}

    num_envs, marks = case["num_envs"], []

    class Watch(Callback):
        def on_step(self, trainer):
            if trainer.counters.updates and (not marks or time.perf_counter() - marks[-1][1] > args.measure):
                marks.append((trainer.counters.env_steps, time.perf_counter()))
                if len(marks) == 4:
                    trainer.stop("measured")

    updates = case["K"]
    preset = override(
        tfsac.load_preset("mujoco_twin_sac"),
        {
            "environment.num_envs": num_envs,
            "agent.memory": {
                "kind": "uniform",
                "max_size": args.stored,
                "device": "accelerator" if case["memory"] == "device" else "cpu",
            },
            "agent.algorithm.num_consecutive_playing_steps": f"EnvironmentSteps({max(num_envs, 1)})",
            "agent.algorithm.num_consecutive_training_steps": updates,
            "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(1)",
            "schedule.heatup_steps": f"EnvironmentSteps({max(4 * num_envs, 320)})",
            "schedule.improve_steps": "EnvironmentSteps(100000000)",
            "schedule.steps_between_evaluation_periods": "EnvironmentSteps(90000000)",
        },
    )
    run = RunParameters(seed=1, jit_compile=case["compiled"] == "XLA", checkpoint_save_steps=10**9, tensorboard=False)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(StopIteration):
        began = time.perf_counter()
        trainer = tfsac.Trainer(
            preset, f"{folder}/run", run, callbacks=[Watch()], quiet=True, env_fn=Level if num_envs == 1 else Levels
        )
        for _ in range(10**9):
            trainer.train_one_step()
            if len(marks) == 4:
                break
        first = marks[0][1] - began
    rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in itertools.pairwise(marks)]
    row = {"value": statistics.median(rates), "unit": "environment steps/s", "least": min(rates), "most": max(rates)}
    return {"library": "tfsac", "first_call_seconds": first, "where": where()} | row


def measure_acting(case, args):
    """Milliseconds of a call of the policy, in each variant of acting.py."""
    from acting import measured as calls_by_way

    from tfsac.training import devices

    devices.configure_once()
    for way, times in calls_by_way(case["policy"], case["num_envs"], args.measure).items():
        wall = [ms for ms, _ in times]
        row = {"value": statistics.median(wall), "unit": "ms", "least": min(wall), "most": max(wall)}
        emit(case | {"library": "tfsac", "compiled": way, "where": where()} | row)


def measure_torch(case, args):
    """All rows of torch_sac.py, which runs in a separate Python."""
    if not args.torch:
        return []
    command = [args.torch, str(ROOT / "benchmarks" / "torch_sac.py"), f"--seconds={args.measure}"]
    env = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "XLA_FLAGS")
    }
    rows = []
    with subprocess.Popen([*command, f"--together={case['K']}"], stdout=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stdout:
            mode, value, least, most, first, place, _ = json.loads(line)
            row = {
                "compiled": {"eager": "eager", "compiled": "torch.compile", "graphs": "torch.compile, CUDA graphs"}[
                    mode
                ]
            }
            row |= {
                "library": "torch",
                "memory": "device",
                "value": value,
                "unit": "updates/s",
                "least": least,
                "most": most,
            }
            rows.append(row | {"first_call_seconds": first, "where": place})
            emit(case | rows[-1])
    return []


def measure_sb3(case, args):
    """Stable-Baselines3's SAC on the GPU, in a separate Python."""
    if not args.sb3:
        return None
    program = SB3.format(together=case["K"], stored=10_000, calls=args.calls)
    paths = [path for path in (args.sb3_path,) if path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    env.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([args.sb3, "-c", program], stdout=subprocess.PIPE, text=True, env=env, check=True)
    times, first, place = json.loads(done.stdout.splitlines()[-1])
    values = [case["K"] / seconds for seconds in (statistics.median(times), max(times), min(times))]
    row = {"library": "sb3", "memory": "RAM", "compiled": "eager", "value": values[0], "unit": "updates/s"}
    return row | {"least": values[1], "most": values[2], "first_call_seconds": first, "where": place}


SB3 = """
import json, time
import gymnasium as gym, numpy as np, torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import Logger
class Level(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
model = SAC("MlpPolicy", Level(), seed=1, device="cuda" if torch.cuda.is_available() else "cpu", batch_size=256, buffer_size={stored})
model.set_logger(Logger(None, []))
rng = np.random.default_rng(1)
for _ in range({stored}):
    now, then = rng.standard_normal((2, 1, 17))
    model.replay_buffer.add(now, then, rng.uniform(-1, 1, (1, 6)), rng.standard_normal(1), np.zeros(1, bool), [{{}}])
times = []
for _ in range({calls} + 1):
    start = time.perf_counter()
    model.train(gradient_steps={together}, batch_size=256)
    if torch.cuda.is_available(): torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
print(json.dumps([times[1:], times[0], f"{{name}}, torch {{torch.__version__}}"]))
"""


def measure_mirrored(case, args):
    """The largest difference between weights updated on two logical devices and on one, relative to the change of the
    weights."""
    import numpy as np
    import tensorflow as tf

    kind = "GPU" if first_gpu(tf) else "CPU"
    part = (
        tf.config.LogicalDeviceConfiguration(memory_limit=8000)
        if kind == "GPU"
        else tf.config.LogicalDeviceConfiguration()
    )
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices(kind)[0], [part, part])
    tf.config.experimental.enable_tensor_float_32_execution(False)
    from toys import random_batches, vector_spec

    import tfsac
    from tfsac.parameters import RunParameters
    from tfsac.training.build import build_agent

    spec, preset = vector_spec(17, 6), tfsac.load_preset("mujoco_twin_sac")
    names = [device.name for device in tf.config.list_logical_devices(kind)]
    weights, batches = [], random_batches(spec, 5, preset.agent.batch_size)
    for strategy in (
        tf.distribute.MirroredStrategy(names, tf.distribute.ReductionToOneDevice()),
        tf.distribute.get_strategy(),
    ):
        with strategy.scope():
            agent = build_agent(preset, RunParameters(seed=1), spec)
        before = [variable.numpy() for variable in agent.trained["q"]]
        agent.update(batches)
        weights.append([variable.numpy() for variable in agent.trained["q"]])
    error = max(np.linalg.norm(a - b) / np.linalg.norm(b - c) for a, b, c in zip(*weights, before, strict=True))
    return {
        "library": "tfsac",
        "memory": "RAM",
        "compiled": "graph",
        "K": 5,
        "value": float(error),
        "unit": "relative difference from one device",
        "where": where(),
    }


def measure_tests(case, args):
    """Whether the GPU tests pass."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "-o",
        "filterwarnings=default",
        "tests/test_gpu.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-2500:], done.stderr[-500:], file=sys.stderr)
    return {
        "library": "tfsac",
        "value": done.returncode,
        "unit": "exit status",
        "where": done.stdout.strip().splitlines()[-1],
    }


MEASURES = {
    "yardstick": measure_yardstick, "updates": measure_updates, "loop": measure_loop, "torch": measure_torch,
    "sb3": measure_sb3, "acting": measure_acting, "mirrored": measure_mirrored, "tests": measure_tests,
}  # fmt: skip


def emit(row):
    """Prints a row for the process that writes the table."""
    print("ROW " + json.dumps({name: row.get(name) for name in FIELDS}), flush=True)


def work(cases, args):
    """Measures cases one after the other; reports failures and continues with the next case."""
    sys.path.insert(0, str(ROOT))
    for number, case in enumerate(cases):
        print(f"CASE {number}", flush=True)
        try:
            row = MEASURES[case["kind"]](case, args)
        except Exception as error:  # the machine is available only for minutes
            print(f"FAILED {case}: {type(error).__name__}: {str(error)[-1500:]}", file=sys.stderr, flush=True)
            sys.exit(1)  # run the next case in a new process: the GPU context may be broken
        if row:
            emit(case | row)


def run_group(name, args, deadline):
    """Runs the cases of a group in a process; if a case exceeds the limit, stops it and starts another for the rest."""
    cases = GROUPS[name]
    while cases and time.time() < deadline:
        command = [sys.executable, __file__, *sys.argv[1:], "--cases", json.dumps(cases)]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
        lines, current = queue.Queue(), -1
        threading.Thread(target=feed, args=(process, lines), daemon=True).start()
        began = time.time()
        while True:
            left = min(began + args.limit, deadline) - time.time()
            try:
                line = lines.get(timeout=max(left, 0.01))
            except queue.Empty:
                print(f"STOPPED {name}: {cases[max(current, 0)]}", flush=True)
                os.killpg(process.pid, 9)
                break
            if line is None:
                break
            if line.startswith("CASE "):
                current, began = int(line.split()[1]), time.time()
            elif line.startswith("ROW "):
                write(json.loads(line[4:]), args)
        process.wait()
        cases = cases[max(current, 0) + 1 :]


def feed(process, lines):
    """Puts a process's output lines into a queue, and None at the end."""
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def write(row, args):
    """Appends a row to the table."""
    row = {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()}
    new = not args.out.exists()
    with args.out.open("a", newline="") as file:
        table = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            table.writeheader()
        table.writerow(row)
    print(*(row[name] for name in FIELDS if row.get(name) is not None), sep=", ", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="total time; nothing starts later")
    parser.add_argument("--limit", type=float, default=120, help="seconds of one case")
    parser.add_argument("--measure", type=float, default=1.5, help="seconds of calls of one case")
    parser.add_argument("--calls", type=int, default=3, help="minimum number of calls of one case")
    parser.add_argument("--stored", type=int, default=100_000, help="transitions in the memory")
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=[*GROUPS])
    parser.add_argument("--small", action="store_true", help="at most 3 updates per call and two calls, to rehearse")
    parser.add_argument("--yardstick", help="a program like xla_loop.py")
    parser.add_argument("--torch", help="a Python with torch")
    parser.add_argument("--sb3", help="a Python with stable-baselines3")
    parser.add_argument("--sb3_path", help="a folder with its missing packages")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.small:
        args.calls, args.measure, args.stored = 1, 0.1, 2000
    if args.cases:
        work(json.loads(args.cases), args)
        return
    deadline = time.time() + args.seconds
    for name in args.only:
        if args.small:
            least = {"K": 3, "capacity": args.stored}
            GROUPS[name] = [
                case | {key: min(case[key], most) for key, most in least.items() if key in case}
                for case in GROUPS[name]
            ]
        print(f"== {name}, {deadline - time.time():.0f} s left", flush=True)
        run_group(name, args, deadline)


if __name__ == "__main__":
    main()
