"""Measures how long updates and actions take with an ensemble of critics, compared with the twin agent.

    python benchmarks/ensembles.py                       # all, taking turns
    python benchmarks/ensembles.py --only='twin|10'      # some
    python benchmarks/ensembles.py --only='XQC|Flash' --mixed_precision=bfloat16    # in float32 and in bfloat16
    TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python benchmarks/ensembles.py

Updates with batches of 256 with HalfCheetah's sizes, one per call, all metrics in every twentieth; actions are sampled
for one observation.
"""

import argparse
import os
import pathlib
import re
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tfsac.agents import EnsembleSoftActorCriticAgent, TwinSoftActorCriticAgent
from tfsac.networks.bfloat16 import use_bfloat16
from tfsac.parameters import (
    FCMiddlewareParameters,
    NormalizationParameters,
    QHeadParameters,
    RunParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    ensemble_soft_actor_critic_networks,
    override,
)
from tfsac.preset_lookup import load_preset
from tfsac.training.build import build_agent
from tfsac.training.devices import configure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from toys import random_batches, vector_spec

SPEC, ROWS = vector_spec(17, 6), 256
PLAIN = FCMiddlewareParameters((256, 256))
RENORM = NormalizationParameters("batch_renorm", "after", normalize_input=True)


def ensemble(critics, body=PLAIN, policy=PLAIN, target_network=True, **algorithm):
    head = QHeadParameters(num_critics=critics, body_parameters=body)
    networks = ensemble_soft_actor_critic_networks(head, policy, target_network=target_network, batch_size=ROWS)
    parameters = TwinSoftActorCriticAlgorithmParameters(**algorithm)
    return EnsembleSoftActorCriticAgent(
        TwinSoftActorCriticAgentParameters(algorithm=parameters, networks=networks), SPEC
    )


def crossq(units):
    return ensemble(
        2,
        FCMiddlewareParameters((units, units), normalization=RENORM),
        FCMiddlewareParameters((256, 256), normalization=RENORM),
        target_network=False,
        joint_critic_forward=True,
        num_updates_between_policy_updates=3,
    )


def preset(name):
    return build_agent(override(load_preset(name), {"agent.networks.*.batch_size": ROWS}), RunParameters(), SPEC)


DROQ = FCMiddlewareParameters((256, 256), normalization=NormalizationParameters("layer"), dropout=0.01)
CASES = {
    "twin": lambda: TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), SPEC),
    "2 critics": lambda: ensemble(2),
    "10 critics": lambda: ensemble(10),
    "REDQ": lambda: ensemble(10, critic_subset=2, policy_reduction="mean"),
    "DroQ": lambda: ensemble(2, DROQ, policy_reduction="mean"),
    "CrossQ, 256 units": lambda: crossq(256),
    "continuous": lambda: preset("continuous"),
    "CrossQ, 512 units": lambda: crossq(512),
    "CrossQ, 2048 units": lambda: crossq(2048),
    "XQC": lambda: preset("xqc_mujoco"),
    "FlashSAC": lambda: preset("flash_sac_mujoco"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=re.compile, default="")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--mixed_precision", choices=["none", "bfloat16"], default="none")
    args = parser.parse_args()
    configure()  # the threads of tfsac's runs
    precisions = {"": False} if args.mixed_precision == "none" else {"": False, ", bfloat16": True}
    chosen = {name: make for name, make in CASES.items() if re.search(args.only, name)}
    agents = {name + how: make() for name, make in chosen.items() for how in precisions}
    stacked = random_batches(SPEC, 12, ROWS)
    batches = [tf.nest.map_structure(lambda x, i=i: x[i : i + 1], stacked) for i in range(12)]
    for name, agent in agents.items():
        use_bfloat16(name.endswith("bfloat16"))
        agent.compiled.updates_between_diagnostics = 20
        agent.trace(single=True)
        for batch in batches[:3]:
            agent.update(batch)
    seconds = {name: [] for name in agents}
    for _ in range(args.rounds):
        for name, agent in agents.items():
            use_bfloat16(name.endswith("bfloat16"))
            begun = time.perf_counter()
            for batch in batches:
                agent.update(batch)
            seconds[name].append((time.perf_counter() - begun) / len(batches))
    first = np.median(next(iter(seconds.values())))
    for name, each in seconds.items():
        acting = act_microseconds(agents[name].policy)
        print(f"{name:20} {1e3 * np.median(each):7.2f} ms  {np.median(each) / first:5.2f}  act {acting:4.0f} us")


def act_microseconds(policy):
    observation = {"observation": np.zeros((1, 17), np.float32)}
    times = []
    for _ in range(2000):
        begun = time.perf_counter()
        policy.act(observation)
        times.append(time.perf_counter() - begun)
    return 1e6 * np.median(times)


if __name__ == "__main__":
    main()
