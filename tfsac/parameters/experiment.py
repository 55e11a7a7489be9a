"""Parameters of a whole experiment: environment, schedule, acceptance, and the preset that holds them all."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from tfsac.parameters.agents import AgentParameters, SoftActorCriticAgentParameters
from tfsac.parameters.algorithms import ACERAlgorithmParameters, OffPolicyAlgorithmParameters
from tfsac.parameters.base import (
    Integer,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    parameters,
    python_numbers,
    refuse_ineffective,
    to_json,
)
from tfsac.parameters.ensemble_options import check_atoms
from tfsac.parameters.filter_parameters import FilterParameters
from tfsac.parameters.memories import EpisodicReplayParameters, SequenceReplayParameters, SQILExperienceReplayParameters
from tfsac.parameters.steps import EnvironmentEpisodes, EnvironmentSteps, StepMethod, TrainingSteps

BY_ENV_FN = (
    "env_fn:"  # begins the level of an environment that a Python function made, before the environment's own name
)


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
    noop_max: Annotated[Integer, Field(ge=0)] = 30


BESIDE_KWARGS = {"max_episode_steps", "atari", "visible_entries"}  # what environments are made with, too


@parameters
class EnvironmentParameters:
    """The environment.

    Attributes:
        level: a Gymnasium environment id, or "pettingzoo:" and the module of a PettingZoo environment, such as
            "pettingzoo:mpe2.simple_spread_v3", whose agents then share one policy. A run whose environment a Python
            function made has "env_fn:" and the environment's name here; only that function can make it again.
        num_envs: environments that run side by side.
        vectorization: "sync" steps them in this process, "subprocess" in equal groups on all cores, one of them here.
        max_episode_steps: time limit in steps, or None for the level's own.
        kwargs: passed to `gymnasium.make`, or to the PettingZoo environment.
        atari: preprocessing of an Atari game ("ALE/..."), or None.
        visible_entries: indices of the entries of a vector observation that the agent sees, in this order; the others
            are hidden, which makes the task partially observable. None shows all.
        step_timeout_seconds: environments in other processes fail when they take longer for a step or a reset; None
            waits. An environment that hangs in this process cannot be stopped, so "sync" refuses it.
        evaluation: "separate" evaluates in an environment of its own, "shared" in the one that is trained in, between
            its episodes; "none" judges policies by their last ten training episodes.
        logged_info: keys of `info` whose value in an episode's last step becomes a metric, the mean over episodes, of
            training and evaluations; beside `is_success`, which is one wherever an environment gives it.
        filters: rewards and observations on their way to the agent.
    """

    level: str = "Pendulum-v1"
    num_envs: PositiveInt = 1
    vectorization: Literal["sync", "subprocess"] = "sync"
    max_episode_steps: PositiveInt | None = None
    kwargs: dict[str, Any] = Field(default_factory=dict)
    atari: AtariPreprocessingParameters | None = None
    visible_entries: tuple[Annotated[Integer, Field(ge=0)], ...] | None = None
    step_timeout_seconds: PositiveFloat | None = None
    evaluation: Literal["separate", "shared", "none"] = "separate"
    logged_info: tuple[str, ...] = ()
    filters: FilterParameters = Field(default_factory=FilterParameters)

    def __post_init__(self) -> None:
        for name, value in self.kwargs.items():
            if not _is_json(value):
                raise ParameterError(
                    f"kwargs are kept in the run's config, so their values are JSON: numbers, texts, lists, dicts of "
                    f"texts; env_fn is for all others. Received: {name}={value!r}"
                )
        if taken := sorted(self.kwargs.keys() & BESIDE_KWARGS):
            raise ParameterError(
                f"kwargs are the other arguments of the environment: {taken[0]} is environment.{taken[0]}. "
                f"Received: kwargs.{taken[0]}={self.kwargs[taken[0]]!r}"
            )
        object.__setattr__(self, "kwargs", _as_json(self.kwargs))
        visible = self.visible_entries
        if visible is not None and (not visible or len(set(visible)) < len(visible)):
            raise ParameterError(f"visible_entries names one entry or more, each once. Received: {visible}")

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


def _as_json(value: Any) -> Any:
    """Returns a value as JSON brings it back, so that training has the arguments that every later load has."""
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value


def _is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it was, but for tuples, which become lists."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return value is None or (isinstance(value, str | int | float) and value == value)  # NaN never compares as equal


def _described(value: Any) -> Any:
    if isinstance(value, EnvironmentSteps | EnvironmentEpisodes | TrainingSteps):
        return f"{type(value).__name__}({value.num_steps})"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(type(value).__name__)
    return to_json(value)


def plain(path: str, value: Any) -> Any:
    """Returns a value as JSON has it; parameter objects, such as `EnvironmentSteps(1000)`, become what a config
    says.
    """
    try:
        return json.loads(json.dumps(python_numbers(value), default=_described))
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{path} is set to numbers, strings, lists, dicts or parameter objects. Received: {value!r}"
        ) from error


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

    heatup_steps: StepMethod = EnvironmentSteps(10_000)
    random_action_steps: Annotated[Integer, Field(ge=0)] | None = None
    improve_steps: StepMethod = EnvironmentSteps(990_000)
    evaluation_steps: StepMethod = EnvironmentEpisodes(5)
    steps_between_evaluation_periods: StepMethod = EnvironmentSteps(5_000)

    def __post_init__(self) -> None:
        for name in ("heatup_steps", "evaluation_steps"):
            if isinstance(getattr(self, name), TrainingSteps):
                raise ParameterError(f"{name} counts environment steps or episodes. Received: {getattr(self, name)}")
        for name in ("improve_steps", "evaluation_steps", "steps_between_evaluation_periods"):
            if getattr(self, name).num_steps < 1:
                raise ParameterError(f"{name} is at least 1. Received: {getattr(self, name)}")


@parameters
class PresetValidationParameters:
    """When a preset counts as working.

    Attributes:
        min_reward_threshold: mean return of one evaluation, or None for no threshold.
        max_episodes_to_achieve_reward: training episodes within which the threshold must be reached, or None.
    """

    min_reward_threshold: float | None = None
    max_episodes_to_achieve_reward: Annotated[Integer, Field(gt=0)] | None = None

    def __post_init__(self) -> None:
        if self.min_reward_threshold is None:
            advice = "set min_reward_threshold"
            refuse_ineffective(self, ["max_episodes_to_achieve_reward"], "min_reward_threshold=None", advice)


@parameters
class RunParameters:
    """How a preset is run, as opposed to what is run. Each field is a flag of `tfsac train`, described by its first
    sentence.

    Attributes:
        seed: of weights, noise, sampling and environments.
        strategy: devices that compute updates: "none" leaves them to TensorFlow; "one_device" is the first GPU, or the
            CPU; "mirrored" divides each batch among the GPUs of this machine, or logical devices of a CPU;
            "multi_worker" among the processes of TF_CONFIG. Each worker has its share of the environments and of the
            memory.
        num_devices: with `strategy` mirrored, how many; by default all GPUs, or two logical devices of a machine
            without.
        asynchronous_collection: collect while updates are computed. The policy that acts is one call of updates old.
        ray_address: local, auto or HOST:PORT: environments are stepped by actors on this Ray cluster. They step while
            updates are computed. "local" starts a cluster on this machine, "auto" joins the one that runs here. None
            steps them in this process.
        num_actors: with `ray_address`, processes of one CPU core among which the environments are divided.
        actor_steps: with `ray_address`, environment steps that an actor takes for one message. The policy that acts is
            up to two messages old.
        checkpoint_save_steps: environment steps between checkpoints; without it 10 000, or a tenth of a shorter run, at
            least 1000.
        num_checkpoints_to_keep: checkpoints that are kept, the newest; older ones are deleted.
        skip_damaged_rows: ignored; runs of earlier versions have it in their config.
        stop_at_threshold: end when an evaluation reaches the preset's `min_reward_threshold`.
        stochastic_evaluation: evaluate a second time, with sampled actions.
        tensorboard: write TensorBoard events while the run trains, into its folder.
        histograms: with `tensorboard`, also the weights of every network.
        updates_between_diagnostics: n, every n-th update reports all its metrics and the others their losses alone.
            1 is slower.
        memory_on_disk: keep the replay memory in a memory-mapped file in the run's folder, for memories larger than
            RAM.
        deterministic: use TensorFlow's deterministic kernels.
        mixed_precision: "bfloat16" multiplies matrices in it, on CPUs that can. What is gained and lost:
            docs/scaling.md.
        eager: run updates without compiling them, to debug.
        jit_compile: compile updates with XLA, on one device.
    """

    seed: Annotated[Integer, Field(ge=0, lt=2**31)] = 0
    strategy: Literal["none", "one_device", "mirrored", "multi_worker"] = "none"
    num_devices: PositiveInt | None = None
    asynchronous_collection: bool = False
    ray_address: str | None = None
    num_actors: PositiveInt = 1
    actor_steps: PositiveInt = 32
    checkpoint_save_steps: PositiveInt | None = None
    num_checkpoints_to_keep: PositiveInt = 2
    skip_damaged_rows: bool = False
    stop_at_threshold: bool = False
    stochastic_evaluation: bool = False
    tensorboard: bool = True
    histograms: bool = False
    updates_between_diagnostics: PositiveInt = 20
    memory_on_disk: bool = False
    deterministic: bool = False
    mixed_precision: Literal["none", "bfloat16"] = "none"
    eager: bool = False
    jit_compile: bool = False

    @property
    def of_learning(self) -> dict[str, Any]:
        """What changes which numbers are learned, but for the seed: by it, too, experiments differ."""
        names = ["mixed_precision", "asynchronous_collection", "num_actors", "actor_steps"]
        return {"ray": self.ray_address is not None, **{name: getattr(self, name) for name in names}}

    def __post_init__(self) -> None:
        if self.num_devices is not None and self.strategy != "mirrored":
            raise ParameterError(
                f"num_devices is of the strategy 'mirrored'. Received: num_devices={self.num_devices}, "
                f"{self.strategy!r}"
            )
        if self.asynchronous_collection and self.strategy == "multi_worker":
            raise ParameterError(
                "Workers make their updates together, in the loop: without asynchronous_collection. "
                "Received: strategy='multi_worker'"
            )
        if self.jit_compile and (
            self.eager or self.strategy in ("mirrored", "multi_worker") or self.mixed_precision != "none"
        ):
            raise ParameterError(
                "jit_compile compiles the updates of one device, in float32 and not with eager. "
                "Received: jit_compile=True, "
                f"eager={self.eager}, strategy={self.strategy!r}, mixed_precision={self.mixed_precision!r}"
            )
        if self.histograms and not self.tensorboard:
            raise ParameterError(
                "histograms are written to TensorBoard: add tensorboard=True. Received: histograms=True"
            )
        if self.ray_address is None:
            for name, default in (("num_actors", 1), ("actor_steps", 32)):
                if getattr(self, name) != default:
                    raise ParameterError(
                        f"{name} is of actors on Ray: give a ray_address. Received: {name}={getattr(self, name)}"
                    )
        elif self.strategy == "multi_worker" or self.asynchronous_collection:
            other = "asynchronous_collection=True" if self.asynchronous_collection else "strategy='multi_worker'"
            raise ParameterError(
                "Actors on Ray collect while one process learns, so ray_address needs neither several workers nor "
                f"asynchronous_collection. Received: ray_address={self.ray_address!r} with {other}"
            )


@parameters
class Preset:
    """A complete experiment.

    Attributes:
        agent: algorithm, exploration, memory, networks.
        environment: level, number of environments, filters.
        schedule: how long and how often.
        validation: its acceptance threshold.
        levels: for presets of several levels, what another level changes: `{level: {path: value}}`; applied when the
            level is chosen. A level that is not listed has no acceptance threshold.
    """

    agent: AgentParameters = Field(default_factory=SoftActorCriticAgentParameters)
    environment: EnvironmentParameters = Field(default_factory=EnvironmentParameters)
    schedule: ScheduleParameters = Field(default_factory=ScheduleParameters)
    validation: PresetValidationParameters = Field(default_factory=PresetValidationParameters)
    levels: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def updates(self) -> int:
        """How many updates the schedule has, or about how many; see `AlgorithmParameters.updates_in`."""
        return self.agent.algorithm.updates_in(self.schedule.improve_steps, self.environment.num_envs)

    def __post_init__(self) -> None:
        levels = {level: {p: plain(p, value) for p, value in changes.items()} for level, changes in self.levels.items()}
        object.__setattr__(self, "levels", levels)
        if any(decay.learning_rate_decay_steps == "run" for decay in self.agent.learning_rates.values()):
            _ = self.updates  # refused here where it is not known
        discounts = getattr(self.agent.algorithm, "reward_discounts", None)
        scaling = self.environment.filters.return_scaling
        if discounts and scaling:
            raise ParameterError(
                "return_scaling accumulates returns with the algorithm's discount: set discount instead of "
                f"reward_discounts, or return_scaling=None. Received: reward_discounts={discounts}, {scaling}"
            )
        check_atoms(self.agent.networks, scaling, self.environment.filters.reward_rescale_factor)
        memory, heatup, num_envs = self.agent.memory, self.schedule.heatup_steps, self.environment.num_envs
        of_episodes, algorithm = isinstance(memory, EpisodicReplayParameters), self.agent.algorithm
        if not isinstance(algorithm, ACERAlgorithmParameters if of_episodes else OffPolicyAlgorithmParameters):
            raise ParameterError(
                "EpisodicReplayParameters belong to ACERAlgorithmParameters, all other memories to "
                f"OffPolicyAlgorithmParameters. Received: {type(memory).__name__} with {type(algorithm).__name__}"
            )
        if isinstance(memory, EpisodicReplayParameters):
            self._check_segments(memory)
            return
        if isinstance(memory, SQILExperienceReplayParameters):
            names = ["reward_rescale_factor", "reward_clipping_range", "reward_normalization", "return_scaling"]
            refuse_ineffective(
                self.environment.filters,
                names,
                "agent.memory of kind 'sqil'",
                "its rewards are 0 and 1; choose another memory",
            )
        if isinstance(heatup, EnvironmentSteps) and heatup.num_steps < self.agent.batch_size:
            raise ParameterError(
                "batch_size must not be larger than what the warm-up collects. "
                f"Received: batch_size={self.agent.batch_size}, heatup_steps={heatup}"
            )
        if memory.max_size < self.agent.batch_size:
            raise ParameterError(
                "The memory must hold at least one batch. "
                f"Received: max_size={memory.max_size}, batch_size={self.agent.batch_size}"
            )
        if memory.max_size < num_envs:
            raise ParameterError(
                "The memory must hold a step of every environment. "
                f"Received: max_size={memory.max_size}, num_envs={num_envs}"
            )
        resets = getattr(self.agent.algorithm, "reset_steps", ())
        counted = isinstance(heatup, EnvironmentSteps) or not heatup.num_steps
        if resets and not (counted and resets[0] > heatup.num_steps):
            raise ParameterError(
                "A reset needs updates before it and a memory to learn from after it, so reset_steps are larger than "
                f"the warm-up, which counts EnvironmentSteps. Received: reset_steps={resets}, heatup_steps={heatup}"
            )
        n_step = getattr(self.agent.algorithm, "n_step", 1)
        if n_step > memory.max_size // num_envs:
            raise ParameterError(
                "n_step must not be larger than what the memory holds of every environment. "
                f"Received: n_step={n_step}, max_size={memory.max_size}, num_envs={num_envs}"
            )
        if not isinstance(memory, SequenceReplayParameters):
            return
        if memory.max_size // num_envs < memory.sequence_length:
            raise ParameterError(
                "The memory must hold sequence_length steps of every environment. "
                f"Received: max_size={memory.max_size}, num_envs={num_envs}, sequence_length={memory.sequence_length}"
            )
        if isinstance(heatup, EnvironmentSteps) and heatup.num_steps // num_envs < memory.sequence_length:
            raise ParameterError(
                "The warm-up must collect sequence_length steps of every environment. "
                f"Received: heatup_steps={heatup}, num_envs={num_envs}, sequence_length={memory.sequence_length}"
            )

    def _check_segments(self, memory: EpisodicReplayParameters) -> None:
        """Checks what an agent needs that learns from segments of its own policy's episodes."""
        schedule, num_envs = self.schedule, self.environment.num_envs
        if schedule.heatup_steps.num_steps or schedule.random_action_steps:
            raise ParameterError(
                "This agent learns from actions whose distribution its policy knows, "
                "so there is no warm-up and no random action: memory.replay_start_size says when the replay begins. "
                f"Received: heatup_steps={schedule.heatup_steps}, random_action_steps={schedule.random_action_steps}"
            )
        if self.agent.batch_size < num_envs:
            raise ParameterError(
                "An update has a segment of every environment, so batch_size is at least their number; "
                f"set agent.networks.*.batch_size. Received: batch_size={self.agent.batch_size}, num_envs={num_envs}"
            )
        if memory.max_size < num_envs:
            raise ParameterError(
                f"The memory must hold a step of every environment. Received: max_size={memory.max_size}, "
                f"num_envs={num_envs}"
            )
