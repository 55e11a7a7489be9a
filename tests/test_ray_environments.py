"""Ray actors: rollout requests, weights, lost actors, resuming and whole runs."""

import contextlib
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
from cli_tools import SUBPROCESS_ENV
from tiny import acer, one_step_task
from toys import tiny_preset

from tfsac.environments import EnvironmentFailure, Environments
from tfsac.parameters import RunParameters
from tfsac.training import Callback, Trainer, ray_collector
from tfsac.training.ray_collector import (
    MAX_RETRIES,
    RayCollector,
    RayEnvironments,
    RolloutActor,
    RolloutRequest,
    merge_steps,
)
from tfsac.types import ArraySpec, Spec, Step

SPEC = Spec({"observation": ArraySpec((3,), "float32")}, ArraySpec((1,), "float32", -np.ones(1), np.ones(1)))
LENGTH = 5  # steps of an episode of the counting environments


# Without Ray: counting environments, whose observation is (column, episode, steps of the episode).


class CountingActor:
    """Collects episodes of five steps; the action is the newest weight."""

    def __init__(self, index, preset, settings, env_fn, models):
        self.num_envs = num_envs = preset.environment.num_envs // settings.num_actors
        self.columns, self.started, self.requests = index * num_envs + np.arange(num_envs), [], []

    def _observe(self):
        return {"observation": np.stack([self.columns, self.episode, self.length], axis=1).astype(np.float32)}

    def start_episodes(self, episode, env_steps):
        self.episode, self.length = episode[self.columns], np.zeros(self.num_envs, int)
        self.started.append((self.episode.tolist(), env_steps))
        return SPEC, self._observe()

    def rollout(self, request, weights):
        self.requests.append(request)
        if restarted := not self.started:
            self.start_episodes(request.episode, request.env_steps)
        steps = []
        for _ in range(request.steps):
            observation, self.length = self._observe(), self.length + 1
            after, length, ended = self._observe(), self.length.copy(), self.length == LENGTH
            self.episode, self.length = self.episode + ended, np.where(ended, 0, self.length)
            action = np.full((self.num_envs, 1), weights[0])
            steps.append(
                Step(observation, action, length / 10, ended, ended & False, after, {}, length, self._observe())
            )
        return restarted, merge_steps(steps, np.stack)


class FakeRay:
    """A stand-in for Ray with actors in this process; actors whose number is in `losing` are restarted."""

    class exceptions:
        class RayError(Exception):
            pass

        class ActorUnavailableError(RayError):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause):
                self.cause = cause

    def __init__(self):
        self.factories, self.actors, self.losing, self.unavailable = [], [], set(), 0

    def cluster_resources(self):
        return {"CPU": 4.0}

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_restarts": -1, "max_task_retries": MAX_RETRIES}
        return lambda kind: types.SimpleNamespace(remote=functools.partial(self._make, kind))

    def _make(self, kind, *arguments):
        number = len(self.actors)
        self.factories.append(functools.partial(kind, *arguments))
        self.actors.append(self.factories[number]())
        calls = {name: functools.partial(self._call, number, name) for name in ("start_episodes", "rollout")}
        return types.SimpleNamespace(**{name: types.SimpleNamespace(remote=call) for name, call in calls.items()})

    def _call(self, number, name, *arguments):
        return lambda: self._answer(number, name, *arguments)

    def _answer(self, number, name, *arguments):
        if "all" in self.losing:
            raise self.exceptions.RayError(f"{number} was killed")
        if self.unavailable:
            self.unavailable -= 1
            raise self.exceptions.ActorUnavailableError("its machine does not answer")
        if number in self.losing:
            self.actors[number] = self.factories[number]()
            self.losing.remove(number)
        try:
            return getattr(self.actors[number], name)(*arguments)
        except EnvironmentFailure as error:
            raise self.exceptions.RayTaskError(error) from error

    def put(self, value):
        return value

    def get(self, answers, timeout):
        return [answer() for answer in answers]

    def kill(self, actor):
        pass


