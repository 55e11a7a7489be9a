"""Custom Keras models: checks of what the user's function returns, before anything is trained or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfsac.errors import TfsacError
from tfsac.networks.heads import action_size, outputs_of_critic
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    GaussianPolicyHeadParameters,
    HeadParameters,
    QHeadParameters,
    VHeadParameters,
    is_of_tfsac,
)
from tfsac.types import DiscreteSpec, Spec

CRITICS = "N"  # in a shape: any number of critics
Shape = tuple[int | str | None, ...]


def check_models(
    models: Any, heads: Mapping[str, HeadParameters], specs: Mapping[str, Spec], earlier: Sequence[keras.Variable] = ()
) -> dict[str, keras.Model]:
    """Returns what a `models` function returned, if the agent can train it.

    Args:
        models: what it returned.
        heads: what each network computes, by name.
        specs: what each network reads, by name.
        earlier: variables of the models of earlier calls.

    Raises:
        TfsacError: no Keras models of these names, inputs or outputs of other shapes, or what `check_weights` says.
    """
    names_match = isinstance(models, Mapping) and models.keys() == heads.keys()
    if not names_match or not all(isinstance(model, keras.Model) for model in models.values()):
        raise TfsacError(
            f"models must return a dict with a new Keras model for each of {', '.join(heads)}, got {models}"
        )
    for name, model in models.items():
        check_shapes(name, model, heads[name], specs[name])
    check_weights("models", models, earlier)
    return dict(models)


def check_shapes(name: str, model: keras.Model, head: HeadParameters, spec: Spec) -> None:
    """Refuses a model whose inputs or outputs are not those of the network whose place it takes.

    Args:
        name: of the network.
        model: of observations (and a policy's state) by key, and of an action where the head judges actions.
        head: what the network computes.
        spec: what it reads.

    Raises:
        TfsacError: the message has the expected and the received shapes or dtypes.
    """
    judges = isinstance(head, QHeadParameters) and not isinstance(spec.action, DiscreteSpec)
    observations = {
        key: keras.Input(array.shape, dtype=array.dtype, name=key)
        for key, array in (*spec.observation.items(), *spec.state.items())
    }
    action = [keras.Input(spec.action.shape, name="action")] if judges else []
    takes, read = getattr(model, "input", None), observations_of(model)
    if read is not None and read.keys() <= observations.keys() and judges == (read is not takes):
        observations = {key: observations[key] for key in read}
    inputs: Any = [observations, *action] if judges else observations
    if takes is not None and _shapes(takes) != _shapes(inputs):
        raise TfsacError(
            f"models: {name!r} must take {'[observations by key, actions]' if judges else 'observations by key'} of "
            f"the shapes {_shapes(inputs)}, got {_shapes(takes)}"
        )
    for key, array in (read or {}).items():  # Keras converts silently, also floats to integers
        if not np.can_cast(observations[key].dtype, str(array.dtype), "safe"):
            raise TfsacError(f"models: {name!r} must take {key!r} as {observations[key].dtype}, got {array.dtype}")
    outputs = model(inputs)
    check_outputs(f"models: {name!r}", outputs, head, spec)
    if wrong_dtypes := {str(x.dtype) for x in keras.tree.flatten(outputs)} - {"float32"}:
        raise TfsacError(f"models: {name!r} must return float32, got {', '.join(sorted(wrong_dtypes))}")


def observations_of(model: keras.Model) -> Any:
    """Returns the inputs of a functional model that are no action, by key; None for a model that does not say what
    it reads.
    """
    takes = getattr(model, "input", None)
    read = takes[0] if isinstance(takes, list | tuple) and len(takes) == 2 else takes
    return read if isinstance(read, dict) else None


def check_outputs(what: str, outputs: Any, head: HeadParameters, spec: Spec) -> None:
    """Refuses outputs of other shapes than the head's network returns; `what` begins the message.

    Raises:
        TfsacError: the message has the expected and the received shapes.
    """
    expected, received = outputs_of(head, spec), _shapes(outputs)
    if not _fit(received, expected):
        raise TfsacError(
            f"{what} must return outputs of the shapes {str(expected).replace(repr('N'), 'N')}, got {received}"
        )


def outputs_of(head: HeadParameters, spec: Spec) -> Shape | list[Shape]:
    """Returns the shapes that a network with this head returns; "N" stands for any number of critics."""
    size = action_size(spec)
    if isinstance(head, VHeadParameters):
        return (None,)
    if isinstance(head, CategoricalPolicyHeadParameters):
        return (None, size)
    if isinstance(head, QHeadParameters):
        fixed = head.num_critics > 2 or head.distribution is not None
        return (None, head.num_critics if fixed else CRITICS, *outputs_of_critic(head, spec))
    if isinstance(head, GaussianPolicyHeadParameters) and head.covariance == "spherical":
        return [(None, size), (None, 1)]
    return [(None, size), (None, size)]  # mean, and log standard deviation or variance


def _fit(received: Any, expected: Shape | list[Shape]) -> bool:
    if isinstance(expected, list):
        return isinstance(received, list) and len(received) == len(expected) and all(map(_fit, received, expected))
    return (
        isinstance(received, tuple)
        and len(received) == len(expected)
        and all((b != 0 and b is not None) if a == CRITICS else a == b for a, b in zip(expected, received, strict=True))
    )


def _shapes(value: Any) -> Any:
    """Returns the shapes of tensors in dicts and lists."""
    if isinstance(value, dict):
        return {key: _shapes(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_shapes(x) for x in value]
    return tuple(value.shape) if hasattr(value, "shape") else value


def check_head(name: str, model: keras.Model, head: HeadParameters, spec: Spec) -> None:
    """Refuses a user's head that a network cannot end with.

    Args:
        name: of the network.
        model: of the head.
        head: what the network computes.
        spec: what it reads.

    Raises:
        TfsacError: outputs of other shapes, regularizers, or variables that gradients do not train.
    """
    what = f"The head of network {name!r}"
    check_outputs(what, model.output, head, spec)
    for layer in model.layers:
        if not is_of_tfsac(type(layer)):  # those have running statistics that agents know
            check_gradients(what, layer)


def check_weights(what: str, models: Mapping[str, keras.Model], earlier: Sequence[keras.Variable]) -> None:
    """Refuses models that an agent could not train one by one, copy and export.

    Args:
        what: the function that made them, which begins the messages.
        models: by name, built.
        earlier: variables of the models of earlier calls.

    Raises:
        TfsacError: weights that two models share, regularizers, or variables that gradients do not train.
    """
    seen = {id(variable) for variable in earlier}
    for name, model in models.items():
        check_gradients(f"{what}: {name!r}", model)
        own = {id(variable) for variable in model.variables}
        if own & seen or not model.trainable_variables:
            raise TfsacError(f"{what} must make new weights for {name!r} at each call, shared with no other model")
        seen |= own


def check_gradients(what: str, layer: keras.Layer) -> None:
    """Refuses what acts in another way than in Keras while a network is trained.

    Args:
        what: the model or head of the layer, which begins the messages.
        layer: or model, built.

    Raises:
        TfsacError: regularizers, or variables that gradients do not train.
    """
    if layer.losses or layer.non_trainable_variables:
        found = "regularizers" if layer.losses else layer.non_trainable_variables[0].path
        raise TfsacError(
            f"{what} must have no regularizers and no variables that gradients do not train (frozen layers, "
            f"BatchNormalization, Dropout), which would act in another way than in Keras, got {found}"
        )
