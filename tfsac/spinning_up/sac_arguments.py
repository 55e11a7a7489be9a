"""The numbers that Spinning Up's `sac` takes, and the experiment that they describe. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from tfsac.parameters import (
    EnvironmentEpisodes,
    EnvironmentParameters,
    EnvironmentSteps,
    ExperienceReplayParameters,
    FixedAlphaParameters,
    NetworkParameters,
    Preset,
    RunParameters,
    ScheduleParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    networks_made_by,
    twin_soft_actor_critic_networks,
)
from tfsac.parameters.base import parameters

Count = Annotated[int, Field(gt=0)]
CRITIC_LOSS_WEIGHT = 0.5


@parameters
class SpinningUpArguments:
    """Spinning Up's names and defaults. Each is a flag of `tfsac spinup`.

    Attributes:
        seed: of weights, noise, sampling and environments.
        steps_per_epoch: environment steps of an epoch.
        epochs: how many.
        replay_size: transitions that the memory holds.
        gamma: discount.
        polyak: share of the old target network at each update.
        lr: learning rate of policy and critics.
        alpha: weight of the entropy.
        batch_size: rows of an update.
        start_steps: environment steps with random actions.
        update_after: environment steps before those that lead to updates.
        update_every: environment steps between updates, and how many updates are then made.
        num_test_episodes: of the test of an epoch.
        max_ep_len: time limit of episodes in steps.
        save_freq: epochs between checkpoints.

    Example:
        >>> arguments = SpinningUpArguments(gamma=0.98)
        >>> arguments.preset(EnvironmentParameters("Hopper-v5"), arguments.mlp_networks()).agent.algorithm.discount
        0.98
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    steps_per_epoch: Count = 4000
    epochs: Count = 100
    replay_size: Count = 1_000_000
    gamma: Annotated[float, Field(ge=0, le=1)] = 0.99
    polyak: Annotated[float, Field(ge=0, lt=1)] = 0.995
    lr: Annotated[float, Field(gt=0)] = 1e-3
    alpha: Annotated[float, Field(ge=0)] = 0.2
    batch_size: Count = 100
    start_steps: Annotated[int, Field(ge=0)] = 10_000
    update_after: Count = 1000
    update_every: Count = 50
    num_test_episodes: Count = 10
    max_ep_len: Count = 1000
    save_freq: Count = 1

    def preset(self, environment: EnvironmentParameters, networks: Mapping[str, NetworkParameters]) -> Preset:
        """Returns the experiment.

        Args:
            environment: level and time limit.
            networks: from `mlp_networks` or `networks_made_by`.
        """
        return Preset(
            agent=TwinSoftActorCriticAgentParameters(
                algorithm=TwinSoftActorCriticAlgorithmParameters(
                    discount=self.gamma,
                    num_consecutive_playing_steps=EnvironmentSteps(self.update_every),
                    num_consecutive_training_steps=self.update_every,
                    rate_for_copying_weights_to_target=round(1.0 - self.polyak, 12),  # 0.005, not 0.00500...04
                    update_order="simultaneous",
                    temperature=FixedAlphaParameters(self.alpha),
                ),
                memory=ExperienceReplayParameters(self.replay_size),
                networks=dict(networks),
            ),
            environment=environment,
            schedule=ScheduleParameters(
                heatup_steps=EnvironmentSteps(self.update_after),
                random_action_steps=self.start_steps,
                improve_steps=EnvironmentSteps(self.steps_per_epoch * self.epochs - self.update_after),
                evaluation_steps=EnvironmentEpisodes(self.num_test_episodes),
                steps_between_evaluation_periods=EnvironmentSteps(self.steps_per_epoch),
            ),
        )

    def run_parameters(self) -> RunParameters:
        """Returns the seed, when to save, and that the averages of progress.txt are over all updates."""
        save_steps = self.save_freq * self.steps_per_epoch
        return RunParameters(seed=self.seed, checkpoint_save_steps=save_steps, updates_between_diagnostics=1)

    def mlp_networks(
        self, hidden_sizes: Sequence[int] = (256, 256), activation: str = "relu"
    ) -> dict[str, NetworkParameters]:
        """Returns the networks of the default `actor_critic`, which has the same arguments."""
        networks = self._networks(tuple(hidden_sizes))
        policy, q = networks["policy"], networks["q"]
        chosen: Any = {"activation_function": activation}
        embedder = replace(policy.input_embedders_parameters["observation"], **chosen)
        middleware, head = policy.middleware_parameters, replace(q.head_parameters, **chosen)
        if len(hidden_sizes) > 1:  # the first width is the embedder's
            middleware = replace(middleware, **chosen)
        embedders: Any = {"observation": embedder}
        policy = replace(policy, input_embedders_parameters=embedders, middleware_parameters=middleware)
        return {"policy": policy, "q": replace(q, head_parameters=head)}

    def networks_made_by(self, call: str) -> dict[str, NetworkParameters]:
        """Returns how networks that a function makes are trained; see `networks_made_by` of the parameters.

        Args:
            call: name and arguments of the function; a run can only be continued with the same.
        """
        return networks_made_by(call, self._networks((256, 256)))

    def _networks(self, hidden_sizes: tuple[int, ...]) -> dict[str, NetworkParameters]:
        weight = CRITIC_LOSS_WEIGHT
        return twin_soft_actor_critic_networks(
            hidden_sizes, critic_loss_weight=weight, learning_rate=self.lr, batch_size=self.batch_size
        )
