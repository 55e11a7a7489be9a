"""Temporally abstract actor-critic: ALF's TAAC, TaacL and TaacQ (Yu, Xu and Zhang 2021, arXiv 2104.06521).

Networks: `policy`, twin `q` of trajectories in one head and its target network `q_target`; two learned temperatures. An
update uses sequences `[T, B]`; their entries are `[R]`, R = T * B, where time does not matter.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.agents.batches import sequence_spec
from tfsac.agents.learner import Agent, Step, flat
from tfsac.errors import TfsacError
from tfsac.losses import taac as losses
from tfsac.losses.temperature import check_target_entropy, continuous_target_entropy, discrete_target_entropy
from tfsac.parameters import LearnedAlphaParameters, TemporallyAbstractActorCriticAgentParameters
from tfsac.policies import TemporallyAbstractPolicy
from tfsac.policies.distributions import SquashedGaussian
from tfsac.policies.temporally_abstract import Choice, Tau, choice, pessimistic
from tfsac.types import LAST, NEXT_STATE, STATE, SWITCH, Sequence, Spec, Tensors, Update


class Entries(NamedTuple):
    """The entries of an update's sequences, `[R, ...]`.

    Attributes:
        observation: observations by key.
        previous, stored: trajectories before and after the step.
        mask_R: 1 for entries with a step, 0 for those after an episode's last action.
        num_steps, num_returns, num_switches: number of entries that have a step, that also have a return (the last of a
            sequence has none), and that switched; means over the replicas, whose numbers differ.
    """

    observation: dict[str, tf.Tensor]
    previous: Tau
    stored: Tau
    mask_R: tf.Tensor
    num_steps: tf.Tensor
    num_returns: tf.Tensor
    num_switches: tf.Tensor

    def mean(self, values_R: tf.Tensor) -> tf.Tensor:
        """Returns this replica's part of the mean over the global entries that have a step."""
        return tf.math.divide_no_nan(tf.reduce_sum(self.mask_R * values_R), self.num_steps)


class Proposed(NamedTuple):
    """The policy's decision in every entry: its distribution, log density of the proposal `[R]`, the trajectories to
    choose from, Q of the new one `[R]`, and the choice.
    """

    policy: SquashedGaussian
    log_prob_R: tf.Tensor
    kept: Tau
    planned: Tau
    switch_q_R: tf.Tensor
    choice: Choice


