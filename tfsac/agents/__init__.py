"""The agents, one file each: losses, gradients, optimizer steps and targets in the order in which they run. `sac_v.py`
is Coach's agent with V, `twin_sac.py` the one with twin critics.

The loss formulas, including that of the temperature, are in `tfsac/losses/`. `learner.py` has the base class,
`compiled_updates.py` the loop that calls `update_once`, and `batches.py` the transfer of batches to the graph.

A suffix names the axes of a tensor: B batch entries, N critics, A action dimensions or discrete actions, T time, D
rewards per step, R = T * B, J sampled actions of an entry, S parameters of a distribution, F factors of an action, K
combinations of them. Docstrings also have U updates of a call, M metrics, E environments and P team members that share
a policy.
"""

from tfsac.agents.acer import DiscreteACERAgent, GaussianACERAgent
from tfsac.agents.discrete_sac import DiscreteSoftActorCriticAgent
from tfsac.agents.ensemble_sac import EnsembleSoftActorCriticAgent
from tfsac.agents.hybrid_sac import HybridSoftActorCriticAgent
from tfsac.agents.learner import Agent
from tfsac.agents.recurrent_sac import RecurrentDiscreteSoftActorCriticAgent, RecurrentSoftActorCriticAgent
from tfsac.agents.sac_v import SoftActorCriticAgent
from tfsac.agents.taac import TemporallyAbstractActorCriticAgent
from tfsac.agents.twin_sac import TwinSoftActorCriticAgent

__all__ = [
    "Agent",
    "DiscreteACERAgent",
    "DiscreteSoftActorCriticAgent",
    "EnsembleSoftActorCriticAgent",
    "GaussianACERAgent",
    "HybridSoftActorCriticAgent",
    "RecurrentDiscreteSoftActorCriticAgent",
    "RecurrentSoftActorCriticAgent",
    "SoftActorCriticAgent",
    "TemporallyAbstractActorCriticAgent",
    "TwinSoftActorCriticAgent",
]
