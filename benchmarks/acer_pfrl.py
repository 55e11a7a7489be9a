"""Measures how fast PFRL's ACER trains on CartPole-v1 in one process, for comparison with tfsac.

Run it in a separate virtual environment:

    pip install pfrl gymnasium packaging
    python benchmarks/acer_pfrl.py --t_max=50 --n_times_replay=4 --steps=10000

Prints one line of JSON: the timed steps, their seconds, steps per second, and the number of episodes that ended, which
determines the number of updates: PFRL updates after `t_max` steps and at the end of an episode.
"""

import argparse
import json
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pfrl
import torch
from pfrl.agents.acer import ACER, ACERDiscreteActionHead
from pfrl.optimizers import SharedRMSpropEpsInsideSqrt
from pfrl.policies import SoftmaxCategoricalHead
from pfrl.q_functions import DiscreteActionValueHead
from pfrl.replay_buffers import EpisodicReplayBuffer
from torch import nn

HIDDEN, CAPACITY, DISCOUNT = 100, 5_000, 0.99
REPLAY_START, WARM_UP = 1_000, 2_000  # steps


class OldInterface:
    """Adapts a Gymnasium environment to PFRL's loop: a single done flag, and the time limit in the info."""

    def __init__(self, env: gym.Env, seed: int):
        self.env, self.seed = env, seed

    def reset(self) -> np.ndarray:
        observation, _ = self.env.reset(seed=self.seed)
        self.seed += 1
        return observation

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated, {**info, "needs_reset": truncated}


def tanh_layers(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs)]


def make_agent(env: gym.Env, t_max: int, n_times_replay: int, learning_rate: float) -> ACER:
    sizes = env.observation_space.shape[0], int(env.action_space.n)
    model = ACERDiscreteActionHead(
        pi=nn.Sequential(*tanh_layers(*sizes), SoftmaxCategoricalHead()),
        q=nn.Sequential(*tanh_layers(*sizes), DiscreteActionValueHead()),
    )
    optimizer = SharedRMSpropEpsInsideSqrt(model.parameters(), lr=learning_rate, alpha=0.99, eps=1e-2)
    agent = ACER(
        model,
        optimizer,
        t_max,
        DISCOUNT,
        EpisodicReplayBuffer(CAPACITY),
        n_times_replay=n_times_replay,
        replay_start_size=REPLAY_START,
        use_trust_region=True,
    )
    # PFRL refuses to update parameters that processes could not share, even with a single process.
    agent.shared_model.share_memory()
    agent.shared_average_model.share_memory()
    for state in optimizer.state.values():
        state["square_avg"].share_memory_()
    return agent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--t_max", type=int, default=50, help="steps between updates")
    parser.add_argument("--n_times_replay", type=int, default=4, help="replay updates per on-policy update")
    parser.add_argument("--learning_rate", type=float, default=7e-4)
    parser.add_argument("--steps", type=int, default=10_000, help=f"timed environment steps, after {WARM_UP} others")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pfrl.utils.set_random_seed(args.seed)
    level = gym.make("CartPole-v1")
    env, agent = OldInterface(level, args.seed), make_agent(level, args.t_max, args.n_times_replay, args.learning_rate)
    observation, episodes, began = env.reset(), 0, 0.0
    for step in range(WARM_UP + args.steps):
        if step == WARM_UP:
            episodes, began = 0, time.perf_counter()
        observation, reward, done, info = env.step(agent.policy.act(observation))
        agent.observe(observation, reward, done, info["needs_reset"])
        if done or info["needs_reset"]:
            episodes, observation = episodes + 1, env.reset()
    seconds = time.perf_counter() - began
    result = {"steps": args.steps, "seconds": round(seconds, 3), "steps_per_second": round(args.steps / seconds, 1)}
    print(json.dumps({**result, "episodes": episodes}))


if __name__ == "__main__":
    main()