class TemporallyAbstractActorCriticAgent(Agent):
    """Temporally abstract actor-critic. An update steps policy, critics and temperatures together, from the weights at
    its start, then the target network.

    Attributes:
        proposal_temperature, choice_temperature: learned.
        proposal_target_entropy, choice_target_entropy: in nats.
        reward_discounts: gamma of each reward, `[D]`.

    Raises:
        TfsacError: see `Agent`; target entropies that cannot be reached.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = TemporallyAbstractActorCriticAgent(
        ...     TemporallyAbstractActorCriticAgentParameters(), tfsac.environments.spec_of(env)
        ... )
        >>> first = agent.policy.act({"observation": np.zeros((1, 3), "float32")}, mode="greedy")
        >>> agent.policy.act({"observation": np.zeros((1, 3), "float32")}, first.state, mode="greedy").state["repeats"]
        array([2], dtype=int32)
    """

    policy_class = TemporallyAbstractPolicy
    policy: TemporallyAbstractPolicy
    batch_axis = 1

    def __init__(self, parameters: TemporallyAbstractActorCriticAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        self.steps = parameters.memory.sequence_length
        super().__init__(parameters, spec, *args, **kwargs)
        algorithm, rewards = parameters.algorithm, spec.num_rewards or 1
        self.reward_discounts = np.array(algorithm.reward_discounts or [algorithm.discount] * rewards, np.float32)
        alpha = LearnedAlphaParameters(algorithm.initial_alpha, algorithm.alpha_learning_rate)
        self.proposal_temperature = self.make_temperature(alpha, "proposal_temperature")
        self.choice_temperature = self.make_temperature(alpha, "choice_temperature")
        self.choice_alpha = self.policy.choice_alpha  # a checkpoint holds the variables of the agent, not the policy's
        of_choice, of_action = _pair(algorithm.min_prob)
        self.choice_target_entropy = discrete_target_entropy(of_choice, 2)
        self.proposal_target_entropy = continuous_target_entropy(of_action, self.policy.action_size)
        if algorithm.target_entropy is not None:
            self.choice_target_entropy, self.proposal_target_entropy = _pair(algorithm.target_entropy)
            check_target_entropy(self.proposal_target_entropy, self.policy.action_size)
            if not 0 < self.choice_target_entropy < math.log(2):
                raise TfsacError(
                    "target_entropy of keeping or switching must be between 0 and log(2) = 0.6931 nats, got "
                    f"{self.choice_target_entropy}"
                )

    def batch_spec(self) -> Sequence:
        """Returns shapes and dtypes of a batch, `[T, B]`."""
        return sequence_spec(self.spec, self.steps, self.local_batch_size)

    def update_once(self, batch: Sequence) -> Update:
        """Makes one update: computes all gradients before any step, then updates the target network."""
        entries = self.flatten_time(batch)
        proposed, policy = self.policy_step(entries)
        critic = self.critic_step(batch, entries, proposed)
        # Both alphas bring the entropies of proposal and choice to their targets.
        proposal = self.temperature_step(
            self.proposal_temperature, proposed.log_prob_R, self.proposal_target_entropy, entries.mask_R
        )
        choice = self.temperature_step(
            self.choice_temperature, -proposed.choice.entropy_B, self.choice_target_entropy, entries.mask_R
        )
        self.apply(*critic.gradients, *policy.gradients, *proposal.gradients, *choice.gradients)
        self.update_target("q")
        self.policy.choice_alpha.assign(self.choice_temperature.value())
        return Update(policy.metrics | critic.metrics | proposal.metrics | choice.metrics, tf.zeros([0]))

    def update_critics_once(self, batch: Sequence) -> Update:
        """Makes one update of the critic, then the target."""
        entries = self.flatten_time(batch)
        critic = self.critic_step(batch, entries, self.propose(entries))
        self.apply(*critic.gradients)
        self.update_target("q")
        return Update(critic.metrics, tf.zeros([0]))

    def flatten_time(self, batch: Sequence) -> Entries:
        """Returns the entries of sequences, their mask, and how many have a step."""
        mask_TB = tf.cast(batch.step_type != LAST, tf.float32)
        numbers = [tf.reduce_sum(x_TB) for x_TB in (mask_TB, mask_TB[:-1], mask_TB * batch.extras[SWITCH])]
        before, after = (
            {name: flat(batch.extras[prefix + name]) for name in self.policy.trajectory.fields}
            for prefix in (STATE, NEXT_STATE)
        )
        observation = {key: flat(x) for key, x in batch.observation.items()}
        counts = tf.unstack(self.mean_over_replicas(tf.stack(numbers)))
        return Entries(observation, before, after, flat(mask_TB), *counts)

    def propose(self, entries: Entries) -> Proposed:
        """Returns the policy's proposals, and its choice between keeping and switching (equation 5)."""
        policy = SquashedGaussian(*self.networks["policy"]({**entries.observation, **entries.previous}))
        noise_RA = flat(self.noise("policy", [self.steps, self.batch_size, self.policy.action_size]))
        action_RA, log_prob_R = policy.sample_and_log_prob(noise_RA)
        trajectory = self.policy.trajectory
        kept, planned = trajectory.step(entries.previous), trajectory.plan(action_RA, entries.previous)
        keep_q_R, switch_q_R = (self.value(entries.observation, tau) for tau in (kept, planned))
        decision = choice(keep_q_R, switch_q_R, self.choice_temperature.value(), self.algorithm.b1_advantage_clipping)
        return Proposed(policy, log_prob_R, kept, planned, switch_q_R, decision)

    def value(self, observation: Tensors, tau: Tau) -> tf.Tensor:
        """Returns the pessimistic Q of trajectories, a weighted sum over rewards, `[R]`."""
        q_RND = self.networks["q"](observation, self.policy.trajectory.concatenated(tau))
        return self.policy.objective(q_RND)

    def policy_step(self, entries: Entries) -> tuple[Proposed, Step]:
        """Computes the step of the policy towards proposals of high Q, weighted by the probability of choosing them,
        and of high entropy (equation 8).
        """
        alpha = self.proposal_temperature.value()
        with self.watch("policy") as tape:
            proposed = self.propose(entries)
            decision = proposed.choice
            loss_R = losses.policy_loss(proposed.log_prob_R, decision.switch_B, proposed.switch_q_R, alpha)
            loss = self.mean_loss("policy", entries.mask_R * loss_R)
        gradients = self.gradients(loss, tape, "policy")
        metrics = {
            "loss/policy": loss,
            "policy/mean": entries.mean(tf.reduce_mean(proposed.policy.loc, axis=-1)),
            "policy/log_std": entries.mean(tf.reduce_mean(proposed.policy.log_scale, axis=-1)),
            "policy/log_prob": entries.mean(proposed.log_prob_R),
            "policy/q": entries.mean(proposed.switch_q_R),
            "policy/gradient_norm": gradients[0].norm,
            "switch/keep_prob": entries.mean(decision.keep_B),
            "switch/entropy": entries.mean(decision.entropy_B),
            "switch/advantage": entries.mean(decision.advantage_B),
            "switch/repeats": 1.0 / tf.maximum(tf.math.divide_no_nan(entries.num_switches, entries.num_steps), 1e-3),
            "temperature/proposal_alpha": alpha,
            "temperature/choice_alpha": self.choice_temperature.value(),
        }
        return proposed, Step(gradients, metrics)

    def critic_step(self, batch: Sequence, entries: Entries, proposed: Proposed) -> Step:
        """Computes the step that regresses every Q(s, tau) of the stored trajectories on the compare-through return
        (equation 9).
        """
        weights, concatenated = self.policy.reward_weights, self.policy.trajectory.concatenated
        keep_q_TBD, switch_q_TBD = (
            self.sequences(pessimistic(self.targets["q"](entries.observation, concatenated(tau)), weights))
            for tau in (proposed.kept, proposed.planned)
        )
        would_switch_TB = None
        if self.algorithm.compare_through == "sampled":
            uniform_TB = self.noise("choice", [self.steps, self.batch_size], tf.random.stateless_uniform)
            would_switch_TB = uniform_TB < self.sequences(proposed.choice.switch_B)
        return_TBD = losses.compare_through_returns(
            batch.reward if self.spec.num_rewards else batch.reward[..., None],
            batch.nonterminal,
            tf.constant(self.reward_discounts),
            keep_q_TBD,
            switch_q_TBD,
            self.sequences(proposed.choice.keep_B),
            batch.step_type == LAST,
            batch.extras[SWITCH] > 0,
            would_switch_TB,
        )
        with self.watch("q") as tape:
            q_RND = self.networks["q"](entries.observation, concatenated(entries.stored))
            huber = self.network_parameters["q"].replace_mse_with_huber_loss
            loss_RN = entries.mask_R[:, None] * flat(losses.critic_loss(self.sequences(q_RND), return_TBD, huber))
            loss = self.mean_loss("q", loss_RN)
        gradients = self.gradients(loss, tape, "q")
        q_RN, losses_N = tf.linalg.matvec(q_RND, weights), self.loss_weights["q"] * tf.reduce_mean(loss_RN, axis=0)
        return_sum = tf.reduce_sum(self.sequences(entries.mask_R)[:-1] * tf.linalg.matvec(return_TBD, weights))
        metrics = {
            **{f"q/q{i + 1}": entries.mean(q_R) for i, q_R in enumerate(tf.unstack(q_RN, axis=1))},
            **{f"loss/q{i + 1}": loss for i, loss in enumerate(tf.unstack(losses_N))},
            "q/target": tf.math.divide_no_nan(return_sum, entries.num_returns),
            "q/gradient_norm": gradients[0].norm,
        }
        return Step(gradients, metrics)

    def sequences(self, x_R: tf.Tensor) -> tf.Tensor:
        """Returns entries `[R, ...]` as `[T, B, ...]`."""
        return tf.reshape(x_R, [self.steps, -1, *x_R.shape[1:]])

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns "switch_q", the value of a new trajectory with the action as the proposal, and "keep_q", of the
        present one, `[B]`.
        """
        trajectory = self.policy.trajectory
        assert state is not None
        previous = {name: state[name] for name in trajectory.fields}
        taus = {"keep_q": trajectory.step(previous), "switch_q": trajectory.plan(action, previous)}
        return {name: self.value(observation, tau) for name, tau in taus.items()}


def _pair(value: float | tuple[float, float]) -> tuple[Any, Any]:
    return value if isinstance(value, tuple) else (value, value)
