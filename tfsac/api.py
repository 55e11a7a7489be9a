"""Functions for complete tasks: train, evaluate, record, plot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tfsac.environments import (
    EnvFn,
    action_map,
    as_arrays,
    checked,
    checked_action,
    maker,
    name_of_environment,
    spec_of,
)
from tfsac.environments.vector_env import FirstEnvironment
from tfsac.environments.video import check_display, write_video
from tfsac.errors import TfsacError
from tfsac.experiments import plots
from tfsac.exporting.loading import environment_of, load_policy, playing_environment
from tfsac.exporting.saving import export
from tfsac.memories import Demonstrations, TransitionMemory, action_bounds_of, save_demonstrations
from tfsac.networks import ModelMaker
from tfsac.parameters import EnvironmentEpisodes, EnvironmentParameters, Preset, RunParameters
from tfsac.random_streams import EVALUATION, episode_seed
from tfsac.training import Callback, Evaluation, Policy, Result, Trainer
from tfsac.training.evaluation import evaluate as run_episodes
from tfsac.training.evaluation import evaluate_policy
from tfsac.training.loggers import Logger
from tfsac.training.policy_weights import load_weights
from tfsac.types import ACTION_MASK, arrays_of, map_action
from tfsac.utils.files import new_file

AFTER_TRAINING = 1  # seed position of evaluations after training; those during training use environment steps


def train(
    preset: Preset | str | pathlib.Path,
    run_dir: str | pathlib.Path,
    run: RunParameters | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    initial_weights: str | pathlib.Path | None = None,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
    restore_memory: bool = False,
    loggers: Sequence[Logger | str] = (),
) -> Result:
    """Trains a preset, then plots the learning curve and exports the best policy as a SavedModel to the run's folder.

    Args:
        preset: a `Preset`, or a name or path for `tfsac.load_preset`.
        run_dir: a new folder, or one to resume.
        run: seed, checkpoints, strategy and so on; None for the defaults, or for those of the resumed run.
        resume: continue from the newest checkpoint in `run_dir`.
        callbacks: hooks into the loop.
        quiet: print nothing.
        initial_weights: run directory; training starts from its best weights. See docs/runs.md.
        env_fn: returns a new environment at each call, used instead of the preset's level; or a
            `gymnasium.vector.VectorEnv`, whose number of environments replaces `environment.num_envs=1`. It is called
            with `num_envs` if it has that argument. The run records only its name: pass the function again to resume
            the run, and to `load_policy` and `evaluate`. See docs/collection.md.
        models: returns custom Keras models, used instead of the preset's layers; pass it again as well. See
            docs/own_networks.md.
        restore_memory: also restore the replay memory of the run in `initial_weights`, and skip the warm-up.
        loggers: destinations of metrics besides metrics.csv, the terminal and TensorBoard: "wandb", "mlflow",
            "module:Class" or objects; see docs/callbacks.md.

    Example:
        >>> result = tfsac.train("pendulum_sac", "runs/arm", env_fn=lambda: gymnasium.make("Pendulum-v1", g=3.7))
        >>> policy = tfsac.load_policy("runs/arm", env_fn=lambda: gymnasium.make("Pendulum-v1", g=3.7))
    """
    arguments = preset, run_dir, run, resume, callbacks, quiet, initial_weights, env_fn, models
    return finish(Trainer(*arguments, restore_memory=restore_memory, loggers=loggers))


def finish(trainer: Trainer) -> Result:
    """Runs a trainer to its end, then plots the learning curve and exports the best policy."""
    directory, is_chief = trainer.directory, trainer._workers.task.is_chief
    with directory.lock if is_chief else contextlib.nullcontext():
        if is_chief and directory.policy.exists() and not trainer.schedule.finished():
            trainer.print(f"{directory.policy} will be exported again at the end.")
            # A run with an exported policy counts as finished. Renamed first, so that a kill leaves no part of it.
            shutil.rmtree(directory.policy.rename(directory.policy.with_name(f".policy.{os.getpid()}.tmp")))
        result = trainer.run()
        if is_chief and result.signal is None and trainer._evaluator.best_weights:
            load_weights(directory.best, trainer.agent, trainer.filters)
            export(trainer.policy, directory.policy, replace=True)
            with contextlib.suppress(TfsacError):  # no episode has ended
                plots.plot_run(directory.path)
            if trainer._evaluator.best_updates == 0:
                trainer.print("The exported policy is from before the first update (untrained or initial_weights).")
    return result


def play(
    parameters: EnvironmentParameters,
    run_in: Callable[[gym.Env, Callable[..., None]], Evaluation],
    seed: int,
    render: Literal["", "human"] = "",
    dump_mp4: str | pathlib.Path | None = None,
    plot_actions: str | pathlib.Path | None = None,
    env_fn: EnvFn | None = None,
) -> Evaluation:
    """Runs episodes in an environment, then writes the video and action plot of `evaluate`. `run_in` evaluates in an
    environment, with the seeds of `AFTER_TRAINING`, and calls its second argument after every step.
    """
    check_display(render)
    playing = parameters
    if render and env_fn is None:
        playing = dataclasses.replace(parameters, kwargs={**parameters.kwargs, "render_mode": render})
    steps: list[Any] = []
    with contextlib.closing(maker(playing, env_fn, to_play=True)()) as env:
        if (render or dump_mp4) and isinstance(env.unwrapped, FirstEnvironment):
            single = 'environment.vectorization="sync", or an env_fn of one environment'
            raise TfsacError(f"a VectorEnv is not drawn; use {single}")
        video = dump_mp4 and new_file(dump_mp4, ".mp4", ".gif")
        plot_path = plot_actions and new_file(plot_actions, ".png")
        evaluation = run_in(env, lambda _, action, *step: steps.append(action))
    ends = np.cumsum(evaluation.lengths).tolist()
    actions = [steps[end - length : end] for end, length in zip(ends, evaluation.lengths.tolist(), strict=True)]
    try:
        if video:
            seeds = [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(len(actions))]
            write_video(parameters, seeds, actions, video, env_fn, evaluation.returns.tolist())
        if plot_path:
            switched = None if evaluation.switched is None else evaluation.switched[: len(actions[0])]
            entries = [np.concatenate([np.ravel(x) for x in arrays_of(action)]) for action in actions[0]]
            plots.plot_actions(np.array(entries), plot_path, switched, f"{parameters.name}, one episode")
    except Exception as error:
        error.add_note(f"The mean return was {evaluation}.")
        raise
    return evaluation


def evaluate(
    run_dir: str | pathlib.Path,
    episodes: int = 10,
    deterministic: bool = True,
    seed: int = 0,
    render: Literal["", "human"] = "",
    dump_mp4: str | pathlib.Path | None = None,
    plot_actions: str | pathlib.Path | None = None,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
    step: int | None = None,
    last: bool = False,
    changes: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluates a run's best or last policy.

    Args:
        run_dir: the run's folder.
        episodes: number of episodes.
        deterministic: act with the policy's mode instead of samples.
        seed: seed of the episodes.
        render: "human" to open a window; an `env_fn` must make its environment with this `render_mode`.
        dump_mp4: a new .mp4 or .gif file for a video of the episodes; an `env_fn` needs `render_mode="rgb_array"`.
        plot_actions: a new .png file for a plot of the first episode's actions, and of where the policy switched.
        env_fn, models: the functions that the run was trained with, if any; or another env_fn, as in `load_policy`.
        step, last: as in `load_policy`.
        changes: changes to the run's environment, as for `tfsac.override`: {"environment.kwargs.g": 3.7}, or a path
            "environment.level". A line is printed if the environment is not that of training.

    Raises:
        TfsacError, OSError: as in `load_policy`; or the environment failed, or cannot be rendered here.

    Example:
        >>> tfsac.evaluate("runs/pendulum", episodes=20, changes={"environment.kwargs.g": 3.7}).returns.mean()
    """
    parameters = playing_environment(run_dir, env_fn, changes, quiet=False)

    def run_in(env: gym.Env, each_step: Callable[..., None]) -> Evaluation:
        stream = [seed, EVALUATION, AFTER_TRAINING]
        policy = load_policy(run_dir, models=models, step=step, last=last, seed=stream, spec=spec_of(env))
        number = EnvironmentEpisodes(episodes)
        return evaluate_policy(policy, env, number, deterministic, seed, AFTER_TRAINING, each_step)

    return play(parameters, run_in, seed, render, dump_mp4, plot_actions, env_fn).logging(parameters.logged_keys)


