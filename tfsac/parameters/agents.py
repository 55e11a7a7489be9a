"""Parameters of the agents: algorithm, exploration, memory and networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from tfsac.parameters.algorithms import (
    DiscreteSoftActorCriticAlgorithmParameters,
    SoftActorCriticAlgorithmParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.parameters.base import ParameterError, by_kind, nearest, parameters
from tfsac.parameters.memories import (
    ExperienceReplayParameters,
    MemoryParameters,
    SequenceReplayParameters,
    SQILExperienceReplayParameters,
)
from tfsac.parameters.networks import (
    CategoricalPolicyHeadParameters,
    Conv2d,
    DiscreteQHeadParameters,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    MiddlewareScheme,
    NetworkParameters,
    NonNegativeFloat,
    PositiveInt,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    TrajectoryQHeadParameters,
    VHeadParameters,
)


@parameters
class AdditiveNoiseParameters:
    """Gaussian noise added to sampled actions while training, in units of the [-1, 1] action, then clipped."""

    noise_std: NonNegativeFloat = 0.1


@parameters
class EpsilonGreedyParameters:
    """With probability epsilon a uniform valid action instead of the policy's, in each environment on its own.

    Attributes:
        initial_epsilon: at first.
        final_epsilon: what it comes to.
        decay_steps: environment steps until it is there ("linear"), or after which the difference has shrunk to 1/e
            ("exponential").
        decay: how it goes down.
    """

    initial_epsilon: Annotated[float, Field(ge=0, le=1)] = 0.95
    final_epsilon: Annotated[float, Field(ge=0, le=1)] = 0.1
    decay_steps: PositiveInt = 10_000
    decay: Literal["linear", "exponential"] = "exponential"

    def epsilon(self, env_steps: int) -> float:
        """Returns epsilon after so many environment steps."""
        gone = env_steps / self.decay_steps
        left = math.exp(-gone) if self.decay == "exponential" else max(0.0, 1.0 - gone)
        return self.final_epsilon + left * (self.initial_epsilon - self.final_epsilon)


def soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), head_initializer: Any = "xavier", **trained: Any
) -> dict[str, NetworkParameters]:
    """The policy, v and q networks of soft actor-critic, alike in width and training.

    Args:
        layers: widths of the hidden layers of each network; the first is the embedder, the others the middleware.
        head_initializer: of the output layers.
        **trained: fields of `NetworkParameters` for all three, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as `SoftActorCriticAgentParameters.networks` wants them.
    """
    return {
        "policy": _network(SACPolicyHeadParameters(initializer=head_initializer), layers, trained),
        "v": _network(VHeadParameters(initializer=head_initializer), layers, {"create_target_network": True, **trained}),
        "q": _network(SACQHeadParameters(tuple(layers), initializer=head_initializer), (), trained),
    }


def twin_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), twin_critic: bool = True, init_w: float | None = None,
    critic_loss_weight: float = 1.0, policy_input: str = "observation", critic_input: str = "observation", **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of soft actor-critic with target critics, alike in width and training.

    Args:
        layers: widths of the hidden layers of each network.
        twin_critic: two Q functions instead of one.
        init_w: bound of the policy's uniform first output weights, or None.
        critic_loss_weight: factor of the squared errors (Spinning Up 0.5, DI-engine 1).
        policy_input, critic_input: keys of the observations that they read, such as "agent_state" and "global_state".
        **trained: fields of `NetworkParameters` for both, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as `TwinSoftActorCriticAgentParameters.networks` wants them.
    """
    q_head = SACQHeadParameters(tuple(layers), twin_critic=twin_critic, loss_weight=critic_loss_weight)
    return {
        "policy": _network(SACPolicyHeadParameters(init_w=init_w), layers, trained, policy_input),
        "q": _network(q_head, (), {"create_target_network": True, **trained}, critic_input),
    }


