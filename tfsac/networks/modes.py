"""Networks whose layers do not always compute the same: by batch statistics, with dropout, or some critics of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfsac.networks.body_layers import BodyLayer, ForwardMode, tensor
from tfsac.networks.critic_ensembles import EnsembleQHead, Masks
from tfsac.networks.network import Network


def compute(
    network: Network,
    observation: Mapping[str, tf.Tensor],
    action: tf.Tensor | None = None,
    *,
    batch_statistics: bool,
    update_statistics: bool = False,
    dropout_masks: Masks | None = None,
    critic_indices: tf.Tensor | None = None,
) -> Any:
    """Returns what a network computes for observations `[B, ...]` by key, and actions `[B, A]` that it judges.

    Args:
        network: dense layers under a policy's head or an ensemble of critics; a custom model or head computes as it
            always does.
        observation, action: see `Network.__call__`.
        batch_statistics: batch normalisation by the statistics of this batch, else by the running ones.
        update_statistics: they move the running ones.
        dropout_masks: dropout's factors; None for no dropout.
        critic_indices: of the ensemble, `[M]`; None for all.
    """
    if network.head is None or (action is not None and not isinstance(network.head, EnsembleQHead)):
        outputs = network(observation, action)
        return outputs if critic_indices is None else tf.gather(outputs, critic_indices, axis=1)
    mode = ForwardMode(batch_statistics, {} if update_statistics else None)
    x = network.embed({key: observation[key] for key in network.embedders})
    for layer in network.middleware:
        x = layer.forward(x, tensor, mode) if isinstance(layer, BodyLayer) else layer(x)
    if isinstance(network.head, EnsembleQHead):
        assert action is not None
        outputs = network.head.compute(x, action, mode, dropout_masks, critic_indices)
    else:
        outputs = network.head(x)
    for layer, moments in (mode.moments or {}).items():
        layer.update_statistics(moments)
    return outputs
