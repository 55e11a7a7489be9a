"""What tests of several agents share: one batch of many, variables by name, what changed."""

import numpy as np
import tensorflow as tf


def one(stacked, i=0):
    """Returns one of stacked batches as tensors."""
    return tf.nest.map_structure(lambda x: tf.constant(x[i]), stacked)


def weights(agent):
    """All variables that change, by name."""
    found = {name: network.trainable_variables for name, network in agent.networks.items()} | agent.trained
    return {name: [variable.numpy() for variable in variables] for name, variables in found.items()}


def variables(agent):
    """Returns everything that an update may change, by name."""
    found = {f"network {name}": network.variables for name, network in agent.networks.items()} | agent.trained
    found |= {f"optimizer {name}": optimizer.variables for name, optimizer in agent.optimizers.items()}
    found["counters"] = [agent.updates, *([agent.averages] if hasattr(agent, "averages") else [])]
    found["acting"] = [agent.policy.choice_alpha] if hasattr(agent.policy, "choice_alpha") else []
    return {f"{name} {i}": variable.numpy() for name, many in found.items() for i, variable in enumerate(many)}


def changed(before, after):
    """Returns the names of what is not bit-identical."""
    return {name for name in before if any((a != b).any() for a, b in zip(before[name], after[name], strict=True))}


def named(agent, stacked):
    """Updates and returns the metrics of the last update by name."""
    metrics = agent.update(stacked).metrics
    return dict(zip(agent.metric_names, metrics[-1], strict=True))


def assert_same(agent, other):
    """Compares the variables of two agents bit by bit."""
    for name, values in weights(agent).items():
        for a, b in zip(values, weights(other)[name], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
