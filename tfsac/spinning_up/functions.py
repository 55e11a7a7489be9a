"""Spinning Up's functions: `sac`, which trains a policy for an environment, its networks, and `test_policy`."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import keras
from pydantic_core import to_jsonable_python

from tfsac.api import finish
from tfsac.cards.card import Card
from tfsac.environments import make, maker, spec_of
from tfsac.environments.checked_env import time_limit_of
from tfsac.errors import TfsacError
from tfsac.exporting.exported import load_exported
from tfsac.networks import ModelMaker
from tfsac.parameters import EnvironmentParameters, networks_made_by, to_json
from tfsac.spinning_up.epochs import BarOnly, EpochLog
from tfsac.spinning_up.sac_arguments import SpinningUpArguments
from tfsac.training import Evaluation, Result, RunDirectory, Trainer
from tfsac.utils.files import new_run_dir
from tfsac.utils.imports import name_of

ActorCritic = Callable[..., Sequence[keras.Model]]


def mlp_actor_critic(
    observation_space: gym.spaces.Box,
    action_space: gym.spaces.Box,
    hidden_sizes: Sequence[int] = (256, 256),
    activation: str = "relu",
) -> tuple[keras.Model, keras.Model, keras.Model]:
    """Returns dense networks of the flattened observation: an example of an `actor_critic` for `tfsac.sac`.

    `tfsac.sac` replaces this function by tfsac's own networks with the same layers, which act in NumPy.

    Returns:
        policy: observations `[B, ...]` to mean and log standard deviation before tanh, each `[B, A]`.
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


def sac(
    env_fn: Callable[[], gym.Env],
    actor_critic: ActorCritic = mlp_actor_critic,
    ac_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    steps_per_epoch: int = 4000,
    epochs: int = 100,
    replay_size: int = int(1e6),
    gamma: float = 0.99,
    polyak: float = 0.995,
    lr: float = 1e-3,
    alpha: float = 0.2,
    batch_size: int = 100,
    start_steps: int = 10000,
    update_after: int = 1000,
    update_every: int = 50,
    num_test_episodes: int = 10,
    max_ep_len: int = 1000,
    logger_kwargs: Mapping[str, Any] | None = None,
    save_freq: int = 1,
) -> Result:
    """Trains soft actor-critic with Spinning Up's names, defaults and update rule.

    Every epoch ends with a test of the deterministic policy, a table in the terminal and a row in progress.txt. The run
    directory also contains all files of `tfsac.train`. The same call with `resume` continues an interrupted run from
    its last checkpoint, optionally for more epochs.

    Args:
        env_fn: returns a new environment at each call, with a `Box` of observations (not a `Dict`) and of actions. For
            `functools.partial(gymnasium.make, "Hopper-v5")` the config has the level; other functions are not saved.
        actor_critic: creates the networks, like `mlp_actor_critic`; see docs/coming_from_spinning_up.md.
        ac_kwargs: passed to `actor_critic`; for the default, hidden_sizes (256, 256) and activation "relu".
        max_ep_len: steps after which an episode is truncated; the target still bootstraps there. A shorter time limit
            of the environment itself still applies.
        logger_kwargs: output_dir, a new or empty folder (default runs/<exp_name>/<time>-seed<seed>); exp_name, for
            plots (default "sac"); resume, see above.
        seed, steps_per_epoch, epochs, replay_size, gamma, polyak, lr: see `SpinningUpArguments`.
        alpha, batch_size, start_steps, update_after, update_every, num_test_episodes, save_freq: see there.

    Raises:
        TfsacError, OSError: see `tfsac.train`; also if an argument is out of range.

    Example:
        >>> tfsac.sac(lambda: gymnasium.make("Pendulum-v1"), ac_kwargs={"hidden_sizes": (64,)}, epochs=5)
    """
    call_arguments = locals()
    names = [field.name for field in dataclasses.fields(SpinningUpArguments)]
    arguments = SpinningUpArguments(**{name: call_arguments[name] for name in names})
    output_dir, exp_name, resume = _logger_arguments(**(logger_kwargs or {}))
    (env := maker(EnvironmentParameters(), env_fn)()).close()
    spaces = env.observation_space, env.action_space
    if not all(isinstance(space, gym.spaces.Box) for space in spaces):
        advice = "gymnasium.wrappers.FlattenObservation converts a Dict"
        raise TfsacError(f"sac needs Boxes of observations and actions ({advice}), got {spaces}")
    level = None
    if isinstance(env_fn, functools.partial) and env_fn.func in (make, gym.make) and not env_fn.keywords:
        level = str(env_fn.args[0])
    limit = min(max_ep_len, time_limit_of(env) or max_ep_len)
    environment = EnvironmentParameters(level or EnvironmentParameters.level, max_episode_steps=limit)
    ac_kwargs, models = dict(ac_kwargs or {}), None
    recorded_kwargs = to_jsonable_python(ac_kwargs, fallback=lambda x: x.tolist() if hasattr(x, "tolist") else repr(x))
    if actor_critic is mlp_actor_critic:
        preset = arguments.preset(environment, **ac_kwargs)
    else:
        preset = arguments.preset(environment)
        call = f"{name_of(getattr(actor_critic, 'func', actor_critic))}({json.dumps(recorded_kwargs, sort_keys=True)})"
        networks = networks_made_by(call, preset.agent.networks)
        preset = dataclasses.replace(preset, agent=dataclasses.replace(preset.agent, networks=networks))
        models = model_maker(actor_critic, env, ac_kwargs, seed)
    functions = {"env_fn": name_of(env_fn), "actor_critic": name_of(actor_critic), "ac_kwargs": recorded_kwargs}
    trainer = Trainer(
        preset,
        output_dir or new_run_dir(exp_name, seed),
        arguments.run_parameters(),
        resume,
        [EpochLog({"exp_name": exp_name, **functions, **to_json(arguments)})],
        env_fn=env_fn if level is None else None,
        models=models,
        terminal=BarOnly,
    )
    folder = trainer.directory.path
    trainer.resume_command = f"the same call of sac (or tfsac spinup) with resume=True (--resume), in {folder}"
    return finish(trainer)


