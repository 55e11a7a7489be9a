"""Custom Keras models: what an `actor_critic` function returns, joined as the agent wants them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import keras

from tfsac.networks import ModelMaker
from tfsac.types import Spec

ActorCritic = Callable[..., Sequence[keras.Model]]


def mlp_actor_critic(
    observation_space: gym.spaces.Box,
    action_space: gym.spaces.Box,
    hidden_sizes: Sequence[int] = (256, 256),
    activation: str = "relu",
) -> tuple[keras.Model, keras.Model, keras.Model]:
    """Returns dense networks of the flattened observation: an example of an `actor_critic` of `tfsac.sac`.

    `tfsac.sac` takes the package's own networks of the same layers in its place, which act in NumPy.

    Returns:
        policy: observations `[B, ...]` to mean and log standard deviation before tanh, `[B, A]` each.
        q1, q2: [observations `[B, ...]`, actions `[B, A]` in [-1, 1]] to `[B, 1]`, or to `[B]`.

    Example:
        >>> policy, q1, q2 = tfsac.mlp_actor_critic(env.observation_space, env.action_space, (64, 64), "tanh")
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
    """Returns what makes the agent's networks, and its target networks, with the same weights at every call: `policy`,
    and `q`: [observations by key, actions] to `[B, 2]`.
    """

    @functools.wraps(actor_critic)  # a run's config names the user's function
    def make() -> dict[str, keras.Model]:
        keras.utils.set_random_seed(seed)
        policy, q1, q2 = actor_critic(observation_space, action_space, **ac_kwargs)
        for name, model in (("policy", policy), ("q1", q1), ("q2", q2)):
            model.name = f"tfsac_{name}"  # as parts of one model they need different names
        array = spec.observation["observation"]
        observation = keras.Input(array.shape, dtype=array.dtype, name="observation")
        action = keras.Input(action_space.shape, name="action")
        mean, log_std = policy(observation)
        values = [keras.layers.Reshape((1,))(q([observation, action])) for q in (q1, q2)]
        observations = {"observation": observation}
        return {
            "policy": keras.Model(observations, [mean, log_std]),
            "q": keras.Model([observations, action], keras.layers.Concatenate()(values)),
        }

    return make
