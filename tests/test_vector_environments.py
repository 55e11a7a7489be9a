"""Vector environments: all autoreset modes yield the same transitions, in memories and in training."""

import collections
import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
import tiny
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from toys import restored

import tfsac
from tfsac import TfsacError, api, exporting
from tfsac.device_memory import CANDIDATES, DeviceMemory
from tfsac.environments import EnvironmentFailure, Filters, FrameStack, Maker, VectorEnvironments, check_environment
from tfsac.environments.vector_env import as_numpy
from tfsac.exporting import load_policy
from tfsac.memories import PrioritizedMemory, TransitionMemory
from tfsac.parameters import EnvironmentParameters, FilterParameters, RunParameters, override
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer

MODES = [*AutoresetMode]
DISCOUNT, E = 0.5, 4
ON_DEVICE = {"agent.memory.device": "accelerator", "agent.algorithm.n_step": 2}
LOGGED = ("is_success", "count", "words")


class Clock(gym.Env):
    """Observes its number, the episode and the step; episodes have 1 to 3 steps, and every other one is truncated.

    With `as_dict`, it also observes the steps as a stack of two frames.
    """

    action_space = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)

    def __init__(self, number=0, as_dict=False):
        self.number, self.as_dict, self.episode = number, as_dict, 0
        clock = gym.spaces.Box(-1e3, 1e3, (3,), np.float64)
        self.observation_space = gym.spaces.Dict(clock=clock, frames=FrameStack(4, 4, 2)) if as_dict else clock

    def observe(self):
        clock = np.array([self.number, self.episode, self.steps], np.float64)
        frames = np.stack([np.full((4, 4), max(self.steps - back, 0), np.uint8) for back in (1, 0)], axis=-1)
        return {"clock": clock, "frames": frames} if self.as_dict else clock

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return self.observe(), {"count": -1}

    def step(self, action):
        self.steps += 1
        ended = self.steps == 1 + (self.number + self.episode) % 3
        odd, info = self.episode % 2 == 1, {"is_success": np.bool_(self.episode % 3 == 0), "count": self.episode}
        reward = float(10 * self.episode + self.steps)
        return self.observe(), reward, ended and odd, ended and not odd, {**info, "words": "far"} if ended else {}


