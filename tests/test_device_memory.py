"""The replay memory on the accelerator returns the same batches as in RAM, in graphs, XLA, and runs."""

import dataclasses

import numpy as np
import pytest
import resume_tools
import tensorflow as tf
from test_frames import Game, check_equal, spec_of_stacks
from toys import discrete_spec, team_spec, tiny_preset, vector_spec

from tfsac import TfsacError
from tfsac.device_memory import DeviceMemory
from tfsac.environments import Filters
from tfsac.memories import PrioritizedMemory, TransitionMemory
from tfsac.parameters import FilterParameters, ReturnScalingParameters, RunParameters, override
from tfsac.training import Trainer
from tfsac.training.build import build_agent, build_device_memory
from tfsac.types import ArraySpec

ON_DEVICE = {"agent.memory": {"kind": "uniform", "max_size": 120, "device": "accelerator"}}
NORMALISED = FilterParameters(observation_normalization=True, reward_normalization=True, reward_rescale_factor=2.0)
RETURNS = FilterParameters(return_scaling=ReturnScalingParameters(), reward_clipping_range=(-0.1, 0.2))


def random_values(spec, rng):
    """Returns random values for three environments."""
    shape = (3, *spec.shape)
    return rng.integers(0, 4, shape) if hasattr(spec, "num_actions") else 3 * rng.normal(size=shape)


def filled(spec, filters, steps, **options):
    """Returns a device memory with steps of three environments, which have updated the filters."""
    memory = TransitionMemory(spec, 3 * 20, 3, reward_filter=filters.reward, **options)
    device = DeviceMemory(memory, filters, spec, 16, tf.Variable(0, dtype=tf.int64), seed=7)
    rng = np.random.default_rng(1)
    for step in range(steps):
        observation, following = ({k: random_values(a, rng) for k, a in spec.observation.items()} for _ in range(2))
        reward, ends = rng.normal(size=3).astype(np.float32), rng.random((2, 3)) < 0.2
        memory.add(observation, random_values(spec.action, rng), reward, *ends, following)
        filters.learn(observation)
        filters.learn_reward(reward, ends.any(axis=0))
        if step % 7 == 0:
            device.copy_new_rows()
    return device


@pytest.mark.parametrize("steps", [13, 50])
@pytest.mark.parametrize(
    ("spec", "filters", "options"),
    [
        (vector_spec(4, 2), FilterParameters(), {}),
        (vector_spec(4, 2), NORMALISED, {"n_step": 3}),
        (discrete_spec(4, 4, masked=True), RETURNS, {"n_step": 2, "ignore_done": True}),
        (team_spec(2), NORMALISED, {}),
    ],
    ids=["plain", "normalised, 3 steps", "returns, done ignored", "team"],
)
def test_batches_match_memory_in_ram(spec, filters, options, steps):
    filters = Filters(filters, spec)
    device = filled(spec, filters, steps, **options)
    device.memory.end_episodes()
    inputs = device.sample(1).inputs
    index = np.arange(len(device.memory))
    expected = filters.batch(device.memory.gather(index))
    compiled = tf.function(device.gather, jit_compile=True, autograph=False)
    for gather, error in ((device.gather, 0.0), (compiled, 1e-6)):
        check_equal(expected, gather(inputs, tf.constant(index, tf.int32)), error)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("num_envs, k", [(1, 4), (3, 2), (3, 1)])
