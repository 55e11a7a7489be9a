"""What all agents share: networks, optimizers, the compiled loop of updates, noise, gradients, slow copies."""

from __future__ import annotations

import types
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks import Network, build_optimizer, clip_gradients
from tfsac.parameters import NetworkParameters
from tfsac.types import ActResult, ArraySpec, Metrics, Spec, Transition

Mode = Literal["random", "explore", "sample", "greedy"]
ACTING = 1  # stream of random numbers for acting, beside those of the weights


class Agent(tf.Module):
    """Base class: a subclass has its networks, its `update_once` and its `act`.

    Make it inside the scope of a `tf.distribute` strategy to train on several devices: every replica then runs
    `update_once` on its share of the batch. One `tf.train.Checkpoint(agent=agent)` holds networks, slow copies,
    optimizers, counters and the seed of the noise.

    Args:
        networks: parameters by name; a network with `create_target_network` gets a slow copy `<name>_target`.
        spec: what the agent sees and does.
        batch_size: rows of one update, over all replicas.
        seed: of weights, noise and acting.
        eager: run updates without compiling them, to debug.

    Attributes:
        networks, optimizers: by name.
        updates: how many updates were made, a variable.
        metric_names: names of the columns that `update` returns, known after `trace` or the first call.
        traces: how often the update was traced.

    Raises:
        ValueError: networks that do not fit the spec, or a batch that the replicas cannot share equally.
    """

    def __init__(
        self, networks: Mapping[str, NetworkParameters], spec: Spec, batch_size: int, seed: int = 0, eager: bool = False
    ):
        super().__init__(name=None)
        self.strategy = tf.distribute.get_strategy()
        self.replicas = self.strategy.num_replicas_in_sync
        if batch_size % self.replicas:
            raise ValueError(f"The batch must divide by the number of replicas, {self.replicas}. Received: {batch_size}")
        self.parameters = dict(networks)
        self.spec, self.batch_size, self.eager = spec, batch_size, eager
        self.rng = np.random.default_rng([seed, ACTING])
        self.networks: dict[str, Network] = {}
        self.optimizers: dict[str, keras.optimizers.Optimizer] = {}
        for index, (name, parameters) in enumerate(networks.items()):
            first_weights = int(np.random.SeedSequence([seed, index]).generate_state(1)[0])
            self.networks[name] = Network(name, parameters, spec, first_weights)
            self.optimizers[name] = build_optimizer(parameters, self.networks[name].trainable_variables)
            if parameters.create_target_network:
                self.networks[f"{name}_target"] = Network(f"{name}_target", parameters, spec, first_weights)
        once = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.updates = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=once, name="updates")
        self.noise_seed = tf.Variable(seed, dtype=tf.int64, trainable=False, aggregation=once, name="noise_seed")
        self.metric_names: list[str] = []
        self.traces = 0
        self._compiled = tf.function(self._update_stack)
        self._traces = types.SimpleNamespace(single=None, several=None)  # a dict would become part of checkpoints

    @abstractmethod
    def update_once(self, batch: Transition) -> Metrics:
        """Makes one update from a batch `[B, ...]` and returns its metrics in the order in which they arise."""

    @abstractmethod
    def act(self, observation: Mapping[str, np.ndarray], state: Any = (), is_first: Any = None, mode: Mode = "sample") -> ActResult:
        """Chooses actions `[N, A]` in [-1, 1] for observations `[N, ...]`."""

    @abstractmethod
    def action_tensor(self, observation: Mapping[str, tf.Tensor], noise_BA: tf.Tensor | None = None) -> tf.Tensor:
        """Returns what `act` does as tensors, to be exported: the mode, or a sample made with the given noise."""

    @abstractmethod
    def value_tensors(self, observation: Mapping[str, tf.Tensor], action_BA: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the agent's values of observations and actions by name, to be exported."""

    def refresh(self, outputs: list[np.ndarray] | None = None) -> None:
        """Brings what acting keeps outside TensorFlow up to date.

        Called after each `update` with what `acting_weights` returned in the graph; call it without arguments after
        variables were changed in another way.
        """

    def acting_weights(self) -> list[tf.Tensor]:
        """Returns tensors that leave the compiled call together with the metrics."""
        return []

    def trace(self, single: bool = False) -> list[str]:
        """Traces the update without running it.

        Args:
            single: for calls of exactly one update, which then need no loop in the graph; else for any number.

        Returns:
            `metric_names`.
        """
        name = "single" if single else "several"
        if getattr(self._traces, name) is None:
            trace = self._compiled.get_concrete_function(self._stack_signature(1 if single else None))
            setattr(self._traces, name, trace)
        return self.metric_names

    # -- the compiled loop ---------------------------------------------------------------------------------------------

    def update(self, stacked: Transition) -> np.ndarray:
        """Makes U updates in one call of a compiled graph.

        Args:
            stacked: U batches, `[U, B, ...]`.

        Returns:
            metrics `[U, M]` float32; `metric_names` names the columns.

        Raises:
            ValueError: a batch of another size than the agent was made for.
        """
        if stacked.reward.ndim != 2 or stacked.reward.shape[1] != self.batch_size:
            raise ValueError(f"Updates need rewards [U, {self.batch_size}]. Received: {stacked.reward.shape}")
        tensors = tf.nest.map_structure(tf.constant, stacked)
        if self.eager:
            rows = []
            for i in range(len(stacked.reward)):
                rows.append(self._replicated_update(tf.nest.map_structure(lambda x, i=i: x[i], tensors)))
                self.updates.assign_add(1)
            metrics, outputs = tf.stack(rows), self.acting_weights()
        else:
            single = len(stacked.reward) == 1 and self._traces.several is None
            self.trace(single)
            # Calling the trace directly, with tensors, saves a millisecond of looking for it.
            metrics, outputs = (self._traces.single if single else self._traces.several)(tensors)
        self.refresh([output.numpy() for output in outputs])
        return metrics.numpy()

    def _stack_signature(self, updates: int | None) -> Transition:
        def stack(array: ArraySpec) -> tf.TensorSpec:
            return tf.TensorSpec([updates, self.batch_size, *array.shape], array.dtype)

        row = tf.TensorSpec([updates, self.batch_size], tf.float32)
        observation = {key: stack(array) for key, array in self.spec.observation.items()}
        extras = {key: stack(array) for key, array in self.spec.extras.items()}
        return Transition(observation, stack(self.spec.action), row, row, dict(observation), (), extras)

    def _update_stack(self, stacked: Transition) -> tuple[tf.Tensor, list[tf.Tensor]]:
        self.traces += 1  # Python runs while tracing only
        if stacked.reward.shape[0] == 1:
            metrics = self._replicated_update(tf.nest.map_structure(lambda x: x[0], stacked))
            self.updates.assign_add(1)
            return metrics[None], self.acting_weights()
        count = tf.shape(stacked.reward)[0]
        rows = tf.TensorArray(tf.float32, size=count)
        for i in tf.range(count):
            metrics = self._replicated_update(tf.nest.map_structure(lambda x: x[i], stacked))  # noqa: B023 (a graph loop)
            rows = rows.write(i, metrics)
            self.updates.assign_add(1)
        return rows.stack(), self.acting_weights()

    def _replicated_update(self, batch: Transition) -> tf.Tensor:
        if self.replicas == 1:
            return self._update_and_stack_metrics(batch)
        metrics = self.strategy.run(self._update_and_stack_metrics, args=(batch,))
        return self.strategy.reduce(tf.distribute.ReduceOp.MEAN, metrics, axis=None)

    def _update_and_stack_metrics(self, batch: Transition) -> tf.Tensor:
        metrics = self.update_once(tf.nest.map_structure(self.share_of_replica, batch))
        self.metric_names = list(metrics)
        return tf.stack([tf.cast(value, tf.float32) for value in metrics.values()])

    def share_of_replica(self, global_rows: tf.Tensor) -> tf.Tensor:
        """Returns this replica's rows of a tensor `[B, ...]` that holds the global batch."""
        if self.replicas == 1:
            return global_rows
        size = self.batch_size // self.replicas
        start = tf.distribute.get_replica_context().replica_id_in_sync_group * size
        share = global_rows[start : start + size]
        share.set_shape([size, *global_rows.shape[1:]])
        return share

    # -- what updates are made of --------------------------------------------------------------------------------------

    def noise(self, name: str, shape: list[int]) -> tf.Tensor:
        """Returns standard normal noise for this replica's rows.

        The draw is a function of the agent's seed, the update's number and `name`; it is made for the global batch, so
        a run continued on another number of replicas sees the same noise.

        Args:
            name: distinguishes the draws of one update.
            shape: of the global draw, batch first.
        """
        seed = tf.stack([self.noise_seed + zlib.crc32(name.encode()), self.updates])
        return self.share_of_replica(tf.random.stateless_normal(shape, seed))

    def watch(self, name: str) -> tf.GradientTape:
        """Returns a tape that watches one network's weights and nothing else."""
        tape = tf.GradientTape(watch_accessed_variables=False)
        with tape:
            tape.watch([variable.value for variable in self.networks[name].trainable_variables])
        return tape

    def weighted(self, name: str, loss_rows: tf.Tensor) -> tf.Tensor:
        """Returns the mean over rows times the head's loss weight, plus the network's L2 penalty.

        Args:
            name: of the network that is trained.
            loss_rows: `[B]`, or `[B, N]` for N critics whose means are added.
        """
        parameters = self.parameters[name]
        loss = parameters.head_parameters.loss_weight * tf.reduce_sum(tf.reduce_mean(loss_rows, axis=0))
        if parameters.l2_regularization:
            kernels = [v for v in self.networks[name].trainable_variables if v.name == "kernel"]
            loss += parameters.l2_regularization * tf.add_n([tf.nn.l2_loss(kernel.value) for kernel in kernels])
        return loss

    def minimize(self, name: str, loss: tf.Tensor, tape: tf.GradientTape) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Takes one optimizer step on a network.

        Args:
            name: of the network.
            loss: scalar mean over this replica's rows.
            tape: on which the loss was computed.

        Returns:
            the gradients of the global batch before clipping, and their global norm.
        """
        variables = self.networks[name].trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        if self.replicas > 1:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        norm = tf.linalg.global_norm(gradients)
        clipped = clip_gradients(self.parameters[name], gradients, norm)
        # Keras sums over replicas what is already the same on each.
        self.optimizers[name].apply([gradient / self.replicas for gradient in clipped] if self.replicas > 1 else clipped, variables)
        return gradients, norm

    def soft_update(self, name: str, rate: float, period: int) -> None:
        """Moves a slow copy: `target <- (1 - rate) * target + rate * online` after every `period` updates."""
        now: float | tf.Tensor = rate
        if period > 1:
            now = rate * tf.cast((self.updates + 1) % period == 0, tf.float32)
        online = [variable.value for variable in self.networks[name].trainable_variables]
        target = [variable.value for variable in self.networks[f"{name}_target"].trainable_variables]

        def assign(slow: tf.Variable, fast: tf.Variable, now: Any) -> None:
            slow.assign((1.0 - now) * slow + now * fast)

        def assign_everywhere(strategy: tf.distribute.Strategy, now: Any) -> None:
            for slow, fast in zip(target, online, strict=True):
                strategy.extended.update(slow, assign, args=(fast, now))

        if self.replicas == 1:
            for slow, fast in zip(target, online, strict=True):
                assign(slow, fast, now)
        else:
            tf.distribute.get_replica_context().merge_call(assign_everywhere, args=(now,))
