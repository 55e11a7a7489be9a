"""Custom Keras models: checks of what the user's function returns, before anything is trained or written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfsac.networks.heads import action_size
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    DiscreteQHeadParameters,
    EnsembleQHeadParameters,
    GaussianPolicyHeadParameters,
    HeadParameters,
    SACQHeadParameters,
    TrajectoryQHeadParameters,
    VHeadParameters,
    is_of_tfsac,
)
from tfsac.types import Spec
from tfsac.user_code import COLOURS

CRITICS = "N"  # in a shape: any number of critics
Shape = tuple[int | str | None, ...]


def check_models(
    made: Any, heads: Mapping[str, HeadParameters], specs: Mapping[str, Spec], earlier: Sequence[keras.Variable] = ()
) -> dict[str, keras.Model]:
    """Returns what a `models` function returned, if the agent can train it.

    Args:
        made: what it returned.
        heads: what each network computes, by name.
        specs: what each network reads, by name.
        earlier: variables of the models of earlier calls.

    Raises:
        TypeError, ValueError: no Keras models of these names, inputs or outputs of other shapes, or what
            `check_weights` says.
    """
    names = ", ".join(heads)
    if not isinstance(made, Mapping) or not all(isinstance(model, keras.Model) for model in made.values()):
        raise TypeError(f"models returns a dict with a new Keras model for each of {names}. Received: {made!r}")
    if made.keys() != heads.keys():
        raise ValueError(
            f"models returns a Keras model for each of {names}. Received: {', '.join(map(str, made)) or 'none'}"
        )
    for name, model in made.items():
        check_shapes(name, model, heads[name], specs[name])
    check_weights("models", made, earlier)
    return dict(made)


def check_shapes(name: str, model: keras.Model, head: HeadParameters, spec: Spec) -> None:
    """Refuses a model whose inputs or outputs are not those of the network whose place it takes.

    Args:
        name: of the network.
        model: of observations (and a policy's state) by key, and of an action where the head judges actions.
        head: what the network computes.
        spec: what it reads.

    Raises:
        ValueError: the message has the expected and the received shapes or dtypes.
    """
    judges = isinstance(head, SACQHeadParameters | EnsembleQHeadParameters | TrajectoryQHeadParameters)
    given = {
        key: keras.Input(array.shape, dtype=array.dtype, name=key)
        for key, array in (*spec.observation.items(), *spec.state.items())
    }
    action = [keras.Input(spec.action.shape, name="action")] if judges else []
    takes = getattr(model, "input", None)
    if takes is not None:
        read = observations_of(model)
        if read is None or not read.keys() <= given.keys() or judges == (read is takes):
            what = "[observations by key, actions]" if judges else "observations by key"
            raise ValueError(
                f"models: {name!r} takes {what}, such as {_example(spec, judges)}. Received: inputs {_shapes(takes)}"
            )
        given = {key: given[key] for key in read}
        for key, array in given.items():  # Keras converts silently, also floats to integers
            if not np.can_cast(array.dtype, str(read[key].dtype), "safe"):
                raise ValueError(
                    f"models: {name!r} takes {key!r} with the dtype {array.dtype}. Received: {read[key].dtype}"
                )
    inputs: Any = [given, *action] if judges else given
    if takes is not None and _shapes(takes) != _shapes(inputs):
        raise ValueError(f"models: {name!r} takes inputs of the shapes {_shapes(inputs)}. Received: {_shapes(takes)}")
    try:
        outputs = model(inputs)
    except Exception as error:
        message = " ".join(COLOURS.sub("", str(error)).split())
        raise ValueError(
            f"models: {name!r} cannot be called with inputs of the shapes {_shapes(inputs)}. Received: "
            f"{type(error).__name__}: {message}"
        ) from error
    check_outputs(f"models: {name!r}", outputs, head, spec)
    if other := {str(x.dtype) for x in keras.tree.flatten(outputs)} - {"float32"}:
        raise ValueError(
            f"models: {name!r} returns outputs of the dtype float32 (without keras.mixed_precision or another dtype of "
            f"the last layer). Received: {', '.join(sorted(other))}"
        )


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
        ValueError: the message has the expected and the received shapes.
    """
    expected, found = outputs_of(head, spec), _shapes(outputs)
    if not _fit(found, expected):
        raise ValueError(f"{what} returns outputs of the shapes {_text(expected)}. Received: {found}")


def outputs_of(head: HeadParameters, spec: Spec) -> Shape | list[Shape]:
    """Returns the shapes that a network with this head returns; "N" stands for any number of critics."""
    size = action_size(spec)
    if isinstance(head, VHeadParameters):
        return (None,)
    if isinstance(head, CategoricalPolicyHeadParameters):
        return (None, size)
    if isinstance(head, SACQHeadParameters):
        return (None, CRITICS)
    if isinstance(head, EnsembleQHeadParameters):
        return (None, head.num_critics, head.outputs) if head.distribution else (None, head.num_critics)
    if isinstance(head, DiscreteQHeadParameters):
        return (None, CRITICS, size)
    if isinstance(head, TrajectoryQHeadParameters):
        return (None, CRITICS, spec.num_rewards or 1)
    if isinstance(head, GaussianPolicyHeadParameters) and head.covariance == "spherical":
        return [(None, size), (None, 1)]
    return [(None, size), (None, size)]  # mean, and log standard deviation or variance


def _fit(found: Any, expected: Shape | list[Shape]) -> bool:
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(_fit, found, expected))
    return (
        isinstance(found, tuple)
        and len(found) == len(expected)
        and all((b != 0 and b is not None) if a == CRITICS else a == b for a, b in zip(expected, found, strict=True))
    )


