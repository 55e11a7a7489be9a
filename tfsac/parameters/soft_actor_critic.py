"""Parameters of soft actor-critic: value network, twin critics, ensembles, and discrete and hybrid actions."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import ByKind, ParameterError, PositiveInt, parameters, reject_unused_fields
from tfsac.parameters.base_agent import (
    AutoAlphaParameters,
    BaseAgentParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    EpsilonGreedyParameters,
    GaussianExplorationParameters,
    OffPolicyAlgorithmParameters,
    TemperatureParameters,
)
from tfsac.parameters.memories import ExperienceReplayParameters, MemoryParameters
from tfsac.parameters.networks import (
    BodyParameters,
    CategoricalPolicyHeadParameters,
    CategoricalValueParameters,
    Conv2d,
    HybridPolicyHeadParameters,
    NetworkParameters,
    QHeadParameters,
    QuantileValueParameters,
    SACPolicyHeadParameters,
    Scheme,
    VHeadParameters,
    network_of,
    normalizes_batches,
    with_q,
)

# Options of an ensemble of critics.
OPTIONS = {"critic_subset", "target_reduction", "policy_reduction", "entropy_in_target"}
OPTIONS |= {"joint_critic_forward", "joint_policy_forward"}
REDUCTIONS = {
    type(None): ("min", "mean", "index_min", "own"),
    CategoricalValueParameters: ("index_min", "mean", "own"),
    QuantileValueParameters: ("pool", "index_min", "mean", "own"),
}


@parameters
class SoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with a value network (Coach; Haarnoja et al. 2018, arXiv 1801.01290); temperature 1."""


@parameters
class TwinSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with twin target critics (Spinning Up; DI-engine; arXiv 1812.05905).

    Attributes:
        update_order: order of the steps of one update, before the target networks; a fixed temperature has no step.
            "critic_first" is critic, policy, temperature (DI-engine; Stable-Baselines3) and "policy_first" is policy,
            temperature, critic; each step uses the weights from the step before. "simultaneous" computes all gradients
            at the initial weights of the update (Spinning Up).
        temperature: fixed or automatic.
        critic_subset: M, number of critics in the target, drawn for each update (REDQ, arXiv 2101.05982); None
            for all. This and the following fields are options of an ensemble of critics.
        target_reduction: reduces these critics to one target: "min" or "mean"; for distributions "index_min" (from the
            critic with the lowest mean per batch entry), "mean", or "pool" (quantiles, without the largest). With "own"
            critic i learns only from target i.
        policy_reduction: reduces all critics to the policy's objective.
        entropy_in_target: subtract alpha times the next action's log-probability in the target.
        joint_critic_forward: compute Q(s, a) and Q(s', a') in one batch, as batch normalisation needs (CrossQ, arXiv
            1902.05605); the second half bootstraps, from the target network if there is one.
        joint_policy_forward: normalise the policy with the statistics of a joint batch of s and s'; it learns from the
            first half.
    """

    update_order: Literal["critic_first", "policy_first", "simultaneous"] = "critic_first"
    temperature: TemperatureParameters = AutoAlphaParameters()
    critic_subset: PositiveInt | None = None
    target_reduction: Literal["min", "mean", "index_min", "own", "pool"] = "min"
    policy_reduction: Literal["min", "mean"] = "min"
    entropy_in_target: bool = True
    joint_critic_forward: bool = False
    joint_policy_forward: bool = False


@parameters
class DiscreteSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic for discrete actions (DI-engine; Christodoulou 2019, arXiv 1910.07207)."""

    temperature: DiscreteTemperatureParameters = DiscreteAutoAlphaParameters()


