"""Parameters of the algorithms: what is computed, in which order and how often."""

from __future__ import annotations

import itertools
import numbers
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from tfsac.parameters.base import (
    Extensible,
    NonNegativeFloat,
    NonNegativeInt,
    ParameterError,
    PositiveFloat,
    PositiveInt,
    nearest,
    parameters,
    refuse_ineffective,
)
from tfsac.parameters.steps import EnvironmentEpisodes, EnvironmentSteps, StepMethod, TrainingSteps
from tfsac.parameters.temperatures import (
    AutoAlphaParameters,
    DiscreteAutoAlphaParameters,
    DiscreteTemperatureParameters,
    TemperatureParameters,
)


@parameters
class AlgorithmParameters(Extensible):
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
        """Returns how many updates a run of so many steps after its warm-up makes; of ACER, about so many.

        Args:
            steps: length of the run.
            num_envs: environments side by side.

        Raises:
            ParameterError: steps of another unit than the updates follow.
        """
        if isinstance(steps, TrainingSteps):
            return steps.num_steps
        raise ParameterError(
            "The number of updates of a run is known where schedule.improve_steps counts TrainingSteps, or in the unit "
            "that updates follow: that of num_consecutive_playing_steps, EnvironmentSteps of ACER. Change the unit, or "
            f"set learning_rate_decay_steps to a number of updates. Received: improve_steps={steps}"
        )