class Points(VectorEnv):
    """Points that move by their action; the reward is minus the distance from 0, and episodes have 5 steps.

    The environments start at different steps. Arrays are reused, and converted to another library by `wrap`.
    """

    def __init__(self, num_envs, mode=AutoresetMode.SAME_STEP, as_dict=False, wrap=lambda array: array):
        self.num_envs, self.mode, self.as_dict, self.wrap = num_envs, mode, as_dict, wrap
        self.metadata = {"autoreset_mode": mode} if mode else {}
        point = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.single_observation_space = gym.spaces.Dict(point=point) if as_dict else point
        self.single_action_space = gym.spaces.Box(-0.5, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.point = np.zeros((num_envs, 2), np.float32)
        self.seeds = []

    def observe(self, point):
        return {"point": self.wrap(point)} if self.as_dict else self.wrap(point)

    def begin(self, mask):
        self.point[mask], self.time[mask] = self.np_random.normal(size=(int(mask.sum()), 2)), 0

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if not options:
            super().reset(seed=seed)
            self.seeds.append(seed)
            self.time, self.done = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        self.begin(mask)
        self.time += 0 if options else np.arange(self.num_envs) % 5
        return self.observe(self.point), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.point += action
        self.time += 1
        infos, resetting = {}, self.done
        if self.mode is AutoresetMode.NEXT_STEP:
            self.begin(resetting)
        truncated = self.time == 5
        reward = -np.abs(self.point).sum(axis=1)
        if self.mode is AutoresetMode.SAME_STEP and truncated.any():
            final = np.where(truncated[:, None], self.point, np.nan).astype(np.float32)
            infos = {"final_obs": self.observe(final), "_final_obs": truncated}
            self.begin(truncated)
        self.done = truncated
        outcome = reward, np.zeros(self.num_envs, bool), truncated
        return self.observe(self.point), *map(self.wrap, outcome), infos


def sync_clocks(mode, num_envs=E, **options):
    """Returns a `SyncVectorEnv` of clocks."""
    return SyncVectorEnv([functools.partial(Clock, i, **options) for i in range(num_envs)], autoreset_mode=mode)


def reference_transitions(env, count, n_step=1):
    """Returns the first n-step transitions of one clock, from a plain loop, as tuples of numbers."""
    observation, steps, transitions = env.reset()[0], [], []
    for _ in range(count):
        following, reward, terminated, truncated, _ = env.step(None)
        steps.append((observation, reward, terminated, truncated, following))
        observation = env.reset()[0] if terminated or truncated else following
    for i in range(count):
        total = 0.0
        for k, step in enumerate(steps[i : i + n_step], 1):
            total += DISCOUNT ** (k - 1) * step[1]
            if step[2] or step[3]:
                break
        transitions.append((steps[i][0], total, DISCOUNT**k * (not step[2]), step[4]))
    return [flat(*transition) for transition in transitions]


def flat(*arrays):
    """Flattens arrays and dicts of arrays into one tuple of numbers."""
    parts = [part for array in arrays for part in (array.values() if isinstance(array, dict) else [array])]
    return tuple(np.concatenate([np.ravel(part).astype(float) for part in parts]).tolist())


def collect(env, steps, memory_class=TransitionMemory, capacity=1000, **options):
    """Returns a memory, its vector steps, and the number of steps of each environment without resets."""
    environments, rng = VectorEnvironments(env, 1, LOGGED), np.random.default_rng(0)
    options |= {"autoreset": environments.next_step}
    memory, executed, collected = memory_class(environments.spec, capacity, env.num_envs, **options), 0, []
    for _ in range(steps):
        first = environments.is_first
        step = environments.step(rng.uniform(-1, 1, (env.num_envs, 1)).astype(np.float32))
        reset = {"autoreset": step.autoreset} if len(step.autoreset) else {}
        memory.add(*step[:6], **reset)
        executed += ~step.autoreset if reset else np.ones(env.num_envs, bool)
        collected.append((first, step))
    return memory, collected, executed


def transitions_of(memory, index):
    """Returns transitions of the memory as tuples of numbers."""
    batch = memory.gather(index)
    parts = batch.observation, batch.reward, batch.discount, batch.next_observation
    return [flat(*tf.nest.map_structure(lambda array, i=i: array[i], parts)) for i in range(len(index))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("n_step", [1, 3])
def test_autoreset_modes_store_reference_transitions(mode, as_dict, n_step):
    memory, _, executed = collect(sync_clocks(mode, as_dict=as_dict), 25, n_step=n_step, discount=DISCOUNT)
    expected = [t for i in range(E) for t in reference_transitions(Clock(i, as_dict), executed[i], n_step)]
    resets = memory.ring["autoreset"][:25] if mode is AutoresetMode.NEXT_STEP else np.zeros((25, E), bool)
    slots = np.flatnonzero(~resets)
    assert len(slots) == sum(executed) and (mode is AutoresetMode.NEXT_STEP) == (sum(executed) < 25 * E)
    assert collections.Counter(transitions_of(memory, slots)) == collections.Counter(expected)
    sampled = memory.sample(50, 40, np.random.default_rng(1))
    index = memory.choose((50, 40), np.random.default_rng(1))[0].ravel()
    assert {*index.tolist()} == {*slots.tolist()}  # all steps and no resets
    np.testing.assert_array_equal(sampled.reward.ravel(), memory.gather(index).reward)


@pytest.mark.parametrize("mode", MODES)
def test_episode_boundaries_and_logged_infos(mode):
    _, steps, _ = collect(sync_clocks(mode), 40)
    counts = collections.Counter()
    for first, step in steps:
        for i in range(E):
            if len(step.autoreset) and step.autoreset[i]:
                assert step.length[i] == step.reward[i] == 0 and not step.ended[i]
                continue
            _, episode, before = step.observation["observation"][i]
            assert first[i] == (before == 0)
            assert step.length[i] == before + 1 == step.next_observation["observation"][i][2]
            if step.ended[i]:
                counts[i] += 1
                assert step.terminated[i] == (episode % 2 == 1) and episode == counts[i]
                values = {key: step.logged[key][i] for key in ("is_success", "count")}
                assert values == {"is_success": episode % 3 == 0, "count": episode}
            else:
                assert np.isnan(step.logged["count"][i])
            assert np.isnan(step.logged["words"][i])
    assert min(counts.values()) > 5


class Masked(Clock):
    """Has one valid action, and none after termination; if `careless`, none after truncation either."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, careless=False):
        super().__init__()
        self.careless = careless
        self.observation_space = gym.spaces.Dict(clock=self.observation_space, action_mask=gym.spaces.MultiBinary(3))

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return {"clock": observation, "action_mask": np.int8([0, 1, 0])}, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        no_action = terminated or (truncated and self.careless)
        mask = np.int8([0, not no_action, 0])
        return {"clock": observation, "action_mask": mask}, reward, terminated, truncated, info


@pytest.mark.parametrize("mode", MODES)
def test_action_masks_have_a_valid_action(mode):
    environments = VectorEnvironments(SyncVectorEnv([Masked] * 3, autoreset_mode=mode))
    for _ in range(20):
        step = environments.step(np.ones(3, np.int32))
        executed = ~step.autoreset if len(step.autoreset) else np.ones(3, bool)
        valid = step.next_observation["action_mask"][:, 1]
        assert (valid == ~step.terminated).all() and (step.observation["action_mask"].sum(axis=1)[executed] == 1).all()
        assert step.following["action_mask"].any(axis=1).all()
    environments = VectorEnvironments(SyncVectorEnv([functools.partial(Masked, careless=True)], autoreset_mode=mode))
    with pytest.raises(EnvironmentFailure, match="no action"):
        for _ in range(20):
            environments.step(np.ones(1, np.int32))


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_batched_final_observations_and_reused_arrays(mode, as_dict):
    env = Points(7, mode, as_dict)
    environments, key = VectorEnvironments(env), "point" if as_dict else "observation"
    for _ in range(30):
        expected = environments.observation[key] + np.float32(0.25)
        step = environments.step(np.zeros((7, 2), np.float32))  # environment action 0.25
        resets = step.autoreset if len(step.autoreset) else np.zeros(7, bool)
        np.testing.assert_array_equal(step.observation[key] + np.float32(0.25), expected)
        np.testing.assert_array_equal(step.next_observation[key][~resets], expected[~resets])
        np.testing.assert_allclose(step.reward, np.where(resets, 0, -np.abs(expected).sum(axis=1)), rtol=1e-6)
        started = resets if mode is AutoresetMode.NEXT_STEP else step.truncated
        assert ((step.following[key] != expected).any(axis=1) == started).all()


class Foreign:
    """An array with only the DLPack interface."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGPU(Foreign):
    """A stand-in for PyTorch tensors on a GPU, which NumPy cannot read."""

    def __dlpack__(self, **options):
        raise BufferError

    def __array__(self, *args, **kwargs):
        raise TypeError("use Tensor.cpu()")

    def cpu(self):
        return self.array


def test_dlpack_and_gpu_arrays():
    array = np.arange(3.0)
    assert np.shares_memory(as_numpy(Foreign(array)), array)
    assert as_numpy(OnGPU(array)) is array
    steps = [[], []]
    for wrap, collected in zip((Foreign, lambda array: array), steps, strict=True):
        environments = VectorEnvironments(Points(3, wrap=lambda array, wrap=wrap: wrap(array.copy())))
        collected += [environments.step(np.zeros((3, 2), np.float32)).next_observation["observation"] for _ in range(6)]
    np.testing.assert_array_equal(*steps)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": np.array([0.0, np.nan])}, "finite.*environment 1"),
        ({"reward": np.zeros(3)}, r"\(2,\)"),
        ({"observation": np.full((2, 2), np.inf, np.float32)}, "finite.*environment 0"),
        ({"observation": np.zeros((2, 3), np.float32)}, "shape"),
        ({"truncated": np.ones(2, bool)}, "final_obs"),
    ],
)
def test_invalid_steps_are_rejected(change, words):
    class Wrong(Points):
        def step(self, action):
            names = "observation", "reward", "terminated", "truncated", "infos"
            return tuple({**dict(zip(names, super().step(action), strict=True)), **change}.values())

    environments = VectorEnvironments(Wrong(2))
    with pytest.raises(EnvironmentFailure, match=words):
        environments.step(np.zeros((2, 2), np.float32))


