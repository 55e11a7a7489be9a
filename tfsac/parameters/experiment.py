"""Parameters of a whole experiment: environment, schedule, acceptance, and the preset that holds them all."""

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
# Metrics that every run has, of training episodes and of evaluations.
EPISODE_METRICS = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
BY_ENV_FN = "env_fn:"  # begins the level of an environment that a Python function made, before its own name


def _no_own_metrics(keys: tuple[str, ...]) -> tuple[str, ...]:
    if own := set(keys) & {*EPISODE_METRICS, "switch_rate", "repeats_mean"}:
        raise ValueError(f"{', '.join(sorted(own))} would be hidden by a metric of every run with that name")
    return keys


@parameters
class AtariPreprocessingParameters:
    """What is done to an Atari game's screen: gymnasium's `AtariPreprocessing` and frame stacking (Mnih et al. 2015).

    Attributes:
        frame_skip: frames for which each action is repeated; the brighter of the last two is seen.
        screen_size: side of the grey square image, in pixels.
        num_stacked_frames: the newest images, as channels.
        noop_max: the most actions without effect with which an episode begins.
    """

    frame_skip: PositiveInt = 4
    screen_size: PositiveInt = 84
    num_stacked_frames: PositiveInt = 4
    noop_max: NonNegativeInt = 30


def plain(value: Any) -> Any:
    """Returns a value as JSON has it, with Python's numbers instead of NumPy's and parameter objects as in a config."""
    return to_jsonable_python(value, inf_nan_mode="constants", fallback=_of_numpy)


def _of_numpy(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise ValueError("must be JSON: numbers, strings, lists and dicts; env_fn is for all others")
    return value.tolist()


@parameters
class ReturnScalingParameters:
    """Rewards are divided by the running standard deviation of the discounted returns of training.

    Attributes:
        bound: rewards are divided by at least the largest absolute return over it, so that no return of training
            exceeds it; None for no bound.
    """

    bound: PositiveFloat | None = None


@parameters
class FilterParameters:
    """What happens to rewards and observations between the memory, which keeps them raw, and the agent.

    Attributes:
        reward_rescale_factor: rewards are multiplied by it; the inverse of a temperature of 1.
        reward_clipping_range: (low, high) after rescaling, or None.
        observation_normalization: subtract the running mean and divide by the running deviation, per dimension.
        observation_clipping: bound of normalised observations, in deviations.
        reward_normalization: divide by the running standard deviation of the rewards of training, before rescaling.
        return_scaling: divide by the running standard deviation of the returns of training, before rescaling, or None.
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
            share one policy; or "env_fn:" and the name of an environment that only a Python function makes again.
        num_envs: environments that run side by side; 1 becomes the number of a `VectorEnv` that an env_fn returns.
        vectorization: "sync" steps them in this process, "subprocess" in a group for each core, one of them here;
            "vector" in one call of the level's own `gymnasium.vector.VectorEnv`, which an env_fn may return as well.
        max_episode_steps: time limit in steps, or None for the level's own.
        kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.
        atari: preprocessing of an Atari game ("ALE/..."), or None.
        visible_entries: indices of the entries of a vector observation that the agent sees, in this order; the others
            are hidden. None shows all.
        step_timeout_seconds: environments in other processes fail when they take longer for a step or a reset; None
            waits. An environment that hangs in this process cannot be stopped, so "sync" refuses it.
        evaluation: "separate" evaluates in an environment of its own, "shared" in the one that is trained in, between
            its episodes; "none" judges policies by their last ten training episodes.
        logged_info: keys of `info` whose value in an episode's last step becomes a metric, as `is_success` always does.
        filters: rewards and observations on their way to the agent.
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
        """Keys of `info` that are looked for in an episode's last step."""
        return tuple(dict.fromkeys(("is_success", *self.logged_info)))

    @property
    def name(self) -> str:
        """The environment's own name, for messages."""
        return self.level.removeprefix(BY_ENV_FN)

    @property
    def by_env_fn(self) -> bool:
        """Whether a Python function made the environment, so that the level cannot."""
        return self.level.startswith(BY_ENV_FN)


@parameters
class ScheduleParameters:
    """How long to warm up, to improve and to evaluate (Coach's schedule).

    Attributes:
        heatup_steps: warm-up before the first update, with random actions.
        random_action_steps: environment steps with random actions, if they are not those of the warm-up.
        improve_steps: length of training after the warm-up.
        evaluation_steps: length of each evaluation.
        steps_between_evaluation_periods: counted from the start, warm-up included.
    """

    heatup_steps: PlayingSteps = EnvironmentSteps(10_000)
    random_action_steps: NonNegativeInt | None = None
    improve_steps: Annotated[StepMethod, Positive] = EnvironmentSteps(990_000)
    evaluation_steps: Annotated[PlayingSteps, Positive] = EnvironmentEpisodes(5)
    steps_between_evaluation_periods: Annotated[StepMethod, Positive] = EnvironmentSteps(5_000)


@parameters
class PresetValidationParameters:
    """When a preset counts as working.

    Attributes:
        min_reward_threshold: mean return of one evaluation, or None for no threshold.
        max_episodes_to_achieve_reward: training episodes within which the threshold must be reached, or None.
    """

    min_reward_threshold: float | None = None
    max_episodes_to_achieve_reward: Annotated[PositiveInt | None, UnusedIf("min_reward_threshold", None)] = None


@parameters
class Preset:
    """A complete experiment.

    Attributes:
        agent: algorithm, exploration, memory, networks.
        environment: level, number of environments, filters.
        schedule: how long and how often.
        validation: its acceptance threshold.
        levels: for presets of several levels, what another level changes: `{level: {path: value}}`; applied when the
            level is chosen. A level that is not listed has no acceptance threshold. "own" leads back from a chosen
            level to the preset's.
    """

    agent: AgentParameters = Field(default_factory=SoftActorCriticAgentParameters)
    environment: EnvironmentParameters = Field(default_factory=EnvironmentParameters)
    schedule: ScheduleParameters = ScheduleParameters()
    validation: PresetValidationParameters = PresetValidationParameters()
    levels: Annotated[dict[str, dict[str, Any]], AfterValidator(plain)] = Field(default_factory=dict)

    @property
    def updates(self) -> int:
        """How many updates the schedule has, or about how many; see `AlgorithmParameters.updates_in`."""
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
            instead = "rewards are those of other goals than the statistics: reward_rescale_factor scales them"
            raise ParameterError(
                f"agent.memory of kind 'hindsight' has no reward_normalization and return_scaling: {instead}"
            )
        if isinstance(agent.memory, EpisodicReplayParameters):
            if schedule.heatup_steps.num_steps or schedule.random_action_steps:
                instead = "agent.memory.replay_start_size says when the replay begins"
                raise ParameterError(f"heatup_steps and random_action_steps of ACER must be 0: {instead}")
            if agent.batch_size < self.environment.num_envs:
                minimum = f"num_envs={self.environment.num_envs}, for a segment of each"
                raise ParameterError(f"agent.networks.*.batch_size must be at least {minimum}, got {agent.batch_size}")