def discount_of_episodes(steps: int) -> float:
    """Returns a discount for episodes of so many decisions: `1 - 5 / steps`, kept between 0.95 and 0.995.

    Its horizon, `1 / (1 - discount)`, is a fifth of an episode (SimBa, arXiv 2410.09754).

    Args:
        steps: the most decisions of an episode, of which action repeat makes fewer.

    Raises:
        ParameterError: no number of at least 1.

    Example:
        >>> discount_of_episodes(1000)
        0.995
    """
    if not isinstance(steps, numbers.Real) or not steps >= 1:  # NaN is not
        raise ParameterError(f"An episode has at least one decision. Received: {steps!r}")
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
        reset_steps: environment steps, rising, before whose updates all networks, target networks, temperatures and
            optimizers start again with fresh weights; the memory stays (arXiv 2205.07802).
    """

    n_step: PositiveInt = 1
    ignore_done: bool = False
    num_consecutive_playing_steps: StepMethod = EnvironmentSteps(1)
    num_consecutive_training_steps: PositiveInt = 1
    num_updates_between_policy_updates: PositiveInt = 1
    first_policy_update: PositiveInt | None = None
    num_steps_between_copying_online_weights_to_target: StepMethod = EnvironmentSteps(1)
    rate_for_copying_weights_to_target: Annotated[float, Field(gt=0, le=1)] = 0.005
    reset_steps: tuple[PositiveInt, ...] = ()

    def __post_init__(self) -> None:
        playing = self.num_consecutive_playing_steps
        if isinstance(playing, TrainingSteps) or not playing.num_steps:
            raise ParameterError(
                "num_consecutive_playing_steps is at least EnvironmentSteps(1) or EnvironmentEpisodes(1). "
                f"Received: {playing}"
            )
        first, period = self.first_policy_update or 1, self.num_updates_between_policy_updates
        if first > period:
            raise ParameterError(f"first_policy_update is at most the delay, {period}. Received: {first}")
        if any(later <= step for step, later in itertools.pairwise(self.reset_steps)):
            raise ParameterError(f"reset_steps are environment steps that rise. Received: {self.reset_steps}")

    def policy_learns_in(self, update: Any) -> Any:
        """Returns whether the policy learns in an update of this number, from 1 on; of an array or a tensor each."""
        return (update - (self.first_policy_update or 0)) % self.num_updates_between_policy_updates == 0

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns how many updates a run of so many steps makes; see `AlgorithmParameters.updates_in`."""
        playing = self.num_consecutive_playing_steps
        if type(steps) is not type(playing):
            return super().updates_in(steps, num_envs)
        return max(1, steps.num_steps // playing.num_steps * self.num_consecutive_training_steps)

    def updates_between_target_copies(self) -> int:
        """Returns the target period in updates: period times updates per environment step.

        Raises:
            ParameterError: the product is not a whole number >= 1, or the units cannot be converted.
        """
        period = self.num_steps_between_copying_online_weights_to_target
        playing = self.num_consecutive_playing_steps
        updates, steps = period.num_steps, 1
        if isinstance(period, EnvironmentEpisodes) or (
            type(playing) is not EnvironmentSteps and type(period) is EnvironmentSteps
        ):
            raise ParameterError(
                "num_steps_between_copying_online_weights_to_target counts EnvironmentSteps or TrainingSteps, and only "
                f"TrainingSteps when num_consecutive_playing_steps counts episodes. Received: {period} with {playing}"
            )
        if isinstance(period, EnvironmentSteps):
            updates, steps = period.num_steps * self.num_consecutive_training_steps, playing.num_steps
        if updates < 1 or updates % steps:
            raise ParameterError(
                "num_steps_between_copying_online_weights_to_target times the updates per environment step must be a "
                "whole number >= 1; TrainingSteps(1) copies after every update. "
                f"Received: {period}, {self.num_consecutive_training_steps} updates every {playing}"
            )
        return updates // steps


@parameters
class SoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with a value network (Coach; Haarnoja et al. 2018, arXiv 1801.01290); temperature 1."""


UpdateOrder = Literal["critic_first", "policy_first", "simultaneous"]


def _check_order(order: Any) -> Any:
    if order in get_args(UpdateOrder):
        return order
    raise ValueError(
        "update_order is 'critic_first' (DI-engine's), 'simultaneous' (Spinning Up's) or 'policy_first'."
        f"{nearest(order, get_args(UpdateOrder)) if isinstance(order, str) else ''} Received: {order!r}"
    )


@parameters
class TwinSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic with twin target critics (Spinning Up; DI-engine; arXiv 1812.05905).

    Attributes:
        update_order: of the steps of one update; the target networks move last, and a fixed temperature never moves.
            "critic_first" is critic, policy, temperature, each seeing what the one before left (DI-engine;
            Stable-Baselines3, whose temperature steps first but is used as it was before). "simultaneous" takes the
            gradients of policy and critic, and of the temperature, at the weights with which the update begins
            (Spinning Up). "policy_first" is policy, temperature, critic, each seeing what the one before left.
        temperature: fixed or automatic.
        critic_subset: M, the target is of M critics, drawn for each update (REDQ, arXiv 2101.05982); None
            for all. This and what follows are of an ensemble of critics, the head "ensemble_q".
        target_reduction: of these critics to one target: "min" or "mean"; of distributions "index_min" (that of the
            critic with the lowest mean in each row), "mean", or "pool" (of quantiles, the largest dropped). With "own"
            critic i learns from target i alone.
        policy_reduction: of all critics to what the policy maximises.
        entropy_in_target: subtract alpha times the next action's log-probability in the target.
        joint_critic_forward: the critics compute Q(s, a) and Q(s', a') in one batch, which batch normalisation needs
            (CrossQ, arXiv 1902.05605); the second half bootstraps, of the target network where there is one.
        joint_policy_forward: the policy learns from the first half of a batch of s and s', whose statistics normalise
            it.
    """

    update_order: Annotated[UpdateOrder, BeforeValidator(_check_order)] = "critic_first"
    temperature: TemperatureParameters = Field(default_factory=AutoAlphaParameters)
    critic_subset: PositiveInt | None = None
    target_reduction: Literal["min", "mean", "index_min", "own", "pool"] = "min"
    policy_reduction: Literal["min", "mean"] = "min"
    entropy_in_target: bool = True
    joint_critic_forward: bool = False
    joint_policy_forward: bool = False


@parameters
class DiscreteSoftActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Soft actor-critic for discrete actions (DI-engine; Christodoulou 2019, arXiv 1910.07207).

    Attributes:
        temperature: fixed or automatic.
    """

    temperature: DiscreteTemperatureParameters = Field(default_factory=DiscreteAutoAlphaParameters)


Probability = Annotated[float, Field(gt=0, lt=1)]


@parameters
class TemporallyAbstractActorCriticAlgorithmParameters(OffPolicyAlgorithmParameters):
    """Temporally abstract actor-critic (ALF; Yu, Xu and Zhang 2021, arXiv 2104.06521).

    At each step the policy proposes a new trajectory of actions, and a second policy switches to it or keeps the one
    before.

    Attributes:
        trajectory: the actions while it is kept: "constant" repeats the action (TAAC), "linear" lets it change
            evenly (TaacL), "quadratic" lets its change change evenly (TaacQ).
        inverse_mode: the policy gives the new action, and the derivatives follow from it and the one before; otherwise
            it gives the highest derivative itself. Constant trajectories have none.
        max_repeat_steps: the most steps of one trajectory, in collection and evaluation, or None.
        randomize_first_state_tau: begin episodes of training with a uniform previous trajectory instead of zeros.
        b1_advantage_clipping: (low, high) bounds of the advantage of switching where its probability is computed,
            either of them None for no bound; or None. A low bound of 0 keeps switching at least as likely as keeping.
        compare_through: "sampled" is ALF's operator; "unbiased" averages over the current switch policy where the
            stored step kept.
        epsilon_greedy: probability with which a deterministic policy nevertheless draws its proposal and,
            independently, its choice. Exported policies have none.
        initial_alpha: first value of both temperatures, of the switch and of the proposal.
        alpha_learning_rate: of their Adam.
        min_prob: probability of the rarer of switching and keeping, and in each action dimension the density relative
            to the range, from which the target entropies follow: one number for both or (switch, action). A larger one
            switches and acts more randomly; for the switch below 0.5, beyond which 0.9 means what 0.1 does.
        target_entropy: in nats, instead of `min_prob`: one for both or (switch, action); of the switch between 0 and
            0.69.
        reward_weights: of each reward in the policy's objective, where the environment gives several; None for ones.
            One of 0 leaves its reward to the critics alone.
        reward_discounts: gamma of each reward instead of `discount`, or None.
    """

    trajectory: Literal["constant", "linear", "quadratic"] = "constant"
    inverse_mode: bool = True
    max_repeat_steps: PositiveInt | None = None
    randomize_first_state_tau: bool = False
    b1_advantage_clipping: tuple[float | None, float | None] | None = None
    compare_through: Literal["sampled", "unbiased"] = "sampled"
    epsilon_greedy: Annotated[float, Field(ge=0, le=1)] = 0.0
    initial_alpha: PositiveFloat = 1.0
    alpha_learning_rate: PositiveFloat = 3e-4
    min_prob: Probability | tuple[Probability, Probability] = 0.1
    target_entropy: float | tuple[float, float] | None = None
    reward_weights: tuple[float, ...] | None = None
    reward_discounts: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_step != 1:
            raise ParameterError(
                "This agent's targets already look several steps ahead, so n_step is 1; "
                f"agent.memory.sequence_length says how many at most. Received: n_step={self.n_step}"
            )
        low, high = self.b1_advantage_clipping or (None, None)
        if low is not None and high is not None and low >= high:
            raise ParameterError(
                f"b1_advantage_clipping is (low, high) with low < high. Received: {self.b1_advantage_clipping}"
            )
        if self.target_entropy is not None:
            refuse_ineffective(
                self, ["min_prob"], f"target_entropy={self.target_entropy}", "set target_entropy to None"
            )
        if self.reward_discounts is not None:
            refuse_ineffective(
                self, ["discount"], f"reward_discounts={self.reward_discounts}", "set reward_discounts alone"
            )
        if self.reward_weights is not None and not any(self.reward_weights):
            raise ParameterError(f"At least one of reward_weights is not 0. Received: {self.reward_weights}")
        choice = self.min_prob if isinstance(self.min_prob, float) else self.min_prob[0]
        if choice == 0.5 and self.target_entropy is None:
            raise ParameterError(
                "Switching and keeping with probability 0.5 have the largest entropy there is, which a temperature "
                f"never reaches, so min_prob of the switch is another number. Received: min_prob={self.min_prob}"
            )
        if not self.inverse_mode and self.trajectory == "constant":
            raise ParameterError(
                "inverse_mode=False belongs to linear and quadratic trajectories, for a constant one has no "
                f"derivatives. Received: inverse_mode={self.inverse_mode} with trajectory={self.trajectory!r}"
            )


@parameters
class ACERAlgorithmParameters(AlgorithmParameters):
    """Actor-critic with experience replay (ChainerRL; Wang et al. 2017, arXiv 1611.01224), for all kinds of actions.

    Attributes:
        t_max: the most steps of a segment: a rollout of this many steps of every environment is learned from once while
            it is fresh, and segments up to this length are replayed. A longer one looks further ahead and learns less
            often.
        n_times_replay: updates from the replay after each rollout.
        replay_times: "fixed" replays exactly so often, "poisson" draws the number with this mean, as in the paper.
        disable_online_update: learn from the replay alone.
        beta: weight of the policy's entropy; a larger one keeps the policy more random.
        normalize_loss_by_steps: divide each segment's loss by its number of steps.
        truncation_threshold: c, the largest importance weight of the policy gradient; what it cuts off, a correction of
            the bias brings back. None does not truncate. A smaller one has less variance, and relies more on Q.
        use_q_opc: advantages from returns without importance weights instead of Retrace's.
        use_trust_region: keep each step's policy near the average policy.
        trust_region_delta: how far along the gradient of the divergence a step may go; a smaller one changes the policy
            more slowly.
        trust_region_alpha: decay of the average policy's weights, which follow after every update.
        statistics_decay: decay per update of the running averages of value, entropy and divergence among the metrics.
        use_deterministic_for_evaluation: evaluate the policy's mode instead of a sample.
    """

    t_max: PositiveInt = 50
    n_times_replay: NonNegativeInt = 8
    replay_times: Literal["fixed", "poisson"] = "fixed"
    disable_online_update: bool = False
    beta: NonNegativeFloat = 1e-2
    normalize_loss_by_steps: bool = True
    truncation_threshold: NonNegativeFloat | None = 10.0
    use_q_opc: bool = False
    use_trust_region: bool = True
    trust_region_delta: NonNegativeFloat = 1.0
    trust_region_alpha: Annotated[float, Field(ge=0, lt=1)] = 0.99
    statistics_decay: Annotated[float, Field(ge=0, lt=1)] = 0.999
    use_deterministic_for_evaluation: bool = False
    num_updates_between_policy_updates: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.disable_online_update and not self.n_times_replay:
            raise ParameterError(
                "disable_online_update learns from the replay alone, so n_times_replay is at least 1. "
                "Received: n_times_replay=0"
            )
        if not self.n_times_replay:
            refuse_ineffective(self, ["replay_times"], "n_times_replay=0", "set n_times_replay to at least 1")
        if not self.use_trust_region:
            names = ["trust_region_delta", "trust_region_statistics"]
            refuse_ineffective(self, names, "use_trust_region=False", "set use_trust_region=True")

    @property
    def rate_for_copying_weights_to_target(self) -> float:
        """The average policy's step towards the policy."""
        return 1.0 - self.trust_region_alpha

    def updates_in(self, steps: StepMethod, num_envs: int) -> int:
        """Returns about how many updates a run of so many steps makes; see `AlgorithmParameters.updates_in`."""
        if not isinstance(steps, EnvironmentSteps):
            return super().updates_in(steps, num_envs)
        updates = self.n_times_replay + (0 if self.disable_online_update else 1)
        return max(1, steps.num_steps // (self.t_max * num_envs) * updates)

    def replays(self, rng: Any) -> int:
        """Returns how many updates from the replay follow a rollout, drawn with a NumPy generator where it is
        random.
        """
        return int(rng.poisson(self.n_times_replay)) if self.replay_times == "poisson" else self.n_times_replay


@parameters
class DiscreteACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for discrete actions.

    Attributes:
        trust_region_statistics: statistics of the policy in which the trust region is measured: its logits,
            log-probabilities or probabilities.
    """

    trust_region_statistics: Literal["logits", "log_probs", "probabilities"] = "logits"


@parameters
class GaussianACERAlgorithmParameters(ACERAlgorithmParameters):
    """Actor-critic with experience replay for continuous actions.

    Attributes:
        trust_region_statistics: statistics of the policy in which the trust region is measured: mean and variance, or
            mean and standard deviation ("scale").
        num_advantage_samples: n, actions of the policy whose mean advantage is subtracted from every advantage (section
            5 of the paper); more have less noise and cost more.
    """

    trust_region_statistics: Literal["variance", "scale"] = "variance"
    num_advantage_samples: PositiveInt = 5