def twin(**changes):
    schedule = {"schedule.heatup_steps": 60, "schedule.improve_steps": 100, "environment.max_episode_steps": None}
    evaluations = {
        "schedule.steps_between_evaluation_periods": 80,
        "schedule.evaluation_steps": "EnvironmentEpisodes(2)",
    }
    memory = {"agent.memory": {"kind": "uniform", "max_size": 200}}
    return tiny.shrunk(load_preset("pendulum_twin_sac"), **schedule, **evaluations, **memory, **changes)


@pytest.mark.parametrize(
    ("changes", "env_fn", "words"),
    [
        ({}, lambda: Points(2, None), "autoreset_mode"),
        ({"environment.num_envs": 3}, lambda: Points(2), "num_envs must be the VectorEnv's 2, got 3"),
        ({"environment.vectorization": "vector"}, lambda: gym.make("Pendulum-v1"), "needs an env_fn"),
        ({"environment.vectorization": "vector"}, None, "vector entry point"),
        ({"environment.vectorization": "subprocess"}, lambda: Points(2), "subprocess"),
        ({"environment.max_episode_steps": 5}, lambda: Points(2), "max_episode_steps"),
        ({"environment.evaluation": "shared"}, lambda: Points(2), "shared"),
    ],
)
def test_invalid_vector_settings_are_rejected(tmp_path, changes, env_fn, words):
    with pytest.raises(TfsacError, match=words):
        Trainer(override(twin(), changes), tmp_path / "run", env_fn=env_fn, quiet=True)
    assert not (tmp_path / "run").exists()


