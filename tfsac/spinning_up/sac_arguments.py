"""The numeric arguments of Spinning Up's `sac`, and the experiment that they define. Without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from tfsac.parameters import EnvironmentParameters, Preset, PresetValidationParameters, RunParameters, override
from tfsac.parameters.base import parameters
from tfsac.preset_lookup import load_preset

Count = Annotated[int, Field(gt=0)]


@parameters
class SpinningUpArguments:
    """Spinning Up's names and defaults. Each is a flag of `tfsac spinup`.

    Attributes:
        seed: random seed of weights, noise, sampling and environments.
        steps_per_epoch: environment steps per epoch.
        epochs: number of epochs.
        replay_size: capacity of the memory in transitions.
        gamma: discount.
        polyak: weight of the old target network at each update.
        lr: learning rate of policy and critics.
        alpha: weight of the entropy.
        batch_size: transitions per update.
        start_steps: environment steps with random actions.
        update_after: environment steps without updates at the start.
        update_every: environment steps between updates, and the number of updates made then.
        num_test_episodes: test episodes per epoch.
        max_ep_len: time limit of episodes in steps.
        save_freq: epochs between checkpoints.
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

    def preset(
        self, environment: EnvironmentParameters, hidden_sizes: Sequence[int] = (256, 256), activation: str = "relu"
    ) -> Preset:
        """Returns the preset "spinningup_sac" with these arguments and the default `actor_critic` networks."""
        changes: dict[str, Any] = {
            "agent.algorithm.discount": self.gamma,
            "agent.algorithm.num_consecutive_playing_steps": self.update_every,
            "agent.algorithm.num_consecutive_training_steps": self.update_every,
            "agent.algorithm.rate_for_copying_weights_to_target": round(1.0 - self.polyak, 12),  # not 0.00500...04
            "agent.algorithm.temperature.alpha": self.alpha,
            "agent.memory.max_size": self.replay_size,
            "agent.networks.*.learning_rate": self.lr,
            "agent.networks.*.batch_size": self.batch_size,
            "agent.hidden_layers": list(hidden_sizes),
            "schedule.heatup_steps": self.update_after,
            "schedule.random_action_steps": self.start_steps,
            "schedule.improve_steps": self.steps_per_epoch * self.epochs - self.update_after,
            "schedule.evaluation_steps": self.num_test_episodes,
            "schedule.steps_between_evaluation_periods": self.steps_per_epoch,
        }
        parts = ("policy.input_embedders_parameters.observation", "q.head_parameters", "policy.middleware_parameters")
        for part in parts[: len(hidden_sizes) + 1]:  # the first width is the embedder's
            changes[f"agent.networks.{part}.activation_function"] = activation
        preset = override(load_preset("spinningup_sac"), changes)
        return replace(preset, environment=environment, validation=PresetValidationParameters())

    def run_parameters(self) -> RunParameters:
        """Returns run parameters with the seed, the checkpoint interval, and all metrics of every update reported."""
        steps = self.save_freq * self.steps_per_epoch
        return RunParameters(seed=self.seed, checkpoint_save_steps=steps, updates_between_diagnostics=1)
