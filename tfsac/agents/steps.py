"""What updates are made of: tapes, weighted losses, gradients, optimizer steps, slow copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfsac.agents.gradients import Gradients
from tfsac.networks import Network, clip_gradients, take_step
from tfsac.parameters import NetworkParameters
from tfsac.types import Metrics


class OptimizerSteps(tf.Module):
    """Steps of several networks, each with an optimizer of its own; under a strategy, of all replicas together.

    Attributes:
        algorithm: with rate and period of the slow copies.
        parameters: of the networks by name.
        networks: by name, slow copies included.
        trained, optimizers: variables that learn and their optimizer, by name of the network (or "temperature").
        replicas: how many devices share a batch.
        imitates: whether a tape is used more than once.
        updates: how many updates were made, a variable.
    """

    algorithm: Any
    parameters: Mapping[str, NetworkParameters]
    networks: dict[str, Network]
    trained: dict[str, list[keras.Variable]]
    optimizers: dict[str, keras.optimizers.Optimizer]
    replicas: int
    imitates: bool
    updates: tf.Variable

    def watch(self, name: str) -> tf.GradientTape:
        """Returns a tape that watches the weights of this name and nothing else."""
        tape = tf.GradientTape(persistent=self.imitates, watch_accessed_variables=False)
        with tape:
            tape.watch([variable.value for variable in self.trained[name]])
        return tape

    def weighted(self, name: str, loss_rows: tf.Tensor) -> tf.Tensor:
        """Returns the mean over rows times the head's loss weight, plus the network's L2 penalty.

        Args:
            name: of the network that is trained.
            loss_rows: `[B]`, or `[B, N]` for N critics whose means are added.
        """
        loss = tf.reduce_sum(tf.reduce_mean(loss_rows, axis=0))
        return self.parameters[name].loss_weight * loss + self.penalty(name)

    def penalty(self, name: str) -> tf.Tensor | float:
        """Returns the network's L2 penalty."""
        factor = self.parameters[name].l2_regularization
        kernels = [v.value for v in self.trained[name] if v.name.endswith("kernel")]
        return factor * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels]) if factor else 0.0

    def gradients(self, name: str, loss: tf.Tensor, tape: tf.GradientTape) -> Gradients:
        """Returns the gradients of a loss.

        Args:
            name: of what is trained.
            loss: scalar mean over this replica's rows.
            tape: on which the loss was computed.

        Returns:
            the gradients of the global batch, before clipping.
        """
        values = tape.gradient(loss, [variable.value for variable in self.trained[name]])
        values = self.mean_over_replicas(values)
        return Gradients(name, values, tf.linalg.global_norm(values))

    def mean_over_replicas(self, values: Any) -> Any:
        """Returns tensors (in any structure) averaged over the replicas."""
        if self.replicas == 1:
            return values
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, values)

    def apply(self, gradients: Gradients) -> None:
        """Takes one optimizer step with gradients, clipped as the network's parameters say."""
        name, values, norm = gradients
        if name in self.parameters:
            values = clip_gradients(self.parameters[name], values, norm)
        take_step(self.optimizers[name], values, self.trained[name])

    def minimize(self, name: str, loss: tf.Tensor, tape: tf.GradientTape) -> Gradients:
        """Takes one optimizer step on a loss: `gradients`, then `apply`."""
        gradients = self.gradients(name, loss, tape)
        self.apply(gradients)
        return gradients

    def learning_rates(self) -> Metrics:
        """Returns the learning rates as they are, as metrics."""
        return {f"learning_rate/{name}": optimizer.learning_rate for name, optimizer in self.optimizers.items()}

    def slow(self, name: str) -> Network:
        """Returns the slow copy of a network, or the network itself where it has none."""
        return self.networks.get(f"{name}_target", self.networks[name])

    def soft_update(self, name: str) -> None:
        """Moves a slow copy: `target <- (1 - rate) * target + rate * online`, when its period in updates is over."""
        if f"{name}_target" not in self.networks:
            return
        rate, period = self.algorithm.rate_for_copying_weights_to_target, self.algorithm.updates_between_target_copies()
        now: float | tf.Tensor = rate
        if period > 1:
            now = rate * tf.cast((self.updates + 1) % period == 0, tf.float32)
        follow(self.networks[f"{name}_target"].trainable_variables, self.trained[name], now)


def follow(slow: Iterable[keras.Variable], online: Iterable[keras.Variable], rate: Any) -> None:
    """Moves slow variables: `slow <- (1 - rate) * slow + rate * online`.

    Args:
        slow, online: in the same order.
        rate: a number or a scalar tensor.
    """
    pairs = [(variable.value, fast.value) for variable, fast in zip(slow, online, strict=True)]

    def assign(slow: tf.Variable, fast: tf.Variable, rate: Any) -> None:
        slow.assign_sub(rate * (slow - fast))

    def assign_everywhere(strategy: tf.distribute.Strategy, rate: Any) -> None:
        for slow, fast in pairs:
            strategy.extended.update(slow, assign, args=(fast, rate))

    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        for slow_value, fast_value in pairs:
            assign(slow_value, fast_value, rate)
    else:
        tf.distribute.get_replica_context().merge_call(assign_everywhere, args=(rate,))
