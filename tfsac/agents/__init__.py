"""The agents, one file each: its networks and its update order."""

from tfsac.agents.base import Agent, Mode, ModelMaker
from tfsac.agents.discrete_acer import DiscreteACERAgent
from tfsac.agents.discrete_soft_actor_critic import DiscreteSoftActorCriticAgent
from tfsac.agents.gaussian_acer import GaussianACERAgent
from tfsac.agents.soft_actor_critic import SoftActorCriticAgent
from tfsac.agents.temporally_abstract_actor_critic import TemporallyAbstractActorCriticAgent
from tfsac.agents.twin_soft_actor_critic import TwinSoftActorCriticAgent

__all__ = [
    "Agent",
    "DiscreteACERAgent",
    "DiscreteSoftActorCriticAgent",
    "GaussianACERAgent",
    "Mode",
    "ModelMaker",
    "SoftActorCriticAgent",
    "TemporallyAbstractActorCriticAgent",
    "TwinSoftActorCriticAgent",
]
