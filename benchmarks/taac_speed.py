"""Compares the update speed of TAAC with the prediction from twin-target soft actor-critic's speed and the counts of
matrix products.

    python benchmarks/taac_speed.py --rounds=5

Both agents run in one process, taking turns, with HalfCheetah's sizes, a batch of 256 and two hidden layers of 256.
TAAC learns from sequences of T = 4 steps. Writes results/taac_speed.csv, one row per round.
"""

import argparse
import csv
import os
import pathlib
import statistics
import time

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(name, {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}[name])

import numpy as np  # noqa: E402

from tfsac.agents import TemporallyAbstractActorCriticAgent, TwinSoftActorCriticAgent  # noqa: E402
from tfsac.parameters import (  # noqa: E402
    SequenceReplayParameters,
    TemporallyAbstractActorCriticAgentParameters,
    TwinSoftActorCriticAgentParameters,
)
from tfsac.types import NEXT_STATE, STATE, SWITCH, ArraySpec, Sequence, Spec, Transition  # noqa: E402

OUT = pathlib.Path(__file__).parent / "results" / "taac_speed.csv"
OBSERVATION, ACTION, BATCH, HIDDEN, CALL = 17, 6, 256, 256, 20


def passes(layers: list[tuple[int, int]], gradient: str = "") -> int:
    """Returns the multiplications of a forward pass of one row, and of a gradient to the "weights" or through to the
    "inputs".
    """
    products = [a * b for a, b in layers]
    forward, below = sum(products), sum(products[1:])
    return forward + {"": 0, "inputs": forward, "weights": forward + below}[gradient]


def counted(steps: int) -> tuple[int, int]:
    """Returns the multiplications of one update of each agent: twin-target soft actor-critic, and TAAC."""
    body = [(HIDDEN, HIDDEN)]
    policy = [(OBSERVATION, HIDDEN), *body, (HIDDEN, 2 * ACTION)]
    # The first layer needs the linear layer from the previous action to the observation's width only once.
    abstract = [(2 * OBSERVATION + ACTION * OBSERVATION // HIDDEN, HIDDEN), *body, (HIDDEN, 2 * ACTION)]
    q = [(OBSERVATION + ACTION, HIDDEN), *body, (HIDDEN, 1)]
    sac = passes(policy) + passes(policy, "weights") + 2 * (passes(q, "inputs") + passes(q) + passes(q, "weights"))
    taac = passes(abstract, "weights") + 2 * (passes(q, "inputs") + passes(q) + 2 * passes(q) + passes(q, "weights"))
    return BATCH * sac, BATCH * steps * taac


def transitions(rng: np.random.Generator) -> Transition:
    def normal(*inner: int) -> np.ndarray:
        return rng.standard_normal((CALL, BATCH, *inner), np.float32)

    row = normal()
    return Transition(
        {"observation": normal(OBSERVATION)},
        np.tanh(normal(ACTION)),
        row,
        np.ones_like(row),
        {"observation": normal(OBSERVATION)},
        (),
        {},
    )


def sequences(rng: np.random.Generator, steps: int) -> Sequence:
    def normal(*inner: int) -> np.ndarray:
        return rng.standard_normal((CALL, steps, BATCH, *inner), np.float32)

    row, action = normal(), np.tanh(normal(ACTION))
    extras = {
        f"{STATE}tau_a": np.tanh(normal(ACTION)),
        f"{NEXT_STATE}tau_a": action,
        SWITCH: (normal() > 0).astype(np.float32),
    }
    return Sequence(
        {"observation": normal(OBSERVATION)}, action, row, np.ones_like(row), np.ones(row.shape, np.int32), extras
    )


def rate(agent, batches, seconds: float) -> float:
    """Returns updates per second."""
    began, made = time.perf_counter(), 0
    while (gone := time.perf_counter() - began) < seconds:
        agent.update(batches)
        made += CALL
    return made / gone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each measurement")
    parser.add_argument("--steps", type=int, default=4, help="T")
    options = parser.parse_args()
    rng, one = np.random.default_rng(0), np.ones(ACTION, np.float32)
    spec = Spec({"observation": ArraySpec((OBSERVATION,), "float32")}, ArraySpec((ACTION,), "float32", -one, one))
    memory = SequenceReplayParameters(sequence_length=options.steps)
    sac = TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(), spec)
    taac = TemporallyAbstractActorCriticAgent(TemporallyAbstractActorCriticAgentParameters(memory=memory), spec)
    work = ((sac, transitions(rng)), (taac, sequences(rng, options.steps)))
    for agent, batches in work:
        rate(agent, batches, 1.0)
    of_sac, of_taac = counted(options.steps)
    rows = []
    for i in range(options.rounds):
        measured = [rate(agent, batches, options.seconds) for agent, batches in work]
        predicted = measured[0] * of_sac / of_taac
        rows.append([i + 1, *(round(x, 1) for x in (*measured, predicted)), round(measured[1] / predicted, 3)])
        print(
            f"round {i + 1}: SAC {measured[0]:.0f}, TAAC {measured[1]:.0f} updates/s, predicted {predicted:.0f}",
            flush=True,
        )
    with OUT.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["round", "sac_updates_per_second", "taac_updates_per_second", "predicted", "share"])
        writer.writerows(rows)
    shares = [row[-1] for row in rows]
    print(f"TAAC's update has {of_taac / of_sac:.2f} times the multiplications of SAC's.")
    print(
        f"share of the predicted speed: median {statistics.median(shares):.2f} [{min(shares):.2f}-{max(shares):.2f}], "
        f"bar 0.6"
    )


if __name__ == "__main__":
    main()
