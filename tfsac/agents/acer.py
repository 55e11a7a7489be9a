"""Actor-critic with experience replay (ChainerRL; Wang et al. 2017, arXiv 1611.01224): the update that all kinds of actions share.

Networks: `policy` and its average `policy_target`, the critics, and perhaps a `trunk` with its average before them. The critics are
those of the subclass: Q of every choice, or V and an advantage.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tfsac.agents.base import ModelMaker
from tfsac.agents.gradients import Gradients
from tfsac.agents.packing import segment_rows
from tfsac.agents.recurrent import AVERAGE, POLICY, TRUNK, RecurrentAgent
from tfsac.losses import acer as losses
from tfsac.parameters import FEATURES, DiscreteACERAgentParameters, GaussianACERAgentParameters
from tfsac.types import Metrics, Segments, Spec

AVERAGED = ("value", "entropy", "kl")  # metrics of which running averages are kept


class Evaluation(NamedTuple):
    """The networks in the R = T * B steps of an update's columns.

    Attributes:
        policy, average: distributions of now and of the average policy.
        log_ratio_R: log pi(a) - log mu(a) of the actions taken, 0 on-policy; constants.
        q_R: Q of the actions taken.
        v_R: V.
        bootstrap_B: V of the observations after the columns.
        correction: what the subclass needs for the bias correction.
    """

    policy: Any
    average: Any
    log_ratio_R: tf.Tensor
    q_R: tf.Tensor
    v_R: tf.Tensor
    bootstrap_B: tf.Tensor
    correction: Any = None


class ACERAgent(RecurrentAgent):
    """One loss for all networks; their gradients are taken and clipped together, then the average policy follows.

    Args:
        parameters: algorithm, networks, memory.
        spec: what the agent sees and does, with the extras that the policy's distribution is stored as.
        seed, eager, models, jit_compile: see `Agent`.

    Attributes:
        averages: running averages of `AVERAGED`.

    Raises:
        ValueError: see `RecurrentAgent`.
    """

    batch_axis = 1
    trace_size = 1  # the power in Retrace's coefficient is 1 over it

    def __init__(
        self,
        parameters: DiscreteACERAgentParameters | GaussianACERAgentParameters,
        spec: Spec,
        seed: int = 0,
        eager: bool = False,
        models: ModelMaker | None = None,
        jit_compile: bool = False,
    ):
        self.steps = parameters.algorithm.t_max
        super().__init__(parameters, spec, seed, eager, models, jit_compile)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.averages = tf.Variable([0.0] * len(AVERAGED), trainable=False, aggregation=once, name="averages")

    def batch_rows(self) -> Segments:
        """Returns shapes and dtypes of a batch, `[T, B]`."""
        return segment_rows(self.spec, self.steps, self.local_batch_size, self.recurrent)

    def share(self, batch: Segments) -> Segments:
        """Returns this replica's columns."""
        state = {field: x[None] for field, x in batch.initial_state.items()}
        mine = super().share(batch._replace(initial_state=state))
        return mine._replace(initial_state={field: x[0] for field, x in mine.initial_state.items()})

    def update_once(self, batch: Segments, train_policy: bool = True) -> tuple[Metrics, tf.Tensor]:
        """One update: returns, the loss of policy and critics, one step of all networks, then the average policy."""
        valid_TB = batch.length > 0
        weight_R = self.weights(batch.length)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variables in self.trained.values():
                tape.watch([variable.value for variable in variables])
            now = self.evaluate(batch, self.see(batch, valid_TB))
            trace_R = losses.trace_coefficient(now.log_ratio_R, self.trace_size)
            q_TB, v_TB, trace_TB = (self.columns(x_R) for x_R in (now.q_R, now.v_R, trace_R))
            returns = losses.retrace_returns(
                batch.reward, batch.discount, self.algorithm.discount, q_TB, v_TB, trace_TB, now.bootstrap_B, valid_TB
            )
            q_ret_R = flat(returns.q_ret)
            target_R = flat(returns.q_opc) if self.algorithm.use_q_opc else q_ret_R
            loss_R, region = self.policy_rows(now, batch, target_R - tf.stop_gradient(now.v_R))
            entropy_R = now.policy.entropy()
            rows = {POLICY: loss_R - self.algorithm.beta * entropy_R, **self.critic_rows(now, q_ret_R)}
            parts = {name: self.weighted(name, weight_R * rows_R) for name, rows_R in rows.items()}
            loss = tf.add_n([*parts.values(), *([self.penalty(TRUNK)] if TRUNK in self.networks else [])])
        norm = self.step(loss, tape)
        for name in self.acts_through:
            self.soft_update(name)
        return self._metrics(batch, now, parts, returns, region, entropy_R, norm), tf.zeros([0])

    # -- the parts of an update ----------------------------------------------------------------------------------------

    def weights(self, length_TB: tf.Tensor) -> tf.Tensor:
        """Returns the rows' weights `[R]`, whose mean with a loss is the mean over segments of their steps' mean (or sum)."""
        length_R = flat(length_TB)
        of_segment_R = tf.math.divide_no_nan(1.0, length_R)
        segments = self.mean_over_replicas(tf.reduce_sum(of_segment_R))
        each_R = of_segment_R if self.algorithm.normalize_loss_by_steps else tf.cast(length_R > 0, tf.float32)
        return each_R * (float(length_R.shape[0]) / tf.maximum(segments, 1e-6))

    def see(self, batch: Segments, valid_TB: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what the heads of all networks read, `[T + 1, B, F]` by network; the last row is after the columns."""
        ones_1B = tf.ones_like(batch.begins[:1])
        begins, valid = tf.concat([batch.begins, 0.0 * ones_1B], 0), tf.concat([valid_TB, ones_1B > 0], 0)
        seen: dict[str, tf.Tensor] = {}
        for name in self.networks:
            given: Mapping[str, tf.Tensor] = batch.observation
            if TRUNK in self.networks and not name.startswith(TRUNK):
                given = {FEATURES: seen[self.average_of(TRUNK) if name.endswith(AVERAGE) else TRUNK]}
            network = self.networks[name]
            state = {field: batch.initial_state[f"{name}_{field}"] for field in network.memory}
            seen[name] = network.features(given, state, begins, valid)
        return seen

    def head(self, name: str, features_TBF: tf.Tensor, *action: tf.Tensor) -> list[tf.Tensor]:
        """Returns what a network's head computes in all rows, `[R, ...]` each."""
        head = self.networks[name].head
        assert head is not None
        return tf.nest.flatten(head(flat(features_TBF), *action))

    @abstractmethod
    def evaluate(self, batch: Segments, seen: dict[str, tf.Tensor]) -> Evaluation:
        """Returns policies and values in all steps."""

    @abstractmethod
    def statistics(self, policy: Any) -> tf.Tensor:
        """Returns the numbers of a policy in which the trust region is measured, `[R, S]`."""

    @abstractmethod
    def policy_loss(self, statistics_RS: tf.Tensor, now: Evaluation, batch: Segments, advantage_R: tf.Tensor) -> tf.Tensor:
        """Returns the truncated and corrected policy gradient's loss as a function of the statistics, `[R]`."""

    @abstractmethod
    def kl(self, statistics_RS: tf.Tensor, now: Evaluation) -> tf.Tensor:
        """Returns KL(average || policy) as a function of the policy's statistics, `[R]`."""

    @abstractmethod
    def critic_rows(self, now: Evaluation, q_ret_R: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the losses of the critics, `[R]` by network."""

    def policy_rows(
        self, now: Evaluation, batch: Segments, advantage_R: tf.Tensor
    ) -> tuple[tf.Tensor, losses.Constrained]:
        """Returns the policy's loss in all rows, inside the trust region where there is one, and the region."""
        statistics_RS = self.statistics(now.policy)

        def loss_of(statistics_RS: tf.Tensor) -> tf.Tensor:
            return self.policy_loss(statistics_RS, now, batch, advantage_R)

        if not self.algorithm.use_trust_region:
            kl_R = tf.stop_gradient(self.kl(statistics_RS, now))
            return loss_of(statistics_RS), losses.Constrained(statistics_RS, kl_R, tf.zeros_like(kl_R))
        region = losses.constrained(
            loss_of, lambda statistics_RS: self.kl(statistics_RS, now), statistics_RS, self.algorithm.trust_region_delta
        )
        return tf.reduce_sum(statistics_RS * region.direction, axis=-1), region

    def step(self, loss: tf.Tensor, tape: tf.GradientTape) -> tf.Tensor:
        """Moves all networks along the gradients of the loss, clipped by their common norm, which is returned."""
        values = tape.gradient(loss, {name: [v.value for v in variables] for name, variables in self.trained.items()})
        values = self.mean_over_replicas(values)
        norm = tf.linalg.global_norm(tf.nest.flatten(values))
        for name in self.trained:
            self.apply(Gradients(name, values[name], norm))
        return norm

    def columns(self, x_R: tf.Tensor) -> tf.Tensor:
        """Returns rows `[R]` as `[T, B]`."""
        return tf.reshape(x_R, [self.steps, -1])

    def _metrics(
        self,
        batch: Segments,
        now: Evaluation,
        parts: Metrics,
        returns: losses.Returns,
        region: losses.Constrained,
        entropy_R: tf.Tensor,
        norm: tf.Tensor,
    ) -> Metrics:
        counts_R, of_segment_R = flat(tf.cast(batch.length > 0, tf.float32)), tf.math.divide_no_nan(1.0, flat(batch.length))
        # Replicas have unequal numbers of steps, perhaps none.
        steps, segments = tf.unstack(self.mean_over_replicas(tf.stack([tf.reduce_sum(counts_R), tf.reduce_sum(of_segment_R)])))

        def mean(x_R: tf.Tensor) -> tf.Tensor:
            return tf.math.divide_no_nan(tf.reduce_sum(counts_R * x_R), steps)

        means = self.mean_over_replicas(tf.stack([mean(now.v_R), mean(entropy_R), mean(region.kl)]))
        self.averages.assign_add((1.0 - self.algorithm.statistics_decay) * (means - self.averages))
        truncation = self.algorithm.truncation_threshold
        above_R = tf.zeros_like(counts_R)
        if truncation is not None:
            above_R = (1.0 - flat(batch.on_policy)) * tf.cast(tf.exp(now.log_ratio_R) > truncation, tf.float32)
        metrics = {f"loss/{name}": part for name, part in parts.items()}
        metrics |= {f"policy/{name}": value for name, value in zip(AVERAGED, tf.unstack(means), strict=True)}
        metrics |= {f"average/{name}": value for name, value in zip(AVERAGED, tf.unstack(self.averages), strict=True)}
        return {
            **metrics,
            "q/q": mean(now.q_R),
            "q/target": mean(flat(returns.q_ret)),
            "importance/ratio": mean(tf.exp(tf.minimum(now.log_ratio_R, 10.0))),
            "importance/truncated": mean(above_R),
            "trust_region/active": mean(tf.cast(region.factor > 0, tf.float32)),
            "segments/length": tf.math.divide_no_nan(steps, segments),
            "gradient_norm": norm,
            **self.learning_rates(),
        }


def flat(x_TB: tf.Tensor) -> tf.Tensor:
    """Returns `[T, B, ...]` as rows `[T * B, ...]`."""
    return tf.reshape(x_TB, [-1, *x_TB.shape[2:]])
