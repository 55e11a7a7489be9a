"""Parameters of soft actor-critic: with a value network, with twin critics or an ensemble, with discrete actions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.agent_networks import (
    discrete_soft_actor_critic_networks,
    soft_actor_critic_networks,
    twin_soft_actor_critic_networks,
)
from tfsac.parameters.base import ParameterError, PositiveInt, parameters
from tfsac.parameters.base_agent import (
    BaseAgentParameters,
    EpsilonGreedyParameters,
    GaussianExplorationParameters,
    OffPolicyAlgorithmParameters,
)
from tfsac.parameters.ensemble_options import check_critics, is_plain_twin
from tfsac.parameters.layers import Scheme
from tfsac.parameters.memories import ExperienceReplayParameters, MemoryParameters
from tfsac.parameters.networks import NetworkParameters
from tfsac.parameters.temperatures import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    TemperatureParameters,
)
from tfsac.parameters.user_classes import ByKind


@parameters
class SoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with a value network (Coach; Haarnoja et al. 2018, arXiv 1801.01290); temperature 1."""


@parameters
class TwinSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with twin target critics (Spinning Up; DI-engine; arXiv 1812.05905).

    Attributes:
        update_order: of the steps of one update; the target networks move last, and a fixed temperature never moves.
            "critic_first" is critic, policy, temperature, each seeing what the one before left (DI-engine;
            Stable-Baselines3, whose temperature steps first but is used as it was before). "simultaneous" takes the
            gradients of policy and critic, and of the temperature, at the weights with which the update begins
            (Spinning Up). "policy_first" is policy, temperature, critic, each seeing what the one before left.
        temperature: fixed or automatic.
        critic_subset: M, the target is of M critics, drawn for each update (REDQ, arXiv 2101.05982); None
            for all. This and what follows are of options of an ensemble of critics.
        target_reduction: of these critics to one target: "min" or "mean"; of distributions "index_min" (that of the
            critic with the lowest mean in each row), "mean", or "pool" (of quantiles, the largest dropped). With "own"
            critic i learns from target i alone.
        policy_reduction: of all critics to what the policy maximises.
        entropy_in_target: subtract alpha times the next action's log-probability in the target.
        joint_critic_forward: the critics compute Q(s, a) and Q(s', a') in one batch, which batch normalisation needs
            (CrossQ, arXiv 1902.05605); the second half bootstraps, of the target network where there is one.
        joint_policy_forward: the policy learns from the first half of a batch of s and s', whose statistics normalise
            it.
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
    """Soft actor-critic for discrete actions (DI-engine; Christodoulou 2019, arXiv 1910.07207).

    Attributes:
        temperature: fixed or automatic.
    """

    temperature: DiscreteTemperatureParameters = DiscreteAutoAlphaParameters()


@parameters
class SoftActorCriticAgentParameters(BaseAgentParameters):
    """Coach's soft actor-critic: policy, twin Q, and V with its target network.

    Attributes:
        exploration: noise beyond the policy's own or that noise repeated, or None.
        networks: "policy", "v" and "q".
    """

    algorithm: SoftActorCriticAlgorithmParameters = SoftActorCriticAlgorithmParameters()
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=soft_actor_critic_networks)
    kind: Literal["soft_actor_critic"] = "soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.sac_v:SoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, str]] = {"policy": "sac_policy", "v": "v", "q": "q"}
    with_target: ClassVar[tuple[str, ...]] = ("v",)


@parameters
class TwinSoftActorCriticAgentParameters(BaseAgentParameters):
    """Spinning Up's and DI-engine's soft actor-critic: policy and twin Q with its target network.

    Attributes:
        exploration: noise beyond the policy's own or that noise repeated, or None.
        networks: "policy" and "q".
    """

    algorithm: TwinSoftActorCriticAlgorithmParameters = TwinSoftActorCriticAlgorithmParameters()
    exploration: GaussianExplorationParameters | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=twin_soft_actor_critic_networks)
    kind: Literal["twin_soft_actor_critic"] = "twin_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.sac:TwinSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, str]] = {"policy": "sac_policy", "q": "q"}

    @property
    def class_path(self) -> str:
        """The agent of an ensemble of critics, which has more options, or that of `path`."""
        plain = self.path != TwinSoftActorCriticAgentParameters.path or not self.has_ensemble
        return self.path if plain else "tfsac.agents.ensemble_sac:EnsembleSoftActorCriticAgent"

    @property
    def has_ensemble(self) -> bool:
        """Whether the critics have options beyond those of one or two plain ones."""
        return not is_plain_twin(self.algorithm, self.networks)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_critics(self.algorithm, self.networks)


@parameters
class DiscreteSoftActorCriticAgentParameters(BaseAgentParameters):
    """Soft actor-critic for discrete actions: policy and twin Q of every action, with its target network.

    Attributes:
        exploration: random actions beside the policy's own sampling, or None.
        networks: "policy" and "q".
        shared_encoder: the policy reads the features of q's embedders instead of its own; the critic loss alone trains
            them. Both networks then describe the same embedders.
    """

    algorithm: DiscreteSoftActorCriticAlgorithmParameters = DiscreteSoftActorCriticAlgorithmParameters()
    exploration: Annotated[EpsilonGreedyParameters, ByKind()] | None = None
    memory: MemoryParameters = ExperienceReplayParameters()
    networks: dict[str, NetworkParameters] = Field(default_factory=discrete_soft_actor_critic_networks)
    shared_encoder: bool = False
    kind: Literal["discrete_soft_actor_critic"] = "discrete_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.discrete_sac:DiscreteSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = True
    heads: ClassVar[dict[str, str]] = {"policy": "categorical_policy", "q": "q"}

    @property
    def encoders(self) -> dict[str, str]:
        """A policy that shares the encoder reads the embedders of q."""
        return {"policy": "q"} if self.shared_encoder else {}

    def __post_init__(self) -> None:
        super().__post_init__()
        policy, q = self.networks["policy"], self.networks["q"]
        embedders = policy.input_embedders_parameters
        layers = any(embedder.scheme not in (Scheme.Empty, ()) for embedder in embedders.values())
        same = (policy.embedding_merger_type, policy.initializer) == (q.embedding_merger_type, q.initializer)
        if self.shared_encoder and not (layers and same and embedders == q.input_embedders_parameters):
            same_fields = "input_embedders_parameters (with layers), embedding_merger_type and initializer"
            raise ParameterError(f"shared_encoder=True needs the same {same_fields} in policy and q")
