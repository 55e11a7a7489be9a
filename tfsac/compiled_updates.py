"""Updates of an agent in one call of a compiled graph: U of them, on every replica, for several agents that share
the networks.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsac.batches import Packed, Packing
from tfsac.policies.several_agents import fold, unfold
from tfsac.types import Batch, Transition, UpdateResult


class CompiledUpdates:
    """Makes an agent's updates; there is one trace for calls of a single update and one for any number.

    Args:
        agent: with `update_once`.
        eager: run updates without compiling them, to debug.
        jit_compile: compile updates with XLA, on one device.

    Attributes:
        metric_names: names of the metrics' columns, known after `trace` or the first call.
        traces: how often the update was traced.
    """

    def __init__(self, agent: Any, eager: bool, jit_compile: bool):
        self.agent, self.eager = agent, eager
        self.packing = Packing(agent.batch_rows())
        self.metric_names: list[str] = []
        self.traces = 0
        # Without AutoGraph, which takes most of the time of a trace: loop and branches below are TensorFlow's own.
        self._compiled = tf.function(self._update_stack, autograph=False)
        # The loop over U has no fixed number of passes, so what XLA compiles is inside of it.
        self._each_update = (
            tf.function(self._one_update, autograph=False, jit_compile=True) if jit_compile else self._one_update
        )
        self._single: Any = None
        self._several: Any = None

    def trace(self, single: bool) -> list[str]:
        """Traces the update without running it, and returns `metric_names`; see `Agent.trace`."""
        if single and self._single is None:
            self._single = self._compiled.get_concrete_function(self.packing.signature(1))
        if not single and self._several is None:
            self._several = self._compiled.get_concrete_function(self.packing.signature(None))
        return self.metric_names

    def __call__(self, stacked: Batch) -> UpdateResult:
        """Makes U updates with stacked batches; see `Agent.update`."""
        wanted, agent = self.packing.batch.reward.shape.as_list(), self.agent
        if list(stacked.reward.shape[1:]) != wanted:
            raise ValueError(f"Updates need rewards [U, {str(wanted)[1:]}. Received: {stacked.reward.shape}")
        packed = self.packing.pack(stacked)
        if self.eager:
            rows = []
            for i in range(len(stacked.reward)):
                rows.append(self._one_update(self.packing.unpack(packed, i)))
                agent.updates.assign_add(1)
            metrics, priority = (tf.stack(column) for column in zip(*rows, strict=True))
            outputs = agent.policy.acting_weights()
        else:
            single = len(stacked.reward) == 1 and self._several is None
            self.trace(single)
            # Calling the trace directly, with tensors, saves a millisecond of looking for it.
            metrics, priority, outputs = (self._single if single else self._several)(packed)
        acting = [output.numpy() for output in outputs]
        agent.policy.refresh(acting)
        return UpdateResult(metrics.numpy(), priority.numpy(), acting)

    def _update_stack(self, packed: Packed) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        agent = self.agent
        self.traces += 1  # Python runs while tracing only
        if packed[0].shape[0] == 1:
            metrics, priority = self._each_update(self.packing.unpack(packed, 0))
            agent.updates.assign_add(1)
            return metrics[None], priority[None], agent.policy.acting_weights()
        count = tf.shape(packed[0])[0]

        def update(i: tf.Tensor, rows: tf.TensorArray, priorities: tf.TensorArray) -> tuple[Any, ...]:
            metrics, priority = self._each_update(self.packing.unpack(packed, i))
            agent.updates.assign_add(1)
            return i + 1, rows.write(i, metrics), priorities.write(i, priority)

        empty = [tf.TensorArray(tf.float32, size=count) for _ in ("rows", "priorities")]
        _, rows, priorities = tf.while_loop(lambda i, *_: i < count, update, [0, *empty])
        return rows.stack(), priorities.stack(), agent.policy.acting_weights()

    def _one_update(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        period = self.agent.algorithm.num_updates_between_policy_updates
        if period == 1:
            return self._on_replicas(batch, True)
        due = (self.agent.updates + 1) % period == 0
        return tf.cond(due, lambda: self._on_replicas(batch, True), lambda: self._on_replicas(batch, False))

    def _on_replicas(self, batch: Batch, train_policy: bool) -> tuple[tf.Tensor, tf.Tensor]:
        strategy = self.agent.strategy
        if self.agent.replicas == 1:
            return self._of_replica(batch, train_policy)
        metrics, priority = strategy.run(self._of_replica, args=(batch, train_policy))
        mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, metrics, axis=None)
        return mean, tf.concat(strategy.experimental_local_results(priority), axis=0)

    def _of_replica(self, batch: Batch, train_policy: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns metrics and priorities of an update of this replica's rows."""
        agent, rows = self.agent, self.agent.share(batch)
        num_agents = agent.spec.num_agents
        metrics, td_error_B = agent.update_once(rows if num_agents is None else _folded(rows, num_agents), train_policy)
        if num_agents is not None:
            td_error_B = tf.reduce_mean(unfold(td_error_B, num_agents), axis=1)
        rates = {f"learning_rate/{name}": optimizer.learning_rate for name, optimizer in agent.optimizers.items()}
        self.metric_names = [*metrics, *rates]
        stacked = tf.stack([tf.cast(value, tf.float32) for value in (*metrics.values(), *rates.values())])
        return stacked, td_error_B if agent.prioritized else tf.zeros([0])


def _folded(batch: Transition, num_agents: int) -> Transition:
    """Returns a batch of several agents as a batch of single ones: rewards, discounts and weights `[B]` count for
    each.
    """

    def of_each(x: tf.Tensor) -> tf.Tensor:
        return tf.repeat(x, num_agents, axis=0)

    return Transition(
        observation=fold(batch.observation),
        action=fold(batch.action),
        reward=of_each(batch.reward),
        discount=of_each(batch.discount),
        next_observation=fold(batch.next_observation),
        weight=tf.nest.map_structure(of_each, batch.weight),
        extras=tf.nest.map_structure(of_each, batch.extras),
    )
