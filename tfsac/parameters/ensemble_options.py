"""Which options of critics go together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfsac.parameters.base import ParameterError, reject_unused_fields
from tfsac.parameters.layers import normalizes_batches
from tfsac.parameters.networks import CategoricalValueParameters, NetworkParameters, QuantileValueParameters

if TYPE_CHECKING:
    from tfsac.parameters.soft_actor_critic import TwinSoftActorCriticAlgorithmParameters

OPTIONS = (
    "critic_subset",
    "target_reduction",
    "policy_reduction",
    "entropy_in_target",
    "joint_critic_forward",
    "joint_policy_forward",
)
MIXING = ("Adafactor", "Lamb", "Muon")  # whose steps depend on a variable's shape, or on all of its weights
ATOM_BOUND = 5.0  # of scaled returns, where the atoms have no bounds of their own
REDUCTIONS = {
    type(None): ("min", "mean", "index_min", "own"),
    CategoricalValueParameters: ("index_min", "mean", "own"),
    QuantileValueParameters: ("pool", "index_min", "mean", "own"),
}


def is_plain_twin(algorithm: TwinSoftActorCriticAlgorithmParameters, networks: Mapping[str, NetworkParameters]) -> bool:
    """Returns whether one or two critics have no option beyond those of twin soft actor-critic."""
    head: Any = networks["q"].head_parameters
    usual = {field.name: field.default for field in dataclasses.fields(algorithm)}
    plain_head = not (head.normalization or head.dropout or head.residual_blocks or head.distribution)
    plain_networks = all(not special_layers(network) for network in networks.values())
    plain_options = all(getattr(algorithm, name) == usual[name] for name in OPTIONS)
    return head.num_critics <= 2 and plain_head and plain_networks and plain_options


def special_layers(network: NetworkParameters) -> str | None:
    """Returns what only the update of an ensemble of critics computes in a network's layers, or None."""
    bodies = [network.middleware_parameters, getattr(network.head_parameters, "body", None)]
    if any(map(normalizes_batches, bodies)):
        return "batch normalisation"
    if any(getattr(body, "dropout", 0.0) for body in bodies):
        return "dropout"
    if getattr(network.head_parameters, "distribution", None):
        return "a distribution of returns"
    return "unit_weights" if network.unit_weights != "none" else None


def check_critics(algorithm: TwinSoftActorCriticAlgorithmParameters, networks: Mapping[str, NetworkParameters]) -> None:
    """Rejects options of the twin agent's critics that have no effect, or with which critics cannot learn."""
    policy, q = networks["policy"], networks["q"]
    head: Any = q.head_parameters
    allowed = REDUCTIONS[type(head.distribution)]
    if algorithm.target_reduction not in allowed:
        names = f"{' or '.join(map(repr, allowed))} with distribution={head.distribution}"
        raise ParameterError(f"target_reduction must be {names}, got {algorithm.target_reduction!r}")
    if isinstance(head.distribution, QuantileValueParameters) and algorithm.target_reduction != "pool":
        because = f"target_reduction={algorithm.target_reduction!r}"
        reject_unused_fields(head.distribution, ["drop_per_critic"], because)
    bodies = (head.body, q.middleware_parameters)
    if any(map(normalizes_batches, bodies)):
        if not algorithm.joint_critic_forward or algorithm.update_order == "simultaneous":
            needs = "joint_critic_forward=True and an update_order other than 'simultaneous'"
            got = f"{algorithm.joint_critic_forward} and {algorithm.update_order!r}"
            raise ParameterError(f"Critics with batch normalisation need {needs}, got {got}")
        kinds = [normalization.kind for body in bodies if (normalization := getattr(body, "normalization", None))]
        if "batch_renorm" in kinds and q.create_target_network:
            raise ParameterError("Critics with batch renormalisation need create_target_network=False, got True")
    if not normalizes_batches(policy.middleware_parameters):
        reject_unused_fields(algorithm, ["joint_policy_forward"], "a policy without batch normalisation")


def check_atoms(networks: Mapping[str, NetworkParameters], return_scaling: Any, reward_factor: float) -> None:
    """Rejects atoms without bounds of their own where nothing keeps returns within the usual ones."""
    distribution = getattr(networks["q"].head_parameters, "distribution", None) if "q" in networks else None
    if not isinstance(distribution, CategoricalValueParameters) or distribution.low is not None:
        return
    if return_scaling is None or return_scaling.bound not in (None, ATOM_BOUND) or reward_factor > 1:
        raise ParameterError(
            'Atoms between -5 and 5 need environment.filters.return_scaling={"bound": 5.0} and reward_rescale_factor '
            "<= 1; or set agent.networks.q.head_parameters.distribution.low and high, the bounds of your returns"
        )


def check_layers(networks: Mapping[str, NetworkParameters], twin: bool) -> None:
    """Rejects layers that an agent, but for the twin one, would not compute as they are described, and optimizers that
    would mix critics.
    """
    for name, network in networks.items():
        found = None if twin else special_layers(network)
        if getattr(network.middleware_parameters, "dropout", 0.0):
            found = "dropout in its middleware"
        if found:
            owners = "critics (batch normalisation and unit_weights: also the policy) of 'twin_soft_actor_critic'"
            raise ParameterError(f"Only {owners} can have {found}, got it in network {name!r}")
        critics = getattr(network.head_parameters, "num_critics", 1)
        if critics > 1 and network.optimizer_type in MIXING:
            mixes = f"optimizer_type={network.optimizer_type!r} would mix the {critics} critics of {name!r}"
            raise ParameterError(f"{mixes}: choose Adam or another one that treats every weight alone")


def reject_layers_of_custom_models(networks: Mapping[str, NetworkParameters]) -> None:
    """Rejects batch normalisation, dropout and unit weights where custom Keras models take the layers' place."""
    for name, network in networks.items():
        found = special_layers(network)
        if found and found != "a distribution of returns":
            raise ParameterError(f"Custom Keras models have layers of their own, got {found} in network {name!r}")