@parameters
class HybridSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic for factored and hybrid actions (Delalleau et al. 2019, arXiv 1912.11077).

    Attributes:
        discrete_temperature: weight of the joint entropy of all discrete factors, if the actions have any.
        continuous_temperature: weight of the entropy of the continuous dimensions, if the actions have any.
        critic_subset, target_reduction, policy_reduction: as in `TwinSoftActorCriticAlgorithmParameters`, for each
            combination of factors.
    """

    discrete_temperature: DiscreteTemperatureParameters = DiscreteAutoAlphaParameters(initial_alpha=1.0)
    continuous_temperature: TemperatureParameters = AutoAlphaParameters(initial_alpha=1.0)
    critic_subset: PositiveInt | None = None
    target_reduction: Literal["min", "mean"] = "min"
    policy_reduction: Literal["min", "mean"] = "min"


def soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), head_initializer: Any = "xavier", **trained: Any
) -> dict[str, NetworkParameters]:
    """Returns the policy, v and q networks of soft actor-critic by name.

    Args:
        layers: widths of the hidden layers of each network; the first is the embedder, the others the middleware.
        head_initializer: initializer of the output layers.
        **trained: fields of `NetworkParameters` for all networks, such as `learning_rate` and `batch_size`.
    """
    policy, v = SACPolicyHeadParameters(initializer=head_initializer), VHeadParameters(initializer=head_initializer)
    q = QHeadParameters(tuple(layers), initializer=head_initializer)
    return {
        "policy": network_of(policy, layers[:1], layers[1:], **trained),
        "v": network_of(v, layers[:1], layers[1:], **{"create_target_network": True, **trained}),
        "q": network_of(q, **trained),
    }


def twin_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256),
    twin_critic: bool = True,
    init_w: float | None = None,
    critic_loss_weight: float = 1.0,
    policy_input: str = "observation",
    critic_input: str = "observation",
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of soft actor-critic with target critics.

    Args:
        layers, **trained: see `soft_actor_critic_networks`.
        twin_critic: two Q functions instead of one.
        init_w: bound of the policy's uniform initial output weights, or None.
        critic_loss_weight: factor of the squared errors (Spinning Up 0.5, DI-engine 1).
        policy_input, critic_input: observation keys of policy and critics, such as "agent_state" and "global_state".
    """
    q = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    policy = network_of(SACPolicyHeadParameters(init_w=init_w), layers[:1], layers[1:], policy_input, **trained)
    return with_q(policy, q, key=critic_input, **trained)


def ensemble_soft_actor_critic_networks(
    critics: QHeadParameters,
    policy: BodyParameters,
    policy_head: SACPolicyHeadParameters | None = None,
    target_network: bool = True,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of soft actor-critic with an ensemble of critics.

    Args:
        critics: head of q; its layers read observations and actions.
        policy: hidden layers of the policy.
        policy_head: head of the policy; None for the default.
        target_network: whether q has a target network.
        **trained: see `soft_actor_critic_networks`.
    """
    head = policy_head or SACPolicyHeadParameters()
    network = network_of(head, **{"middleware_parameters": policy, **trained})
    return with_q(network, critics, **{"create_target_network": target_network, **trained})


def discrete_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256),
    twin_critic: bool = True,
    critic_loss_weight: float = 1.0,
    embedder: Scheme | tuple[int | Conv2d, ...] = Scheme.Empty,
    policy_input: str = "observation",
    critic_input: str = "observation",
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of discrete soft actor-critic.

    Args:
        layers: widths of the hidden layers of the policy and of each Q function, after the embedder.
        embedder: embedder of the observations; `EmbedderScheme.Medium` for images. Both Q functions share it.
        twin_critic, critic_loss_weight, policy_input, critic_input, **trained: see `twin_soft_actor_critic_networks`.
    """
    q = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    policy = network_of(CategoricalPolicyHeadParameters(), embedder, layers, policy_input, **trained)
    return with_q(policy, q, embedder, key=critic_input, **trained)


def hybrid_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), num_critics: int = 2, critic_loss_weight: float = 1.0, **trained: Any
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of soft actor-critic for factored and hybrid actions.

    Args:
        num_critics: independent Q functions.
        layers, critic_loss_weight, **trained: see `twin_soft_actor_critic_networks`.
    """
    q = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=num_critics)
    return with_q(network_of(HybridPolicyHeadParameters(), layers[:1], layers[1:], **trained), q, **trained)


@parameters
class SoftActorCriticAgentParameters(BaseAgentParameters):
    """Coach's soft actor-critic: "policy", twin "q", and "v" with its target network."""

    algorithm: SoftActorCriticAlgorithmParameters = SoftActorCriticAlgorithmParameters()
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=soft_actor_critic_networks)
    kind: Literal["soft_actor_critic"] = "soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.sac_v:SoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, type]] = {"policy": SACPolicyHeadParameters, "v": VHeadParameters, "q": QHeadParameters}
    with_target: ClassVar[tuple[str, ...]] = ("v",)