def _logger_arguments(
    output_dir: str | pathlib.Path | None = None, exp_name: str = "sac", resume: bool = False
) -> tuple[str | pathlib.Path | None, str, bool]:
    return output_dir, exp_name, resume


def model_maker(actor_critic: ActorCritic, env: gym.Env, ac_kwargs: Mapping[str, Any], seed: int) -> ModelMaker:
    """Returns a function that creates the agent's networks and target networks, with the same weights at every call:
    `policy`, and `q`: [observations by key, actions] to `[B, 2]`.
    """

    @functools.wraps(actor_critic)  # a run's config names the user's function
    def make() -> dict[str, keras.Model]:
        keras.utils.set_random_seed(seed)
        policy, q1, q2 = actor_critic(env.observation_space, env.action_space, **ac_kwargs)
        for name, model in (("policy", policy), ("q1", q1), ("q2", q2)):
            model.name = f"tfsac_{name}"  # parts of one model need distinct names
        array = spec_of(env).observation["observation"]
        observation = keras.Input(array.shape, dtype=array.dtype, name="observation")
        action = keras.Input(env.action_space.shape, name="action")
        mean, log_std = policy(observation)
        values = [keras.layers.Reshape((1,))(q([observation, action])) for q in (q1, q2)]
        observations = {"observation": observation}
        return {
            "policy": keras.Model(observations, [mean, log_std]),
            "q": keras.Model([observations, action], keras.layers.Concatenate()(values)),
        }

    return make


def test_policy(
    run_dir: str | pathlib.Path,
    env_fn: Callable[[], gym.Env] | None = None,
    episodes: int = 100,
    deterministic: bool = True,
    max_ep_len: int | None = None,
    render: bool = False,
) -> Evaluation:
    """Runs the exported policy of a run and prints return and length of each episode, and their means.

    The function that created the networks is not needed. The episodes start with the same seeds at every call.

    Args:
        run_dir: folder of a finished run.
        env_fn: creates the environment, as in `tfsac.sac`; None uses the run's level.
        episodes, deterministic: as in `tfsac.evaluate`.
        max_ep_len: steps after which an episode is cut off; None for the run's own limit.
        render: open a window; an `env_fn` must then create its environment with `render_mode="human"`.

    Example:
        >>> tfsac.test_policy("runs/sac/20250101-120000-seed0", lambda: gymnasium.make("Pendulum-v1"), episodes=3)
    """
    directory = RunDirectory(run_dir)
    environment = directory.read()[0].environment
    limit = max_ep_len or environment.max_episode_steps
    make_env = (lambda: gym.wrappers.TimeLimit(env_fn(), limit)) if env_fn and limit else env_fn
    environment = dataclasses.replace(environment, max_episode_steps=limit)
    card = Card(directory.path, load_exported(directory.policy), environment, {})
    evaluation = card.evaluate(episodes, deterministic, render="human" if render else "", env_fn=make_env)
    for i, (total, length) in enumerate(zip(evaluation.returns, evaluation.lengths, strict=True)):
        print(f"episode {i:<3}return {total:10.2f}  length {length:5}")
    print(f"mean       return {evaluation.returns.mean():10.2f}  length {evaluation.lengths.mean():7.1f}")
    return evaluation


test_policy.__test__ = False  # type: ignore[attr-defined]  # otherwise pytest collects it wherever it is imported
