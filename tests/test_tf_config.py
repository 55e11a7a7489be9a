"""Which worker of a run a process is, and what preset it has."""

import json

from tfsac.distributed.partition import WorkerTask, preset_of_worker, worker_task
from tfsac.parameters import RunParameters, override
from tfsac.preset_lookup import load_preset

RUN = RunParameters(strategy="multi_worker")
TWO = ["10.0.0.1:2222", "10.0.0.2:2222"]


def config(cluster=None, kind="worker", index=0):
    return {"TF_CONFIG": json.dumps({"cluster": cluster or {"worker": TWO}, "task": {"type": kind, "index": index}})}


def test_a_process_alone_is_the_chief_of_one_worker_whatever_the_environment_says():
    assert worker_task(RunParameters(), {"TF_CONFIG": "nonsense"}) == WorkerTask(0, 1) and WorkerTask(0, 1).is_chief


def test_workers_are_counted_from_the_chief():
    assert [worker_task(RUN, config(index=i)) for i in range(2)] == [WorkerTask(i, 2, tuple(TWO)) for i in range(2)]
    named = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert worker_task(RUN, config(named, "chief")) == WorkerTask(0, 3, ("a:1", "b:1", "c:1"))
    assert worker_task(RUN, config(named, "worker", 1)) == WorkerTask(2, 3, ("a:1", "b:1", "c:1"))
    assert [WorkerTask(i, 3).is_chief for i in range(3)] == [True, False, False]


def test_a_worker_has_its_part_of_environments_batch_and_memory():
    whole = override(load_preset("pendulum_twin_sac"), {"environment.num_envs": 6, "agent.networks.*.batch_size": 128})
    own = preset_of_worker(whole, WorkerTask(1, 2))
    assert (own.environment.num_envs, own.agent.batch_size) == (3, 64)
    assert own.agent.memory.max_size == whole.agent.memory.max_size // 2
    assert own.schedule == whole.schedule and own.agent.algorithm == whole.agent.algorithm
    assert preset_of_worker(whole, WorkerTask()) is whole


def test_the_replay_of_episodes_begins_with_the_same_number_of_steps_of_all_workers():
    whole = override(load_preset("acer_cartpole"), {"environment.num_envs": 4, "agent.memory.replay_start_size": 1000})
    assert preset_of_worker(whole, WorkerTask(0, 4)).agent.memory.replay_start_size == 250
