"""Whole tasks in one call each: train, load, evaluate, record. The command line does nothing else."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from tfsac.environments import Filters, action_map, as_arrays, check, episode_seed, maker, spec_of
from tfsac.environments.film import write_film
from tfsac.environments.vector_rewards import VectorRewards, has_vector_rewards
from tfsac.environments.vectorize import EVALUATION
from tfsac.exporting import export
from tfsac.files import new_file
from tfsac.memories import Demonstrations, TransitionMemory, save_demonstrations
from tfsac.parameters import EnvironmentEpisodes, Preset, RunParameters
from tfsac.training import Callback, Evaluation, Policy, Result, RunDirectory, Trainer
from tfsac.training.build import build_agent
from tfsac.training.evaluation import evaluate as run_episodes
from tfsac.training.evaluation import evaluate_policy
from tfsac.training.weights import load_weights
from tfsac.types import Spec

AFTER_TRAINING = 1  # where evaluations after training take their seeds from; a run's own count environment steps


def train(
    preset: Preset,
    run_dir: str | pathlib.Path,
    run: RunParameters | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
) -> Result:
    """Trains a preset; afterwards the run's folder has its learning curve and its best policy as a SavedModel.

    Args:
        preset: the experiment; see `tfsac.load_preset`.
        run_dir: a new folder, or one to continue.
        run: seed, checkpoints, strategy and so on.
        resume: continue from the newest checkpoint in `run_dir`.
        callbacks: hooks into the loop.
        quiet: print nothing.

    Returns:
        how it ended and how well.

    Raises:
        as `Trainer` and `Trainer.run`.
    """
    return finish(Trainer(preset, run_dir, run, resume, callbacks, quiet))


def finish(trainer: Trainer) -> Result:
    """Runs a trainer to its end, then draws the curve and exports the best policy."""
    result = trainer.run()
    if result.signal is None and result.best_return is not None:
        from tfsac.analysis import plot_run

        directory = trainer.directory
        plot_run(directory.path)
        load_weights(directory.best, trainer.agent, trainer.filters)
        shutil.rmtree(directory.policy, ignore_errors=True)  # of a run that was resumed after it had ended
        export(trainer.policy, directory.policy)
    return result


def load_policy(run_dir: str | pathlib.Path) -> Policy:
    """Loads the best policy of a run.

    Raises:
        FileNotFoundError: no run there, or one without an evaluation yet.
        ValueError, ImportError: the run's files are damaged, or its environment cannot be made.
    """
    directory = RunDirectory(pathlib.Path(run_dir))
    preset, run = directory.read()
    env = environment_of(run_dir)
    spec = spec_of(env)
    env.close()
    filters = Filters(preset.environment.filters, spec)
    agent = build_agent(preset, run, spec)
    load_weights(directory.best, agent, filters)
    return Policy(agent, filters)


def environment_of(run_dir: str | pathlib.Path, **kwargs: Any) -> gym.Env:
    """Makes the environment of a run; `kwargs` go to `gymnasium.make`, or to the PettingZoo environment."""
    parameters = RunDirectory(pathlib.Path(run_dir)).read()[0].environment
    return maker(dataclasses.replace(parameters, kwargs={**parameters.kwargs, **kwargs}))()


def evaluate(
    run_dir: str | pathlib.Path,
    episodes: int = 10,
    deterministic: bool = True,
    seed: int = 0,
    render: Literal["", "human"] = "",
    dump_mp4: str | pathlib.Path | None = None,
    plot_actions: str | pathlib.Path | None = None,
) -> Evaluation:
    """Evaluates the best policy of a run.

    Args:
        run_dir: of the run.
        episodes: how many.
        deterministic: the policy's mode instead of samples.
        seed: of the episodes.
        render: "human" to open a window.
        dump_mp4: a new .mp4 or .gif file for a film of the episodes.
        plot_actions: a new .png file for a picture of the first episode's actions, and of where it switched.

    Returns:
        returns and lengths of the episodes.

    Raises:
        as `load_policy` and `write_film`; ValueError: fewer than one episode.
    """
    if episodes < 1:
        raise ValueError(f"episodes is at least 1. Received: {episodes}")
    if dump_mp4:
        new_file(dump_mp4, ".mp4", ".gif")
    if plot_actions:
        new_file(plot_actions, ".png")
    policy = load_policy(run_dir)
    env = environment_of(run_dir, **({"render_mode": render} if render else {}))
    actions: list[np.ndarray] = []
    try:
        done = evaluate_policy(
            policy,
            env,
            EnvironmentEpisodes(episodes),
            deterministic,
            seed,
            AFTER_TRAINING,
            lambda observation, action, *step: actions.append(action),
        )
    finally:
        env.close()
    if plot_actions:
        from tfsac import analysis

        first = int(done.lengths[0])
        switched = None if done.switched is None else done.switched[:first]
        analysis.plot_actions(np.array(actions[:first]), plot_actions, switched, f"{pathlib.Path(run_dir).name}, one episode")
    if dump_mp4:
        parameters = RunDirectory(pathlib.Path(run_dir)).read()[0].environment
        seeds = [episode_seed(seed, EVALUATION, AFTER_TRAINING, i) for i in range(episodes)]
        by_episode = np.split(np.array(actions), np.cumsum(done.lengths)[:-1])
        write_film(parameters, seeds, by_episode, pathlib.Path(dump_mp4))
    return done


def record(
    run_dir: str | pathlib.Path, out: str | pathlib.Path, episodes: int = 10, deterministic: bool = True, seed: int = 0
) -> Demonstrations:
    """Records whole episodes of a run's best policy as a demonstration file.

    Args:
        run_dir: of the run.
        out: a new .npz file.
        episodes, deterministic, seed: as in `evaluate`.

    Returns:
        what was written: raw observations and rewards, actions in [-1, 1] or numbers from 0.

    Raises:
        as `tfsac.files.new_file`, and as `evaluate`.
    """
    out = new_file(out, ".npz")
    policy, env = load_policy(run_dir), environment_of(run_dir)
    try:
        played = demonstrate(lambda observation: policy.act(observation, deterministic), env, episodes, seed, policy.reset)
    finally:
        env.close()
    demonstrations = played._replace(level=RunDirectory(pathlib.Path(run_dir)).read()[0].environment.level)
    save_demonstrations(out, demonstrations)
    return demonstrations


def demonstrate(
    act: Callable[[Any], Any],
    env: gym.Env,
    episodes: int = 10,
    seed: int = 0,
    begin: Callable[[], None] | None = None,
) -> Demonstrations:
    """Plays whole episodes with any policy, a script or a person; `save_demonstrations` writes them to a file.

    Args:
        act: raw observation of one environment to its own action.
        env: from `tfsac.environments.make`, or any other that the agents can use.
        episodes: how many.
        seed: of the episodes.
        begin: called at the begin of every episode, such as a policy's `reset`.

    Returns:
        raw observations and rewards, actions in [-1, 1] or numbers from 0.

    Raises:
        ValueError: fewer than one episode, or an environment that the agents cannot use.
        EnvironmentFailure: the environment raised.

    Example:
        >>> env = gymnasium.make("CartPole-v1")
        >>> expert = tfsac.demonstrate(lambda observation: int(observation[2] + observation[3] > 0), env, episodes=10)
        >>> tfsac.save_demonstrations("expert.npz", expert)
    """
    if episodes < 1:
        raise ValueError(f"episodes is at least 1. Received: {episodes}")
    check(env)
    if has_vector_rewards(env):
        env = VectorRewards(env)
    spec, level = spec_of(env), env.spec.id if env.spec else type(env.unwrapped).__name__
    inverse, steps = action_map(spec).inverse, list[tuple[Any, ...]]()
    done = run_episodes(act, env, EnvironmentEpisodes(episodes), seed, AFTER_TRAINING, lambda *step: steps.append(step), begin)
    memory = TransitionMemory(spec._replace(num_rewards=None), len(steps))
    for observation, action, reward, terminated, truncated, next_observation in steps:
        memory.add(
            _row(observation, spec),
            inverse(np.asarray(action))[None],
            np.array([reward], np.float32),
            np.array([terminated]),
            np.array([truncated]),
            _row(next_observation, spec),
        )
    return Demonstrations(memory.ring[:, 0], level, done.returns)


def observations_of(run_dir: str | pathlib.Path, policy: Policy, episodes: int = 1) -> list[Any]:
    """Returns the raw observations of some episodes of a run's environment."""
    env, observations = environment_of(run_dir), []
    try:
        amount = EnvironmentEpisodes(episodes)
        evaluate_policy(policy, env, amount, each_step=lambda observation, *_: observations.append(observation))
    finally:
        env.close()
    return observations


def _row(observation: Any, spec: Spec) -> dict[str, np.ndarray]:
    return {key: value[None] for key, value in as_arrays(observation, spec).items()}
