"""Parameters of an experiment: environment, schedule, acceptance threshold, and the preset that holds them all."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import to_jsonable_python

from tfsac.parameters.acer import DiscreteACERAgentParameters, GaussianACERAgentParameters
from tfsac.parameters.base import (
    ByKind,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    Rising,
    UnusedIf,
    UnusedUnless,
    parameters,
    reject_unused_fields,
)
from tfsac.parameters.base_agent import BaseAgentParameters
from tfsac.parameters.memories import (
    EpisodicReplayParameters,
    HindsightExperienceReplayParameters,
    SQILExperienceReplayParameters,
)
from tfsac.parameters.networks import ATOM_BOUND, CategoricalValueParameters
from tfsac.parameters.recurrent_sac import (
    RecurrentDiscreteSoftActorCriticAgentParameters,
    RecurrentSoftActorCriticAgentParameters,
)
from tfsac.parameters.soft_actor_critic import (
    DiscreteSoftActorCriticAgentParameters,
    HybridSoftActorCriticAgentParameters,
    SoftActorCriticAgentParameters,
    TwinSoftActorCriticAgentParameters,
)
from tfsac.parameters.steps import EnvironmentEpisodes, EnvironmentSteps, PlayingSteps, Positive, StepMethod
from tfsac.parameters.taac import TemporallyAbstractActorCriticAgentParameters

AgentParameters = Annotated[
    SoftActorCriticAgentParameters
    | TwinSoftActorCriticAgentParameters
    | DiscreteSoftActorCriticAgentParameters
    | HybridSoftActorCriticAgentParameters
    | TemporallyAbstractActorCriticAgentParameters
    | DiscreteACERAgentParameters
    | GaussianACERAgentParameters
    | RecurrentSoftActorCriticAgentParameters
    | RecurrentDiscreteSoftActorCriticAgentParameters,
    ByKind(BaseAgentParameters),
]
# Metrics of training episodes and evaluations that every run logs.
EPISODE_METRICS = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
BY_ENV_FN = "env_fn:"  # prefix of the level of an environment that a Python function creates


def _no_own_metrics(keys: tuple[str, ...]) -> tuple[str, ...]:
    if own := set(keys) & {*EPISODE_METRICS, "switch_rate", "repeats_mean"}:
        raise ValueError(f"{', '.join(sorted(own))} would be hidden by the built-in metric of the same name")
    return keys


@parameters
class AtariPreprocessingParameters:
    """Preprocessing of an Atari game's screen: Gymnasium's `AtariPreprocessing` and frame stacking (Mnih et al. 2015).

    Attributes:
        frame_skip: number of frames per action; the observation is the pixelwise maximum of the last two.
        screen_size: side of the square greyscale image, in pixels.
        num_stacked_frames: number of recent images stacked as channels.
        noop_max: maximum number of no-op actions at the start of an episode.
    """

    frame_skip: PositiveInt = 4
    screen_size: PositiveInt = 84
    num_stacked_frames: PositiveInt = 4
    noop_max: NonNegativeInt = 30


def plain(value: Any) -> Any:
    """Returns a JSON-compatible value, with NumPy numbers and parameter objects converted as in a config."""
    return to_jsonable_python(value, inf_nan_mode="constants", fallback=_of_numpy)


def _of_numpy(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise ValueError("must be JSON: numbers, strings, lists and dicts; use env_fn for other objects")
    return value.tolist()


@parameters
class ReturnScalingParameters:
    """Divides rewards by the running standard deviation of the discounted training returns.

    Attributes:
        bound: the divisor is at least (largest absolute return) / bound, so that no training return exceeds the bound;
            None for no bound.
    """

    bound: PositiveFloat | None = None


@parameters
class FilterParameters:
    """Transforms of rewards and observations between the memory, which stores raw values, and the agent.

    Attributes:
        reward_rescale_factor: factor of the rewards; with alpha 1 it is the inverse of the effective temperature.
        reward_clipping_range: (low, high) after rescaling, or None.
        observation_normalization: subtract the running mean and divide by the running deviation, per dimension.
        observation_clipping: bound of normalised observations, in standard deviations.
        reward_normalization: divide rewards by their running standard deviation in training, before rescaling.
        return_scaling: divide rewards by the running standard deviation of returns, before rescaling, or None.
    """

    reward_rescale_factor: PositiveFloat = 1.0
    reward_clipping_range: Annotated[tuple[float, float], Rising] | None = None
    observation_normalization: bool = False
    observation_clipping: Annotated[PositiveFloat, UnusedIf("observation_normalization", False)] = 10.0
    reward_normalization: Annotated[bool, UnusedUnless("return_scaling", None)] = False
    return_scaling: ReturnScalingParameters | None = None


@parameters
class EnvironmentParameters:
    """The environment.

    Attributes:
        level: a Gymnasium environment id; "pettingzoo:" and the module of a PettingZoo environment, whose agents then
            share one policy; or "env_fn:" and the name of an environment that only a Python function can create.
        num_envs: number of parallel environments; a `VectorEnv` from an env_fn replaces the default 1 by its number.
        vectorization: "sync" steps them in this process, "subprocess" in one group per core, one of them in this
            process; "vector" in one call of the level's own `VectorEnv`, which an env_fn may also return.
        max_episode_steps: time limit in steps, or None for the level's own.
        kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.
        atari: preprocessing of an Atari game ("ALE/..."), or None.
        visible_entries: indices of the vector observation's entries that the agent sees, in this order; None for all.
        step_timeout_seconds: time limit for a step or a reset of environments in other processes; None waits forever.
            "sync" rejects it, because a hanging environment in this process cannot be stopped.
        evaluation: "separate" evaluates in a separate environment, "shared" in the training environment between
            training episodes; "none" rates policies by their last ten training episodes.
        logged_info: keys of `info` to log from the last step of each episode, in addition to `is_success`.
        filters: transforms of rewards and observations for the agent.
    """

    level: str = "Pendulum-v1"
    num_envs: PositiveInt = 1
    vectorization: Literal["sync", "subprocess", "vector"] = "sync"
    max_episode_steps: PositiveInt | None = None
    kwargs: Annotated[dict[str, Any], AfterValidator(plain)] = Field(default_factory=dict)
    atari: AtariPreprocessingParameters | None = None
    visible_entries: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] | None = None
    step_timeout_seconds: PositiveFloat | None = None
    evaluation: Literal["separate", "shared", "none"] = "separate"
    logged_info: Annotated[tuple[str, ...], AfterValidator(_no_own_metrics)] = ()
    filters: FilterParameters = FilterParameters()

    @property
    def logged_keys(self) -> tuple[str, ...]:
        """Keys of `info` to log from the last step of each episode."""
        return tuple(dict.fromkeys(("is_success", *self.logged_info)))

    @property
    def name(self) -> str:
        """The environment's own name, for messages."""
        return self.level.removeprefix(BY_ENV_FN)

    @property
    def by_env_fn(self) -> bool:
        """Whether a Python function creates the environment, instead of the level."""
        return self.level.startswith(BY_ENV_FN)


