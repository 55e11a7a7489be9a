"""Which options of an ensemble of critics go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfsac.parameters.base import ParameterError, refuse_ineffective
from tfsac.parameters.head_parameters import (
    CategoricalValueParameters,
    EnsembleQHeadParameters,
    QuantileValueParameters,
)
from tfsac.parameters.hidden_layers import normalizes_batches
from tfsac.parameters.networks import NetworkParameters

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


def check_ensemble(
    algorithm: TwinSoftActorCriticAlgorithmParameters, networks: Mapping[str, NetworkParameters], has_ensemble: bool
) -> None:
    """Refuses options that have no effect, that contradict each other, or with which critics cannot learn.

    Args:
        algorithm: of the twin agent.
        networks: "policy" and "q".
        has_ensemble: whether the head of q is an ensemble.

    Raises:
        ParameterError: names the options.
    """
    policy, q = networks["policy"], networks["q"]
    head: Any = q.head_parameters
    if not has_ensemble:
        because = f"a head of q of the kind {head.kind!r}"
        refuse_ineffective(algorithm, OPTIONS, because, "choose the head 'ensemble_q' (EnsembleQHeadParameters)")
        return
    assert isinstance(head, EnsembleQHeadParameters)
    _check_reduction(algorithm, head)
    if q.optimizer_type in MIXING:
        raise ParameterError(
            "The critics of an ensemble share one variable for each layer, and this optimizer would mix them: choose "
            "Adam, AdamW or another one that treats every weight alone. "
            f"Received: agent.networks.q.optimizer_type={q.optimizer_type!r}"
        )
    normalized = normalizes_batches(head.body_parameters) or normalizes_batches(q.middleware_parameters)
    if normalized and not algorithm.joint_critic_forward:
        raise ParameterError(
            "Critics with batch normalisation do not learn where Q(s, a) and Q(s', a') are normalised by batches of "
            "their own: set joint_critic_forward=True, or another normalisation. Received: "
            "joint_critic_forward=False"
        )
    if normalized and algorithm.update_order == "simultaneous":
        raise ParameterError(
            "The critics' statistics move in their step, before the policy's: with batch normalisation the "
            "update_order is 'critic_first' or 'policy_first'. Received: update_order='simultaneous'"
        )
    if head.distribution is not None and q.replace_mse_with_huber_loss:
        raise ParameterError(
            "Distributions of returns have losses of their own. Received: replace_mse_with_huber_loss=True with "
            f"{head.distribution}"
        )
    policy_normalized = normalizes_batches(policy.middleware_parameters)
    if policy_normalized and not algorithm.joint_policy_forward and policy.batch_size < 2:
        raise ParameterError(
            "A batch of one row is its own mean, so nothing passes batch normalisation in the policy: choose a larger "
            f"agent.networks.*.batch_size. Received: batch_size={policy.batch_size}"
        )
    renormalized = _renormalizes(head.body_parameters) or _renormalizes(q.middleware_parameters)
    if renormalized and q.create_target_network:
        raise ParameterError(
            "Batch renormalisation counts the updates of the critics, which a target network does not make: set "
            "agent.networks.q.create_target_network=False, or the kind 'batch'. Received: kind='batch_renorm' with "
            "create_target_network=True"
        )
    if algorithm.joint_policy_forward and not policy_normalized:
        raise ParameterError(
            "joint_policy_forward belongs to a policy with batch normalisation. Received: joint_policy_forward=True "
            f"with {policy.middleware_parameters}"
        )


def _renormalizes(body: Any) -> bool:
    normalization = getattr(body, "normalization", None)
    return normalization is not None and normalization.kind == "batch_renorm"


def _check_reduction(algorithm: TwinSoftActorCriticAlgorithmParameters, head: EnsembleQHeadParameters) -> None:
    allowed = REDUCTIONS[type(head.distribution)]
    if algorithm.target_reduction not in allowed:
        raise ParameterError(
            f"With distribution={head.distribution} the target_reduction is {' or '.join(map(repr, allowed))}. "
            f"Received: target_reduction={algorithm.target_reduction!r}"
        )
    subset = algorithm.critic_subset
    if head.num_critics == 1:
        refuse_ineffective(algorithm, ["policy_reduction"], "num_critics=1", "choose more critics")
    if subset is not None and subset >= head.num_critics:
        raise ParameterError(
            f"critic_subset is smaller than the number of critics, {head.num_critics}. Received: critic_subset={subset}"
        )
    if subset is not None and algorithm.target_reduction == "own":
        raise ParameterError(
            "With target_reduction='own' every critic learns from its own target, so there is no critic_subset. "
            f"Received: critic_subset={subset}"
        )
    quantiles = head.distribution if isinstance(head.distribution, QuantileValueParameters) else None
    if quantiles is not None and quantiles.drop_per_critic and algorithm.target_reduction != "pool":
        because = f"target_reduction={algorithm.target_reduction!r}"
        refuse_ineffective(quantiles, ["drop_per_critic"], because, "pool the quantiles")


def check_atoms(networks: Mapping[str, NetworkParameters], return_scaling: Any, reward_factor: float) -> None:
    """Refuses atoms without bounds of their own where nothing keeps returns within the usual ones.

    Args:
        networks: of the agent.
        return_scaling: its parameters, or None.
        reward_factor: of scaled rewards.

    Raises:
        ParameterError: it is so.
    """
    head = networks["q"].head_parameters if "q" in networks else None
    distribution = getattr(head, "distribution", None)
    if not isinstance(distribution, CategoricalValueParameters) or distribution.low is not None:
        return
    if return_scaling is not None and return_scaling.bound not in (None, ATOM_BOUND):
        raise ParameterError(
            "Atoms without bounds of their own lie between -5 and 5: set return_scaling's bound to 5, or the bounds, "
            "agent.networks.q.head_parameters.distribution.low and high. Received: "
            f"bound={return_scaling.bound}, low=None"
        )
    if return_scaling is None:
        raise ParameterError(
            "Atoms lie between -5 and 5, where scaled returns are: set "
            'environment.filters.return_scaling, such as {"bound": 5.0}, or the bounds of your returns, '
            "agent.networks.q.head_parameters.distribution.low and high. Received: return_scaling=None, low=None"
        )
    if reward_factor > 1:
        raise ParameterError(
            "Atoms without bounds of their own lie between -5 and 5, and scaled rewards times reward_rescale_factor "
            "have larger returns: leave it at 1, or set the bounds, agent.networks.q.head_parameters.distribution.low "
            f"and high. Received: reward_rescale_factor={reward_factor}, low=None"
        )


def refuse_layers_of_custom_models(networks: Mapping[str, NetworkParameters]) -> None:
    """Refuses options of layers where custom Keras models take the layers' place.

    Raises:
        ParameterError: batch normalisation, dropout, or unit weights.
    """
    for name, network in networks.items():
        bodies = [network.middleware_parameters, getattr(network.head_parameters, "body_parameters", None)]
        for body in bodies:
            if normalizes_batches(body) or getattr(body, "dropout", False) or network.unit_weights != "none":
                raise ParameterError(
                    "Custom Keras models have layers of their own, without batch normalisation, dropout and "
                    f"unit_weights of tfsac. Received: network {name!r} with {body}, {network.unit_weights!r}"
                )


def check_plain(name: str, network: NetworkParameters) -> None:
    """Refuses layers of a network that only an agent with an ensemble of critics trains.

    Raises:
        ParameterError: batch normalisation, dropout or unit weights.
    """
    body: Any = network.middleware_parameters
    found = {
        "batch normalisation": normalizes_batches(body),
        "dropout": getattr(body, "dropout", 0.0) > 0,
        "unit_weights": network.unit_weights != "none",
    }
    if wrong := [what for what, there in found.items() if there]:
        raise ParameterError(
            f"Only the agent 'twin_soft_actor_critic' with the head 'ensemble_q' has {wrong[0]}. "
            f"Received: {wrong[0]} in network {name!r}"
        )