def test_frame_stacks_match_memory_in_ram(num_envs, k, n_step):
    spec = spec_of_stacks(k)
    spec = spec._replace(observation={**spec.observation, "map": ArraySpec((2, 3, 1), "uint8")})
    filters, rng = Filters(NORMALISED, spec), np.random.default_rng(1)
    for rows in (2, 17):
        memory = TransitionMemory(spec, rows * num_envs, num_envs, n_step=n_step, reward_filter=filters.reward)
        device = DeviceMemory(memory, filters, spec, 16, tf.Variable(0, dtype=tf.int64), seed=7)
        graph, xla = (tf.function(device.gather, jit_compile=jit, autograph=False) for jit in (False, True))
        graph = graph.get_concrete_function(device.sample(1).inputs, tf.TensorSpec([None], tf.int32))
        assert device.stored["uint8"].dtype == tf.uint8
        num_places, game = len(device.last_frames.table.value()), Game(num_envs, k, ends=0.4)
        for step, pause in enumerate((1, 1, 1, 5, 3, 1, 40, 1, 2, 1, 18)):  # some are longer than the ring buffer
            for _ in range(pause):
                before, *middle, after = game.step()
                for observation in (before, after):
                    observation["map"] = rng.integers(0, 256, (num_envs, 2, 3, 1), np.uint8)
                memory.add(before, *middle, after)
                filters.learn(before)
            if step in (4, 6):
                game.restart()
                memory.end_episodes()
            inputs, index = device.sample(1).inputs, np.arange(len(memory))
            expected = filters.batch(memory.gather(index))
            check_equal(expected, graph(inputs, tf.constant(index, tf.int32)), 1e-6)
        check_equal(expected, xla(inputs, tf.constant(index, tf.int32)), 1e-6)
        assert rows < 17 or len(device.last_frames.table.value()) > num_places  # it grew
        resumed = DeviceMemory(memory, filters, spec, 16, tf.Variable(0, dtype=tf.int64), seed=7)
        check_equal(expected, resumed.gather(resumed.sample(1).inputs, tf.constant(index, tf.int32)))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_call_samples_and_updates(jit_compile):
    spec = vector_spec(3, 1)
    preset = override(tiny_preset(), ON_DEVICE)
    filters = Filters(preset.environment.filters, spec)
    run = dataclasses.replace(resume_tools.RUN, jit_compile=jit_compile)
    agent = build_agent(preset, run, spec)
    memory = filled(spec, filters, 30).memory
    device = build_device_memory(memory, preset, filters, agent, seed=5)
    before = [variable.numpy() for variable in agent.trained["policy"]]
    result = agent.update(device.sample(5))
    assert result.metrics.shape == (5, len(agent.metric_names)) and np.isfinite(result.metrics).all()
    assert agent.updates.numpy() == 5
    assert all((variable.numpy() != old).any() for variable, old in zip(agent.trained["policy"], before, strict=True))
    seeds = [device.unpack(device.pack(device.sample(1)), 0).reward for _ in range(2)]
    np.testing.assert_array_equal(*seeds)  # sampling depends on the update number


@pytest.mark.slow
def test_interrupted_run_resumes_exactly(tmp_path):
    preset = resume_tools.preset(**ON_DEVICE)
    uninterrupted = resume_tools.complete_run(tmp_path / "uninterrupted", preset)
    assert uninterrupted._sampler.device_memory
    resume_tools.crash_at(tmp_path / "run", 170, preset)
    resumed = Trainer(preset, tmp_path / "run", resume_tools.RUN, resume=True, quiet=True)
    resumed.run()
    resume_tools.assert_same_run(resumed, uninterrupted)


def out_of_memory(*arguments):
    raise tf.errors.ResourceExhaustedError(None, None, "no room")


def test_unsupported_memories_are_rejected_or_stay_in_ram():
    spec, updates = vector_spec(3, 1), tf.Variable(0, dtype=tf.int64)
    filters = Filters(FilterParameters(), spec)
    with pytest.raises(TfsacError, match="PrioritizedMemory"):
        DeviceMemory(PrioritizedMemory(spec, 10), filters, spec, 2, updates, 1)
    with pytest.raises(TfsacError, match=f"{4 * 10 * 10} bytes"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "zeros", out_of_memory)
        DeviceMemory(TransitionMemory(spec, 10), filters, spec, 2, updates, 1)
    with pytest.raises(ValueError, match="device"):
        override(tiny_preset(), {"agent.memory": {"kind": "prioritized", "device": "accelerator"}})
    preset = override(tiny_preset(), {"agent.memory.device": "auto"})
    memory = TransitionMemory(vector_spec(3, 1), 10)
    assert build_device_memory(memory, preset, filters, None, 1) is None  # without a GPU


def test_xla_compile_error_is_raised_before_training(tmp_path, monkeypatch):
    def no_compiler(*arguments):
        raise tf.errors.InternalError(None, None, "libdevice not found")

    monkeypatch.setattr(tf, "function", lambda *_, **options: no_compiler)
    with pytest.raises(TfsacError, match="libdevice"):
        Trainer(tiny_preset(), tmp_path / "run", RunParameters(jit_compile=True), quiet=True)
    assert not (tmp_path / "run").exists()
