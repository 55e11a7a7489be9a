"""Resets: an agent starts with fresh networks in the middle of a run, and learns from the memory that it has (Nikishin
et al. 2022, arXiv 2205.07802; Nauman et al. 2024, arXiv 2405.16158).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import numpy as np

from tfsac.agents import Agent
from tfsac.random_streams import Stream


class Resets:
    """Gives an agent fresh networks, target networks, temperatures and optimizers at given environment steps.

    The number of updates that were made, the seed of the noise and acting's random numbers stay. The agent's checkpoint
    holds the number of the last reset. `make_agent` makes an agent of the same kind with the first weights of a seed.
    """

    def __init__(self, agent: Agent, steps: Sequence[int], make_agent: Callable[[int], Agent], seed: int):
        self.agent, self.steps, self.make_agent, self.seed = agent, steps, make_agent, seed
        self.num_resets: int | None = None

    def pending(self, env_steps: int) -> int:
        """Returns the number of the reset to make, from 1 on, or 0; the last one stands for all that a step passes."""
        number = bisect.bisect_right(self.steps, env_steps)
        if number and self.num_resets is None:  # reading a variable in every step takes 0.1 ms
            self.num_resets = int(self.agent.resets.numpy())
        return number if number > (self.num_resets or 0) else 0

    def reset(self, number: int) -> None:
        """Makes a reset; its seed comes of the number."""
        agent = self.agent
        fresh = self.make_agent(int(np.random.default_rng([self.seed, Stream.RESETTING, number]).integers(2**31)))
        pairs = [(agent.policy.variables[name], value) for name, value in fresh.policy.variables.items()]
        for name, network in agent.networks.items():  # running statistics too, which nothing trains
            pairs += zip(network.model.variables, fresh.networks[name].model.variables, strict=True)
        for name, optimizer in agent.optimizers.items():  # and temperatures, which are no networks
            pairs += zip(agent.trained[name], fresh.trained[name], strict=True)
            pairs += zip(optimizer.variables, fresh.optimizers[name].variables, strict=True)
        for variable, value in pairs:
            variable.assign(value.numpy())
        agent.resets.assign(number)
        self.num_resets = number
        agent.policy.refresh()
