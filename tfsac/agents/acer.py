"""Actor-critic with experience replay, for discrete and for continuous actions (ChainerRL; arXiv 1611.01224).

Networks: `policy` and its average `policy_target`, the critics, and optionally a `trunk` with its average before them.
The critics are Q of every discrete action; or V and an advantage. An update uses B segments `[T, B]`, R = T * B steps.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfsac.agents.batches import segment_spec
from tfsac.agents.learner import Agent, flat
from tfsac.errors import TfsacError
from tfsac.losses import acer as losses
from tfsac.losses.soft_actor_critic import expectation
from tfsac.parameters import DiscreteACERAgentParameters, GaussianACERAgentParameters
from tfsac.policies import RecurrentCategoricalPolicy, RecurrentGaussianPolicy, RecurrentPolicy
from tfsac.policies.distributions import DiagonalGaussian, MaskedCategorical
from tfsac.policies.recurrent import LOGITS, MEAN, POLICY, TRUNK, VARIANCE, features_of_segments
from tfsac.types import ACTION_MASK, Metrics, Segments, Spec, Tensors, Update

ACERAgentParameters = DiscreteACERAgentParameters | GaussianACERAgentParameters
RUNNING_AVERAGES = ("value", "entropy", "kl")  # metrics with running averages
MIN_PROBABILITY = 1e-30  # its log is finite


class RowValues(NamedTuple):
    """Outputs of the networks for all steps of an update's segments.

    Attributes:
        policy, average: distributions of the policy and of the average policy.
        statistics_RS: the policy's statistics, in which the trust region is measured.
        log_ratio_R, trace_R: log pi(a) - log mu(a) of the actions taken, 0 on-policy; Retrace's c. No gradients.
        q_R: Q of the actions taken.
        v_R: V.
        bootstrap_B: V of the observations after the segments.
        correction: inputs of the subclass's bias correction.
    """

    policy: Any
    average: Any
    statistics_RS: tf.Tensor
    log_ratio_R: tf.Tensor
    trace_R: tf.Tensor
    q_R: tf.Tensor
    v_R: tf.Tensor
    bootstrap_B: tf.Tensor
    correction: tuple[tf.Tensor, ...]


class ACERAgent(Agent):
    """Computes one loss for all networks and clips their gradients together, then updates the average policy.

    Attributes:
        averages: running averages of `RUNNING_AVERAGES`.

    """

    batch_axis = 1
    policy: RecurrentPolicy

    def __init__(self, parameters: ACERAgentParameters, spec: Spec, *args: Any, **kwargs: Any):
        self.steps = parameters.algorithm.t_max
        super().__init__(parameters, spec, *args, **kwargs)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.averages = tf.Variable([0.0] * len(RUNNING_AVERAGES), trainable=False, aggregation=once, name="averages")

    @abstractmethod
    def row_values(self, batch: Segments, features: Tensors) -> RowValues:
        """Returns policies and values of all steps, for features `[T + 1, B, F]` by network."""

    @abstractmethod
    def loss_and_kl(
        self, statistics_RS: tf.Tensor, rows: RowValues, batch: Segments, advantage_R: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the policy's loss and KL(average || policy) as functions of its statistics, `[R]` each."""

    @abstractmethod
    def critic_losses(self, rows: RowValues, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the losses of the critics, `[R]` by network."""

    def update_once(self, batch: Segments) -> Update:
        """Makes one update: returns, loss of policy and critics, one step of all networks, then the average policy."""
        length_R = flat(batch.length)
        share_R = tf.math.divide_no_nan(1.0, length_R)  # of a step in its segment
        # Replicas have unequal numbers of steps and of segments, possibly none.
        counts = [tf.math.count_nonzero(length_R, dtype=tf.float32), tf.reduce_sum(share_R)]
        steps, segments = tf.unstack(self.mean_over_replicas(tf.stack(counts)))
        with self.watch(*self.trained) as tape:
            rows = self.row_values(batch, features_of_segments(self.networks, batch))
            q_TB, v_TB, trace_TB = (tf.reshape(x_R, [self.steps, -1]) for x_R in (rows.q_R, rows.v_R, rows.trace_R))
            discounts = batch.reward, self.algorithm.discount * batch.nonterminal
            returns = losses.retrace_returns(*discounts, q_TB, v_TB, trace_TB, rows.bootstrap_B, batch.length > 0)
            q_ret_R = flat(returns.q_ret)
            advantage_R = (flat(returns.q_opc) if self.algorithm.use_q_opc else q_ret_R) - tf.stop_gradient(rows.v_R)
            policy_loss_R, region = losses.constrained(
                lambda statistics_RS: self.loss_and_kl(statistics_RS, rows, batch, advantage_R),
                rows.statistics_RS,
                self.algorithm.trust_region_delta if self.algorithm.use_trust_region else None,
            )
            entropy_R = rows.policy.entropy()
            losses_R = {POLICY: policy_loss_R - self.algorithm.beta * entropy_R, **self.critic_losses(rows, q_ret_R)}
            # The mean over segments of the mean, or sum, over their steps.
            weight_R = share_R if self.algorithm.normalize_loss_by_steps else tf.cast(length_R > 0, tf.float32)
            weight_R *= float(length_R.shape[0]) / tf.maximum(segments, 1e-6)
            parts = {name: self.mean_loss(name, weight_R * loss_R) for name, loss_R in losses_R.items()}
            if TRUNK in self.networks and self.network_parameters[TRUNK].l2_regularization:
                parts[TRUNK] = self.l2_penalty(TRUNK)
            loss = tf.add_n([*parts.values()])
        gradients = self.gradients(loss, tape, *self.trained)
        self.apply(*gradients)
        for name in self.policy.acts_through:
            self.update_target(name)
        metrics = {f"loss/{name}": part for name, part in parts.items()}
        metrics_R = {"policy/value": rows.v_R, "policy/entropy": entropy_R, "policy/kl": region.kl}
        metrics_R |= {"q/target": q_ret_R, "trust_region/active": tf.cast(region.factor > 0, tf.float32)}
        metrics |= self.row_metrics(batch, rows, metrics_R, steps)
        metrics |= {"segments/length": tf.math.divide_no_nan(steps, segments), "gradient_norm": gradients[0].norm}
        return Update(metrics, tf.zeros([0]))

    def head(self, name: str, features_TBF: tf.Tensor, *action: tf.Tensor) -> list[tf.Tensor]:
        """Returns the outputs of a network's head, `[R, ...]` each."""
        return tf.nest.flatten(self.networks[name].head_model([flat(features_TBF), *action]))

    def row_metrics(self, batch: Segments, rows: RowValues, more_R: Metrics, steps: tf.Tensor) -> Metrics:
        """Returns means over the steps, of which a replica has `steps` on average, and some running averages."""
        threshold, mask_R = self.algorithm.truncation_threshold, tf.cast(flat(batch.length) > 0, tf.float32)
        is_large_R = tf.exp(rows.log_ratio_R) > (np.inf if threshold is None else threshold)
        metrics_R = {
            **more_R,
            "q/q": rows.q_R,
            "importance/ratio": tf.exp(tf.minimum(rows.log_ratio_R, 10.0)),
            "importance/truncated": (1.0 - flat(batch.on_policy)) * tf.cast(is_large_R, tf.float32),
        }
        means = {name: tf.math.divide_no_nan(tf.reduce_sum(mask_R * x_R), steps) for name, x_R in metrics_R.items()}
        newest = self.mean_over_replicas(tf.stack([means[f"policy/{name}"] for name in RUNNING_AVERAGES]))
        self.averages.assign_add((1.0 - self.algorithm.statistics_decay) * (newest - self.averages))
        running = zip(RUNNING_AVERAGES, tf.unstack(self.averages), strict=True)
        return means | {f"average/{name}": value for name, value in running}

    def batch_spec(self) -> Segments:
        """Returns shapes and dtypes of a batch, `[T, B]`."""
        return segment_spec(self.spec, self.steps, self.local_batch_size, self.policy.recurrent_state)

    def policy_and_inputs(self, observation: Tensors, state: Tensors | None) -> tuple[Any, Tensors]:
        """Returns the policy's distribution in one step, and the critics' inputs."""
        outputs, _, inputs = self.policy.advance_tensors(observation, state)
        return self.policy.distribution(outputs, observation), inputs

    @property
    def values_through(self) -> list[str]:
        """Names of the networks that `values` needs: all, since values are means over the policy.

        Raises:
            TfsacError: a critic with its own LSTM, whose state is not part of the policy's.
        """
        for name in self.network_parameters:
            if name not in self.policy.acts_through and self.networks[name].lstm_state:
                raise TfsacError(
                    f"values need critics without an LSTM of their own, got one in {name!r}: set shared=True"
                )
        return list(self.network_parameters)


class DiscreteACERAgent(ACERAgent):
    """ACER for discrete actions, with Q as critic, `V = sum_a pi(a) Q(a)`, and a bias correction summed over actions.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> agent = DiscreteACERAgent(DiscreteACERAgentParameters(), tfsac.environments.spec_of(env))
        >>> agent.policy.act({"observation": np.zeros((1, 4), "float32")}).extras["behaviour/logits"].shape
        (1, 2)
    """

    policy_class = RecurrentCategoricalPolicy
    policy: RecurrentCategoricalPolicy

    def row_values(self, batch: Segments, features: Tensors) -> RowValues:
        """Returns policies and values of all steps, for features `[T + 1, B, F]` by network."""
        steps, actions, masks = self.steps, self.policy.num_actions, batch.observation.get(ACTION_MASK)
        now, average = (self.head(n.name, features[n.name])[0] for n in (self.networks[POLICY], self.targets[POLICY]))
        rows = int(batch.action.shape[0] * batch.action.shape[1])
        mask_RA = None if masks is None else flat(masks[:steps])
        policy, average, behaviour = (
            MaskedCategorical(logits_RA, mask_RA)
            for logits_RA in (now[:rows], average[:rows], flat(batch.extras[LOGITS]))
        )
        end = MaskedCategorical(now[rows:], None if masks is None else masks[steps])
        q_TBA = tf.reshape(self.head("q", features["q"])[0], [steps + 1, -1, actions])
        q_RA, action_R = flat(q_TBA[:steps]), flat(batch.action)
        statistics = {"logits": policy.logits, "log_probs": policy.log_prob, "probabilities": policy.prob}
        log_ratio_RA = losses.log_ratio(policy.log_prob, behaviour.log_prob)
        log_ratio_R = (1.0 - flat(batch.on_policy)) * of_action(log_ratio_RA, action_R)
        return RowValues(
            policy=policy,
            average=average,
            statistics_RS=statistics[self.algorithm.trust_region_statistics],
            log_ratio_R=log_ratio_R,
            trace_R=losses.trace_coefficient(log_ratio_R),
            q_R=of_action(q_RA, action_R),
            v_R=tf.stop_gradient(expectation(policy.prob, q_RA)),
            bootstrap_B=tf.stop_gradient(expectation(end.prob, q_TBA[steps])),
            correction=(log_ratio_RA, tf.stop_gradient(q_RA)),
        )

    def loss_and_kl(
        self, statistics_RS: tf.Tensor, rows: RowValues, batch: Segments, advantage_R: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns equation 8 and `sum_a average(a) (log average(a) - log pi(a))`, `[R]` each."""
        kind, truncation = self.algorithm.trust_region_statistics, self.algorithm.truncation_threshold
        log_prob_RA = statistics_RS
        if kind == "logits":
            log_prob_RA = MaskedCategorical(statistics_RS, rows.policy.mask).log_prob
        elif kind == "probabilities":
            log_prob_RA = tf.where(rows.policy.mask, tf.math.log(tf.maximum(statistics_RS, MIN_PROBABILITY)), 0.0)
        log_prob_R, on_policy_R = of_action(log_prob_RA, flat(batch.action)), flat(batch.on_policy)
        loss_R = losses.policy_loss(log_prob_R, rows.log_ratio_R, advantage_R, on_policy_R, truncation)
        if truncation is not None:
            log_ratio_RA, q_RA = rows.correction
            correction_R = losses.full_correction(
                rows.policy.prob, log_prob_RA, log_ratio_RA, q_RA, rows.v_R, truncation
            )
            loss_R += (1.0 - on_policy_R) * correction_R
        return loss_R, expectation(rows.average.prob, rows.average.log_prob - log_prob_RA)

    def critic_losses(self, rows: RowValues, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the loss of Q, `[R]`."""
        return {"q": losses.q_loss(rows.q_R, q_ret_R)}

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns "q" of observations and actions, NaN for actions that do not exist, and "v", `[B]`."""
        policy, inputs = self.policy_and_inputs(observation, state)
        q_BA = self.networks["q"](inputs)[:, 0]
        exists = (action >= 0) & (action < q_BA.shape[-1])
        return {
            "q": tf.where(exists, of_action(q_BA, tf.where(exists, action, 0)), float("nan")),
            "v": expectation(policy.prob, q_BA),
        }


class GaussianACERAgent(ACERAgent):
    """ACER for continuous actions, with a dueling critic `Q(a) = V + Adv(a) - mean_n Adv(u_n)`, u_n from the policy.

    Samples and their densities are unbounded; the environment clips actions.

    Example:
        >>> env = gymnasium.make("Pendulum-v1")
        >>> agent = GaussianACERAgent(GaussianACERAgentParameters(), tfsac.environments.spec_of(env))
        >>> sorted(agent.policy.act({"observation": np.zeros((1, 3), "float32")}).extras)
        ['behaviour/mean', 'behaviour/variance']
    """

    policy_class = RecurrentGaussianPolicy
    policy: RecurrentGaussianPolicy

    def row_values(self, batch: Segments, features: Tensors) -> RowValues:
        """Returns policies and values of all steps, for features `[T + 1, B, F]` by network."""
        steps, samples, size = self.steps, self.algorithm.num_advantage_samples, self.policy.action_size
        policy, average = (
            self.policy.distribution(self.head(network.name, features[network.name][:steps]), {})
            for network in (self.networks[POLICY], self.targets[POLICY])
        )
        action_RA, mean_RA, stored_RA = (flat(x) for x in (batch.action, batch.extras[MEAN], batch.extras[VARIANCE]))
        # Without a step the stored variance is zero.
        behaviour = DiagonalGaussian(mean_RA, tf.where(flat(batch.length)[:, None] > 0, stored_RA, 1.0))
        # Actions of the policy, without gradient: one for the correction, others for the baselines of both advantages.
        draws = {"correction": 1, "baseline": samples, "correction_baseline": samples}
        noise_RJA = (flat(self.noise(name, [steps, self.batch_size, n, size])) for name, n in draws.items())
        fresh, *baselines = (tf.stop_gradient(policy.sample(tf.transpose(x, [1, 0, 2]))) for x in noise_RJA)
        action_KRA = tf.concat([action_RA[None], fresh, *baselines], axis=0)
        tiled = tf.tile(features["advantage"][:steps], [action_KRA.shape[0], 1, 1])
        advantage_KR = tf.reshape(self.head("advantage", tiled, flat(action_KRA))[0], [action_KRA.shape[0], -1])
        taken_R, fresh_R, first_JR, second_JR = tf.split(advantage_KR, [1, 1, samples, samples])
        v_TB = tf.reshape(self.head("v", features["v"])[0], [steps + 1, -1])
        stored, sampled = ((policy.log_prob(action), behaviour.log_prob(action)) for action in (action_RA, fresh[0]))
        fresh_advantage_R = tf.stop_gradient(fresh_R[0] - tf.reduce_mean(second_JR, axis=0))
        off_policy_R, scale = 1.0 - flat(batch.on_policy), self.algorithm.trust_region_statistics == "scale"
        return RowValues(
            policy=policy,
            average=average,
            statistics_RS=tf.concat([policy.mean, tf.sqrt(policy.variance) if scale else policy.variance], axis=-1),
            log_ratio_R=off_policy_R * losses.log_ratio(*stored),
            # Not the clipped ratio, whose root would be far from 0 if actions have many dimensions.
            trace_R=losses.trace_coefficient(off_policy_R * tf.stop_gradient(stored[0] - stored[1]), size),
            q_R=flat(v_TB[:steps]) + taken_R[0] - tf.reduce_mean(first_JR, axis=0),
            v_R=flat(v_TB[:steps]),
            bootstrap_B=tf.stop_gradient(v_TB[steps]),
            correction=(fresh[0], losses.log_ratio(*sampled), fresh_advantage_R),
        )

    def loss_and_kl(
        self, statistics_RS: tf.Tensor, rows: RowValues, batch: Segments, advantage_R: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns equation 9 and KL(average || policy), `[R]` each."""
        mean_RA, width_RA = tf.split(statistics_RS, 2, axis=-1)
        of_variance = self.algorithm.trust_region_statistics == "variance"
        policy = DiagonalGaussian(mean_RA, width_RA if of_variance else tf.square(width_RA))
        truncation, on_policy_R = self.algorithm.truncation_threshold, flat(batch.on_policy)
        log_prob_R = policy.log_prob(flat(batch.action))
        loss_R = losses.policy_loss(log_prob_R, rows.log_ratio_R, advantage_R, on_policy_R, truncation)
        if truncation is not None:
            fresh_RA, log_ratio_R, fresh_advantage_R = rows.correction
            fresh_log_prob_R = policy.log_prob(fresh_RA)
            correction_R = losses.sampled_correction(fresh_log_prob_R, log_ratio_R, fresh_advantage_R, truncation)
            loss_R += (1.0 - on_policy_R) * correction_R
        return loss_R, rows.average.kl_to(policy)

    def critic_losses(self, rows: RowValues, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the losses of Q, which trains V and the advantage, and of V, `[R]`."""
        v_loss_R = losses.v_loss(rows.v_R, rows.q_R, q_ret_R, rows.log_ratio_R)
        return {"advantage": losses.q_loss(rows.q_R, q_ret_R), "v": v_loss_R}

    def values(self, observation: Tensors, action: tf.Tensor, state: Tensors | None = None) -> dict[str, tf.Tensor]:
        """Returns "q" of observations and actions and "v", `[B]`; the baseline has the same n samples in every call."""
        policy, inputs = self.policy_and_inputs(observation, state)
        shape = (self.algorithm.num_advantage_samples, 1, self.policy.action_size)
        draws = np.random.default_rng(0).standard_normal(shape, np.float32)
        baseline = tf.unstack(policy.sample(tf.constant(draws)))
        advantage_KB = tf.stack([self.networks["advantage"](inputs, a)[:, 0] for a in (action, *baseline)])
        v_B = self.networks["v"](inputs)
        return {"q": v_B + advantage_KB[0] - tf.reduce_mean(advantage_KB[1:], axis=0), "v": v_B}


def of_action(values_RA: tf.Tensor, action_R: tf.Tensor) -> tf.Tensor:
    """Returns the entries of the actions taken, `[R]`."""
    return tf.gather(values_RA, action_R, axis=1, batch_dims=1)