@parameters
class TwinSoftActorCriticAgentParameters(BaseAgentParameters):
    """Spinning Up's and DI-engine's soft actor-critic: "policy" and twin "q" with its target network."""

    algorithm: TwinSoftActorCriticAlgorithmParameters = TwinSoftActorCriticAlgorithmParameters()
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=twin_soft_actor_critic_networks)
    kind: Literal["twin_soft_actor_critic"] = "twin_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.twin_sac:TwinSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, type]] = {"policy": SACPolicyHeadParameters, "q": QHeadParameters}
    ensemble: ClassVar[bool] = True

    @property
    def class_path(self) -> str:
        """The ensemble agent if the critics have ensemble options, otherwise the agent of `path`."""
        plain = self.path != TwinSoftActorCriticAgentParameters.path or not self.has_ensemble
        return self.path if plain else "tfsac.agents.ensemble_sac:EnsembleSoftActorCriticAgent"

    @property
    def has_ensemble(self) -> bool:
        """Whether the critics use any option beyond those of one or two plain critics."""
        head: Any = self.networks["q"].head_parameters
        options = {field.name: field.default for field in dataclasses.fields(self.algorithm) if field.name in OPTIONS}
        usual = all(getattr(self.algorithm, name) == default for name, default in options.items())
        special = any(network.special_layers for network in self.networks.values())
        return (
            not usual
            or special
            or bool(head.num_critics > 2 or head.normalization or head.residual_blocks or head.distribution)
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        algorithm, policy, q = self.algorithm, self.networks["policy"], self.networks["q"]
        head: Any = q.head_parameters
        _check_subset(algorithm, head)
        allowed = REDUCTIONS[type(head.distribution)]
        if algorithm.target_reduction not in allowed:
            names = f"{' or '.join(map(repr, allowed))} with distribution={head.distribution}"
            raise ParameterError(f"target_reduction must be {names}, got {algorithm.target_reduction!r}")
        if isinstance(head.distribution, QuantileValueParameters) and algorithm.target_reduction != "pool":
            because = f"target_reduction={algorithm.target_reduction!r}"
            reject_unused_fields(head.distribution, ["drop_per_critic"], because)
        bodies = (head.body, q.middleware_parameters)
        if any(map(normalizes_batches, bodies)):
            kinds = [normalization.kind for body in bodies if (normalization := getattr(body, "normalization", None))]
            unsupported = not algorithm.joint_critic_forward or algorithm.update_order == "simultaneous"
            if unsupported or ("batch_renorm" in kinds and q.create_target_network):
                needs = "joint_critic_forward=True, an update_order other than 'simultaneous'"
                renorm = "and with 'batch_renorm' create_target_network=False"
                raise ParameterError(f"Critics with batch normalisation need {needs} {renorm}, got {algorithm}")
        if not normalizes_batches(policy.middleware_parameters):
            reject_unused_fields(algorithm, ["joint_policy_forward"], "a policy without batch normalisation")


@parameters
class DiscreteSoftActorCriticAgentParameters(BaseAgentParameters):
    """Soft actor-critic for discrete actions: "policy" and twin "q" of every action, with its target network.

    Attributes:
        shared_encoder: the policy reads the features of q's embedders, which only the critic loss trains. Both networks
            must then have the same embedder parameters.
    """

    algorithm: DiscreteSoftActorCriticAlgorithmParameters = DiscreteSoftActorCriticAlgorithmParameters()
    exploration: Annotated[EpsilonGreedyParameters, ByKind()] | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_soft_actor_critic_networks)
    shared_encoder: bool = False
    kind: Literal["discrete_soft_actor_critic"] = "discrete_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.discrete_sac:DiscreteSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = True
    heads: ClassVar[dict[str, type]] = {"policy": CategoricalPolicyHeadParameters, "q": QHeadParameters}

    @property
    def encoders(self) -> dict[str, str]:
        """With a shared encoder, the policy reads the embedders of q."""
        return {"policy": "q"} if self.shared_encoder else {}

    def __post_init__(self) -> None:
        super().__post_init__()
        policy, q = self.networks["policy"], self.networks["q"]
        embedders = policy.input_embedders_parameters
        layers = any(embedder.scheme not in (Scheme.Empty, ()) for embedder in embedders.values())
        shared = ("input_embedders_parameters", "observation_keys", "embedding_merger_type", "initializer")
        same = all(getattr(policy, name) == getattr(q, name) for name in shared)
        if self.shared_encoder and not (layers and same):
            raise ParameterError(
                f"shared_encoder=True needs the same {', '.join(shared)} (with layers) in policy and q"
            )


@parameters
class HybridSoftActorCriticAgentParameters(BaseAgentParameters):
    """Soft actor-critic for MultiDiscrete, Dict and Tuple actions: "policy", and twin "q" of every combination of
    discrete actions, given the continuous ones, with its target network.
    """

    algorithm: HybridSoftActorCriticAlgorithmParameters = HybridSoftActorCriticAlgorithmParameters()
    exploration: Annotated[EpsilonGreedyParameters, ByKind()] | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=hybrid_soft_actor_critic_networks)
    kind: Literal["hybrid_soft_actor_critic"] = "hybrid_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.hybrid_sac:HybridSoftActorCriticAgent"
    heads: ClassVar[dict[str, type]] = {"policy": HybridPolicyHeadParameters, "q": QHeadParameters}

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_subset(self.algorithm, self.networks["q"].head_parameters)


def _check_subset(algorithm: Any, head: Any) -> None:
    if (algorithm.critic_subset or 1) > head.num_critics:
        raise ParameterError(f"critic_subset must be <= num_critics={head.num_critics}, got {algorithm.critic_subset}")
