"""Parameters of the agents: algorithm, exploration, memory and networks together, and the agent that they describe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Tag

from tfsac.parameters.agent_networks import (
    discrete_acer_networks,
    discrete_soft_actor_critic_networks,
    gaussian_acer_networks,
    soft_actor_critic_networks,
    temporally_abstract_networks,
    twin_soft_actor_critic_networks,
    with_hidden_layers,
)
from tfsac.parameters.algorithms import (
    AlgorithmParameters,
    DiscreteACERAlgorithmParameters,
    DiscreteSoftActorCriticAlgorithmParameters,
    GaussianACERAlgorithmParameters,
    SoftActorCriticAlgorithmParameters,
    TemporallyAbstractActorCriticAlgorithmParameters,
    TwinSoftActorCriticAlgorithmParameters,
)
from tfsac.parameters.base import ParameterError, by_kind, nearest, parameters, refuse_ineffective
from tfsac.parameters.ensemble_options import check_critics, check_layers, is_plain_twin
from tfsac.parameters.exploration_parameters import (
    AdditiveNoiseParameters,
    EpsilonGreedyParameters,
    GaussianExplorationParameters,
    NoiseRepetitionParameters,
)
from tfsac.parameters.learning_rates import LearningRateDecayParameters
from tfsac.parameters.memories import (
    DemonstratedReplayParameters,
    EpisodicReplayParameters,
    ExperienceReplayParameters,
    MemoryParameters,
    SequenceReplayParameters,
)
from tfsac.parameters.networks import FEATURES, EmbedderScheme, NetworkParameters
from tfsac.parameters.temperatures import LearnedAlphaParameters
from tfsac.parameters.user_classes import ClassParameters, OrOwn, is_of_kind

TWIN = "tfsac.agents.sac:TwinSoftActorCriticAgent"
ENSEMBLE = "tfsac.agents.ensemble_sac:EnsembleSoftActorCriticAgent"


@parameters
class BaseAgentParameters(ClassParameters):
    """What the parameters of all agents share. Each class names the agent that it describes.

    A class of your own has a `path`, and the fields of this class or of the class of another agent.

    Attributes:
        algorithm: what is computed and how often.
        exploration: beyond the policy's own sampling, or None.
        memory: the replay.
        networks: by name, "policy" among them; one batch trains all.
        path: of the agent's class, as "MODULE:CLASS".
        discrete_actions: whether it has discrete actions; None leaves it to the agent to refuse an environment.

    Example:
        >>> @parameters
        ... class MyAgentParameters(TwinSoftActorCriticAgentParameters):
        ...     path: ClassVar[str] = "my_agent:MyAgent"
        ...     my_option: float = 0.5
    """

    algorithm: AlgorithmParameters
    exploration: AdditiveNoiseParameters | NoiseRepetitionParameters | EpsilonGreedyParameters | None
    memory: MemoryParameters | SequenceReplayParameters | EpisodicReplayParameters
    networks: dict[str, NetworkParameters]
    discrete_actions: ClassVar[bool | None] = None

    @property
    def batch_size(self) -> int:
        """Rows of an update."""
        return self.networks["policy"].batch_size

    def check_batch(self, replicas: int = 1) -> None:
        """Checks that replicas can share a batch equally, and its demonstrated rows too.

        Args:
            replicas: how many devices share it.

        Raises:
            ParameterError: they cannot.
        """
        if self.batch_size % replicas:
            raise ParameterError(
                f"The batch must divide by the number of replicas, {replicas}. Received: {self.batch_size}"
            )
        if isinstance(self.memory, DemonstratedReplayParameters):
            self.memory.check_batch(self.batch_size, replicas)

    @property
    def learning_rates(self) -> dict[str, LearningRateDecayParameters]:
        """By path in the agent's parameters, what has a learning rate: networks, and a learned temperature."""
        temperature = getattr(self.algorithm, "temperature", None)
        learned = {"algorithm.temperature": temperature} if isinstance(temperature, LearnedAlphaParameters) else {}
        return {**{f"networks.{name}": network for name, network in self.networks.items()}, **learned}

    @property
    def encoders(self) -> dict[str, str]:
        """By name of a network, the network whose embedders it reads instead of having its own."""
        return {}

    def with_hidden_layers(self, layers: tuple[int, ...]) -> Self:
        """Returns the parameters with hidden layers of these widths in policy and critics; see
        `agent_networks.with_hidden_layers`.
        """
        return dataclasses.replace(self, networks=with_hidden_layers(self.networks, layers, self.encoders))

    def check_networks(self, heads: Mapping[str, str], with_target: tuple[str, ...], recurrent: bool = False) -> None:
        """Checks that there is exactly one network for each name, with the right head, and that the memory suits them.

        Args:
            heads: kind of the head of each network, by name.
            with_target: the networks that may have a target network.
            recurrent: whether networks may have an LSTM.

        Raises:
            ParameterError: a network is missing, unknown, has another head, a target network or an LSTM that nobody
                uses, or a batch of its own; a batch that demonstrations cannot share.
        """
        networks = self.networks
        for name in networks.keys() - heads.keys():
            raise ParameterError(
                f"This agent has the networks {', '.join(heads)}.{nearest(name, heads)} Received: {name!r}"
            )
        for name, kind in heads.items():
            if name not in networks:
                raise ParameterError(f"This agent needs a network {name!r}. Received: {sorted(networks)}")
            head = networks[name].head_parameters
            if not is_of_kind(head, kind):
                raise ParameterError(f"The head of network {name!r} is of kind {kind!r}. Received: {head}")
            if name not in with_target and networks[name].create_target_network:
                only = " and ".join(with_target) + (
                    " has a target network" if len(with_target) == 1 else " have target networks"
                )
                raise ParameterError(f"Only {only}. Received: create_target_network=True for {name!r}")
            if networks[name].middleware_parameters.kind == "lstm" and not recurrent:
                raise ParameterError(
                    "An LSTM learns from whole episodes: only agents of kinds 'discrete_acer' and 'gaussian_acer' have "
                    f"one. Received: {networks[name].middleware_parameters} for {name!r}"
                )
        check_layers(networks, isinstance(self, TwinSoftActorCriticAgentParameters))
        sizes = {name: network.batch_size for name, network in networks.items()}
        if len(set(sizes.values())) > 1:
            raise ParameterError(f"All networks of an agent train on one batch: equal batch_size. Received: {sizes}")
        self.check_batch()
        if any(networks[name].create_target_network for name in with_target):
            self.algorithm.updates_between_target_copies()
        else:
            advice = "set create_target_network=True where there is a target network"
            copying = ["rate_for_copying_weights_to_target", "num_steps_between_copying_online_weights_to_target"]
            refuse_ineffective(self.algorithm, copying, "create_target_network=False", advice)


