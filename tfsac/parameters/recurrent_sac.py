"""Parameters of recurrent soft actor-critic, for continuous and discrete actions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tfsac.parameters.base import ByKind, NonNegativeInt, ParameterError, parameters
from tfsac.parameters.base_agent import (
    AutoAlphaParameters,
    BaseAgentParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    OffPolicyAlgorithmParameters,
    TemperatureParameters,
)
from tfsac.parameters.memories import SequenceReplayParameters
from tfsac.parameters.networks import (
    CategoricalPolicyHeadParameters,
    Conv2d,
    NetworkParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    Scheme,
    network_of,
    with_q,
)
from tfsac.parameters.steps import StepMethod, TrainingSteps


@parameters
class RecurrentAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Parameters of recurrent soft actor-critic for all action types (Ni et al. 2021, arXiv 2110.05038).

    Attributes:
        burn_in: number of initial steps of each sequence that only warm up the LSTM states and are not learned from
            (R2D2, Kapturowski et al. 2019). Larger values give more accurate states and fewer steps to learn from.
        initial_state: LSTM state at the start of a sequence: "zero", or "stored", the state from collection with the
            weights of that time. Stored states take 16 bytes per step and LSTM cell; critics then run in collection.
        n_step: always 1.
        num_steps_between_copying_online_weights_to_target: by default after every update.
    """

    n_step: Literal[1] = 1
    num_steps_between_copying_online_weights_to_target: StepMethod = TrainingSteps(1)
    burn_in: NonNegativeInt = 16
    initial_state: Literal["zero", "stored"] = "zero"


@parameters
class RecurrentSoftActorCriticAlgorithmParameters(RecurrentAlgorithmParameters):
    """Recurrent soft actor-critic for continuous actions.

    Attributes:
        temperature: fixed or automatic.
    """

    temperature: TemperatureParameters = AutoAlphaParameters()


@parameters
class RecurrentDiscreteSoftActorCriticAlgorithmParameters(RecurrentAlgorithmParameters):
    """Recurrent soft actor-critic for discrete actions.

    Attributes:
        temperature: fixed or automatic.
    """

    temperature: DiscreteTemperatureParameters = DiscreteAutoAlphaParameters()


def recurrent_soft_actor_critic_networks(
    layers: tuple[int, ...] = (128,),
    lstm_cells: int = 128,
    critic_layers: tuple[int, ...] = (128,),
    discrete: bool = False,
    embedder: Scheme | tuple[int | Conv2d, ...] = (),
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of recurrent soft actor-critic, each with its own LSTM.

    Args:
        layers: layers before each LSTM; the first one reads observation, previous action and previous reward.
        lstm_cells: width of each LSTM.
        critic_layers: layers of each Q function after the LSTM; they also read continuous actions.
        discrete: whether actions are discrete.
        embedder: embedder of the observation before `layers`, such as convolutions.
        **trained: see `soft_actor_critic_networks`; by default a batch has 32 sequences.
    """
    head = CategoricalPolicyHeadParameters() if discrete else SACPolicyHeadParameters()
    shared = {"lstm_cells": lstm_cells, "batch_size": 32, **trained}
    q = QHeadParameters(tuple(critic_layers))
    return with_q(network_of(head, embedder, layers, **shared), q, embedder, layers, **shared)


class _Recurrent(BaseAgentParameters):
    """Parameters shared by recurrent soft actor-critic for continuous and discrete actions."""

    algorithm: Any
    memory: Any
    recurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.memory.sequence_length - 1
        if self.algorithm.burn_in >= steps:
            raise ParameterError(
                f"burn_in must be < {steps}, agent.memory.sequence_length - 1, got {self.algorithm.burn_in}"
            )
        for name, network in self.networks.items():
            if network.middleware_parameters.kind != "lstm":
                raise ParameterError(
                    f"The network {name} of recurrent soft actor-critic must have middleware_parameters of kind 'lstm'"
                )


@parameters
class RecurrentSoftActorCriticAgentParameters(_Recurrent):
    """Recurrent soft actor-critic for continuous actions: "policy" and twin "q" with its target network, each with an
    LSTM. A batch has `batch_size` sequences of `sequence_length - 1` steps and the entry after them.
    """

    algorithm: RecurrentSoftActorCriticAlgorithmParameters = RecurrentSoftActorCriticAlgorithmParameters()
    exploration: None = None
    memory: Annotated[SequenceReplayParameters, ByKind()] = SequenceReplayParameters(sequence_length=65)
    networks: dict[str, NetworkParameters] = Field(default_factory=recurrent_soft_actor_critic_networks)
    kind: Literal["recurrent_soft_actor_critic"] = "recurrent_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.recurrent_sac:RecurrentSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = False
    heads: ClassVar[dict[str, type]] = {"policy": SACPolicyHeadParameters, "q": QHeadParameters}


@parameters
class RecurrentDiscreteSoftActorCriticAgentParameters(_Recurrent):
    """Recurrent soft actor-critic for discrete actions; see `RecurrentSoftActorCriticAgentParameters`."""

    algorithm: RecurrentDiscreteSoftActorCriticAlgorithmParameters = (
        RecurrentDiscreteSoftActorCriticAlgorithmParameters()
    )
    exploration: None = None
    memory: Annotated[SequenceReplayParameters, ByKind()] = SequenceReplayParameters(sequence_length=65)
    networks: dict[str, NetworkParameters] = Field(
        default_factory=lambda: recurrent_soft_actor_critic_networks(discrete=True)
    )
    kind: Literal["recurrent_discrete_soft_actor_critic"] = "recurrent_discrete_soft_actor_critic"
    path: ClassVar[str] = "tfsac.agents.recurrent_sac:RecurrentDiscreteSoftActorCriticAgent"
    discrete_actions: ClassVar[bool | None] = True
    heads: ClassVar[dict[str, type]] = {"policy": CategoricalPolicyHeadParameters, "q": QHeadParameters}
