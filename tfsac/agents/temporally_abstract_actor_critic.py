"""Temporally abstract actor-critic, TAAC, TaacL and TaacQ (ALF; Yu, Xu and Zhang 2021, arXiv 2104.06521).

Networks: `policy`, which proposes trajectories of actions, critics of trajectories in one head `q`, and their slow copy `q_target`. The
critics also choose between the proposal and the trajectory before. Two temperatures: of the proposal and of the choice.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from tfsac.agents.base import ModelMaker
from tfsac.agents.critics import of_critics
from tfsac.agents.gradients import Gradients, no_gradients
from tfsac.agents.packing import sequence_rows
from tfsac.agents.switching import Proposal, SwitchingAgent
from tfsac.agents.temperature import LearnedAlpha, check_target_entropy
from tfsac.agents.trajectories import Tau
from tfsac.losses import temporally_abstract_actor_critic as losses
from tfsac.parameters import LearnedAlphaParameters, TemporallyAbstractActorCriticAgentParameters
from tfsac.types import LAST, NEXT_STATE, STATE, SWITCH, Metrics, Sequence, Spec


@dataclasses.dataclass
class Update:
    """What the steps of one update read and leave for each other; R = T * B rows.

    Attributes:
        batch: this replica's stretches, `[T, B]`.
        observation: of all rows, `[R, ...]` by key.
        train_policy: whether policy and temperatures learn in this update.
        counts_R: 1 for rows with a step, 0 for those after an episode's last action.
        count, returns, switches: how many rows have a step, have a return too (the last of a stretch has none), and were
            switched; means over the replicas, which have unequal numbers of them.
        proposal: the first stage of all rows.
        choice: the second stage.
        metrics: of the steps so far.
    """

    batch: Sequence
    observation: dict[str, tf.Tensor]
    train_policy: bool
    counts_R: tf.Tensor
    count: tf.Tensor
    returns: tf.Tensor
    switches: tf.Tensor
    proposal: Proposal | None = None
    choice: losses.Choice | None = None
    metrics: Metrics = dataclasses.field(default_factory=dict)

    def stored(self, prefix: str, trajectory: tuple[str, ...]) -> Tau:
        """Returns stored trajectories of all rows, before (`STATE`) or after (`NEXT_STATE`) the step."""
        return {name: flat(self.batch.extras[prefix + name]) for name in trajectory}

    def mean(self, values_R: tf.Tensor) -> tf.Tensor:
        """Returns what has the mean over the rows that count as its mean over the replicas."""
        return tf.math.divide_no_nan(tf.reduce_sum(self.counts_R * values_R), self.count)


class TemporallyAbstractActorCriticAgent(SwitchingAgent):
    """Policy, critic and temperatures take their steps together, from the weights with which the update begins; the target follows.

    Args:
        parameters: algorithm, networks, memory.
        spec: what the agent sees and does.
        seed: of weights, noise and acting.
        eager: run updates without compiling them.
        models: makes "policy" and "q" as Keras models instead.
        jit_compile: compile updates with XLA.

    Attributes:
        proposal_temperature, choice_temperature: learned.
        proposal_target_entropy, choice_target_entropy: in nats.

    Raises:
        ValueError: see `SwitchingAgent`; target entropies that cannot be reached.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = TemporallyAbstractActorCriticAgent(
        ...     TemporallyAbstractActorCriticAgentParameters(), tfsac.environments.spec_of(env)
        ... )
        >>> first = agent.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy")
        >>> agent.act({"observation": np.zeros((1, 3), "float32")}, first.state, mode="greedy").state["repeats"]
        array([2], dtype=int32)
    """

    batch_axis = 1

    def __init__(
        self,
        parameters: TemporallyAbstractActorCriticAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        self.steps = parameters.memory.sequence_length
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        algorithm = parameters.algorithm
        alpha = LearnedAlphaParameters(algorithm.initial_alpha, algorithm.alpha_learning_rate)
        self.proposal_temperature = LearnedAlpha(alpha, "proposal_temperature")
        self.choice_temperature = LearnedAlpha(alpha, "choice_temperature")
        self.proposal_temperature.join(self)
        self.choice_temperature.join(self)
        choice, action = _pair(algorithm.min_prob)
        self.choice_target_entropy = losses.discrete_target_entropy(choice, 2)
        self.proposal_target_entropy = losses.continuous_target_entropy(action, self.action_size)
        if algorithm.target_entropy is not None:
            self.choice_target_entropy, self.proposal_target_entropy = _pair(algorithm.target_entropy)
            check_target_entropy(self.proposal_target_entropy, self.action_size)
            if not 0 < self.choice_target_entropy < math.log(2):
                raise ValueError(
                    "The entropy of keeping or switching lies between 0 and log(2) = 0.6931 nats, and its target between them. "
                    f"Received: target_entropy={algorithm.target_entropy}"
                )
        self.refresh()

    def batch_rows(self) -> Sequence:
        """Returns shapes and dtypes of a batch, `[T, B]`."""
        return sequence_rows(self.spec, self.steps, self.local_batch_size)

    def update_once(self, batch: Sequence, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """One update: all gradients are taken before anything moves, then the target follows."""
        update = self.begin(batch, train_policy)
        steps = [self.policy_step(update), self.critic_step(update), *self.temperature_steps(update)]
        for gradients in steps:
            if gradients.values:
                self.apply(gradients)
        self.soft_update("q")
        return {**update.metrics, **self.learning_rates()}, tf.zeros([0])

    def begin(self, batch: Sequence, train_policy: bool = True) -> Update:
        """Returns what the steps of an update begin with."""
        counts_TB = tf.cast(batch.step_type != LAST, tf.float32)
        numbers = [tf.reduce_sum(x_TB) for x_TB in (counts_TB, counts_TB[:-1], counts_TB * batch.extras[SWITCH])]
        if self.spec.num_rewards is None:
            batch = batch._replace(reward=batch.reward[..., None])
        observation = {key: flat(x) for key, x in batch.observation.items()}
        means = tf.unstack(self.mean_over_replicas(tf.stack(numbers)))
        return Update(batch, observation, train_policy, flat(counts_TB), *means)

    def policy_step(self, update: Update) -> Gradients:
        """Moves the policy towards proposals of high Q, as far as they would be chosen, and of high entropy (equation 8)."""
        alpha, previous = self.proposal_temperature.value(), update.stored(STATE, self.trajectory.fields)
        with self.watch("policy") as tape:
            proposal = self.propose(update.observation, previous, flat(self.noise("policy", self._rows(self.action_size))))
            switch_q_R = self.objective(self.smallest_q(self.networks["q"], update.observation, proposal.planned))
            keep_q_R = self.objective(self.smallest_q(self.networks["q"], update.observation, proposal.kept))
            choice = losses.choice(
                keep_q_R, switch_q_R, self.choice_temperature.value(), self.algorithm.b1_advantage_clipping
            )
            loss = self.weighted(
                "policy", update.counts_R * losses.policy_loss(proposal.log_prob_B, choice.switch_B, switch_q_R, alpha)
            )
        gradients = self.gradients("policy", loss, tape) if update.train_policy else no_gradients("policy")
        update.proposal, update.choice = proposal, choice
        update.metrics |= {
            "loss/policy": loss,
            "policy/mean": update.mean(tf.reduce_mean(proposal.policy.loc, axis=-1)),
            "policy/log_std": update.mean(tf.reduce_mean(proposal.policy.log_scale, axis=-1)),
            "policy/log_prob": update.mean(proposal.log_prob_B),
            "policy/q": update.mean(switch_q_R),
            "policy/gradient_norm": gradients.norm,
            "switch/keep_prob": update.mean(choice.keep_B),
            "switch/entropy": update.mean(choice.entropy_B),
            "switch/advantage": update.mean(choice.advantage_B),
            "switch/repeats": 1.0 / tf.maximum(tf.math.divide_no_nan(update.switches, update.count), 1e-3),
            "temperature/proposal_alpha": alpha,
            "temperature/choice_alpha": self.choice_temperature.value(),
        }
        return gradients

    def critic_step(self, update: Update) -> Gradients:
        """Regresses every Q(s, tau) of the stored trajectories on the compare-through return (equation 9)."""
        batch, proposal, choice = update.batch, update.proposal, update.choice
        assert proposal is not None and choice is not None
        uniform_TB = self.noise("choice", self._rows(), tf.random.stateless_uniform)
        keep_TB = self._stretches(choice.keep_B)
        keep_q_TBD, switch_q_TBD = (
            self._stretches(self.smallest_q(self.slow("q"), update.observation, tau)) for tau in (proposal.kept, proposal.planned)
        )
        sampled = self.algorithm.compare_through == "sampled"
        return_TBD = losses.compare_through_returns(
            batch.reward,
            batch.discount,
            tf.constant(self.reward_discounts),
            keep_q_TBD,
            switch_q_TBD,
            keep_TB,
            batch.step_type == LAST,
            batch.extras[SWITCH] > 0,
            uniform_TB < self._stretches(choice.switch_B) if sampled else None,
        )
        huber = self.parameters["q"].replace_mse_with_huber_loss
        with self.watch("q") as tape:
            q_RND = self.q_of(self.networks["q"], update.observation, update.stored(NEXT_STATE, self.trajectory.fields))
            loss_TBN = losses.critic_loss(self._stretches(q_RND), return_TBD, huber)
            loss_RN = update.counts_R[:, None] * flat(loss_TBN)
            loss = self.weighted("q", loss_RN)
        gradients = self.gradients("q", loss, tape)
        q_RN = tf.linalg.matvec(q_RND, self.reward_weights)
        counts_TB = self._stretches(update.counts_R)[:-1]
        update.metrics |= {
            **of_critics("q/q", tf.stack([update.mean(q_R) for q_R in tf.unstack(q_RN, axis=1)])),
            **of_critics("loss/q", self.parameters["q"].loss_weight * tf.reduce_mean(loss_RN, axis=0)),
            "q/target": tf.math.divide_no_nan(
                tf.reduce_sum(counts_TB * tf.linalg.matvec(return_TBD, self.reward_weights)), update.returns
            ),
            "q/gradient_norm": gradients.norm,
        }
        return gradients

    def temperature_steps(self, update: Update) -> list[Gradients]:
        """Moves both alphas so that the entropies of proposal and choice come to their targets."""
        proposal, choice = update.proposal, update.choice
        assert proposal is not None and choice is not None and proposal.log_prob_B is not None
        steps = []
        for temperature, log_prob_R, target in (
            (self.proposal_temperature, proposal.log_prob_B, self.proposal_target_entropy),
            (self.choice_temperature, -choice.entropy_B, self.choice_target_entropy),
        ):
            with self.watch(temperature.name) as tape:
                loss = tf.reduce_mean(update.counts_R * temperature.loss(log_prob_R, target))
            update.metrics[f"loss/{temperature.name}"] = loss
            steps.append(self.gradients(temperature.name, loss, tape) if update.train_policy else no_gradients(temperature.name))
        return steps

    def _rows(self, *inner: int) -> list[int]:
        """Returns the shape of a draw for the global batch."""
        return [self.steps, self.batch_size, *inner]

    def _stretches(self, x_R: tf.Tensor) -> tf.Tensor:
        """Returns rows `[R, ...]` as `[T, B, ...]`."""
        return tf.reshape(x_R, [self.steps, -1, *x_R.shape[1:]])


def flat(x_TB: tf.Tensor) -> tf.Tensor:
    """Returns `[T, B, ...]` as rows `[T * B, ...]`."""
    return tf.reshape(x_TB, [-1, *x_TB.shape[2:]])


def _pair(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)
