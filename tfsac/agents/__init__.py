"""The agents, one file each: its networks and its update order."""

from tfsac.agents.base import Agent, ModelMaker
from tfsac.agents.discrete_soft_actor_critic import DiscreteSoftActorCriticAgent
from tfsac.agents.soft_actor_critic import SoftActorCriticAgent
from tfsac.agents.twin_soft_actor_critic import TwinSoftActorCriticAgent

__all__ = ["Agent", "DiscreteSoftActorCriticAgent", "ModelMaker", "SoftActorCriticAgent", "TwinSoftActorCriticAgent"]