@parameters
class ScheduleParameters:
    """Lengths of warm-up, training and evaluation (Coach's schedule).

    Attributes:
        heatup_steps: warm-up before the first update, with random actions.
        random_action_steps: environment steps with random actions; None for the length of the warm-up.
        improve_steps: length of training after the warm-up.
        evaluation_steps: length of each evaluation.
        steps_between_evaluation_periods: evaluation interval, counted from the start of the run with its warm-up.
    """

    heatup_steps: PlayingSteps = EnvironmentSteps(10_000)
    random_action_steps: NonNegativeInt | None = None
    improve_steps: Annotated[StepMethod, Positive] = EnvironmentSteps(990_000)
    evaluation_steps: Annotated[PlayingSteps, Positive] = EnvironmentEpisodes(5)
    steps_between_evaluation_periods: Annotated[StepMethod, Positive] = EnvironmentSteps(5_000)


@parameters
class PresetValidationParameters:
    """Acceptance test of a preset.

    Attributes:
        min_reward_threshold: mean return that one evaluation must reach, or None for no threshold.
        max_episodes_to_achieve_reward: number of training episodes allowed to reach the threshold, or None.
    """

    min_reward_threshold: float | None = None
    max_episodes_to_achieve_reward: Annotated[PositiveInt | None, UnusedIf("min_reward_threshold", None)] = None