def record(
    run_dir: str | pathlib.Path,
    out: str | pathlib.Path,
    episodes: int = 10,
    deterministic: bool = True,
    seed: int = 0,
    env_fn: EnvFn | None = None,
    models: ModelMaker | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Demonstrations:
    """Records complete episodes of a run's best policy to a new .npz file and returns them: raw observations and
    rewards, and actions in [-1, 1] or numbered from 0. The other arguments are those of `evaluate`.

    Example:
        >>> tfsac.record("runs/pendulum", "expert.npz", episodes=20)
    """
    parameters = playing_environment(run_dir, env_fn, changes, quiet=False)
    with contextlib.closing(maker(parameters, env_fn, to_play=True)()) as env:
        stream = [seed, EVALUATION, AFTER_TRAINING]
        policy = load_policy(run_dir, models=models, seed=stream, spec=spec_of(env))
        new_file(out, ".npz")
        hooks = policy.reset, policy.observe
        recorded = demonstrate(lambda raw: policy.act(raw, deterministic), env, episodes, seed, *hooks)
    level = recorded.level if env_fn else parameters.name
    recorded = recorded._replace(level=level, visible_entries=parameters.visible_entries)
    save_demonstrations(out, recorded)
    return recorded


def demonstrate(
    act: Callable[[Any], Any],
    env: gym.Env,
    episodes: int = 10,
    seed: int = 0,
    begin: Callable[[], None] | None = None,
    observe: Callable[[float], None] | None = None,
) -> Demonstrations:
    """Plays complete episodes with any policy, script or person; `save_demonstrations` writes them to a file.

    Args:
        act: maps a raw observation of one environment to an action in the environment's units.
        env: an environment from `tfsac.environments.make`, or any other that the agents support.
        episodes, seed: number of episodes, and their seed.
        begin: called at every episode start, such as a policy's `reset`.
        observe: called with the reward after every step, such as a policy's `observe`.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> expert = tfsac.demonstrate(lambda observation: int(observation[2] + observation[3] > 0), env, episodes=10)
        >>> tfsac.save_demonstrations("expert.npz", expert)
    """
    env = checked(env)
    spec, level = spec_of(env), name_of_environment(env)
    inverse, steps = action_map(spec).inverse, list[tuple[Any, ...]]()

    def checked_act(observation: Any) -> Any:
        mask = observation[ACTION_MASK] if ACTION_MASK in spec.observation else None
        return checked_action("act returns", act(observation), spec.action, mask=mask)

    evaluation = run_episodes(
        checked_act,
        env,
        EnvironmentEpisodes(episodes),
        seed,
        AFTER_TRAINING,
        lambda *step: steps.append(step),
        begin,
        observe=observe,
    )

    def stored(action: Any) -> Any:
        return map_action(lambda x: x[None], inverse(action))

    def batch(observation: Any) -> dict[str, np.ndarray]:
        return {key: value[None] for key, value in as_arrays(observation, spec).items()}

    memory = TransitionMemory(spec._replace(num_rewards=None).unstacked(), len(steps))
    for observation, action, reward, terminated, truncated, next_observation in steps:
        outcome = np.array([reward], np.float32), np.array([terminated]), np.array([truncated])
        memory.add(batch(observation), stored(action), *outcome, batch(next_observation))
    return Demonstrations(memory.ring[:, 0], level, evaluation.returns, action_bounds=action_bounds_of(spec))


def plot(run_dir: str | pathlib.Path) -> plots.Picture:
    """Plots the learning curve of a run, even while it trains, to `learning_curve.png` in its folder.

    Example:
        >>> tfsac.plot("runs/pendulum")
    """
    return plots.Picture(plots.plot_run(run_dir))


def observations_of(run_dir: str | pathlib.Path, policy: Policy, env_fn: EnvFn | None = None) -> list[Any]:
    """Returns the raw observations of one episode in a run's environment, for verifying an export."""
    observations: list[Any] = []
    with contextlib.closing(environment_of(run_dir, env_fn)) as env:
        evaluate_policy(policy, env, EnvironmentEpisodes(1), each_step=lambda raw, *_: observations.append(raw))
    return observations
