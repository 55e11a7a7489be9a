"""Validated parameter objects in Coach's vocabulary. Importing them does not import TensorFlow."""

from tfsac.parameters.agents import (
    AdditiveNoiseParameters,
    ExperienceReplayParameters,
    SoftActorCriticAgentParameters,
    SoftActorCriticAlgorithmParameters,
    soft_actor_critic_networks,
)
from tfsac.parameters.base import ParameterError, from_json, to_json
from tfsac.parameters.experiment import (
    EnvironmentParameters,
    FilterParameters,
    Preset,
    PresetValidationParameters,
    RunParameters,
    ScheduleParameters,
)
from tfsac.parameters.networks import (
    Conv2d,
    EmbedderScheme,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    MiddlewareScheme,
    NetworkParameters,
    SACPolicyHeadParameters,
    SACQHeadParameters,
    VHeadParameters,
)
from tfsac.parameters.overrides import for_level, override, parse_assignment
from tfsac.parameters.steps import EnvironmentEpisodes, EnvironmentSteps, StepMethod, TrainingSteps

__all__ = [
    "AdditiveNoiseParameters",
    "Conv2d",
    "EmbedderScheme",
    "EnvironmentEpisodes",
    "EnvironmentParameters",
    "EnvironmentSteps",
    "ExperienceReplayParameters",
    "FCMiddlewareParameters",
    "FilterParameters",
    "InputEmbedderParameters",
    "MiddlewareScheme",
    "NetworkParameters",
    "ParameterError",
    "Preset",
    "PresetValidationParameters",
    "RunParameters",
    "SACPolicyHeadParameters",
    "SACQHeadParameters",
    "ScheduleParameters",
    "SoftActorCriticAgentParameters",
    "SoftActorCriticAlgorithmParameters",
    "StepMethod",
    "TrainingSteps",
    "VHeadParameters",
    "for_level",
    "from_json",
    "override",
    "parse_assignment",
    "soft_actor_critic_networks",
    "to_json",
]