@parameters
class Preset:
    """A complete experiment.

    Attributes:
        agent: algorithm, exploration, memory, networks.
        environment: level, number of environments, filters.
        schedule: lengths of warm-up, training and evaluation.
        validation: acceptance threshold.
        levels: changes for other levels, `{level: {path: value}}`, applied when the level is selected. A level that is
            not listed has no acceptance threshold. The entry "own" restores the preset's own level.
    """

    agent: AgentParameters = Field(default_factory=SoftActorCriticAgentParameters)
    environment: EnvironmentParameters = Field(default_factory=EnvironmentParameters)
    schedule: ScheduleParameters = ScheduleParameters()
    validation: PresetValidationParameters = PresetValidationParameters()
    levels: Annotated[dict[str, dict[str, Any]], AfterValidator(plain)] = Field(default_factory=dict)

    @property
    def updates(self) -> int:
        """Number of updates in the schedule, approximate for ACER; see `AlgorithmParameters.updates_in`."""
        return self.agent.algorithm.updates_in(self.schedule.improve_steps, self.environment.num_envs)

    def __post_init__(self) -> None:
        agent, schedule, filters = self.agent, self.schedule, self.environment.filters
        q, scaling = agent.networks.get("q"), filters.return_scaling
        atoms = getattr(q and q.head_parameters, "distribution", None)
        scaled = scaling and scaling.bound in (None, ATOM_BOUND) and filters.reward_rescale_factor <= 1
        if isinstance(atoms, CategoricalValueParameters) and atoms.low is None and not scaled:
            raise ParameterError(
                'Atoms between -5 and 5 need environment.filters.return_scaling={"bound": 5.0} and '
                "reward_rescale_factor <= 1; or set agent.networks.q.head_parameters.distribution.low and high"
            )
        if filters.return_scaling and getattr(agent.algorithm, "reward_discounts", None):
            raise ParameterError("return_scaling needs the algorithm's discount instead of reward_discounts")
        if isinstance(agent.memory, SQILExperienceReplayParameters):
            names = ["reward_rescale_factor", "reward_clipping_range", "reward_normalization", "return_scaling"]
            reject_unused_fields(filters, names, "agent.memory of kind 'sqil', whose rewards are 0 and 1")
        if isinstance(agent.memory, HindsightExperienceReplayParameters) and (
            filters.reward_normalization or filters.return_scaling
        ):
            instead = "the statistics would be those of other goals; use reward_rescale_factor"
            raise ParameterError(
                f"agent.memory of kind 'hindsight' has no reward_normalization and return_scaling: {instead}"
            )
        if isinstance(agent.memory, EpisodicReplayParameters):
            if schedule.heatup_steps.num_steps or schedule.random_action_steps:
                instead = "agent.memory.replay_start_size sets when the replay starts"
                raise ParameterError(f"heatup_steps and random_action_steps of ACER must be 0: {instead}")
            if agent.batch_size < self.environment.num_envs:
                minimum = f"num_envs={self.environment.num_envs}, one segment per environment"
                raise ParameterError(f"agent.networks.*.batch_size must be at least {minimum}, got {agent.batch_size}")
