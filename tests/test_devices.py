"""Runs with a distribution strategy."""

import json

import pytest

RUNS = """
import json, sys
import numpy as np
import tensorflow as tf
from tfsac.distributed.partition import WorkerTask
from tfsac.parameters import RunParameters
from toys import tiny_preset
from tfsac.training import Trainer
from tfsac.training.devices import make_strategy

def weights(name, **run):
    elu = {"agent__networks__policy__middleware_parameters__activation_function": "elu"}  # acts in a graph
    trainer = Trainer(tiny_preset(schedule__improve_steps=10), f"{sys.argv[1]}/{name}", RunParameters(seed=1, **run), quiet=True)
    trainer.run()
    values = [np.asarray(v).ravel() for network in trainer.agent.networks.values() for v in network.trainable_variables]
    return trainer.agent.replicas, np.concatenate(values)

results = {}
results["mirrored"], two = weights("mirrored", strategy="mirrored", num_devices=2)
results["one_device"], one = weights("one_device", strategy="one_device")
results["none"], none = weights("none")
results["asynchronous"], _ = weights("beside", strategy="mirrored", asynchronous_collection=True)
results["gaps"] = [float(np.abs(two - none).max()), float(np.abs(one - none).max())]
with tf.distribute.OneDeviceStrategy("/cpu:1").scope():
    results["in scope"] = make_strategy(RunParameters(), WorkerTask()) is tf.distribute.get_strategy()
try:
    make_strategy(RunParameters(strategy="mirrored", num_devices=3), WorkerTask())
except ValueError as error:
    results["error"] = str(error)
print(json.dumps(results))
"""


@pytest.mark.acceptance
def test_strategies_of_one_process_train_the_same_run(run_python, tmp_path):
    results = json.loads(run_python(RUNS, str(tmp_path)).splitlines()[-1])
    assert (results["mirrored"], results["one_device"], results["none"], results["asynchronous"]) == (2, 1, 1, 2)
    assert results["gaps"][0] < 1e-4 and results["gaps"][1] == 0
    assert results["in scope"]
    assert "num_devices" in results["error"]


BITS = """
import numpy as np, tensorflow as tf
from tfsac.distributed.partition import WorkerTask
from tfsac.distributed.workers import Workers

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
numbers = np.array([[1.0, 2.0, 3.5, -1.0, 1e-3, 1e6, 0.0, np.inf]])
workers = Workers(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), WorkerTask())
assert workers.replicas_per_worker == 2
np.testing.assert_array_equal(workers._sum(tf.constant(numbers.view(np.int64))).numpy().view(np.float64), numbers)
"""


@pytest.mark.acceptance
def test_worker_with_several_devices_sums_exact_bits(run_python):
    run_python(BITS)
