"""Parameters of the agents: algorithm, exploration, memory and networks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.base import ParameterError, nearest, parameters
from tfsac.parameters.networks import (
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    MiddlewareScheme,
    NetworkParameters,
    NonNegativeFloat,
    PositiveInt,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    VHeadParameters,
)
from tfsac.parameters.steps import EnvironmentEpisodes, EnvironmentSteps, StepMethod, TrainingSteps


@parameters
class ExperienceReplayParameters:
    """A ring of transitions sampled uniformly with replacement; `max_size` counts transitions of all environments."""

    max_size: PositiveInt = 1_000_000


@parameters
class AdditiveNoiseParameters:
    """Gaussian noise added to sampled actions while training, in units of the [-1, 1] action, then clipped."""

    noise_std: NonNegativeFloat = 0.1


@parameters
class SoftActorCriticAlgorithmParameters:
    """Soft actor-critic with a value network (Coach; Haarnoja et al. 2018, arXiv 1801.01290).

    Attributes:
        discount: gamma, per step.
        num_consecutive_playing_steps: play this much, then train.
        num_consecutive_training_steps: updates after each stretch of playing, in one compiled call.
        num_steps_between_copying_online_weights_to_target: period of the target update, in environment steps or
            updates; a larger one keeps the target longer unchanged.
        rate_for_copying_weights_to_target: tau of the soft update; 1 copies.
        use_deterministic_for_evaluation: evaluate tanh(mean) instead of a sample.
    """

    discount: Annotated[float, Field(ge=0, le=1)] = 0.99
    num_consecutive_playing_steps: StepMethod = EnvironmentSteps(1)
    num_consecutive_training_steps: PositiveInt = 1
    num_steps_between_copying_online_weights_to_target: StepMethod = EnvironmentSteps(1)
    rate_for_copying_weights_to_target: Annotated[float, Field(gt=0, le=1)] = 0.005
    use_deterministic_for_evaluation: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.num_consecutive_playing_steps, TrainingSteps) or not self.num_consecutive_playing_steps.num_steps:
            raise ParameterError(
                "num_consecutive_playing_steps is at least EnvironmentSteps(1) or EnvironmentEpisodes(1). "
                f"Received: {self.num_consecutive_playing_steps}"
            )
        self.updates_between_target_copies()

    def updates_between_target_copies(self) -> int:
        """Returns the target period in updates: period times updates per environment step.

        Raises:
            ParameterError: the product is not a whole number >= 1, or the units cannot be converted.
        """
        period = self.num_steps_between_copying_online_weights_to_target
        playing = self.num_consecutive_playing_steps
        updates, steps = period.num_steps, 1
        if isinstance(period, EnvironmentEpisodes) or (type(playing) is not EnvironmentSteps and type(period) is EnvironmentSteps):
            raise ParameterError(
                "num_steps_between_copying_online_weights_to_target counts EnvironmentSteps or TrainingSteps, and only "
                f"TrainingSteps when playing counts episodes. Received: {period} with {playing}"
            )
        if isinstance(period, EnvironmentSteps):
            updates, steps = period.num_steps * self.num_consecutive_training_steps, playing.num_steps
        if updates < 1 or updates % steps:
            raise ParameterError(
                "num_steps_between_copying_online_weights_to_target times the updates per environment step must be a "
                f"whole number >= 1. Received: {period}, {self.num_consecutive_training_steps} updates every {playing}"
            )
        return updates // steps


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
    body: dict[str, Any] = {
        "input_embedders_parameters": {"observation": InputEmbedderParameters(tuple(layers[:1]))},
        "middleware_parameters": FCMiddlewareParameters(tuple(layers[1:])),
    }
    # Q reads the raw observation beside the action, so all its layers belong to the head.
    no_body: dict[str, Any] = {
        "input_embedders_parameters": {"observation": InputEmbedderParameters(EmbedderScheme.Empty)},
        "middleware_parameters": FCMiddlewareParameters(MiddlewareScheme.Empty),
    }
    return {
        "policy": NetworkParameters(SACPolicyHeadParameters(initializer=head_initializer), **{**body, **trained}),
        "v": NetworkParameters(
            VHeadParameters(initializer=head_initializer), **{**body, "create_target_network": True, **trained}
        ),
        "q": NetworkParameters(
            SACQHeadParameters(tuple(layers), initializer=head_initializer), **{**no_body, **trained}
        ),
    }


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
    memory: ExperienceReplayParameters = Field(default_factory=ExperienceReplayParameters)
    networks: dict[str, NetworkParameters] = Field(default_factory=soft_actor_critic_networks)
    kind: Literal["soft_actor_critic"] = "soft_actor_critic"

    def __post_init__(self) -> None:
        heads = {"policy": "sac_policy", "v": "v", "q": "sac_q"}
        for name in self.networks.keys() - heads.keys():
            raise ParameterError(
                f"Soft actor-critic has the networks policy, v and q.{nearest(name, heads)} Received: {name!r}"
            )
        for name, kind in heads.items():
            if name not in self.networks:
                raise ParameterError(f"Soft actor-critic needs a network {name!r}. Received: {sorted(self.networks)}")
            if self.networks[name].head_parameters.kind != kind:
                raise ParameterError(
                    f"The head of network {name!r} is of kind {kind!r}. Received: {self.networks[name].head_parameters}"
                )
            if name != "v" and self.networks[name].create_target_network:
                raise ParameterError(
                    f"Only v has a target network. Received: create_target_network=True for {name!r}"
                )
        sizes = {name: network.batch_size for name, network in self.networks.items()}
        if len(set(sizes.values())) > 1:
            raise ParameterError(f"All networks of an agent train on one batch: equal batch_size. Received: {sizes}")

    @property
    def batch_size(self) -> int:
        """Rows of an update."""
        return self.networks["policy"].batch_size