def test_sequences_need_same_step_or_disabled_autoreset(tmp_path):
    taac = override(tiny.taac(), {"environment.max_episode_steps": None})
    with pytest.raises(TfsacError, match="SAME_STEP or DISABLED"):
        Trainer(taac, tmp_path / "run", env_fn=lambda: Points(2, AutoresetMode.NEXT_STEP), quiet=True)
    result = tfsac.train(taac, tmp_path / "run", env_fn=lambda: Points(2, AutoresetMode.DISABLED), quiet=True)
    assert result.counters.updates


def test_statistics_are_independent_of_autoreset_mode(tmp_path):
    filters = {"observation_normalization": True, "return_scaling": {"bound": 5.0}}
    changes = {"environment.filters": filters, "schedule.heatup_steps": 10**6, "environment.evaluation": "none"}
    states = []
    for mode in MODES:
        env_fn = functools.partial(sync_clocks, mode, 1)
        trainer = Trainer(override(twin(), changes), tmp_path / mode.name, env_fn=env_fn, quiet=True)
        while trainer.counters.episodes < 20:
            trainer.train_one_step()
        if mode is AutoresetMode.NEXT_STEP:
            assert trainer.counters.env_steps > trainer.filters.returns.count
            trainer.train_one_step()  # starts the next episode, as in the other modes
        states.append(
            {**trainer.filters.state(), "returns": trainer._reporter.returns, "lengths": trainer._reporter.lengths}
        )
        trainer.close()
    assert states[0]["count"] > 20
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize(
    ("mode", "takes_number", "changes"),
    [
        (AutoresetMode.NEXT_STEP, True, {**ON_DEVICE, "environment.num_envs": 4}),
        pytest.param(AutoresetMode.SAME_STEP, False, {}, marks=pytest.mark.slow),
    ],
)
def test_run_is_resumed_evaluated_and_exported(tmp_path, mode, takes_number, changes):
    created = []

    def env_fn(num_envs):
        created.append(Points(num_envs, mode))
        return created[-1]

    function, preset = env_fn if takes_number else lambda: env_fn(4), override(twin(), changes)

    class Stop(tfsac.Callback):
        def on_step(self, trainer):
            if trainer.counters.updates >= 20:
                trainer.stop("half")

    run = RunParameters(seed=2)
    first = tfsac.train(preset, tmp_path / "run", run, env_fn=function, callbacks=[Stop()], quiet=True)
    assert first.reason == "half" and 20 <= first.counters.updates < 100
    assert [env.num_envs for env in created[:2]] == [4, 1 if takes_number else 4] and created[0].seeds
    recorded = tfsac.training.RunDirectory(tmp_path / "run").read()[0].environment
    assert (recorded.num_envs, recorded.vectorization) == (4, "vector")
    del created[:]
    done = tfsac.train(preset, tmp_path / "run", run, env_fn=function, resume=True, quiet=True)
    assert done.reason == "finished" and done.counters.env_steps == 160 and done.counters.updates == 100
    evaluation = api.evaluate(tmp_path / "run", 3, env_fn=function)
    assert evaluation.lengths.tolist() == [5, 5, 5] and (evaluation.returns < 0).all()
    assert api.evaluate(tmp_path / "run", 3, env_fn=function).returns.tolist() == evaluation.returns.tolist()
    policy = load_policy(tmp_path / "run", env_fn=function)
    observations = api.observations_of(tmp_path / "run", policy, function)
    assert exporting.verify(policy, tmp_path / "run" / "policy", observations) <= exporting.TOLERANCE
    with pytest.raises(TfsacError, match="not drawn"):
        api.evaluate(tmp_path / "run", 1, env_fn=function, dump_mp4=tmp_path / "video.mp4")


