"""A plugin of pytest: every test runs in the scope of a strategy with two devices of this processor."""

import functools

import pytest
import tensorflow as tf

DEVICES = ["CPU:0", "CPU:1"]


@functools.cache
def strategy():
    """Returns the one strategy of the process: a second one would take the first one's collective keys."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * len(DEVICES))
    return tf.distribute.MirroredStrategy(DEVICES)


def pytest_configure():
    strategy()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call():
    with strategy().scope():
        return (yield)
