"""Custom Keras models: what an `actor_critic` function returns, checked and joined as the agent wants them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import keras

from tfsac.networks import ModelMaker, check_weights
from tfsac.types import Spec
from tfsac.user_code import calling

ActorCritic = Callable[..., Sequence[keras.Model]]
NAMES = ("policy", "q1", "q2")


def mlp_actor_critic(
    observation_space: gym.spaces.Box,
    action_space: gym.spaces.Box,
    hidden_sizes: Sequence[int] = (256, 256),
    activation: str = "relu",
) -> tuple[keras.Model, keras.Model, keras.Model]:
    """Returns dense networks of the flattened observation; see `tfsac.sac` for what an `actor_critic` is.

    `tfsac.sac` knows this function and takes the package's own networks of the same layers instead, which act in NumPy.

    Args:
        observation_space: a box `[...]`.
        action_space: a box `[A]`.
        hidden_sizes: widths of the hidden layers of each network.
        activation: after every hidden layer.

    Returns:
        policy: observations `[B, ...]` to mean and log standard deviation, `[B, A]` each.
        q1, q2: [observations `[B, ...]`, actions `[B, A]`] to `[B, 1]`.
    """

    def hidden(x: keras.KerasTensor) -> keras.KerasTensor:
        for width in hidden_sizes:
            x = keras.layers.Dense(width, activation)(x)
        return x

    def q() -> keras.Model:
        observation, action = keras.Input(observation_space.shape), keras.Input(action_space.shape)
        x = keras.layers.Concatenate()([keras.layers.Flatten()(observation), action])
        return keras.Model([observation, action], keras.layers.Dense(1)(hidden(x)))

    observation, size = keras.Input(observation_space.shape), action_space.shape[0]
    features = hidden(keras.layers.Flatten()(observation))
    policy = keras.Model(observation, [keras.layers.Dense(size)(features), keras.layers.Dense(size)(features)])
    return policy, q(), q()


def model_maker(
    actor_critic: ActorCritic,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    ac_kwargs: Mapping[str, Any],
    spec: Spec,
    seed: int,
) -> ModelMaker:
    """Returns what the agent calls for its networks, and again for its target networks: each time new models.

    Args:
        actor_critic: see `tfsac.sac`.
        observation_space, action_space, ac_kwargs: its arguments.
        spec: of the same environment.
        seed: of Python's, NumPy's and Keras's random numbers at each call.

    Returns:
        a function without arguments that returns `policy`, and `q`: [observations by key, actions] to `[B, 2]`. It
        raises ValueError for models that cannot be trained together.
    """
    earlier: list[keras.Variable] = []

    @functools.wraps(actor_critic)  # a run's config names the user's function
    def make() -> dict[str, keras.Model]:
        keras.utils.set_random_seed(seed)
        with calling("actor_critic"):
            models = actor_critic(observation_space, action_space, **ac_kwargs)
        if not (
            isinstance(models, tuple | list) and len(models) == 3 and all(isinstance(m, keras.Model) for m in models)
        ):
            raise ValueError(f"actor_critic returns three Keras models: policy, q1, q2. Received: {models!r}")
        joined = _joined(models, spec)
        check_weights("actor_critic", dict(zip(NAMES, models, strict=True)), earlier)
        earlier.extend(variable for model in models for variable in model.variables)
        return joined

    return make


def _joined(models: Sequence[keras.Model], spec: Spec) -> dict[str, keras.Model]:
    """Returns the policy, and both critics as one model, with observations as a dict."""
    array, size = spec.observation["observation"], spec.action.shape[0]
    observation = keras.Input(array.shape, dtype=array.dtype, name="observation")
    action = keras.Input((size,), name="action")
    policy, q1, q2 = models
    for name, model in zip(NAMES, models, strict=True):
        model.name = f"tfsac_{name}"  # as parts of one model they need different names
    outputs = _called("policy", policy, observation, "observations")
    shapes = [tuple(x.shape) for x in outputs] if isinstance(outputs, tuple | list) else tuple(outputs.shape)
    if shapes != [(None, size)] * 2:
        raise ValueError(
            f"actor_critic's policy returns (mean, log_std), each of shape (None, {size}). Received: {shapes}"
        )
    values = [
        _called(name, q, [observation, action], "[observations, actions]") for name, q in (("q1", q1), ("q2", q2))
    ]
    for name, value in zip(NAMES[1:], values, strict=True):
        shape = tuple(value.shape) if hasattr(value, "shape") else value
        if shape not in ((None,), (None, 1)):
            raise ValueError(f"actor_critic's {name} returns values of shape (None,) or (None, 1). Received: {shape}")
    both = keras.layers.Concatenate()([keras.layers.Reshape((1,))(value) for value in values])
    observations = {"observation": observation}
    return {"policy": keras.Model(observations, list(outputs)), "q": keras.Model([observations, action], both)}


def _called(name: str, model: keras.Model, inputs: Any, what: str) -> Any:
    try:
        return model(inputs)
    except Exception as error:
        shapes = [tuple(x.shape) for x in inputs] if isinstance(inputs, list) else tuple(inputs.shape)
        raise ValueError(
            f"actor_critic's {name} cannot be called with {what} of shape {shapes}. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
