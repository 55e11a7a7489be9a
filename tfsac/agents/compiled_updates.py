"""Makes U updates of an agent in one call of a compiled graph, on every replica, for a single agent or a team that
shares the networks.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfsac.agents.batches import Packing
from tfsac.policies.team_axis import fold, unfold
from tfsac.types import Batch, Batches, BatchesOnDevice, Transition, UpdateResult

LOSS = "loss/"  # prefix of the metrics that every update reports
MAX_PROGRAMS = 2  # XLA programs for calls of several updates; other numbers of updates are divided among them


class CompiledUpdates:
    """Makes an agent's updates. Calls of a single update have one trace with all metrics and one with only losses;
    calls of several updates have one trace for any number.

    XLA compiles a whole call, so every number of updates needs a program; there are at most `MAX_PROGRAMS`. In a call
    of several updates, the last one, or as many as a policy delay lasts, can report all metrics.

    Attributes:
        updates_between_diagnostics: n; every n-th update reports all its metrics, the others only losses, "loss/...",
            and their graph computes nothing else. In a call of several updates the last ones report all.
        metric_names: names of the metrics' columns, known after `trace` or the first call.
        traces: number of traces of update graphs.
    """

    def __init__(self, agent: Any, eager: bool, jit_compile: bool):
        self.agent, self.eager, self.jit_compile = agent, eager, jit_compile
        self.source: Any = Packing(agent.batch_spec())  # unpacks the arguments of a call into batches
        self.updates_between_diagnostics = 1
        self.metric_names: list[str] = []
        self.critics_metrics: frozenset[str] = frozenset()  # those of updates without the policy
        self.has_policy_delay = agent.algorithm.num_updates_between_policy_updates > 1
        self.actor_slices: list[tuple[slice, tuple[int, ...]]] = []  # of the weights in their array, and their shapes
        self.traces = 0
        self._num_updates: int | None = None  # updates so far; reading the variable each time would take 0.1 ms
        # By kind: "all" or "losses" (a single update), "several", or with XLA the number of several updates.
        self._graphs: dict[str | int, Any] = {}

    def trace(self, single: bool) -> list[str]:
        """Traces the update without running it, and returns `metric_names`; see `Agent.trace`."""
        self._graph("all" if single or self.jit_compile else "several")
        return self.metric_names

    def __call__(self, stacked: Batches) -> UpdateResult:
        """Makes U updates with stacked batches; see `Agent.update`."""
        agent, packed = self.agent, self.source.pack(stacked)
        count = stacked.num_updates if isinstance(stacked, BatchesOnDevice) else len(stacked.reward)
        before = int(agent.updates.numpy()) if self._num_updates is None else self._num_updates
        full_metrics = updates_that_report(before, count, self.updates_between_diagnostics, agent.algorithm)
        if self.eager:
            if self.has_policy_delay and not self.metric_names:
                self.trace(single=True)  # an update without the policy does not know the policy's metric names
            updates = [self._update(packed, i, i >= count - full_metrics) for i in range(count)]
            metrics, priority = (tf.stack(column) for column in zip(*updates, strict=True))
            weights = self._packed_actor_weights()
        elif self.jit_compile:
            full_metrics = min(full_metrics, self._most_reports(count))
            metrics, priority, weights = self._call_programs(packed, count, full_metrics)
        elif count > 1 or "several" in self._graphs:
            metrics, priority, weights = self._graph("several")(tf.constant([count - full_metrics, count]), packed)
        else:
            metrics, priority, weights = self._graph("all" if full_metrics else "losses")(packed)
        self._num_updates = before + count
        reported = self._reported(before, count, full_metrics)
        flat = weights.numpy()
        actor_weights = [flat[flat_slice].reshape(shape) for flat_slice, shape in self.actor_slices]
        agent.policy.refresh(actor_weights)
        values = metrics.numpy()
        if self.jit_compile:  # its programs compute the last updates' metrics in every call
            values = np.where(reported, values, np.float32(np.nan))
        return UpdateResult(values, priority.numpy(), actor_weights, reported)

    def _call_programs(self, packed: Any, count: int, full_metrics: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the results of XLA's programs for this many updates, or for parts of them."""
        results, start = [], 0
        for size in self._sizes(count):
            kind = size if size > 1 else "all" if full_metrics and start >= count - full_metrics else "losses"
            results.append(self._graph(kind)(self.source.slice_updates(packed, start, start + size)))
            start += size
        if len(results) == 1:
            return results[0]
        metrics, priority, weights = zip(*results, strict=True)
        return tf.concat(metrics, axis=0), tf.concat(priority, axis=0), weights[-1]

    def _sizes(self, count: int) -> list[int]:
        """Returns the number of updates of each program that makes up a call."""
        programs = sorted((kind for kind in self._graphs if isinstance(kind, int)), reverse=True)
        if count == 1 or count in programs or len(programs) < MAX_PROGRAMS:
            return [count]
        sizes = []
        for size in (*programs, 1):
            sizes += [size] * (count // size)
            count %= size
        return sizes

    def _most_reports(self, count: int) -> int:
        """Returns how many of the updates of an XLA program can report all metrics."""
        every = self.updates_between_diagnostics == 1
        return count if every else min(count, self.agent.algorithm.num_updates_between_policy_updates)

    def _reported(self, before: int, count: int, full_metrics: int) -> np.ndarray:
        """Returns which metrics the updates of a call report, `[U, M]`."""
        losses_M, policy_M = self._kinds
        reported = np.repeat(losses_M[None], count, axis=0)
        reported[count - full_metrics :] = True
        if self.has_policy_delay:
            learns_U = self.agent.algorithm.policy_learns_in(np.arange(before + 1, before + 1 + count))
            reported[np.ix_(~learns_U, policy_M)] = False
        return reported

    @functools.cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns which metrics are losses, and which a policy delay leaves out, `[M]` each."""
        left_out = set(self.metric_names) - self.critics_metrics if self.has_policy_delay else set()
        losses_M = np.array([name.startswith(LOSS) for name in self.metric_names], bool)
        return losses_M, np.array([name in left_out for name in self.metric_names], bool)

    def _packed_actor_weights(self) -> tf.Tensor:
        """Returns the weights that acting copies, in one array because every output of a call costs time."""
        weights = self.agent.policy.acting_weights()
        shapes = [tuple(weight.shape) for weight in weights]
        ends = itertools.accumulate(map(math.prod, shapes))
        self.actor_slices = [
            (slice(end - math.prod(shape), end), shape) for shape, end in zip(shapes, ends, strict=True)
        ]
        return tf.concat([tf.zeros([0]), *(tf.reshape(weight, [-1]) for weight in weights)], axis=0)

    # -- graphs --------------------------------------------------------------------------------------------------------

    def _graph(self, kind: str | int) -> Any:
        """Returns the trace of this kind; calling it directly, with tensors, saves a millisecond of lookup."""
        if kind not in self._graphs:
            graph: Any
            if kind == "several":
                signature = [tf.TensorSpec([2], tf.int32), self.source.signature(None)]
                graph = self._several_updates
            elif isinstance(kind, int):  # known while tracing, so that XLA knows when its loops end
                signature = [self.source.signature(kind)]
                graph = functools.partial(self._several_updates, (kind - self._most_reports(kind), kind))
            else:
                signature = [self.source.signature(1)]
                graph = functools.partial(self._single_update, kind == "all")
            # No graph needs AutoGraph, which would take most of the tracing time.
            function = tf.function(graph, autograph=False, jit_compile=self.jit_compile)
            self._graphs[kind] = function.get_concrete_function(*signature)
        return self._graphs[kind]

    def _single_update(self, full_metrics: bool, packed: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        self.traces += 1  # Python runs only while tracing
        metrics, priority = self._update(packed, 0, full_metrics)
        return metrics[None], priority[None], self._packed_actor_weights()

    def _several_updates(self, ends: Any, packed: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes several updates; `ends` holds the index of the first one that reports all metrics, and their number."""
        self.traces += 1
        first_full, count = ends[0], ends[1]
        state = [0, *(tf.TensorArray(tf.float32, size=count) for _ in ("metrics", "priority"))]
        if self.updates_between_diagnostics > 1:
            state = self._loop(packed, state, first_full, False)
        _, metrics, priority = self._loop(packed, state, count, True)
        return metrics.stack(), priority.stack(), self._packed_actor_weights()

    def _loop(self, packed: Any, state: list[Any], end: int | tf.Tensor, full_metrics: bool) -> list[Any]:
        """Makes the updates up to `end`; the state is the index of the next one and the arrays of results."""

        def update(i: tf.Tensor, *arrays: tf.TensorArray) -> list[Any]:
            values = self._update(packed, i, full_metrics)
            return [i + 1, *(array.write(i, value) for array, value in zip(arrays, values, strict=True))]

        return tf.while_loop(lambda i, *_: i < end, update, state)

    def _update(self, packed: Any, i: int | tf.Tensor, full_metrics: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Makes update i of a call, on all replicas, and counts it."""
        agent, batch = self.agent, self.source.unpack(packed, i)
        agent.full_metrics = full_metrics
        update = self._replica_update if agent.replicas == 1 else self._update_on_replicas
        if self.has_policy_delay:
            policy_learns = agent.algorithm.policy_learns_in(agent.updates + 1)
            result = tf.cond(policy_learns, lambda: update(batch, True), lambda: update(batch, False))
        else:
            result = update(batch, True)
        agent.updates.assign_add(1)
        return result

    def _update_on_replicas(self, batch: Batch, policy_learns: bool) -> tuple[tf.Tensor, tf.Tensor]:
        strategy = self.agent.strategy
        metrics, priority = strategy.run(self._replica_update, args=(batch, policy_learns))
        mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, metrics, axis=None)
        return mean, tf.concat(strategy.experimental_local_results(priority), axis=0)

    def _replica_update(self, batch: Any, policy_learns: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """Makes an update with this replica's part of its worker's batch; returns metrics (NaN if not reported) and
        priorities.
        """
        agent, num_agents = self.agent, self.agent.spec.num_agents
        batch = batch if agent.replicas == 1 else agent.replica_batch(batch)
        batch = batch if num_agents is None else _folded(batch, num_agents)
        metrics, td_error_B = agent.update_once(batch) if policy_learns else agent.update_critics_once(batch)
        if agent.policy_average:
            agent.policy_average.update()
        if num_agents is not None:
            td_error_B = tf.reduce_mean(unfold(td_error_B, num_agents), axis=1)
        metrics |= {f"learning_rate/{name}": optimizer.learning_rate for name, optimizer in agent.optimizers.items()}
        if policy_learns:
            self.metric_names = list(metrics)
        else:
            self.critics_metrics = frozenset(metrics)
        reported = [name for name in metrics if agent.full_metrics or name.startswith(LOSS)]
        values = [
            tf.cast(metrics[name], tf.float32) if name in reported else np.float32(np.nan) for name in self.metric_names
        ]
        return tf.stack(values), td_error_B if agent.prioritized else tf.zeros([0])


def updates_that_report(before: int, count: int, period: int, algorithm: Any) -> int:
    """Returns how many updates at the end of a call report all metrics.

    It is the number of multiples of the period that the call passes. If the policy learns only in some updates,
    multiples are counted from one of these, and the call's last policy update is among those that report.
    """
    delay = algorithm.num_updates_between_policy_updates
    first = 0 if delay == 1 else algorithm.first_policy_update or 0
    num_multiples = (before + count - first) // period - (before - first) // period
    since_policy = (before + count - first) % delay
    return min(count, max(num_multiples, since_policy + 1)) if num_multiples else 0


def _folded(batch: Transition, num_agents: int) -> Transition:
    """Returns a team's batch as one of single agents, each with the team's rewards, discounts and weights `[B]`."""
    folded = {name: fold(getattr(batch, name)) for name in ("observation", "action", "next_observation")}
    once = batch._replace(**dict.fromkeys(folded, ()))
    return tf.nest.map_structure(lambda x: tf.repeat(x, num_agents, axis=0), once)._replace(**folded)