def _shapes(value: Any) -> Any:
    """Returns the shapes of tensors in dicts and lists."""
    if isinstance(value, dict):
        return {key: _shapes(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_shapes(x) for x in value]
    return tuple(value.shape) if hasattr(value, "shape") else value


def _text(expected: Shape | list[Shape]) -> str:
    return str(expected).replace(f"'{CRITICS}'", CRITICS) + (f" with {CRITICS} critics" if CRITICS in expected else "")


def _example(spec: Spec, judges: bool) -> str:
    key, array = next(iter(spec.observation.items()))
    seen = f'{{"{key}": keras.Input({array.shape}, name="{key}")}}'
    return f"[{seen}, keras.Input({spec.action.shape})]" if judges else seen


def check_head(what: str, model: keras.Model, head: HeadParameters, spec: Spec) -> None:
    """Refuses a user's head that a network cannot end with.

    Args:
        what: the head, which begins the messages.
        model: of the head.
        head: what the network computes.
        spec: what it reads.

    Raises:
        ValueError: outputs of other shapes, regularizers, or variables that gradients do not train.
    """
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
        ValueError: no weights, weights that are not finite, regularizers, variables that gradients do not train, or
            weights that two models share.
    """
    owner = {id(variable): "an earlier call" for variable in earlier}
    names = " and ".join([", ".join([*models][:-1]), [*models][-1]])
    for name, model in models.items():
        if not model.trainable_variables:
            raise ValueError(f"{what}: {name} has no weights to train. Received: {model!r}")
        for variable in model.variables:
            if variable.dtype.startswith(("float", "bfloat")) and not np.isfinite(variable.numpy()).all():
                raise ValueError(f"{what}: {name} begins with weights that are not finite. Received: {variable.path!r}")
        check_gradients(f"{what}: {name}", model)
        for variable in model.variables:
            if id(variable) in owner:
                raise ValueError(
                    f"{what} makes new models at each call, and {names} share no weights. "
                    f"Received: {variable.path!r} of both {owner[id(variable)]} and {name}"
                )
        owner |= {id(variable): name for variable in model.variables}


def check_gradients(what: str, layer: keras.Layer) -> None:
    """Refuses what acts in another way than in Keras while a network is trained.

    Args:
        what: the model or head of the layer, which begins the messages.
        layer: or model, built.

    Raises:
        ValueError: regularizers, or variables that gradients do not train.
    """
    if layer.losses:
        raise ValueError(f"{what} has regularizers, whose losses are not added. Received: {layer.losses!r}")
    if layer.non_trainable_variables:
        raise ValueError(
            f"{what} has variables that gradients do not train (frozen layers, BatchNormalization, Dropout): layers "
            "always act as in inference, and target networks do not follow such variables. "
            f"Received: {layer.non_trainable_variables[0].path!r}"
        )
