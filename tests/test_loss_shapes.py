"""Losses reject tensors with wrong ranks and sizes, which would broadcast silently."""

import pytest
import tensorflow as tf

from tfsac.losses import acer, distributional, ensembles, taac
from tfsac.losses import soft_actor_critic as sac
from tfsac.losses.temperature import temperature_loss

SIZES = {"B": 4, "R": 4, "T": 3, "N": 2, "A": 3, "D": 5, "S": 6, "K": 7, "M": 8}
BOOLEAN = "?"  # suffix of boolean tensors
SUPPORT = distributional.Support(-1.0, 1.0, 7)
# Each loss with the dimensions of its tensors and its other arguments.
LOSSES = [
    (sac.soft_value, "BN", "B", ""),
    (sac.expected_soft_value, "BNA", "BA", "BA", ""),
    (sac.expectation, "BA", "BA"),
    (sac.bootstrap_target, "B", "B", "B"),
    (sac.regression_loss, "BN", "B"),
    (temperature_loss, "", "B", "B"),
    (acer.log_ratio, "RA", "RA"),
    (acer.retrace_returns, "TB", "TB", "TB", "TB", "TB", "B", "TB?"),
    (acer.policy_loss, "R", "R", "R", "R", None),
    (acer.full_correction, "RA", "RA", "RA", "RA", "R", 1.0),
    (acer.sampled_correction, "R", "R", "R", 1.0),
    (acer.trust_region, "RS", "RS", 1.0),
    (acer.q_loss, "R", "R"),
    (acer.v_loss, "R", "R", "R", "R"),
    (taac.compare_through_returns, "TBD", "TB", "D", "TBD", "TBD", "TB", "TB?", "TB?", "TB?"),
    (taac.policy_loss, "B", "B", "B", ""),
    (ensembles.reduce_distributions, "BNK", "BN", "mean"),
    (ensembles.soft_target, "B", "B", "BNM", "B", ""),
    (distributional.target_positions, "B", "B", "B", "", SUPPORT),
    (distributional.projected_target, "BNK", "BK"),
    (distributional.clipped_mass, "BNK", "B", "B", "B", "", SUPPORT),
    (distributional.cross_entropy, "BNK", "BK"),
    (distributional.quantile_huber, "BNK", "BM"),
]


def zeros(dimensions, first=None, more=()):
    shape = [SIZES[letter] for letter in dimensions.removesuffix(BOOLEAN)]
    shape[:1] = [first or size for size in shape[:1]]
    return tf.zeros([*shape, *more], tf.bool if dimensions.endswith(BOOLEAN) else tf.float32)


def is_tensor(argument):
    return isinstance(argument, str) and argument != "mean"


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case[0].__name__)
def test_wrong_ranks_and_sizes_are_rejected(case):
    loss, *described = case
    right = [zeros(argument) if is_tensor(argument) else argument for argument in described]
    loss(*right)
    for i, argument in enumerate(described):
        wrong = [zeros(argument, more=(1,)), zeros(argument, first=9)] if is_tensor(argument) else []
        for tensor in wrong if argument else wrong[:1]:
            with pytest.raises(ValueError, match=r"[Ss]hape"):
                loss(*right[:i], tensor, *right[i + 1 :])
