"""How many weights a network has, counted before it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tfsac.machine import usable_memory
from tfsac.networks.bodies import EXPANSION
from tfsac.networks.embedders import middleware_widths
from tfsac.networks.observations import layers_of
from tfsac.parameters import (
    BodyParameters,
    Conv2d,
    DiscreteQHeadParameters,
    EnsembleQHeadParameters,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
    QHeadParameters,
    ResidualMiddlewareParameters,
    SACPolicyHeadParameters,
    TrajectoryQHeadParameters,
    VHeadParameters,
    normalizes_batches,
)
from tfsac.types import DiscreteSpec, Spec

COPIES = 4  # of every weight while it is trained: itself, its gradient and two moments
BYTES = 4 * COPIES


def check_size(name: str, parameters: NetworkParameters, spec: Spec) -> None:
    """Refuses a network that this machine cannot train.

    Args:
        name: of the network.
        parameters: with an embedder for each key that it reads.
        spec: what it reads and judges.

    Raises:
        ValueError: its weights take more than the memory of this machine.
    """
    weights, memory = count_weights(parameters, spec), usable_memory()
    if weights * BYTES > memory:
        raise ValueError(
            f"The weights of network {name!r} take {weights * BYTES / 2**30:,.0f} GiB with their gradients and "
            f"moments, and this machine has {memory / 2**30:,.0f} GiB: choose fewer or narrower layers under "
            f"agent.networks.{name}. Received: {weights:,} weights"
        )


def count_weights(parameters: NetworkParameters, spec: Spec) -> int:
    """Returns the number of weights of a network; see `check_size` for the arguments."""
    embedded = [
        _embedder(embedder, spec.observation[key].shape)
        for key, embedder in parameters.input_embedders_parameters.items()
    ]
    total, widths = sum(weights for weights, _ in embedded), [width for _, width in embedded]
    width = widths[0] if parameters.embedding_merger_type == "sum" else sum(widths)
    total += sum((math.prod(array.shape) + 1) * width for array in spec.state.values())
    middleware = parameters.middleware_parameters
    more, width = _body(width * (1 + len(spec.state)), middleware)
    total += more
    if isinstance(middleware, LSTMMiddlewareParameters):
        cells = middleware.number_of_lstm_cells
        total, width = total + 4 * cells * (width + cells + 1), cells
    return total + _head(parameters, width, spec)


def _embedder(embedder: InputEmbedderParameters, shape: tuple[int, ...]) -> tuple[int, int]:
    """Returns the number of weights and the width of an embedder."""
    total, layers = 0, layers_of(embedder, shape)
    for layer in layers:
        if isinstance(layer, Conv2d):
            total += (layer.kernel_size**2 * shape[2] + 1) * layer.num_filters
            shape = (*map(layer.side, shape[:2]), layer.num_filters)
    more, width = _dense(math.prod(shape), (layer for layer in layers if not isinstance(layer, Conv2d)))
    return total + more, width


def _body(width: int, parameters: BodyParameters | LSTMMiddlewareParameters) -> tuple[int, int]:
    """Returns the number of weights and the last width of hidden layers; those of an LSTM do not count."""
    if isinstance(parameters, ResidualMiddlewareParameters):
        last, wide = parameters.width, EXPANSION * parameters.width
        kernels = width * last + parameters.num_blocks * 2 * last * wide
        if parameters.block == "simba":
            return kernels + last + parameters.num_blocks * (wide + 3 * last) + 2 * last, last
        return kernels + 2 * width + parameters.num_blocks * 2 * (wide + last) + last, last
    widths = middleware_widths(parameters)
    total, last = _dense(width, widths)
    normalization = getattr(parameters, "normalization", None)
    if normalization is not None:
        each = 1 if normalization.kind == "rms" else 2
        total += each * (sum(widths) + width * normalization.normalize_input)
        total -= sum(widths) * (normalizes_batches(parameters) and normalization.placement == "before")
    return total, last


def _dense(width: int, sizes: Iterable[int]) -> tuple[int, int]:
    """Returns the number of weights and the last width of dense layers over features of a width."""
    total = 0
    for size in sizes:
        total, width = total + (width + 1) * size, size
    return total, width


def action_size(spec: Spec) -> int:
    """Returns the number of discrete actions, or of the dimensions of a continuous one."""
    return spec.action.num_actions if isinstance(spec.action, DiscreteSpec) else spec.action.shape[0]


def _head(parameters: NetworkParameters, width: int, spec: Spec) -> int:
    head, size = parameters.head_parameters, action_size(spec)
    if isinstance(head, QHeadParameters):
        judged = 0 if isinstance(head, DiscreteQHeadParameters) else size
        outputs = size if isinstance(head, DiscreteQHeadParameters) else 1
        outputs = spec.num_rewards or 1 if isinstance(head, TrajectoryQHeadParameters) else outputs
        return head.num_critics * _dense(width + judged, (*head.network_layers_sizes, outputs))[0]
    if isinstance(head, EnsembleQHeadParameters):
        body, last = _body(width + size, head.body_parameters)
        return head.num_critics * (body + (last + 1) * head.outputs)
    if isinstance(head, FeaturesHeadParameters):
        return 0
    if isinstance(head, GaussianPolicyHeadParameters):
        return (width + 1) * (size + (size if head.covariance == "diagonal" else 1))
    outputs = 1 if isinstance(head, VHeadParameters) else size * (2 if isinstance(head, SACPolicyHeadParameters) else 1)
    return (width + 1) * outputs
