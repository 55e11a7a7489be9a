"""The networks of each agent, alike in width and training: what presets and defaults are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Literal

from tfsac.parameters.base import ParameterError
from tfsac.parameters.head_parameters import (
    CategoricalPolicyHeadParameters,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    VHeadParameters,
)
from tfsac.parameters.hidden_layers import (
    BodyParameters,
    FCMiddlewareParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    MiddlewareScheme,
    ResidualMiddlewareParameters,
)
from tfsac.parameters.keras_names import Activation
from tfsac.parameters.networks import (
    FEATURES,
    MADE_BY,
    Conv2d,
    EmbedderScheme,
    InputEmbedderParameters,
    NetworkParameters,
)


def soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), head_initializer: Any = "xavier", **trained: Any
) -> dict[str, NetworkParameters]:
    """The policy, v and q networks of soft actor-critic.

    Args:
        layers: widths of the hidden layers of each network; the first is the embedder, the others the middleware.
        head_initializer: of the output layers.
        **trained: fields of `NetworkParameters` for all networks, such as `learning_rate` and `batch_size`.

    Returns:
        The networks by name, as the parameters of the agent want them.
    """
    layers = tuple(layers)
    v = {"create_target_network": True, **trained}
    return {
        "policy": _network(SACPolicyHeadParameters(initializer=head_initializer), layers[:1], layers[1:], **trained),
        "v": _network(VHeadParameters(initializer=head_initializer), layers[:1], layers[1:], **v),
        "q": _network(QHeadParameters(layers, initializer=head_initializer), **trained),
    }


def twin_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256),
    twin_critic: bool = True,
    init_w: float | None = None,
    critic_loss_weight: float = 1.0,
    policy_input: str = "observation",
    critic_input: str = "observation",
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of soft actor-critic with target critics.

    Args:
        layers, **trained: see `soft_actor_critic_networks`.
        twin_critic: two Q functions instead of one.
        init_w: bound of the policy's uniform first output weights, or None.
        critic_loss_weight: factor of the squared errors (Spinning Up 0.5, DI-engine 1).
        policy_input, critic_input: keys of the observations that they read, such as "agent_state" and "global_state".
    """
    layers = tuple(layers)
    q_head = QHeadParameters(layers, loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    policy_head = SACPolicyHeadParameters(init_w=init_w)
    return {
        "policy": _network(policy_head, layers[:1], layers[1:], policy_input, **trained),
        "q": _network(q_head, key=critic_input, **{"create_target_network": True, **trained}),
    }


def ensemble_soft_actor_critic_networks(
    critics: QHeadParameters,
    policy: BodyParameters,
    policy_head: SACPolicyHeadParameters | None = None,
    target_network: bool = True,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of soft actor-critic with an ensemble of critics.

    Args:
        critics: the head of q, whose layers read observations and actions.
        policy: hidden layers of the policy.
        policy_head: of the policy; None for the usual one.
        target_network: of q.
        **trained: see `soft_actor_critic_networks`.
    """
    policy_head = policy_head or SACPolicyHeadParameters()
    return {
        "policy": _network(policy_head, **{"middleware_parameters": policy, **trained}),
        "q": _network(critics, **{"create_target_network": target_network, **trained}),
    }


def discrete_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256),
    twin_critic: bool = True,
    critic_loss_weight: float = 1.0,
    embedder: EmbedderScheme | tuple[int | Conv2d, ...] = EmbedderScheme.Empty,
    policy_input: str = "observation",
    critic_input: str = "observation",
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of discrete soft actor-critic.

    Args:
        layers: widths of the hidden layers of the policy and of each Q function, after the embedder.
        embedder: of the observations; `EmbedderScheme.Medium` for images. Both Q functions read one embedder.
        twin_critic, critic_loss_weight, policy_input, critic_input, **trained: see `twin_soft_actor_critic_networks`.
    """
    q_head = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    return {
        "policy": _network(CategoricalPolicyHeadParameters(), embedder, tuple(layers), policy_input, **trained),
        "q": _network(q_head, embedder, key=critic_input, **{"create_target_network": True, **trained}),
    }


def temporally_abstract_networks(
    layers: tuple[int, ...] = (256, 256), num_critics: int = 2, init_w: float = 0.003, **trained: Any
) -> dict[str, NetworkParameters]:
    """The policy and q networks of temporally abstract actor-critic.

    The policy also reads the previous trajectory: one linear layer from each of its fields to the width of the
    embedding.

    Args:
        layers: widths of the hidden layers of each network; both read raw observations.
        num_critics: independent Q functions.
        init_w: bound of the first output weights of the critics.
        **trained: see `soft_actor_critic_networks`.
    """
    q_head = QHeadParameters(tuple(layers), num_critics=num_critics, init_w=init_w)
    return {
        "policy": _network(SACPolicyHeadParameters(), layers=tuple(layers), **trained),
        "q": _network(q_head, **{"create_target_network": True, **trained}),
    }


def discrete_acer_networks(
    layers: tuple[int | Conv2d, ...] = (100, 100),
    lstm_cells: int | None = None,
    shared: bool = False,
    activation: Activation = "relu",
    q_loss_weight: float = 0.5,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy and q networks of discrete actor-critic with experience replay. Policy and trunk have target networks,
    which are the average policy.

    Args:
        layers: of each network, or of the trunk; convolutions first, for images.
        lstm_cells: width of an LSTM after the layers, or None for feedforward networks.
        shared: policy and q are one layer each, after a common network "trunk".
        activation: of the layers.
        q_loss_weight: factor of the squared errors.
        **trained: see `soft_actor_critic_networks`.
    """
    q = QHeadParameters((), loss_weight=q_loss_weight, num_critics=1)
    heads = {"policy": CategoricalPolicyHeadParameters(), "q": q}
    return _acer_networks(heads, layers, lstm_cells, shared, activation, trained)


def gaussian_acer_networks(
    layers: tuple[int | Conv2d, ...] = (100, 100),
    advantage_layers: tuple[int, ...] = (25, 25),
    lstm_cells: int | None = None,
    shared: bool = False,
    activation: Activation = "relu",
    q_loss_weight: float = 0.5,
    bound_mean: bool = True,
    covariance: Literal["diagonal", "spherical"] = "diagonal",
    min_variance: float = 1e-6,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """The policy, v and advantage networks of actor-critic with experience replay for continuous actions.

    Args:
        layers, lstm_cells, shared, activation: see `discrete_acer_networks`; of policy and v.
        advantage_layers: of the advantage, which reads the action beside the observation, or beside the features of a
            trunk or of its own LSTM.
        q_loss_weight: factor of the squared errors of V and Q.
        bound_mean, covariance, min_variance: see `GaussianPolicyHeadParameters`.
        **trained: see `soft_actor_critic_networks`.
    """
    activated: dict[str, Any] = {"activation_function": activation} if advantage_layers else {}
    advantage = QHeadParameters(tuple(advantage_layers), loss_weight=q_loss_weight, num_critics=1, **activated)
    policy = GaussianPolicyHeadParameters(bound_mean, covariance, min_variance)
    heads = {"policy": policy, "v": VHeadParameters(loss_weight=q_loss_weight), "advantage": advantage}
    return _acer_networks(heads, layers, lstm_cells, shared, activation, trained)


def _acer_networks(
    heads: Mapping[str, Any],
    layers: tuple[int | Conv2d, ...],
    lstm_cells: int | None,
    shared: bool,
    activation: Activation,
    trained: Mapping[str, Any],
) -> dict[str, NetworkParameters]:
    """Returns networks of these heads: each with layers of its own, or one layer after a trunk."""
    convolutions = tuple(layer for layer in layers if isinstance(layer, Conv2d))
    dense = tuple(layer for layer in layers if not isinstance(layer, Conv2d))
    if (*convolutions, *dense) != tuple(layers):
        raise ParameterError(f"Convolutions must come before dense layers, got {layers}")

    def network(name: str, head: Any) -> NetworkParameters:
        fields = {"create_target_network": name in ("trunk", "policy"), **trained}
        if shared and name != "trunk":
            return _network(head, key=FEATURES, **fields)
        # The advantage reads the action beside what it sees, so its layers belong to the head.
        described: dict[str, Any] = {"scheme": MiddlewareScheme.Empty}
        if dense and name != "advantage":
            described = {"scheme": dense, "activation_function": activation}
        middleware: MiddlewareParameters = FCMiddlewareParameters(**described)
        if lstm_cells is not None:
            middleware = LSTMMiddlewareParameters(lstm_cells, **described)
        embedder = InputEmbedderParameters(convolutions or EmbedderScheme.Empty, activation)
        body = {"input_embedders_parameters": {"observation": embedder}, "middleware_parameters": middleware}
        return NetworkParameters(head, **{**body, **fields})

    trunk = {"trunk": FeaturesHeadParameters()} if shared else {}
    return {name: network(name, head) for name, head in {**trunk, **heads}.items()}


def _network(
    head: Any,
    embedder: EmbedderScheme | tuple[int | Conv2d, ...] = (),
    layers: tuple[int, ...] = (),
    key: str = "observation",
    **fields: Any,
) -> NetworkParameters:
    # A Q of continuous actions reads the raw observation beside the action, so all its layers belong to the head.
    body: dict[str, Any] = {
        "input_embedders_parameters": {key: InputEmbedderParameters(embedder or EmbedderScheme.Empty)},
        "middleware_parameters": FCMiddlewareParameters(layers or MiddlewareScheme.Empty),
    }
    return NetworkParameters(head, **{**body, **fields})


def with_hidden_layers(
    networks: Mapping[str, NetworkParameters], layers: tuple[int, ...], encoders: Collection[str] = ()
) -> dict[str, NetworkParameters]:
    """Returns networks whose hidden layers have these widths, of policy, V and critics alike.

    Convolutions, embedders by a named scheme and networks after a trunk stay as they are. Of dense layers that were
    divided between embedder and middleware, the embedder keeps the first.

    Networks of the names `encoders` read another one's embedders, which stay, too.
    """
    names = [name for name in networks if name == "trunk" or "trunk" not in networks]
    return {**networks, **{name: _with_layers(networks[name], layers, name not in encoders) for name in names}}


def _with_layers(network: NetworkParameters, layers: tuple[int, ...], changes_embedders: bool) -> NetworkParameters:
    head, middleware = network.head_parameters, network.middleware_parameters
    critics = head if isinstance(head, QHeadParameters) else None
    if isinstance(middleware, ResidualMiddlewareParameters) or (critics and critics.residual_blocks):
        raise ParameterError("hidden_layers are dense, and residual blocks have a width and num_blocks: set these")
    if critics and critics.network_layers_sizes:
        changed = dataclasses.replace(critics, network_layers_sizes=layers)
        return dataclasses.replace(network, head_parameters=changed)
    embedders, rest = dict(network.input_embedders_parameters), layers
    for key, embedder in embedders.items():
        scheme = embedder.scheme
        if changes_embedders and isinstance(scheme, tuple) and any(isinstance(layer, int) for layer in scheme):
            convolutions = tuple(layer for layer in scheme if isinstance(layer, Conv2d))
            embedders[key] = dataclasses.replace(embedder, scheme=(*convolutions, *layers[:1]))
            rest = layers[1:]
    body = dataclasses.replace(middleware, scheme=rest or MiddlewareScheme.Empty)
    return dataclasses.replace(network, input_embedders_parameters=embedders, middleware_parameters=body)


def networks_made_by(function: str, networks: Mapping[str, NetworkParameters]) -> dict[str, NetworkParameters]:
    """Returns how networks that a Python function makes are trained.

    They read an observation that no environment gives, so layers are never built in place of the function's, which has
    this name, perhaps with arguments.
    """
    reads = {f"{MADE_BY}{function}": InputEmbedderParameters()}
    return {name: dataclasses.replace(network, input_embedders_parameters=reads) for name, network in networks.items()}