def test_vector_entry_point_from_the_command_line(tmp_path):
    flags = ["--preset=cart_pole_discrete_sac", "--level=CartPole-v1", "--num_envs=8", "--evaluate=1"]
    changes = {"environment.vectorization": "vector", "schedule.heatup_steps": 80, "schedule.improve_steps": 80}
    sizes = {"agent.networks.*.batch_size": 16, "agent.memory.max_size": 400, "environment.max_episode_steps": 20}
    evaluations = {
        "schedule.steps_between_evaluation_periods": 80,
        "schedule.evaluation_steps": "EnvironmentEpisodes(1)",
    }
    assignments = tiny.assignments({**changes, **sizes, **evaluations})
    assert tfsac.cli.run(["train", f"--run_dir={tmp_path / 'run'}", *flags, *assignments]) == 0
    assert tfsac.cli.run(["evaluate", f"--run_dir={tmp_path / 'run'}", "--episodes=2"]) == 0
    rows = tiny.rows(tmp_path / "run")
    assert [int(row["env_steps"]) for row in rows] == [80, 160] and int(rows[-1]["updates"]) == 80
    assert 8 <= float(rows[-1]["training/length_mean"]) <= 20 and float(rows[-1]["evaluation/length_mean"]) <= 20


def test_device_memory_excludes_resets():
    memory, _, _ = collect(sync_clocks(AutoresetMode.NEXT_STEP, as_dict=True), 30, capacity=E * 20, n_step=2)
    spec = VectorEnvironments(sync_clocks(AutoresetMode.NEXT_STEP, as_dict=True)).spec
    filters, updates = Filters(FilterParameters(), spec), tf.Variable(0, dtype=tf.int64)
    device = DeviceMemory(memory, filters, spec, 64, updates, seed=7)
    packed, resets = device.sample(1).inputs, memory.ring["autoreset"].reshape(-1)
    slots, drawn = np.flatnonzero(~resets), []
    compiled = tf.function(lambda: device.unpack(packed, 0).reward, jit_compile=True)
    for _ in range(20):
        updates.assign_add(1)
        drawn += compiled().numpy().tolist()
    assert {*drawn} == {*memory.gather(slots).reward.tolist()}
    gathered, expected = device.gather(packed, tf.constant(slots, tf.int32)), memory.gather(slots)
    for theirs, ours in zip(tf.nest.flatten(gathered), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(theirs, ours)
    reset_slots = np.flatnonzero(resets)  # without a valid candidate, the previous or next step is used
    gathered = device.steps_among(packed, tf.constant(np.tile(reset_slots, CANDIDATES), tf.int32)).numpy()
    assert not resets[gathered].any() and (gathered % E == reset_slots % E).all()
    steps = slots[: len(reset_slots)]
    candidates = np.concatenate([reset_slots, steps, reset_slots, reset_slots])
    assert device.steps_among(packed, tf.constant(candidates, tf.int32)).numpy().tolist() == steps.tolist()


def test_priorities_of_resets_are_zero():
    options = {"memory_class": PrioritizedMemory, "capacity": E * 8}
    memory, _, _ = collect(sync_clocks(AutoresetMode.NEXT_STEP), 29, **options)  # the ring wraps several times
    memory.sample(20, 64, rng := np.random.default_rng(0))
    memory.update_priorities(rng.random((20, 64)))
    index, weight = memory.choose((50, 64), rng)
    assert {*index.ravel().tolist()} == {*np.flatnonzero(~memory.ring["autoreset"].reshape(-1)).tolist()}
    assert weight.min() > 0 and weight.max() <= 1
    spec = VectorEnvironments(sync_clocks(AutoresetMode.NEXT_STEP)).spec
    copy = restored(memory, PrioritizedMemory(spec, E * 8, E, autoreset=True))
    np.testing.assert_array_equal(copy.tree.sums, memory.tree.sums)
    np.testing.assert_array_equal(copy.tree.minima, memory.tree.minima)


def test_check_covers_all_environments():
    report = check_environment(lambda: Points(16, AutoresetMode.DISABLED), num_steps=20)
    assert report.usable and "20 random steps of 16 environments" in report.facts, report
    assert "64 (0 terminated" in str(report)
    assert not check_environment(Points(16, None), num_steps=5).usable
    level = EnvironmentParameters("CartPole-v1", num_envs=3, vectorization="vector")
    assert "AutoresetMode.NEXT_STEP" in check_environment(level, 50).facts


def test_default_num_envs_of_env_fn():
    def env_fn(num_envs=6):
        return Points(num_envs)

    assert Maker(EnvironmentParameters("x"), env_fn).vector_env().num_envs == 6
    assert Maker(EnvironmentParameters("x", num_envs=2), env_fn).vector_env().num_envs == 2
    assert Maker(EnvironmentParameters("x"), env_fn)().unwrapped.vector_env.num_envs == 1
