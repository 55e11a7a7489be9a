"""Parameters of the agents: algorithm, exploration, memory and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from tfsac.parameters.algorithms import SoftActorCriticAlgorithmParameters, TwinSoftActorCriticAlgorithmParameters
from tfsac.parameters.base import ParameterError, by_kind, nearest, parameters
from tfsac.parameters.networks import (
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    MiddlewareScheme,
    NetworkParameters,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    VHeadParameters,
)


@parameters
class ExperienceReplayParameters:
    """A ring of transitions sampled uniformly with replacement; `max_size` counts transitions of all environments."""

    max_size: PositiveInt = 1_000_000
    kind: Literal["uniform"] = "uniform"


@parameters
class PrioritizedExperienceReplayParameters:
    """A ring of transitions sampled by priority, the absolute TD error (arXiv 1511.05952, proportional variant).

    With several updates in a call, the later ones use priorities from before the call; one update a call is the
    textbook's behaviour.

    Attributes:
        max_size: transitions of all environments.
        alpha: exponent of the priorities; 0 samples uniformly.
        beta: first exponent of the importance weights; 1 corrects the sampling in full.
        beta_anneal_updates: updates over which `beta` grows to 1.
        epsilon: added to every priority, so that nothing is forgotten.
    """

    max_size: PositiveInt = 1_000_000
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.6
    beta: Annotated[float, Field(ge=0, le=1)] = 0.4
    beta_anneal_updates: PositiveInt = 100_000
    epsilon: PositiveFloat = 1e-5
    kind: Literal["prioritized"] = "prioritized"


MemoryParameters = Annotated[
    Annotated[ExperienceReplayParameters, Tag("uniform")]
    | Annotated[PrioritizedExperienceReplayParameters, Tag("prioritized")],
    by_kind("uniform", "prioritized"),
]


@parameters
class AdditiveNoiseParameters:
    """Gaussian noise added to sampled actions while training, in units of the [-1, 1] action, then clipped."""

    noise_std: NonNegativeFloat = 0.1


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
    critic_loss_weight: float = 1.0, **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of soft actor-critic with target critics, alike in width and training.

    Args:
        layers: widths of the hidden layers of each network.
        twin_critic: two Q functions instead of one.
        init_w: bound of the policy's uniform first output weights, or None.
        critic_loss_weight: factor of the squared errors (Spinning Up 0.5, DI-engine 1).
        **trained: fields of `NetworkParameters` for both, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as `TwinSoftActorCriticAgentParameters.networks` wants them.
    """
    q_head = SACQHeadParameters(tuple(layers), twin_critic=twin_critic, loss_weight=critic_loss_weight)
    return {
        "policy": _network(SACPolicyHeadParameters(init_w=init_w), layers, trained),
        "q": _network(q_head, (), {"create_target_network": True, **trained}),
    }


def _network(head: Any, layers: tuple[int, ...], trained: Mapping[str, Any]) -> NetworkParameters:
    # Q reads the raw observation beside the action, so all its layers belong to the head.
    body: dict[str, Any] = {
        "input_embedders_parameters": {"observation": InputEmbedderParameters(tuple(layers[:1]) or EmbedderScheme.Empty)},
        "middleware_parameters": FCMiddlewareParameters(tuple(layers[1:]) or MiddlewareScheme.Empty),
    }
    return NetworkParameters(head, **{**body, **trained})


def check_networks(networks: Mapping[str, NetworkParameters], heads: Mapping[str, str], with_target: str) -> None:
    """Checks that there is exactly one network for each name, with the right head.

    Args:
        networks: by name.
        heads: kind of the head that each network has.
        with_target: the one network that may have a slow copy.

    Raises:
        ParameterError: a network is missing, unknown, has another head, a slow copy that nobody uses, or a batch of its own.
    """
    for name in networks.keys() - heads.keys():
        raise ParameterError(f"This agent has the networks {', '.join(heads)}.{nearest(name, heads)} Received: {name!r}")
    for name, kind in heads.items():
        if name not in networks:
            raise ParameterError(f"This agent needs a network {name!r}. Received: {sorted(networks)}")
        if networks[name].head_parameters.kind != kind:
            raise ParameterError(f"The head of network {name!r} is of kind {kind!r}. Received: {networks[name].head_parameters}")
        if name != with_target and networks[name].create_target_network:
            raise ParameterError(f"Only {with_target} has a target network. Received: create_target_network=True for {name!r}")
    sizes = {name: network.batch_size for name, network in networks.items()}
    if len(set(sizes.values())) > 1:
        raise ParameterError(f"All networks of an agent train on one batch: equal batch_size. Received: {sizes}")


@parameters
class SoftActorCriticAgentParameters:
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
        check_networks(self.networks, {"policy": "sac_policy", "v": "v", "q": "sac_q"}, with_target="v")

    @property
    def batch_size(self) -> int:
        """Rows of an update."""
        return self.networks["policy"].batch_size


@parameters
class TwinSoftActorCriticAgentParameters:
    """Spinning Up's and DI-engine's soft actor-critic: policy and twin Q with its slow copy.

    Attributes:
        algorithm: what is computed, in which order and how often.
        exploration: noise beyond the policy's own, or None.
        memory: the replay, uniform or prioritised.
        networks: "policy" and "q".
    """

    algorithm: TwinSoftActorCriticAlgorithmParameters = Field(default_factory=TwinSoftActorCriticAlgorithmParameters)
    exploration: AdditiveNoiseParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=twin_soft_actor_critic_networks)
    kind: Literal["twin_soft_actor_critic"] = "twin_soft_actor_critic"

    def __post_init__(self) -> None:
        check_networks(self.networks, {"policy": "sac_policy", "q": "sac_q"}, with_target="q")

    @property
    def batch_size(self) -> int:
        """Rows of an update."""
        return self.networks["policy"].batch_size


AgentParameters = Annotated[
    Annotated[SoftActorCriticAgentParameters, Tag("soft_actor_critic")]
    | Annotated[TwinSoftActorCriticAgentParameters, Tag("twin_soft_actor_critic")],
    by_kind("soft_actor_critic", "twin_soft_actor_critic"),
]
