"""What an update costs on a GPU, against the size of networks and batches, beside Stable-Baselines3 on the same GPU; and
what the smallest costs compiled with XLA, and on the CPU beside the GPU.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --sb3=PYTHON        # PYTHON has stable-baselines3 and a torch with CUDA

Each library and device is a process of its own, one after the other. An agent is made and compiled, then makes `--calls`
calls of 50 updates each (10 for frames and batches of 4096). Batches are sampled within the measured time from a replay
memory of random numbers; those of frames are sampled before. Soft actor-critic has 17 observations and 6 actions as in
HalfCheetah-v5. XLA's search for the fastest kernels is off. Writes results/gpu.csv: milliseconds an update.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

RESULTS = pathlib.Path(__file__).parent / "results" / "gpu.csv"
OBSERVATION, ACTION, STORED = 17, 6, 10_000
SMALLEST = "SAC, 2 x 256, batch 256"
# Preset, and a width of its layers and a batch size where they are not the preset's own.
CASES = {
    SMALLEST: ("mujoco_twin_sac", 256, 256),
    "SAC, 2 x 256, batch 4096": ("mujoco_twin_sac", 256, 4096),
    "SAC, 2 x 1024, batch 256": ("mujoco_twin_sac", 1024, 256),
    "SAC, 2 x 1024, batch 4096": ("mujoco_twin_sac", 1024, 4096),
    "REDQ, 10 critics, batch 256": ("redq_mujoco", None, None),
    "CrossQ, 2 x 2048, batch 256": ("crossq_mujoco", None, None),
    "discrete SAC, 84 x 84 x 4, batch 64": ("atari_discrete_sac", None, None),
    "discrete SAC, 84 x 84 x 4, batch 512": ("atari_discrete_sac", None, 512),
}
WORKERS = {
    ("tfsac", "gpu"): list(CASES),
    ("tfsac", "gpu, XLA"): [SMALLEST],
    ("tfsac", "cpu"): [SMALLEST],
    ("sb3", "gpu"): [name for name in CASES if name.startswith("SAC")],
}


def together(name):
    """Returns how many updates a call makes."""
    return 10 if "4096" in name or "84" in name else 50


def make_tfsac(device):
    """Returns a function that makes an agent, and returns one that makes a call of updates and waits for its end; and
    the name of the device.
    """
    sys.path.insert(0, str(RESULTS.parents[2]))
    import numpy as np
    import tensorflow as tf
    from toys import random_batches, vector_spec

    import tfsac
    from tfsac.memories import TransitionMemory
    from tfsac.parameters import RunParameters, override
    from tfsac.training import devices
    from tfsac.training.build import build_agent
    from tfsac.types import ArraySpec, DiscreteSpec, Spec

    devices.configure(use_cpu=device == "cpu")
    run = RunParameters(seed=1, jit_compile=device.endswith("XLA"))
    frames = Spec({"observation": ArraySpec((84, 84, 4), "uint8")}, DiscreteSpec(6))

    def make(name):
        of_preset, width, batch = CASES[name]
        changes = {"agent.networks.*.batch_size": batch} if batch else {}
        if width and width != 256:
            changes |= {
                "agent.networks.policy.middleware_parameters.scheme": (width, width),
                "agent.networks.q.head_parameters.network_layers_sizes": (width, width),
            }
        spec = frames if "84" in name else vector_spec(OBSERVATION, ACTION)
        agent = build_agent(override(tfsac.load_preset(of_preset), changes), run, spec)
        if spec is frames:
            batches = random_batches(spec, together(name), agent.batch_size)
            return lambda: agent.update(batches)
        rng, memory, never = np.random.default_rng(1), TransitionMemory(spec, STORED), np.zeros(1, bool)
        rows = random_batches(spec, STORED, 1)
        observations, following = rows.observation["observation"], rows.next_observation["observation"]
        for i in range(STORED):
            now, then = {"observation": observations[i]}, {"observation": following[i]}
            memory.add(now, rows.action[i], rows.reward[i], never, never, then)
        return lambda: agent.update(memory.sample(together(name), agent.batch_size, rng))

    return make, f"{devices.device()}, tensorflow {tf.__version__}"


def make_sb3(_):
    """Returns the same of Stable-Baselines3, on the GPU."""
    import gymnasium as gym
    import numpy as np
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import Logger

    class Level(gym.Env):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (ACTION,), np.float32)

    def make(name):
        _, width, batch = CASES[name]
        model = SAC(
            "MlpPolicy",
            Level(),
            seed=1,
            device="cuda",
            batch_size=batch,
            buffer_size=STORED,
            policy_kwargs={"net_arch": [width, width]},
        )
        model.set_logger(Logger(None, []))
        rng = np.random.default_rng(1)
        for _ in range(STORED):
            now, then = rng.standard_normal((2, 1, OBSERVATION))
            action, reward = rng.uniform(-1, 1, (1, ACTION)), rng.standard_normal(1)
            model.replay_buffer.add(now, then, action, reward, np.zeros(1, bool), [{}])

        def call():
            model.train(gradient_steps=together(name), batch_size=batch)
            torch.cuda.synchronize()

        return call

    return make, f"{torch.cuda.get_device_name()}, torch {torch.__version__}"


def work(library, device, calls):
    """Measures all cases of a library on a device; each is a line of JSON."""
    make, where = {"tfsac": make_tfsac, "sb3": make_sb3}[library](device)
    for name in WORKERS[library, device]:
        call, times = make(name), []
        for _ in range(2):
            call()
        for _ in range(calls):
            began = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - began) / together(name))
        print(json.dumps([name, times, where]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--sb3", help="a Python with stable-baselines3")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(*args.worker, args.calls)
        return
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
    rows = []
    for worker in WORKERS:
        python = {"tfsac": sys.executable, "sb3": args.sb3}[worker[0]]
        if python is None:
            continue
        command = [python, __file__, f"--calls={args.calls}", "--worker", *worker]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "XLA_FLAGS": flags}, check=True
        )
        for name, times, where in map(json.loads, done.stdout.splitlines()):
            milliseconds = (f"{number:.4g}" for number in (statistics.median(times), min(times), max(times)))
            rows.append([name, *worker, *milliseconds, where])
            print(*rows[-1], sep=", ", flush=True)
    with args.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["case", "library", "device", "milliseconds", "least", "most", "where"])
        table.writerows(rows)


if __name__ == "__main__":
    main()
