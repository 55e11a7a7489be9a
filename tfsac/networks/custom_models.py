"""Checks custom Keras models from the user's function before anything is trained or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from tfsac.errors import TfsacError
from tfsac.networks.heads import action_size, judges_actions, outputs_of_critic
from tfsac.parameters import (
    CategoricalPolicyHeadParameters,
    GaussianPolicyHeadParameters,
    HeadParameters,
    HybridPolicyHeadParameters,
    QHeadParameters,
    VHeadParameters,
    is_of_tfsac,
)
from tfsac.types import Spec


def check_models(
    models: Any, heads: Mapping[str, HeadParameters], specs: Mapping[str, Spec], earlier: list[keras.Variable]
) -> dict[str, keras.Model]:
    """Returns the result of a `models` function if the agent can train it: by name, models of observations (and a
    policy's state) by key, and of an action if the head reads actions.

    Args:
        models, heads, specs: by name, the function's result, and each network's head and inputs.
        earlier: variables of models from earlier calls; the new ones are appended.

    Raises:
        TfsacError: no Keras models with these names, wrong output shapes, weights that two models share, regularizers,
            or variables that gradients do not train.
    """
    names_match = isinstance(models, Mapping) and models.keys() == heads.keys()
    if not names_match or not all(isinstance(model, keras.Model) for model in models.values()):
        raise TfsacError(
            f"models must return a dict with a new Keras model for each of {', '.join(heads)}, got {models}"
        )
    for name, model in models.items():
        check_outputs(f"models: {name!r}", model(_inputs(model, heads[name], specs[name])), heads[name], specs[name])
        check_gradients(f"models: {name!r}", model)
        variable_ids = {id(variable) for variable in model.variables}
        if not variable_ids.isdisjoint(map(id, earlier)) or not model.trainable_variables:
            raise TfsacError(f"models must make new weights for {name!r} at each call, not shared with other models")
        earlier += model.variables
    return dict(models)


def _inputs(model: keras.Model, head: HeadParameters, spec: Spec) -> Any:
    """Returns Keras inputs for what the model reads."""
    read = observations_of(model)
    observations = {
        key: keras.Input(array.shape, dtype=array.dtype, name=key)
        for key, array in {**spec.observation, **spec.state}.items()
        if read is None or key in read
    }
    judges = isinstance(head, QHeadParameters) and judges_actions(spec)
    return [observations, keras.Input((action_size(spec),), name="action")] if judges else observations


def observations_of(model: keras.Model) -> Any:
    """Returns the inputs of a functional model by key, without the action; None for a model that does not declare its
    inputs.
    """
    takes = getattr(model, "input", None)
    read = takes[0] if isinstance(takes, list | tuple) and len(takes) == 2 else takes
    return read if isinstance(read, dict) else None


def check_outputs(subject: str, outputs: Any, head: HeadParameters, spec: Spec) -> None:
    """Rejects outputs whose shapes do not fit the head; `subject` starts the message."""
    if isinstance(outputs, dict):
        raise TfsacError(f"{subject} must return outputs as a list, got a dict with the keys {list(outputs)}")
    received, size = [(*x.shape,) for x in keras.tree.flatten(outputs)], action_size(spec)
    expected: list[tuple[int | None, ...]] = [(None, size), (None, size)]  # mean, and log deviation or variance
    if isinstance(head, VHeadParameters):
        expected = [(None,)]
    elif isinstance(head, CategoricalPolicyHeadParameters):
        expected = [(None, size)]
    elif isinstance(head, HybridPolicyHeadParameters):
        sizes: Any = getattr(spec.action, "sizes", ())
        expected = [(None, sum(sizes))] * bool(sizes) + expected * bool(size)
    elif isinstance(head, QHeadParameters):
        critics = head.num_critics
        if critics <= 2 and head.distribution is None and len(received[0]) > 1:
            critics = received[0][1]  # any number
        expected = [(None, critics, *outputs_of_critic(head, spec))]
    elif isinstance(head, GaussianPolicyHeadParameters) and head.covariance == "spherical":
        expected = [(None, size), (None, 1)]
    if received != expected:
        raise TfsacError(f"{subject} must return outputs of the shapes {expected}, got {received}")


def check_head(name: str, model: keras.Model, head: HeadParameters, spec: Spec) -> None:
    """Rejects a user's head, given as a Keras model, that a network cannot end with; see `check_models`."""
    subject = f"The head of network {name!r}"
    check_outputs(subject, model.output, head, spec)
    for layer in model.layers:
        if not is_of_tfsac(type(layer)):  # agents handle the running statistics of those
            check_gradients(subject, layer)


def check_gradients(subject: str, layer: keras.Layer) -> None:
    """Rejects regularizers, and variables that gradients do not train: updates would ignore them."""
    if layer.losses or layer.non_trainable_variables:
        part = "regularizers" if layer.losses else layer.non_trainable_variables[0].path
        raise TfsacError(
            f"{subject} must have no regularizers and no variables that gradients do not train (frozen layers, "
            f"BatchNormalization, Dropout), which would act differently than in Keras, got {part}"
        )