def discrete_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), twin_critic: bool = True, critic_loss_weight: float = 1.0,
    embedder: EmbedderScheme | tuple[int | Conv2d, ...] = EmbedderScheme.Empty,
    policy_input: str = "observation", critic_input: str = "observation", **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of discrete soft actor-critic, alike in width and training.

    Args:
        layers: widths of the hidden layers of the policy and of each Q function, after the embedder.
        twin_critic: two Q functions instead of one.
        critic_loss_weight: factor of the squared errors.
        embedder: of the observations; `EmbedderScheme.Medium` for images. Both Q functions read one embedder.
        policy_input, critic_input: keys of the observations that they read, such as "agent_state" and "global_state".
        **trained: fields of `NetworkParameters` for both, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as `DiscreteSoftActorCriticAgentParameters.networks` wants them.
    """
    def embedding(key: str) -> dict[str, Any]:
        return {"input_embedders_parameters": {key: InputEmbedderParameters(embedder)}}

    policy_layers = FCMiddlewareParameters(tuple(layers) or MiddlewareScheme.Empty)
    policy = {"middleware_parameters": policy_layers, **embedding(policy_input), **trained}
    q_head = DiscreteQHeadParameters(tuple(layers), twin_critic=twin_critic, loss_weight=critic_loss_weight)
    q = {"middleware_parameters": FCMiddlewareParameters(MiddlewareScheme.Empty), **embedding(critic_input), **trained}
    return {
        "policy": NetworkParameters(CategoricalPolicyHeadParameters(), **policy),
        "q": NetworkParameters(q_head, **{"create_target_network": True, **q}),
    }


def temporally_abstract_networks(
    layers: tuple[int, ...] = (256, 256), num_critics: int = 2, init_w: float = 0.003, **trained: Any
) -> dict[str, NetworkParameters]:
    """The policy and q networks of temporally abstract actor-critic, alike in width and training.

    The policy also reads the previous trajectory: one linear layer from each of its fields to the width of the embedding.

    Args:
        layers: widths of the hidden layers of each network; both read raw observations.
        num_critics: independent Q functions.
        init_w: bound of the first output weights of the critics.
        **trained: fields of `NetworkParameters` for both, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as `TemporallyAbstractActorCriticAgentParameters.networks` wants them.
    """
    raw = {"input_embedders_parameters": {"observation": InputEmbedderParameters(EmbedderScheme.Empty)}}
    hidden = {"middleware_parameters": FCMiddlewareParameters(tuple(layers) or MiddlewareScheme.Empty)}
    none = {"middleware_parameters": FCMiddlewareParameters(MiddlewareScheme.Empty)}
    q_head = TrajectoryQHeadParameters(tuple(layers), num_critics=num_critics, init_w=init_w)
    return {
        "policy": NetworkParameters(SACPolicyHeadParameters(), **{**raw, **hidden, **trained}),
        "q": NetworkParameters(q_head, **{**raw, **none, "create_target_network": True, **trained}),
    }


def _network(head: Any, layers: tuple[int, ...], trained: Mapping[str, Any], key: str = "observation") -> NetworkParameters:
    # Q reads the raw observation beside the action, so all its layers belong to the head.
    body: dict[str, Any] = {
        "input_embedders_parameters": {key: InputEmbedderParameters(tuple(layers[:1]) or EmbedderScheme.Empty)},
        "middleware_parameters": FCMiddlewareParameters(tuple(layers[1:]) or MiddlewareScheme.Empty),
    }
    return NetworkParameters(head, **{**body, **trained})


class _OneBatch:
    """What the parameters of all agents share: one batch for all networks, checked together with the memory."""

    memory: MemoryParameters | SequenceReplayParameters
    networks: dict[str, NetworkParameters]

    @property
    def batch_size(self) -> int:
        """Rows of an update."""
        return self.networks["policy"].batch_size

    def _check(self, heads: Mapping[str, str], with_target: str) -> None:
        """Checks that there is exactly one network for each name, with the right head, and that the memory suits them.

        Args:
            heads: kind of the head of each network, by name.
            with_target: the one network that may have a slow copy.

        Raises:
            ParameterError: a network is missing, unknown, has another head, a slow copy that nobody uses, or a batch of
                its own; a batch that has no halves.
        """
        networks = self.networks
        for name in networks.keys() - heads.keys():
            raise ParameterError(f"This agent has the networks {', '.join(heads)}.{nearest(name, heads)} Received: {name!r}")
        for name, kind in heads.items():
            if name not in networks:
                raise ParameterError(f"This agent needs a network {name!r}. Received: {sorted(networks)}")
            head = networks[name].head_parameters
            if head.kind != kind:
                raise ParameterError(f"The head of network {name!r} is of kind {kind!r}. Received: {head}")
            if name != with_target and networks[name].create_target_network:
                raise ParameterError(f"Only {with_target} has a target network. Received: create_target_network=True for {name!r}")
        sizes = {name: network.batch_size for name, network in networks.items()}
        if len(set(sizes.values())) > 1:
            raise ParameterError(f"All networks of an agent train on one batch: equal batch_size. Received: {sizes}")
        if isinstance(self.memory, SQILExperienceReplayParameters) and self.batch_size % 2:
            raise ParameterError(f"Half of every batch is demonstrated, so batch_size is even. Received: {self.batch_size}")


@parameters
class SoftActorCriticAgentParameters(_OneBatch):
    """Coach's soft actor-critic: policy, twin Q and V with its slow copy.

    Attributes:
        algorithm: what is computed and how often.
        exploration: noise beyond the policy's own, or None.
        memory: the replay.
        networks: "policy", "v" and "q".
    """

    algorithm: SoftActorCriticAlgorithmParameters = Field(default_factory=SoftActorCriticAlgorithmParameters)
    exploration: AdditiveNoiseParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=soft_actor_critic_networks)
    kind: Literal["soft_actor_critic"] = "soft_actor_critic"

    def __post_init__(self) -> None:
        self._check({"policy": "sac_policy", "v": "v", "q": "sac_q"}, with_target="v")


@parameters
class TwinSoftActorCriticAgentParameters(_OneBatch):
    """Spinning Up's and DI-engine's soft actor-critic: policy and twin Q with its slow copy.

    Attributes:
        algorithm: what is computed, in which order and how often.
        exploration: noise beyond the policy's own, or None.
        memory: the replay.
        networks: "policy" and "q".
    """

    algorithm: TwinSoftActorCriticAlgorithmParameters = Field(default_factory=TwinSoftActorCriticAlgorithmParameters)
    exploration: AdditiveNoiseParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=twin_soft_actor_critic_networks)
    kind: Literal["twin_soft_actor_critic"] = "twin_soft_actor_critic"

    def __post_init__(self) -> None:
        self._check({"policy": "sac_policy", "q": "sac_q"}, with_target="q")


@parameters
class DiscreteSoftActorCriticAgentParameters(_OneBatch):
    """Soft actor-critic for discrete actions: policy and twin Q of every action, with its slow copy.

    Attributes:
        algorithm: what is computed and how often.
        exploration: random actions beside the policy's own sampling, or None.
        memory: the replay.
        networks: "policy" and "q".
        shared_encoder: the policy reads the features of q's embedders instead of its own; the critic loss alone trains
            them. Both networks then describe the same embedders.
    """

    algorithm: DiscreteSoftActorCriticAlgorithmParameters = Field(default_factory=DiscreteSoftActorCriticAlgorithmParameters)
    exploration: EpsilonGreedyParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_soft_actor_critic_networks)
    shared_encoder: bool = False
    kind: Literal["discrete_soft_actor_critic"] = "discrete_soft_actor_critic"

    def __post_init__(self) -> None:
        self._check({"policy": "categorical_policy", "q": "discrete_q"}, with_target="q")
        if not self.shared_encoder:
            return
        described = [
            (n.input_embedders_parameters, n.embedding_merger_type, n.initializer) for n in map(self.networks.get, ("policy", "q")) if n
        ]
        if described[0] != described[1]:
            raise ParameterError(
                "With shared_encoder the networks policy and q have equal input_embedders_parameters, "
                f"embedding_merger_type and initializer. Received: {described[0]} and {described[1]}"
            )
        if all(embedder.scheme in (EmbedderScheme.Empty, ()) for embedder in described[0][0].values()):
            raise ParameterError(f"shared_encoder needs embedders with layers to share. Received: {described[0][0]}")


@parameters
class TemporallyAbstractActorCriticAgentParameters(_OneBatch):
    """Temporally abstract actor-critic, TAAC, TaacL and TaacQ: policy and critics with their slow copy.

    Attributes:
        algorithm: what is computed and how often.
        exploration: none beside the policy's own sampling.
        memory: the replay; a batch has `batch_size` stretches of `sequence_length` rows.
        networks: "policy" and "q".
    """

    algorithm: TemporallyAbstractActorCriticAlgorithmParameters = Field(
        default_factory=TemporallyAbstractActorCriticAlgorithmParameters
    )
    exploration: None = None
    memory: SequenceReplayParameters = Field(default_factory=SequenceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=temporally_abstract_networks)
    kind: Literal["temporally_abstract_actor_critic"] = "temporally_abstract_actor_critic"

    def __post_init__(self) -> None:
        self._check({"policy": "sac_policy", "q": "trajectory_q"}, with_target="q")


AgentParameters = Annotated[
    Annotated[SoftActorCriticAgentParameters, Tag("soft_actor_critic")]
    | Annotated[TwinSoftActorCriticAgentParameters, Tag("twin_soft_actor_critic")]
    | Annotated[DiscreteSoftActorCriticAgentParameters, Tag("discrete_soft_actor_critic")]
    | Annotated[TemporallyAbstractActorCriticAgentParameters, Tag("temporally_abstract_actor_critic")],
    by_kind(
        "soft_actor_critic", "twin_soft_actor_critic", "discrete_soft_actor_critic", "temporally_abstract_actor_critic"
    ),
]
