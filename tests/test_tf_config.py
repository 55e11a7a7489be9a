"""Workers: their index from TF_CONFIG, and their share of a preset."""

import json

from tfsac.distributed.partition import WorkerTask, preset_of_worker, worker_task
from tfsac.parameters import RunParameters, override
from tfsac.preset_lookup import load_preset

RUN = RunParameters(strategy="multi_worker")
HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222"]


def config(cluster=None, kind="worker", index=0):
    return {"TF_CONFIG": json.dumps({"cluster": cluster or {"worker": HOSTS}, "task": {"type": kind, "index": index}})}


def test_tf_config_is_ignored_without_multi_worker():
    assert worker_task(RunParameters(), {"TF_CONFIG": "nonsense"}) == WorkerTask(0, 1) and WorkerTask(0, 1).is_chief


def test_workers_are_numbered_from_the_chief():
    assert [worker_task(RUN, config(index=i)) for i in range(2)] == [WorkerTask(i, 2, tuple(HOSTS)) for i in range(2)]
    cluster_with_chief = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert worker_task(RUN, config(cluster_with_chief, "chief")) == WorkerTask(0, 3, ("a:1", "b:1", "c:1"))
    assert worker_task(RUN, config(cluster_with_chief, "worker", 1)) == WorkerTask(2, 3, ("a:1", "b:1", "c:1"))
    assert [WorkerTask(i, 3).is_chief for i in range(3)] == [True, False, False]


def test_preset_of_worker_divides_environments_batch_and_memory():
    preset = override(load_preset("pendulum_twin_sac"), {"environment.num_envs": 6, "agent.networks.*.batch_size": 128})
    worker_preset = preset_of_worker(preset, WorkerTask(1, 2))
    assert (worker_preset.environment.num_envs, worker_preset.agent.batch_size) == (3, 64)
    assert worker_preset.agent.memory.max_size == preset.agent.memory.max_size // 2
    assert worker_preset.schedule == preset.schedule and worker_preset.agent.algorithm == preset.agent.algorithm
    assert preset_of_worker(preset, WorkerTask()) is preset
    acer = override(load_preset("acer_cartpole"), {"environment.num_envs": 4, "agent.memory.replay_start_size": 1000})
    assert preset_of_worker(acer, WorkerTask(0, 4)).agent.memory.replay_start_size == 250
