"""The agents learn: one file each, with its losses, gradients, optimizer steps and targets in the order in which they happen."""

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
