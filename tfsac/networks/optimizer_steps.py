"""Steps of optimizers: Adam in one kernel a variable, and gradient clipping."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfsac.parameters import NetworkParameters


class FusedAdam(keras.optimizers.Optimizer):
    """Adam, and AdamW, with each variable's step in one kernel instead of a dozen passes over its memory.

    The formula is Keras's: `lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`; before it the variable
    loses `lr * weight_decay` of itself.

    Args:
        learning_rate: step size.
        beta_1, beta_2: decay of the two moments.
        epsilon: added to the root of the second moment.
        weight_decay: decoupled from the gradient (arXiv 1711.05101).

    Attributes:
        momentums, velocities: the moments, in the order of the variables.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, name="adam")
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes the moments."""
        super().build(variables)
        self.momentums, self.velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        self.stepped = list(variables)

    def apply(self, grads: list[tf.Tensor], trainable_variables: list[keras.Variable] | None = None) -> None:
        """Takes one step; what depends on its number alone is computed once for all variables."""
        t, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(self.learning_rate, tf.float32)
        powers = tf.pow(self.beta_1, t), tf.pow(self.beta_2, t)
        strategy = tf.distribute.get_strategy()
        for gradient, variable, *moments in zip(grads, self.stepped, self.momentums, self.velocities, strict=True):
            slots = [moment.value for moment in moments]
            strategy.extended.update(variable.value, self._step, args=(gradient, *slots, rate, *powers), group=False)
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        self.iterations.assign_add(1)

    def _step(self, variable: Any, gradient: Any, m: Any, v: Any, rate: Any, power1: Any, power2: Any) -> None:
        if self.weight_decay:
            variable.assign_sub(rate * self.weight_decay * variable)
        slots = {"var": variable.handle, "m": m.handle, "v": v.handle}
        constants = {"beta1": self.beta_1, "beta2": self.beta_2, "epsilon": self.epsilon}
        powers = {"beta1_power": power1, "beta2_power": power2}
        tf.raw_ops.ResourceApplyAdam(**slots, **powers, **constants, lr=rate, grad=gradient)


def clip_gradients(
    parameters: NetworkParameters, gradients: list[tf.Tensor], global_norm: tf.Tensor
) -> list[tf.Tensor]:
    """Bounds gradients by their global norm, each by its own norm, or each entry, as the parameters say."""
    bound = parameters.clip_gradients
    if bound is None:
        return gradients
    if parameters.gradients_clipping_method == "global_norm":
        return tf.clip_by_global_norm(gradients, bound, use_norm=global_norm)[0]
    if parameters.gradients_clipping_method == "norm":
        return [tf.clip_by_norm(gradient, bound) for gradient in gradients]
    return [tf.clip_by_value(gradient, -bound, bound) for gradient in gradients]
