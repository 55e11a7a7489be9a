"""Helpers for tests of agents: selecting batches, collecting variables and comparing them."""

import numpy as np
import tensorflow as tf


def batch_at(stacked, i=0):
    """Returns batch i of stacked batches as tensors."""
    return tf.nest.map_structure(lambda x: tf.constant(x[i]), stacked)


def weights(agent):
    """Returns the values of all trainable variables and target networks, by name."""
    groups = {name: network.trainable_variables for name, network in agent.networks.items()} | agent.trained
    return {name: [variable.numpy() for variable in variables] for name, variables in groups.items()}


def variables(agent):
    """Returns the values of all variables that an update may change, by name."""
    groups = {f"network {name}": network.variables for name, network in agent.networks.items()} | agent.trained
    groups |= {f"optimizer {name}": optimizer.variables for name, optimizer in agent.optimizers.items()}
    groups["counters"] = [agent.updates, *([agent.averages] if hasattr(agent, "averages") else [])]
    groups["average"] = agent.policy_average.average if agent.policy_average else []
    groups["acting"] = [agent.policy.choice_alpha] if hasattr(agent.policy, "choice_alpha") else []
    return {f"{name} {i}": variable.numpy() for name, many in groups.items() for i, variable in enumerate(many)}


def changed(before, after):
    """Returns the names of the entries that are not bit-identical."""
    return {name for name in before if any((a != b).any() for a, b in zip(before[name], after[name], strict=True))}


def last_metrics(agent, stacked):
    """Updates an agent and returns the metrics of the last update by name."""
    metrics = agent.update(stacked).metrics
    return dict(zip(agent.metric_names, metrics[-1], strict=True))


def assert_same_weights(agent, other):
    """Asserts that the weights of two agents are bit-identical."""
    for name, values in weights(agent).items():
        for a, b in zip(values, weights(other)[name], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
