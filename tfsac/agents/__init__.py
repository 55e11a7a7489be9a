"""The agents, one file each: its networks and its update order."""

from tfsac.agents.base import Agent
from tfsac.agents.soft_actor_critic import SoftActorCriticAgent

__all__ = ["Agent", "SoftActorCriticAgent"]