@parameters
class SoftActorCriticAgentParameters(BaseAgentParameters):
    """Coach's soft actor-critic: policy, twin Q, and V with its target network.

    Attributes:
        algorithm: what is computed and how often.
        exploration: noise beyond the policy's own or that noise repeated, or None.
        memory: the replay.
        networks: "policy", "v" and "q".
    """

    algorithm: SoftActorCriticAlgorithmParameters = Field(default_factory=SoftActorCriticAlgorithmParameters)
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=soft_actor_critic_networks)
    kind: Literal["soft_actor_critic"] = "soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.sac_v:SoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        self.check_networks({"policy": "sac_policy", "v": "v", "q": "q"}, with_target=("v",))


@parameters
class TwinSoftActorCriticAgentParameters(BaseAgentParameters):
    """Spinning Up's and DI-engine's soft actor-critic: policy and twin Q with its target network.

    Attributes:
        algorithm: what is computed, in which order and how often.
        exploration: noise beyond the policy's own or that noise repeated, or None.
        memory: the replay.
        networks: "policy" and "q".
    """

    algorithm: TwinSoftActorCriticAlgorithmParameters = Field(default_factory=TwinSoftActorCriticAlgorithmParameters)
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=twin_soft_actor_critic_networks)
    kind: Literal["twin_soft_actor_critic"] = "twin_soft_actor_critic"
    path: ClassVar[str] = TWIN
    discrete_actions: ClassVar[bool | None] = False

    @property
    def class_path(self) -> str:
        """The agent of an ensemble of critics, where these have such options, or that of `path`."""
        return ENSEMBLE if self.path == TWIN and self.has_ensemble else self.path

    @property
    def has_ensemble(self) -> bool:
        """Whether the critics have options beyond those of one or two plain ones."""
        return not is_plain_twin(self.algorithm, self.networks)

    def __post_init__(self) -> None:
        self.check_networks({"policy": "sac_policy", "q": "q"}, with_target=("q",))
        check_critics(self.algorithm, self.networks)


