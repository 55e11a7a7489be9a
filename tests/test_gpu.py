"""Tests that need a GPU; `benchmarks/gpu.py` runs them on a GPU machine."""

import dataclasses

import numpy as np
import pytest
import resume_tools
import strategy_tools as tools
import tensorflow as tf
from toys import tiny_preset

from tfsac.parameters import RunParameters, override
from tfsac.training import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tf.config.list_physical_devices("GPU"), reason="there is no GPU"),
]


@pytest.fixture(autouse=True)
def float32():
    """Disables TF32 for matrix products."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)


@pytest.mark.parametrize("name", ["twin, automatic temperature", "ensemble, subset", "discrete, team"])
def test_xla_updates_match_the_graph(name):
    graph, xla = (tools.run_updates(name, noise=False, jit_compile=jit_compile) for jit_compile in (False, True))
    for key, value in graph["variables"].items():
        np.testing.assert_allclose(xla["variables"][key], value, rtol=1e-3, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_run_with_memory_on_the_gpu_resumes(tmp_path, jit_compile):
    changes = {
        "agent.memory": {"kind": "uniform", "max_size": 1000, "device": "auto"},
        "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(10)",
        "agent.algorithm.num_consecutive_training_steps": 10,
        "schedule.improve_steps": 60,
    }
    run = RunParameters(seed=1, jit_compile=jit_compile, tensorboard=False)
    trainer = Trainer(override(tiny_preset(), changes), tmp_path / "run", run, quiet=True)
    assert "GPU" in trainer._sampler.device_memory.stored["float32"].device
    trainer.run()
    more = override(tiny_preset(), {**changes, "schedule.improve_steps": 120})
    resumed = Trainer(more, tmp_path / "run", dataclasses.replace(run), resume=True, quiet=True)
    resumed.run()
    assert resumed.counters.updates == 120 and resumed.agent.updates.numpy() == 120


def test_deterministic_run_resumes_bit_identically(tmp_path):  # must be last: determinism cannot be disabled again
    preset = resume_tools.preset(**{"agent.memory": {"kind": "uniform", "max_size": 120, "device": "accelerator"}})
    run = dataclasses.replace(resume_tools.RUN, deterministic=True)
    uninterrupted = Trainer(preset, tmp_path / "uninterrupted", run, quiet=True)
    uninterrupted.run()
    resume_tools.crash_at(tmp_path / "run", 170, preset, run)
    resumed = Trainer(preset, tmp_path / "run", run, resume=True, quiet=True)
    resumed.run()
    resume_tools.assert_same_run(resumed, uninterrupted)
