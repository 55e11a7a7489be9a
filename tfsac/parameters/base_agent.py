"""Parameters shared by all agents: temperature, algorithm, exploration, memory and networks."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from tfsac.parameters.base import (
    ByKind,
    ClassParameters,
    NonNegativeFloat,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    UnusedIf,
    UnusedUnless,
    parameters,
    reject_unused_fields,
)
from tfsac.parameters.memories import (
    DemonstratedReplayParameters,
    EpisodicReplayParameters,
    MemoryParameters,
    SequenceReplayParameters,
)
from tfsac.parameters.networks import Conv2d, NetworkParameters, QHeadParameters, Scheme
from tfsac.parameters.optimizers import LearningRateDecayParameters
from tfsac.parameters.steps import (
    EnvironmentEpisodes,
    EnvironmentSteps,
    PlayingSteps,
    Positive,
    StepMethod,
    TrainingSteps,
)

MOST_PER_DIMENSION = math.log(2.0)  # nats, the entropy of the uniform distribution on [-1, 1]
LEAST_PER_DIMENSION = -5.0  # nats, a standard deviation of 0.002; a lower target was meant for more dimensions


@parameters
class FixedAlphaParameters:
    """A fixed temperature.

    Attributes:
        alpha: weight of the entropy relative to the reward; a larger value explores more.
    """

    alpha: NonNegativeFloat = 0.2
    kind: Literal["fixed"] = "fixed"


@parameters
class LearnedAlphaParameters(LearningRateDecayParameters):
    """Parameters shared by all learned temperatures.

    Attributes:
        initial_alpha: initial value.
        learning_rate: initial learning rate of the temperature's own Adam optimizer.
        target_entropy: in nats; None is the default for the action type. Larger values keep the policy more random.
        log_space: learn log alpha, so that alpha stays positive; otherwise learn alpha itself, clipped at 0.
        loss: in log space, "log" multiplies (entropy - target) by log alpha, "alpha" by alpha.
    """

    initial_alpha: PositiveFloat = 0.2
    learning_rate: PositiveFloat = 3e-4
    target_entropy: float | None = None
    log_space: bool = True
    loss: Annotated[Literal["log", "alpha"], UnusedIf("log_space", False)] = "log"


@parameters
class AutoAlphaParameters(LearnedAlphaParameters):
    """A temperature that is learned so that the policy's entropy stays near a target (arXiv 1812.05905, section 5).

    The entropy is that of all action dimensions (in [-1, 1]) together. Set at most one of three target fields; the
    default target is minus the number of dimensions.

    Attributes:
        target_entropy_factor: target in nats per dimension.
        target_entropy_sigma: the target is the entropy of unsquashed Gaussians with this standard deviation.
    """

    target_entropy_factor: Annotated[float | None, UnusedUnless("target_entropy", None)] = None
    target_entropy_sigma: Annotated[
        PositiveFloat | None, UnusedUnless("target_entropy", None), UnusedUnless("target_entropy_factor", None)
    ] = None
    kind: Literal["auto"] = "auto"

    def target(self, action_size: int) -> float:
        """Returns the target in nats for actions with `action_size` dimensions."""
        if self.target_entropy is not None:
            return self.target_entropy
        if self.target_entropy_sigma is not None:
            return gaussian_entropy(self.target_entropy_sigma, action_size)
        return action_size * (-1.0 if self.target_entropy_factor is None else self.target_entropy_factor)


def gaussian_entropy(sigma: float, action_size: int) -> float:
    """Returns `A / 2 * log(2 pi e sigma^2)`, the entropy in nats of independent Gaussians in A dimensions."""
    return action_size * (0.5 * math.log(2.0 * math.pi * math.e) + math.log(sigma))


TemperatureParameters = Annotated[AutoAlphaParameters | FixedAlphaParameters, ByKind()]


@parameters
class DiscreteAutoAlphaParameters(LearnedAlphaParameters):
    """A learned temperature for discrete actions. Their entropy lies between 0 and log(number of valid actions).

    Attributes:
        target_entropy_ratio: target as a fraction of log(number of valid actions) in each state; below 1. The default
            is 0.98 unless `target_entropy` sets one target for all states.
    """

    target_entropy_ratio: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None, UnusedUnless("target_entropy", None)
    ] = None
    kind: Literal["auto"] = "auto"


DiscreteTemperatureParameters = Annotated[DiscreteAutoAlphaParameters | FixedAlphaParameters, ByKind()]


@parameters
class AlgorithmParameters:
    """Parameters shared by all algorithms.

    Attributes:
        discount: gamma, per step.
        use_deterministic_for_evaluation: evaluate the policy's mode instead of samples.
    """

    discount: UnitInterval = 0.99
    use_deterministic_for_evaluation: bool = True

    def updates_between_target_copies(self) -> int:
        """Returns the period of the target network (or ACER's average policy) in updates: 1."""
        return 1

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns the number of updates (approximate for ACER) in `steps` steps after the warm-up."""
        if isinstance(steps, TrainingSteps):
            return steps.num_steps
        raise ParameterError(
            "learning_rate_decay_steps='run' needs a schedule.improve_steps in TrainingSteps, or the unit of "
            f"num_consecutive_playing_steps (EnvironmentSteps of ACER), got {steps}"
        )


def discount_of_episodes(steps: int) -> float:
    """Returns a discount for episodes of `steps` decisions: `1 - 5 / steps`, clipped to [0.95, 0.995].

    Its horizon, `1 / (1 - discount)`, is a fifth of an episode (SimBa, arXiv 2410.09754).
    """
    return min(max(1.0 - 5.0 / steps, 0.95), 0.995)


@parameters
class OffPolicyAlgorithmParameters(AlgorithmParameters):
    """Parameters shared by all algorithms that learn from transitions or sequences of any age.

    Attributes:
        n_step: rewards summed before the bootstrap; larger values propagate rewards faster but are more off-policy.
        ignore_done: bootstrap after termination too, for tasks that report a time limit as termination.
        num_consecutive_playing_steps: environment steps or episodes between updates.
        num_consecutive_training_steps: updates after these steps; their ratio is the update-to-data ratio.
        num_updates_between_policy_updates: policy delay: every n-th update trains the policy and the temperature.
        first_policy_update: the first update that trains the policy, at most the delay; None is the delay itself.
        num_steps_between_copying_online_weights_to_target: target update period, in environment steps or updates.
        rate_for_copying_weights_to_target: tau of the soft update; 1 copies.
        rate_for_averaging_policy: evaluations, saved weights and exports use a running average of the policy's weights
            instead of the newest ones. Each update moves it by this fraction (more in the first updates). Training does
            not change. None does not average.
        reset_steps: environment steps at which all networks, target networks, temperatures and optimizers are
            reinitialised before the update; the memory is kept (arXiv 2205.07802).
    """

    n_step: PositiveInt = 1
    ignore_done: bool = False
    num_consecutive_playing_steps: Annotated[PlayingSteps, Positive] = EnvironmentSteps(1)
    num_consecutive_training_steps: PositiveInt = 1
    num_updates_between_policy_updates: PositiveInt = 1
    first_policy_update: PositiveInt | None = None
    num_steps_between_copying_online_weights_to_target: StepMethod = EnvironmentSteps(1)
    rate_for_copying_weights_to_target: Annotated[float, Field(gt=0, le=1)] = 0.005
    rate_for_averaging_policy: Annotated[float, Field(gt=0, lt=1)] | None = None
    reset_steps: Annotated[tuple[PositiveInt, ...], AfterValidator(lambda steps: tuple(sorted(steps)))] = ()

    def __post_init__(self) -> None:
        period, first = self.num_updates_between_policy_updates, self.first_policy_update
        if (first or 1) > period:
            raise ParameterError(f"first_policy_update must be at most the delay, {period}, got {first}")

    def policy_learns_in(self, update: Any) -> Any:
        """Returns whether the policy learns in this update, counted from 1; elementwise for an array or a tensor."""
        return (update - (self.first_policy_update or 0)) % self.num_updates_between_policy_updates == 0

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns the number of updates in `steps` steps."""
        playing = self.num_consecutive_playing_steps
        if type(steps) is not type(playing):
            return super().updates_in(steps, num_envs)
        return max(1, steps.num_steps // playing.num_steps * self.num_consecutive_training_steps)

    def updates_between_target_copies(self) -> int:
        """Returns the target update period as a whole number of updates: period times updates per environment step."""
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
class AdditiveNoiseParameters(ClassParameters):
    """Gaussian noise added to sampled actions while training, in units of the [-1, 1] action, then clipped."""

    noise_std: NonNegativeFloat = 0.1
    kind: Literal["additive_noise"] = "additive_noise"
    path: ClassVar[str] = "tfsac.policies.exploration:AdditiveNoise"


@parameters
class NoiseRepetitionParameters(ClassParameters):
    """Repeats the policy's sampling noise for several steps, so that exploration keeps its direction (FlashSAC).

    All environments share the number n, drawn with probability proportional to `n ** -mu`, and ignore episode ends.

    Attributes:
        mu: larger values repeat less; 0 draws every n up to `max_repeats` with equal probability.
        max_repeats: maximum number of steps with the same noise.
        every: a fixed number of steps instead of a random one.
    """

    mu: Annotated[NonNegativeFloat, UnusedUnless("every", None)] = 2.0
    max_repeats: Annotated[int, Field(ge=2, le=10**6), UnusedUnless("every", None)] = 16
    every: Annotated[PositiveInt, Field(ge=2)] | None = None
    kind: Literal["noise_repetition"] = "noise_repetition"
    path: ClassVar[str] = "tfsac.policies.exploration:NoiseRepetition"


GaussianExplorationParameters = Annotated[AdditiveNoiseParameters | NoiseRepetitionParameters, ByKind()]


@parameters
class EpsilonGreedyParameters(ClassParameters):
    """With probability epsilon, takes a uniform valid action instead of the policy's, independently per environment.

    Attributes:
        initial_epsilon, final_epsilon: initial and final value.
        decay_steps: environment steps to the final value ("linear"), or to 1/e of the difference ("exponential").
    """

    initial_epsilon: UnitInterval = 0.95
    final_epsilon: UnitInterval = 0.1
    decay_steps: PositiveInt = 10_000
    decay: Literal["linear", "exponential"] = "exponential"
    path: ClassVar[str] = "tfsac.policies.exploration:EpsilonGreedy"

    def epsilon(self, env_steps: int) -> float:
        """Returns epsilon after `env_steps` environment steps."""
        progress = env_steps / self.decay_steps
        remaining = math.exp(-progress) if self.decay == "exponential" else max(0.0, 1.0 - progress)
        return self.final_epsilon + remaining * (self.initial_epsilon - self.final_epsilon)


@parameters
class BaseAgentParameters(ClassParameters):
    """Parameters shared by all agents. In a custom subclass, `path` is the "MODULE:CLASS" of the agent.

    Attributes:
        algorithm: what is computed and how often.
        exploration: exploration in addition to the policy's own sampling, or None.
        memory: the replay memory.
        networks: networks by name, including "policy"; one batch trains all of them.
        discrete_actions: whether actions are discrete; None lets the agent decide which environments it rejects.
        heads: head class of each network by name; "trunk" is optional. Empty allows any networks.
        with_target: names of the networks that may have a target network.
        recurrent: whether networks may have an LSTM.
        ensemble: whether critics may have the layers and distributions of an ensemble.

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
    heads: ClassVar[dict[str, type]] = {}
    with_target: ClassVar[tuple[str, ...]] = ("q",)
    recurrent: ClassVar[bool] = False
    ensemble: ClassVar[bool] = False

    @property
    def batch_size(self) -> int:
        """Number of entries in the batch of an update."""
        return self.networks["policy"].batch_size

    def check_batch(self, replicas: int = 1) -> None:
        """Rejects a batch that replicas cannot share equally."""
        if self.batch_size % replicas:
            raise ParameterError(f"batch_size must be divisible by the {replicas} replicas, got {self.batch_size}")
        if isinstance(self.memory, DemonstratedReplayParameters):
            self.memory.check_batch(self.batch_size, replicas)

    @property
    def learning_rates(self) -> dict[str, LearningRateDecayParameters]:
        """Everything with a learning rate (networks and learned temperatures), by path in the agent's parameters."""
        learned = {
            f"algorithm.{name}": value
            for name, value in vars(self.algorithm).items()
            if isinstance(value, LearnedAlphaParameters)
        }
        return {**{f"networks.{name}": network for name, network in self.networks.items()}, **learned}

    @property
    def encoders(self) -> dict[str, str]:
        """Maps each network without its own embedders to the network that provides them."""
        return {}

    def with_hidden_layers(self, layers: tuple[int, ...]) -> Self:
        """Returns the parameters with hidden layers of these widths in policy, V and critics.

        Convolutions, embedders that use a named scheme or belong to another network, and networks after a trunk do not
        change. An embedder with dense layers takes the first of `layers`, and the middleware takes the rest.
        """
        networks = dict(self.networks)
        for name in ["trunk"] if "trunk" in networks else networks:
            networks[name] = _with_layers(networks[name], layers, name not in self.encoders)
        return dataclasses.replace(self, networks=networks)

    def __post_init__(self) -> None:
        networks, rule = self.networks, ""
        heads = {name: head for name, head in self.heads.items() if name in networks or name != "trunk"}
        if not heads:
            return
        if networks.keys() != heads.keys():
            rule = f"have the networks {', '.join(heads)}, got {', '.join(networks)}"
        for name, network in {} if rule else networks.items():
            if not isinstance(network.head_parameters, heads[name]):
                rule = f"have {heads[name].__name__} in {name!r}, got {network.head_parameters}"
            elif name not in self.with_target and network.create_target_network:
                rule = f"have no target network of {name!r}, only of {', '.join(self.with_target)}"
            elif network.middleware_parameters.kind == "lstm" and not self.recurrent:
                rule = "have no LSTM: use recurrent soft actor-critic or ACER"
            elif network.batch_size != self.batch_size:
                rule = f"have the same batch_size in all networks, got {self.batch_size} and {network.batch_size}"
            elif getattr(network.middleware_parameters, "dropout", 0.0):
                rule = f"have dropout only in the head of critics, got it in the middleware of {name!r}"
            elif not self.ensemble and (
                network.special_layers or getattr(network.head_parameters, "distribution", None)
            ):
                special = network.special_layers or "a distribution of returns"
                rule = f"be of kind 'twin_soft_actor_critic' to have {special}, got it in network {name!r}"
        if rule:
            raise ParameterError(f"{type(self).__name__} must {rule}")
        self.check_batch()
        if any(network.create_target_network for network in networks.values()):
            self.algorithm.updates_between_target_copies()
        else:
            copying = ["rate_for_copying_weights_to_target", "num_steps_between_copying_online_weights_to_target"]
            reject_unused_fields(self.algorithm, copying, "create_target_network=False")


def _with_layers(network: NetworkParameters, layers: tuple[int, ...], changes_embedders: bool) -> NetworkParameters:
    """Returns a copy of a network with hidden layers of these widths."""
    head: Any = network.head_parameters
    middleware: Any = network.middleware_parameters
    if "residual" in (middleware.kind, getattr(head, "body", middleware).kind):
        raise ParameterError("agent.hidden_layers is for dense layers: set the width and num_blocks of residual blocks")
    if isinstance(head, QHeadParameters) and head.network_layers_sizes:
        changed = dataclasses.replace(head, network_layers_sizes=layers)
        return dataclasses.replace(network, head_parameters=changed)
    embedders, rest = dict(network.input_embedders_parameters), layers
    for key, embedder in embedders.items():
        scheme = embedder.scheme
        if changes_embedders and isinstance(scheme, tuple) and any(isinstance(layer, int) for layer in scheme):
            convolutions = tuple(layer for layer in scheme if isinstance(layer, Conv2d))
            embedders[key] = dataclasses.replace(embedder, scheme=(*convolutions, *layers[:1]))
            rest = layers[1:]
    body = dataclasses.replace(middleware, scheme=rest or Scheme.Empty)
    return dataclasses.replace(network, input_embedders_parameters=embedders, middleware_parameters=body)