@parameters
class DiscreteSoftActorCriticAgentParameters(BaseAgentParameters):
    """Soft actor-critic for discrete actions: policy and twin Q of every action, with its target network.

    Attributes:
        algorithm: what is computed and how often.
        exploration: random actions beside the policy's own sampling, or None.
        memory: the replay.
        networks: "policy" and "q".
        shared_encoder: the policy reads the features of q's embedders instead of its own; the critic loss alone trains
            them. Both networks then describe the same embedders.
    """

    algorithm: DiscreteSoftActorCriticAlgorithmParameters = Field(
        default_factory=DiscreteSoftActorCriticAlgorithmParameters
    )
    exploration: Annotated[EpsilonGreedyParameters, OrOwn()] | None = None
    memory: MemoryParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_soft_actor_critic_networks)
    shared_encoder: bool = False
    kind: Literal["discrete_soft_actor_critic"] = "discrete_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.discrete_sac:DiscreteSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = True

    @property
    def encoders(self) -> dict[str, str]:
        """A policy that shares the encoder reads the embedders of q."""
        return {"policy": "q"} if self.shared_encoder else {}

    def __post_init__(self) -> None:
        self.check_networks({"policy": "categorical_policy", "q": "q"}, with_target=("q",))
        if not self.shared_encoder:
            return
        described = [
            (n.input_embedders_parameters, n.embedding_merger_type, n.initializer)
            for n in map(self.networks.get, ("policy", "q"))
            if n
        ]
        if described[0] != described[1]:
            raise ParameterError(
                "With shared_encoder the networks policy and q have equal input_embedders_parameters, "
                f"embedding_merger_type and initializer. Received: {described[0]} and {described[1]}"
            )
        if all(embedder.scheme in (EmbedderScheme.Empty, ()) for embedder in described[0][0].values()):
            raise ParameterError(f"shared_encoder needs embedders with layers to share. Received: {described[0][0]}")


@parameters
class TemporallyAbstractActorCriticAgentParameters(BaseAgentParameters):
    """Temporally abstract actor-critic, TAAC, TaacL and TaacQ: policy and critics with their target networks.

    Attributes:
        algorithm: what is computed and how often.
        exploration: none beside the policy's own sampling.
        memory: the replay; a batch has `batch_size` sequences of `sequence_length` rows.
        networks: "policy" and "q".
    """

    algorithm: TemporallyAbstractActorCriticAlgorithmParameters = Field(
        default_factory=TemporallyAbstractActorCriticAlgorithmParameters
    )
    exploration: None = None
    memory: Annotated[SequenceReplayParameters, OrOwn()] = Field(default_factory=SequenceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=temporally_abstract_networks)
    kind: Literal["temporally_abstract_actor_critic"] = "temporally_abstract_actor_critic"
    path: ClassVar[str] = "tfsac.agents.taac:TemporallyAbstractActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        self.check_networks({"policy": "sac_policy", "q": "q"}, with_target=("q",))


