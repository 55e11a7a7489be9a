"""What the parameters of all agents share: the algorithm, and the agent with its memory and networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field

from tfsac.parameters.agent_networks import with_hidden_layers
from tfsac.parameters.base import ParameterError, PositiveInt, parameters, reject_unused_fields
from tfsac.parameters.ensemble_options import check_layers
from tfsac.parameters.exploration_parameters import (
    AdditiveNoiseParameters,
    EpsilonGreedyParameters,
    NoiseRepetitionParameters,
)
from tfsac.parameters.learning_rates import LearningRateDecayParameters
from tfsac.parameters.memories import (
    DemonstratedReplayParameters,
    EpisodicReplayParameters,
    MemoryParameters,
    SequenceReplayParameters,
)
from tfsac.parameters.networks import NetworkParameters
from tfsac.parameters.steps import (
    EnvironmentEpisodes,
    EnvironmentSteps,
    PlayingSteps,
    Positive,
    StepMethod,
    TrainingSteps,
)
from tfsac.parameters.temperatures import LearnedAlphaParameters
from tfsac.parameters.user_classes import ClassParameters, is_of_kind


@parameters
class AlgorithmParameters:
    """What all algorithms share.

    Attributes:
        discount: gamma, per step.
        use_deterministic_for_evaluation: evaluate the policy's mode (the mean, or the likeliest action) instead of a
            sample.
    """

    discount: Annotated[float, Field(ge=0, le=1)] = 0.99
    use_deterministic_for_evaluation: bool = True

    def updates_between_target_copies(self) -> int:
        """Returns the period of the target network (or ACER's average policy) in updates: 1."""
        return 1

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns how many updates a run of so many steps after its warm-up makes; of ACER, about so many. Raises
        ParameterError for steps of another unit than the updates follow.
        """
        if isinstance(steps, TrainingSteps):
            return steps.num_steps
        raise ParameterError(
            "learning_rate_decay_steps='run' needs a schedule.improve_steps in TrainingSteps, or the unit of "
            f"num_consecutive_playing_steps (EnvironmentSteps of ACER), got {steps}"
        )


def discount_of_episodes(steps: int) -> float:
    """Returns a discount for episodes of so many decisions: `1 - 5 / steps`, kept between 0.95 and 0.995.

    Its horizon, `1 / (1 - discount)`, is a fifth of an episode (SimBa, arXiv 2410.09754).

    Args:
        steps: the most decisions of an episode, of which action repeat makes fewer.

    Example:
        >>> discount_of_episodes(1000)
        0.995
    """
    return min(max(1.0 - 5.0 / steps, 0.95), 0.995)


@parameters
class OffPolicyAlgorithmParameters(AlgorithmParameters):
    """What all algorithms share that learn from transitions or sequences of any age.

    Attributes:
        n_step: rewards summed before the bootstrap; more spread rewards faster, but are further off-policy.
        ignore_done: bootstrap after the end of a task too, for tasks whose end is only a time limit that is not
            declared as one.
        num_consecutive_playing_steps: environment steps or episodes after which updates follow.
        num_consecutive_training_steps: updates that follow; their ratio to the steps is the update-to-data ratio. Up to
            64 updates run in one compiled call, up to 1000 with the memory on the accelerator.
        num_updates_between_policy_updates: policy delay: the policy (and an automatic temperature) learns in every
            so many updates only; the other updates leave it as it is.
        first_policy_update: the first of these updates, at most the delay; None: as many as the delay.
        num_steps_between_copying_online_weights_to_target: period of the target update, in environment steps or
            updates; a larger one keeps the target longer unchanged.
        rate_for_copying_weights_to_target: tau of the soft update; 1 copies.
        reset_steps: environment steps before whose updates all networks, target networks, temperatures and
            optimizers start again with fresh weights; the memory stays (arXiv 2205.07802).
    """

    n_step: PositiveInt = 1
    ignore_done: bool = False
    num_consecutive_playing_steps: Annotated[PlayingSteps, Positive] = EnvironmentSteps(1)
    num_consecutive_training_steps: PositiveInt = 1
    num_updates_between_policy_updates: PositiveInt = 1
    first_policy_update: PositiveInt | None = None
    num_steps_between_copying_online_weights_to_target: StepMethod = EnvironmentSteps(1)
    rate_for_copying_weights_to_target: Annotated[float, Field(gt=0, le=1)] = 0.005
    reset_steps: Annotated[tuple[PositiveInt, ...], AfterValidator(lambda steps: tuple(sorted(steps)))] = ()

    def __post_init__(self) -> None:
        period, first = self.num_updates_between_policy_updates, self.first_policy_update
        if (first or 1) > period:
            raise ParameterError(f"first_policy_update must be at most the delay, {period}, got {first}")

    def policy_learns_in(self, update: Any) -> Any:
        """Returns whether the policy learns in an update of this number, from 1 on; of an array or a tensor each."""
        return (update - (self.first_policy_update or 0)) % self.num_updates_between_policy_updates == 0

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns how many updates so many steps make."""
        playing = self.num_consecutive_playing_steps
        if type(steps) is not type(playing):
            return super().updates_in(steps, num_envs)
        return max(1, steps.num_steps // playing.num_steps * self.num_consecutive_training_steps)

    def updates_between_target_copies(self) -> int:
        """Returns the target period in updates, period times updates per environment step, a whole number."""
        period = self.num_steps_between_copying_online_weights_to_target
        playing = self.num_consecutive_playing_steps
        updates, steps = period.num_steps, 1
        if isinstance(period, EnvironmentSteps):
            updates, steps = period.num_steps * self.num_consecutive_training_steps, playing.num_steps
        in_steps = isinstance(playing, EnvironmentSteps) and not isinstance(period, EnvironmentEpisodes)
        if not (in_steps or isinstance(period, TrainingSteps)) or updates < 1 or updates % steps:
            raise ParameterError(
                "num_steps_between_copying_online_weights_to_target must be a whole number of updates, at least 1, got "
                f"{period} with {self.num_consecutive_training_steps} updates every {playing}: TrainingSteps(1) copies "
                "after every update"
            )
        return updates // steps


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
        """Raises ParameterError where replicas cannot share a batch, or its demonstrated rows, equally."""
        if self.batch_size % replicas:
            raise ParameterError(f"batch_size must divide by the number of replicas, {replicas}, got {self.batch_size}")
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
            ParameterError: names the network.
        """
        networks, agent = self.networks, type(self).__name__
        if networks.keys() != heads.keys():
            raise ParameterError(f"{agent} has the networks {', '.join(heads)}, got {', '.join(networks)}")
        for name, kind in heads.items():
            network, wrong = networks[name], ""
            if not is_of_kind(network.head_parameters, kind):
                wrong = f"a head of kind {kind!r}, got {network.head_parameters}"
            elif name not in with_target and network.create_target_network:
                wrong = f"no target network: only {', '.join(with_target)} may have one"
            elif network.middleware_parameters.kind == "lstm" and not recurrent:
                wrong = "no LSTM, which learns from whole episodes: choose 'discrete_acer' or 'gaussian_acer'"
            if wrong:
                raise ParameterError(f"The network {name} of {agent} must have {wrong}")
        check_layers(networks, twin=hasattr(type(self), "has_ensemble"))
        sizes = {name: network.batch_size for name, network in networks.items()}
        if len(set(sizes.values())) > 1:
            raise ParameterError(f"All networks of an agent must have the same batch_size, got {sizes}")
        self.check_batch()
        if any(networks[name].create_target_network for name in with_target):
            self.algorithm.updates_between_target_copies()
        else:
            copying = ["rate_for_copying_weights_to_target", "num_steps_between_copying_online_weights_to_target"]
            reject_unused_fields(self.algorithm, copying, "create_target_network=False")
