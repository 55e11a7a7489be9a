"""The agents learn: one file each, with its losses, gradients, optimizer steps and targets in the order in which they
happen.

`learner.py` has what they share, `tfsac/compiled_updates.py` the compiled loop that calls `update_once`. A suffix names
the axes of a tensor: B rows of a batch, N critics, A action dimensions or discrete actions, T time, D rewards a step, R
= T * B rows, J sampled actions of a row. Docstrings also have E environments and P agents that share a policy.
"""

from tfsac.agents.acer import DiscreteACERAgent, GaussianACERAgent
from tfsac.agents.discrete_sac import DiscreteSoftActorCriticAgent
from tfsac.agents.learner import Agent
from tfsac.agents.sac import TwinSoftActorCriticAgent
from tfsac.agents.sac_v import SoftActorCriticAgent
from tfsac.agents.taac import TemporallyAbstractActorCriticAgent

__all__ = [
    "Agent",
    "DiscreteACERAgent",
    "DiscreteSoftActorCriticAgent",
    "GaussianACERAgent",
    "SoftActorCriticAgent",
    "TemporallyAbstractActorCriticAgent",
    "TwinSoftActorCriticAgent",
]