class _ACER(BaseAgentParameters):
    """What the parameters of discrete and Gaussian actor-critic with experience replay share."""

    algorithm: Any
    memory: EpisodicReplayParameters

    def _check_acer(self, heads: Mapping[str, str]) -> None:
        """Checks networks and memory.

        Raises:
            ParameterError: see `check_networks`; a trunk that others do not read, no average policy for the trust
                region, a Huber loss, segments longer than the memory.
        """
        trunk = "trunk" in self.networks
        averaged = ("trunk", "policy") if trunk else ("policy",)
        self.check_networks({**({"trunk": "features"} if trunk else {}), **heads}, averaged, recurrent=True)
        for name in heads if trunk else ():
            if [*self.networks[name].input_embedders_parameters] != [FEATURES]:
                raise ParameterError(
                    f"With a trunk the other networks read its features alone, the key {FEATURES!r}. "
                    f"Received: {sorted(self.networks[name].input_embedders_parameters)} for {name!r}"
                )
        for name in averaged if self.algorithm.use_trust_region else ():
            if not self.networks[name].create_target_network:
                raise ParameterError(
                    "The trust region lies around the average policy, the target networks of "
                    f"{' and '.join(averaged)}. Received: create_target_network=False for {name!r}"
                )
        if not self.networks["policy"].create_target_network:
            advice = "set create_target_network=True of the policy"
            refuse_ineffective(self.algorithm, ["trust_region_alpha"], "create_target_network=False", advice)
        for name, network in self.networks.items():
            if network.replace_mse_with_huber_loss:
                raise ParameterError(
                    f"This agent's losses are squared errors. Received: replace_mse_with_huber_loss=True for {name!r}"
                )
        if self.algorithm.t_max > self.memory.max_size:
            raise ParameterError(
                "A segment has t_max steps, which the memory must hold. "
                f"Received: t_max={self.algorithm.t_max}, max_size={self.memory.max_size}"
            )


@parameters
class DiscreteACERAgentParameters(_ACER):
    """Actor-critic with experience replay for discrete actions: policy with its average, and Q of every action.

    Attributes:
        algorithm: what is computed and how often.
        exploration: none beside the policy's own sampling.
        memory: the replay; an update has `batch_size` segments, at least as many as environments.
        networks: "policy" and "q", and perhaps a "trunk" before both.
    """

    algorithm: DiscreteACERAlgorithmParameters = Field(default_factory=DiscreteACERAlgorithmParameters)
    exploration: None = None
    memory: Annotated[EpisodicReplayParameters, OrOwn()] = Field(default_factory=EpisodicReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_acer_networks)
    kind: Literal["discrete_acer"] = "discrete_acer"
    path: ClassVar[str] = "tfsac.agents.acer:DiscreteACERAgent"
    discrete_actions: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        self._check_acer({"policy": "categorical_policy", "q": "q"})
        if self.networks["q"].head_parameters.num_critics != 1:  # type: ignore[union-attr]
            raise ParameterError("This agent has one Q function: set num_critics=1 of network 'q'")


@parameters
class GaussianACERAgentParameters(_ACER):
    """Actor-critic with experience replay for continuous actions: policy with its average, V and advantage.

    Attributes:
        algorithm: what is computed and how often.
        exploration: none beside the policy's own sampling.
        memory: the replay; an update has `batch_size` segments, at least as many as environments.
        networks: "policy", "v" and "advantage", and perhaps a "trunk" before all.
    """

    algorithm: GaussianACERAlgorithmParameters = Field(default_factory=GaussianACERAlgorithmParameters)
    exploration: None = None
    memory: Annotated[EpisodicReplayParameters, OrOwn()] = Field(default_factory=EpisodicReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=gaussian_acer_networks)
    kind: Literal["gaussian_acer"] = "gaussian_acer"
    path: ClassVar[str] = "tfsac.agents.acer:GaussianACERAgent"
    discrete_actions: ClassVar[bool | None] = False

    def __post_init__(self) -> None:
        self._check_acer({"policy": "gaussian_policy", "v": "v", "advantage": "q"})
        if self.networks["advantage"].head_parameters.num_critics != 1:  # type: ignore[union-attr]
            raise ParameterError("This agent has one advantage: set num_critics=1 of network 'advantage'")


AgentParameters = Annotated[
    Annotated[SoftActorCriticAgentParameters, Tag("soft_actor_critic")]
    | Annotated[TwinSoftActorCriticAgentParameters, Tag("twin_soft_actor_critic")]
    | Annotated[DiscreteSoftActorCriticAgentParameters, Tag("discrete_soft_actor_critic")]
    | Annotated[TemporallyAbstractActorCriticAgentParameters, Tag("temporally_abstract_actor_critic")]
    | Annotated[DiscreteACERAgentParameters, Tag("discrete_acer")]
    | Annotated[GaussianACERAgentParameters, Tag("gaussian_acer")],
    by_kind(
        "soft_actor_critic",
        "twin_soft_actor_critic",
        "discrete_soft_actor_critic",
        "temporally_abstract_actor_critic",
        "discrete_acer",
        "gaussian_acer",
        custom=True,
    ),
    OrOwn(BaseAgentParameters),
]