@pytest.fixture
def fake(monkeypatch):
    """Returns a function that makes Ray, environments, a collector and the list of printed lines.

    There are four counting environments on two actors, with three steps a rollout.
    """

    def make(actors=2):
        ray, lines = FakeRay(), []
        monkeypatch.setattr(ray_collector, "connect", lambda address: contextlib.nullcontext(ray))
        run = RunParameters(ray_address="local", num_actors=actors, actor_steps=3)
        preset = tiny_preset(environment__num_envs=4)
        environments = RayEnvironments(preset, run, None, None, lines.append, CountingActor)
        policy = types.SimpleNamespace(
            actor_weights=lambda acting: acting or [np.array(0.0)], rng=np.random.default_rng(0)
        )
        filters = types.SimpleNamespace(state=lambda: {"count": 0})
        return ray, environments, RayCollector(policy, filters, environments, 3), lines

    return make


def collect(collector, count, begin=0):
    return [collector.step(0, (begin + i) * 4) for i in range(count)]


def assert_episodes_are_continuous(steps):
    for step, after in itertools.pairwise(steps):
        going = ~step.ended
        np.testing.assert_array_equal(
            step.next_observation["observation"][going], after.observation["observation"][going]
        )
        assert (after.observation["observation"][step.ended, 2] == 0).all()


