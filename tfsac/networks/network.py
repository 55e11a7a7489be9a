"""One network: embedders by observation key, a merger, middleware, a head."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsac.errors import TfsacError
from tfsac.networks.bodies import middleware_layers
from tfsac.networks.custom_models import check_head, observations_of
from tfsac.networks.heads import FeaturesHead, Head, QHead, action_size
from tfsac.networks.initializers import Initializers
from tfsac.networks.layers import BodyLayer, ForwardMode, LayerCall, Mask, tensor
from tfsac.networks.lstm import CELL, HIDDEN, LSTM
from tfsac.networks.observations import embedder_layers, with_embedders
from tfsac.parameters import LSTMMiddlewareParameters, NetworkParameters, class_of, is_of_tfsac
from tfsac.types import ArraySpec, Spec, Tensors

Networks = Mapping[str, "Network"]  # by name


def layers_of(part: Any) -> Iterator[keras.layers.Layer]:
    """Yields the layers of a head, an LSTM, lists and dicts, including those inside tfsac's layers."""
    if isinstance(part, keras.layers.Layer):
        yield part
        yield from layers_of(getattr(part, "layers", []))
    elif isinstance(part, Head | LSTM):
        yield from layers_of(vars(part))
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from layers_of(inner)


class Network(tf.Module):
    """A Keras model of observations, a policy's state and, for Q, continuous actions; and the layers it consists of.

    It reads the observations that it has embedders for. A network with an LSTM also reads the LSTM's state, and returns
    the next state after the head's outputs.

    Args:
        name: name of the model.
        parameters: its layers and head.
        spec: observations and actions of one agent. Fields of a state are concatenated to the embedding, each through a
            linear layer of the embedding's width, or unchanged if an LSTM follows.
        seed: seed of the initial weights.
        model: a Keras model of all observations and state by key (and an action), replacing the parameters' layers.
        encoder: another network, whose embedders this one uses instead of its own.

    Attributes:
        model: the functional Keras model.
        embedders, state_embedders: layers by observation key, linear layers (or None) by field of the state.
        middleware, lstm, head: layers after the merger; no LSTM (None) without memory, no head for a given model.
        lstm_state: specs of the LSTM's state by field; empty for networks without one.
        head_model: the head as a Keras model of features (and an action).
        note: choices that the parameters left open; see `with_embedders`.

    Raises:
        TfsacError: embedders that do not fit the observations.
    """

    def __init__(
        self,
        name: str,
        parameters: NetworkParameters,
        spec: Spec,
        seed: int,
        model: keras.Model | None = None,
        encoder: Network | None = None,
    ):
        super().__init__(name=name)
        self.head: Head | None = None
        self.note, self.encoder = "", encoder
        self.embedders: dict[str, list[keras.Layer]] = {key: [] for key in spec.observation}
        self.state_embedders: dict[str, keras.layers.Dense | None] = dict.fromkeys(spec.state)
        self.middleware: list[keras.Layer] = []
        self.lstm: LSTM | None = None
        self.lstm_state: Mapping[str, ArraySpec] = {}
        self.head_model: Any = None
        if model is not None:
            self.model = model
            read = observations_of(model)
            if read is not None:  # a subclassed model gets everything
                self.embedders = {key: [] for key in spec.observation if key in read}
                self.state_embedders = {key: None for key in spec.state if key in read}
            return
        parameters, self.note = with_embedders(name, parameters, spec.observation)
        seeds = np.random.default_rng(seed)
        hidden = Initializers(parameters.initializer, seeds)
        self.merger = parameters.embedding_merger_type
        if encoder:
            self.embedders = encoder.embedders
        else:
            embedders = parameters.input_embedders_parameters.items()
            self.embedders = {key: embedder_layers(p, spec.observation[key], hidden) for key, p in embedders}
        self.middleware = middleware_layers(parameters.middleware_parameters, hidden)
        head = parameters.head_parameters
        self.head = class_of(head, Head)(head, spec, hidden, seeds)
        self.model = self._connect(name, parameters, spec, self.head, hidden)

    def _connect(
        self, name: str, parameters: NetworkParameters, spec: Spec, head: Head, hidden: Initializers
    ) -> keras.Model:
        inputs = {
            key: keras.Input(spec.observation[key].shape, dtype=spec.observation[key].dtype, name=key)
            for key in self.embedders
        }
        x = self.embed(inputs)
        for key, array in spec.state.items():
            inputs[key] = keras.Input(array.shape, dtype=array.dtype, name=key)
            if parameters.middleware_parameters.kind != "lstm":
                self.state_embedders[key] = keras.layers.Dense(
                    x.shape[-1], kernel_initializer=hidden.next(), name=f"{key}_embedding"
                )
        x = self._before_lstm(x, inputs)
        after: list[keras.KerasTensor] = []
        if isinstance(parameters.middleware_parameters, LSTMMiddlewareParameters):
            self.lstm = LSTM(parameters.middleware_parameters, x.shape[-1], hidden)
            self.lstm_state = self.lstm.state
            if reserved := sorted(self.lstm.state.keys() & inputs.keys()):
                raise TfsacError(f"Observations cannot have the keys of an LSTM's state, got {reserved}: rename them")
            inputs |= {key: keras.Input(array.shape, name=key) for key, array in self.lstm.state.items()}
            x, after = self.lstm.layer(x, [inputs[HIDDEN], inputs[CELL]])
        action = [keras.Input((action_size(spec),), name="action")] if head.judges_actions else []
        outputs = head(x, *action)
        if not isinstance(head, FeaturesHead):
            features = keras.Input((x.shape[-1],), name="features")
            self.head_model = keras.Model([features, *action], head(features, *action), name=f"{name}_head")
            if not is_of_tfsac(type(head)):
                check_head(name, self.head_model, parameters.head_parameters, spec)
        for layer in layers_of([self.embedders, self.state_embedders, self.middleware, self.lstm, head]):
            while layer.name in inputs or layer.name == "action":  # Keras needs unique names
                layer.name += "_layer"
        if after:
            outputs = [*(outputs if isinstance(outputs, list) else [outputs]), *after]
        return keras.Model([inputs, *action] if action else inputs, outputs, name=name)

    def embed(self, inputs: Mapping[str, Any], call: LayerCall = operator.call) -> Any:
        """Returns the merged embeddings; `call` computes the layers."""
        embedded = []
        for key, layers in self.embedders.items():
            x = inputs[key]
            for layer in layers:
                x = call(layer, x)
            embedded.append(x)
        return self._merged(embedded, self.merger)

    def _merged(self, parts: list[Any], merger: str) -> Any:
        if len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], np.ndarray):
            return np.sum(parts, axis=0) if merger == "sum" else np.concatenate(parts, axis=-1)
        if merger == "concat":
            return keras.layers.Concatenate()(parts)
        if len(widths := {part.shape[-1] for part in parts}) > 1:  # NumPy and Keras would broadcast a width of 1
            raise TfsacError(f"embedding_merger_type='sum' needs embeddings of equal widths, got {sorted(widths)}")
        return keras.layers.Add()(parts)

    def _before_lstm(self, x: Any, inputs: Mapping[str, Any], call: LayerCall = operator.call) -> Any:
        """Returns the middleware's output for embeddings and state."""
        if self.state_embedders:
            embedders = self.state_embedders.items()
            states = [inputs[key] if layer is None else call(layer, inputs[key]) for key, layer in embedders]
            x = self._merged([x, *states], "concat")
        for layer in self.middleware:
            x = call(layer, x)
        return x

    def advance(self, inputs: Mapping[str, Any], call: LayerCall = operator.call) -> list[Any]:
        """Returns the head's input in one step, `[B, F]`, and the next hidden and cell state of an LSTM."""
        x = self._before_lstm(self.embed(inputs, call), inputs, call)
        if self.lstm is None:
            return [x]
        x, after = call(self.lstm.layer, x, [inputs[HIDDEN], inputs[CELL]])
        return [x, *after]

    def features(
        self,
        observation: Tensors,
        initial_state: Tensors,
        is_first_TB: tf.Tensor,
        valid_TB: tf.Tensor,
        burn_in: int = 0,
    ) -> tf.Tensor:
        """Returns the head's inputs, `[T - burn_in, B, F]`, for sequences of observations and state `[T, B, ...]`; see
        `LSTM.unroll`.
        """
        read = (*self.embedders, *self.state_embedders)
        rows = {key: tf.reshape(observation[key], [-1, *observation[key].shape[2:]]) for key in read}
        features_RF = self._before_lstm(self.embed(rows), rows)
        features_TBF = tf.reshape(features_RF, [*is_first_TB.shape.as_list(), features_RF.shape[-1]])
        if self.lstm is None:
            return features_TBF[burn_in:]
        return self.lstm.unroll(features_TBF, dict(initial_state), is_first_TB, valid_TB, burn_in)

    def __call__(self, observation: Tensors, action: tf.Tensor | None = None) -> Any:
        """Returns the head's outputs for observations and state `[B, ...]` by key; other keys are ignored."""
        read = {key: observation[key] for key in (*self.embedders, *self.state_embedders, *self.lstm_state)}
        return self.model(read if action is None else [read, action])

    def compute(
        self,
        observation: Tensors,
        action: tf.Tensor | None = None,
        *,
        batch_statistics: bool,
        update_statistics: bool = False,
        dropout_mask: Mask | None = None,
        critic_indices: tf.Tensor | None = None,
    ) -> Any:
        """Like `__call__`, with options for normalisation and dropout, which custom models and heads ignore.

        Batch normalisation uses the statistics of this batch, which may update the running ones, or the running ones. A
        dropout mask covers the critics with these indices, `[M]`, or all; see `ForwardMode`.
        """
        if self.head is None or (action is not None and not isinstance(self.head, QHead)):
            outputs = self(observation, action)
            return outputs if critic_indices is None else tf.gather(outputs, critic_indices, axis=1)
        mode = ForwardMode(batch_statistics, {} if update_statistics else None, dropout_mask)

        def call(layer: keras.Layer, x: tf.Tensor) -> tf.Tensor:
            return layer.forward(x, tensor, mode) if isinstance(layer, BodyLayer) else layer(x)

        (x,) = self.advance(observation, call)
        if isinstance(self.head, QHead):
            outputs = self.head(x, action, lambda critics, x: critics.call(x, mode, critic_indices))
        else:
            outputs = self.head(x)
        for layer, moments in (mode.moments or {}).items():
            layer.update_statistics(moments)
        return outputs

    def copy_from(self, other: Network) -> None:
        """Copies the weights of a network with the same layers."""
        self.model.set_weights(other.model.get_weights())

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """Keras's trainable variables in a fixed order, including those of an encoder's embedders."""
        return list(self.model.trainable_variables)

    @property
    def variables(self) -> list[keras.Variable]:
        """Keras's variables, including those that gradients do not train: running statistics."""
        return list(self.model.weights)

    @property
    def own_variables(self) -> list[keras.Variable]:
        """The trainable variables without those of an encoder."""
        shared = {id(variable) for variable in self.encoder.trainable_variables} if self.encoder else set()
        return [variable for variable in self.trainable_variables if id(variable) not in shared]
