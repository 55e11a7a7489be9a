"""A long short-term memory for sequences that span several episodes (Hochreiter and Schmidhuber 1997)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsac.networks.initializers import Initializers
from tfsac.networks.layers import Value, functions_of, product
from tfsac.parameters import LSTMMiddlewareParameters
from tfsac.types import ArraySpec

HIDDEN, CELL = "hidden", "cell"  # fields of its state


class LSTM:
    """Keras's LSTM cell, for one step or for all steps of a segment. Its recurrent kernel starts orthogonal.

    Attributes:
        layer: the cell, with gates in Keras's order: input, forget, candidate, output.
        state: specs of its state by field.
    """

    def __init__(self, parameters: LSTMMiddlewareParameters, features: int, initializers: Initializers):
        orthogonal = Initializers("orthogonal", initializers.seeds)
        units = parameters.number_of_lstm_cells
        self.layer = keras.layers.LSTMCell(
            units, kernel_initializer=initializers.next(), recurrent_initializer=orthogonal.next(), name="lstm"
        )
        self.layer.build((None, features))
        self.state = {name: ArraySpec((units,), "float32") for name in (HIDDEN, CELL)}

    def unroll(
        self,
        features_TBF: tf.Tensor,
        initial_state: dict[str, tf.Tensor],
        is_first_TB: tf.Tensor,
        valid_TB: tf.Tensor,
        burn_in: int = 0,
    ) -> tf.Tensor:
        """Runs over sequences and returns the hidden state after every step past the burn-in, `[T - burn_in, B, H]`.

        Args:
            features_TBF, initial_state: inputs; state before the first step, `[B, H]` by field.
            is_first_TB: 1 where an episode starts and the state is reset, else 0.
            valid_TB: whether there is a step; otherwise the state does not change.
            burn_in: number of steps that only update the state: no gradient flows back into them.
        """
        cell = self.layer
        # The part of the gates that does not depend on the previous step is one product for all steps.
        gates_TBG = tf.tensordot(features_TBF, cell.kernel.value, 1) + cell.bias.value
        hidden_BH, memory_BH, hidden = initial_state[HIDDEN], initial_state[CELL], []
        rows = (gates_TBG, 1.0 - is_first_TB[..., None], valid_TB[..., None])
        # Unrolled, a step costs a third of what it costs in a graph loop.
        for t, (gates_BG, keep_B1, valid_B1) in enumerate(zip(*map(tf.unstack, rows), strict=True)):
            if 0 < t == burn_in:
                hidden_BH, memory_BH = tf.stop_gradient(hidden_BH), tf.stop_gradient(memory_BH)
            hidden_BH, memory_BH = keep_B1 * hidden_BH, keep_B1 * memory_BH
            hidden_now, memory_now = _through_gates(
                gates_BG + product(hidden_BH, cell.recurrent_kernel.value), memory_BH
            )
            hidden_BH, memory_BH = tf.where(valid_B1, hidden_now, hidden_BH), tf.where(valid_B1, memory_now, memory_BH)
            hidden.append(hidden_BH)
        return tf.stack(hidden[burn_in:])

    def arrays(self, x: np.ndarray, state: list[np.ndarray], value: Value) -> tuple[np.ndarray, list[np.ndarray]]:
        """Computes one step of the cell in NumPy; see `BodyLayer.forward`."""
        kernel, recurrent, bias = map(value, (self.layer.kernel, self.layer.recurrent_kernel, self.layer.bias))
        hidden, memory = _through_gates(x @ kernel + state[0] @ recurrent + bias, state[1])
        return hidden, [hidden, memory]


def _through_gates(gates_BG: Any, memory_BH: Any) -> tuple[Any, Any]:
    """Returns the next hidden and cell state, arrays or tensors."""
    functions = functions_of(gates_BG)
    i, f, candidate, o = functions.split(gates_BG, 4, axis=-1)
    memory_BH = functions.sigmoid(f) * memory_BH + functions.sigmoid(i) * functions.tanh(candidate)
    return functions.sigmoid(o) * functions.tanh(memory_BH), memory_BH