def test_one_rollout_is_requested_ahead(fake):
    ray, _, collector, _ = fake()
    counts = []
    for i in range(7):
        collector.step(10, 4 * i)
        counts.append(collector.requested // 12)
    assert counts == [2, 2, 3, 3, 3, 4, 4]
    # The answered requests; the newest is still running.
    requests = ray.actors[1].requests
    assert [request.env_steps for request in requests] == [0, 12, 24]
    assert {(request.steps, request.random_action_steps) for request in requests} == {(3, 10)}


def test_new_weights_apply_from_the_next_request(fake):
    _, _, collector, _ = fake()
    actions = []
    for i in range(10):
        actions.append(float(collector.step(0, 4 * i).action[0, 0]))
        if i in (1, 5):
            collector.sync_from(collector.policy, [np.array(i + 1.0)])
    # Two requests are sent before step 0, then one before the last step of each rollout: 2, 5 and 8.
    assert actions == [0.0] * 6 + [2.0] * 4


def test_lost_actor_truncates_only_its_own_episodes(fake):
    ray, environments, collector, lines = fake()
    steps = collect(collector, 2)
    collector.sync_from(collector.policy, [np.array(7.0)])
    ray.losing = {1}
    steps += collect(collector, 5, begin=2)
    assert lines == ["Actor 1 was lost; it continues with new episodes."]
    for i, step in enumerate(steps[:2]):
        np.testing.assert_array_equal(step.observation["observation"], [[column, 0, i] for column in range(4)])
    assert [step.truncated.tolist() for step in steps] == [[False] * 4] * 2 + [[False, False, True, True]] + [
        [False] * 4
    ] * 4
    assert_episodes_are_continuous(steps)
    np.testing.assert_array_equal(steps[3].observation["observation"], [[0, 0, 3], [1, 0, 3], [2, 1, 0], [3, 1, 0]])
    assert ray.actors[1].started == [([1, 1], 12)] and ray.actors[1].requests[0] is ray.actors[0].requests[1]
    assert environments.state() == {"episode": [1, 1, 1, 1], "length": [2, 2, 4, 4], "steps": 28}
    assert [step.action[2, 0] for step in steps] == [0] * 6 + [7]
    # An actor that is lost after an episode ended continues with the episode after the running one.
    steps += collect(collector, 2, begin=7)
    ray.losing = {0}
    steps += collect(collector, 8, begin=9)
    assert_episodes_are_continuous(steps)
    assert ray.actors[0].started == [([3, 3], 48)] and len(lines) == 2


def test_actor_lost_at_start_or_for_good(fake):
    ray, _, collector, lines = fake()
    ray.losing = {0}
    assert not any(step.truncated.any() for step in collect(collector, 4))  # no episode was running
    assert len(lines) == 1 and ray.actors[0].started == [([0, 0], 0)]
    ray.unavailable = 2  # until Ray restarts the actors of a lost machine
    ray.losing = {1}
    assert len(collect(collector, 3, begin=4)) == 3 and len(lines) == 2
    ray.losing = {"all"}
    with pytest.raises(EnvironmentFailure, match="lost"):
        collect(collector, 4, begin=7)


def test_environment_failure_is_not_a_lost_actor(fake, monkeypatch):
    ray, _, collector, lines = fake()
    collect(collector, 2)
    failure = EnvironmentFailure("the simulator fell over")
    monkeypatch.setattr(ray.actors[1], "rollout", lambda *_: (_ for _ in ()).throw(failure))
    with pytest.raises(EnvironmentFailure, match="fell over"):
        collector.step(0, 8)
    assert lines == []


def test_resume_with_another_number_of_actors(fake):
    _, _, collector, _ = fake()
    collect(collector, 6)
    state = collector.state()
    assert state["environments"] == {"episode": [1] * 4, "length": [1] * 4, "steps": 24}
    ray, _, collector, _ = fake(actors=1)
    state["environments"]["length"] = [1, 0, 1, 1]
    assert collector.restore(state, {}, None, collector.policy) is False
    assert ray.actors[0].started[1:] == [([2, 1, 2, 2], 24)]
    [step] = collect(collector, 1, begin=6)
    np.testing.assert_array_equal(step.observation["observation"][:, 1], [2, 1, 2, 2])
    assert ray.actors[0].requests[0].env_steps == 24


def test_rollout_steps_have_the_env_steps_of_the_run():
    # The run has 4 environments: each step knows random_until and env_steps of the run.
    log = []

    class Collected:
        filters = types.SimpleNamespace(restore=log.append)
        policy = types.SimpleNamespace(load_acting_weights=log.append)

        def step(self, random_until, env_steps):
            log.append((random_until, env_steps))
            return Step({"x": np.zeros(2)}, *[np.zeros(2)] * 4, {"x": np.zeros(2)}, {}, np.zeros(2), {"x": np.zeros(2)})

    actor = RolloutActor(0, tiny_preset(), RunParameters(), None, None)
    actor.collector = Collected()
    restarted, rollout = actor.rollout(RolloutRequest(5, 30, 20, np.zeros(4, int), {"count": 3}), [])
    assert not restarted and log == [[], {"count": 3}, (30, 20), (30, 24), (30, 28), (30, 32), (30, 36)]
    assert rollout.reward.shape == (5, 2) and rollout.following["x"].shape == (5, 2)


def test_repeated_request_starts_new_episodes():
    actor = RolloutActor(0, tiny_preset("Pendulum-v1"), RunParameters(), None, None)
    actor.start_episodes(np.zeros(1, int), 0)
    weights = actor.collector.policy.actor_weights(None)
    request = RolloutRequest(3, 0, 0, np.ones(1, int), actor.collector.filters.state())
    (first, steps), (repeated, again) = (actor.rollout(request, weights) for _ in range(2))
    assert not first and steps.length[:, 0].tolist() == [1, 2, 3]
    assert repeated and again.length[:, 0].tolist() == [1, 2, 3]  # the first answer was lost, so episode 0 has a gap
    assert actor.collector.environments.episode.tolist() == [1]


ON_ACTORS = RunParameters(seed=3, ray_address="auto", num_actors=2, actor_steps=8)


@pytest.mark.acceptance
def test_run_on_actors_learns_with_exact_counters(cluster, tmp_path):
    updates = 1500

    class Check(Callback):
        def on_step(self, trainer):
            expected = max(trainer.counters.env_steps - 200, 0)
            assert trainer.counters.updates == expected  # one for each step after the heat-up, also within a rollout
            assert trainer._collector.requested - trainer.counters.env_steps <= 2 * 8 * 4

    preset = one_step_task(
        environment__num_envs=4,
        environment__filters__observation_normalization=True,
        agent__memory__max_size=2000,
        schedule__improve_steps=updates,
    )
    trainer = Trainer(preset, tmp_path / "run", ON_ACTORS, callbacks=[Check()], quiet=True)
    result = trainer.run()
    steps = 200 + updates
    assert (result.counters.env_steps, result.counters.updates, result.counters.episodes) == (steps, updates, steps)
    assert result.best_return > -0.15  # a uniform policy gets -2.7
    local = Environments(preset.environment, 3)
    np.testing.assert_array_equal(trainer.memory.ring["observation/observation"][0], local.observation["observation"])
    assert trainer.filters.count == steps + 4


@pytest.mark.acceptance
def test_killed_actor_loses_no_received_steps(cluster, tmp_path):
    # Segments with LSTM state; the kill truncates some columns in the middle of a rollout.
    preset = acer(
        lstm=True, **{"environment.num_envs": 4, "environment.max_episode_steps": 500, "schedule.improve_steps": 400}
    )

    class KillActor(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 100:
                process = cluster.get(trainer.environments.actors[0].__ray_call__.remote(lambda actor: os.getpid()))
                os.kill(process, signal.SIGKILL)

    trainer = Trainer(preset, tmp_path / "run", ON_ACTORS, callbacks=[KillActor()], quiet=True)
    lines = []
    trainer.environments.report = lines.append
    stored = []
    collected = trainer._collector.step
    trainer._collector.step = lambda *arguments: stored.append(collected(*arguments)) or stored[-1]
    result = trainer.run()
    assert result.counters.env_steps == 400 and len(lines) == 1
    [cut] = [i for i, step in enumerate(stored) if step.truncated.any()]
    assert cut >= 25 and stored[cut].ended[:2].all() and not stored[cut].truncated[2:].any()
    for step, after in itertools.pairwise(stored):
        np.testing.assert_array_equal(step.following["observation"][2:], after.observation["observation"][2:])
        going = ~step.ended
        np.testing.assert_array_equal(
            step.next_observation["observation"][going], after.observation["observation"][going]
        )
        np.testing.assert_array_equal(after.length, np.where(going, step.length + 1, 1))
    assert result.counters.episodes == sum(step.ended.sum() for step in stored)


@pytest.mark.acceptance
def test_signal_saves_and_ends_all_processes(tmp_path):
    pytest.importorskip("ray")
    flags = [
        *(f"--run_dir={tmp_path / 'run'}", "--preset=pendulum_sac", "--ray_address=local", "--num_envs=2"),
        *("--set=environment.max_episode_steps=20", "--checkpoint_save_steps=1000000"),
        "--set=schedule.evaluation_steps=EnvironmentEpisodes(1)",
        "--set=schedule.steps_between_evaluation_periods=EnvironmentSteps(1000)",
    ]
    command = [sys.executable, "-m", "tfsac", "train", *flags]
    # A new session identifies the processes of this run.
    run = subprocess.Popen(command, env=SUBPROCESS_ENV, stdout=subprocess.PIPE, text=True, start_new_session=True)
    for line in run.stdout:
        if line.split()[:1] == ["1000"]:
            break
    run.send_signal(signal.SIGTERM)
    rest = run.communicate()[0]
    assert run.returncode == 128 + signal.SIGTERM and "Stopped by SIGTERM" in rest
    assert len(list((tmp_path / "run" / "checkpoints").glob("0*"))) == 1
    assert session_processes(run.pid) == []


def session_processes(leader):
    """Returns the process ids of a session."""
    pids = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == leader:
                pids.append(int(path.parent.name))
    return pids
