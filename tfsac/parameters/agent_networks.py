"""The networks of each agent, alike in width and training: what presets and defaults are made of."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Literal

from tfsac.parameters.layers import (
    Activation,
    BodyParameters,
    Conv2d,
    FCMiddlewareParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    Scheme,
)
from tfsac.parameters.networks import (
    FEATURES,
    MADE_BY,
    CategoricalPolicyHeadParameters,
    FeaturesHeadParameters,
    GaussianPolicyHeadParameters,
    NetworkParameters,
    QHeadParameters,
    SACPolicyHeadParameters,
    VHeadParameters,
)


def soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256), head_initializer: Any = "xavier", **trained: Any
) -> dict[str, NetworkParameters]:
    """Returns the policy, v and q networks of soft actor-critic by name, as the parameters of the agent want them.

    Args:
        layers: widths of the hidden layers of each network; the first is the embedder, the others the middleware.
        head_initializer: of the output layers.
        **trained: fields of `NetworkParameters` for all networks, such as `learning_rate` and `batch_size`.
    """
    policy, v = SACPolicyHeadParameters(initializer=head_initializer), VHeadParameters(initializer=head_initializer)
    q = QHeadParameters(tuple(layers), initializer=head_initializer)
    return {
        "policy": _network(policy, layers[:1], layers[1:], **trained),
        "v": _network(v, layers[:1], layers[1:], **{"create_target_network": True, **trained}),
        "q": _network(q, **trained),
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
    """Returns the policy and q networks of soft actor-critic with target critics.

    Args:
        layers, **trained: see `soft_actor_critic_networks`.
        twin_critic: two Q functions instead of one.
        init_w: bound of the policy's uniform first output weights, or None.
        critic_loss_weight: factor of the squared errors (Spinning Up 0.5, DI-engine 1).
        policy_input, critic_input: keys of the observations that they read, such as "agent_state" and "global_state".
    """
    q = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    policy = _network(SACPolicyHeadParameters(init_w=init_w), layers[:1], layers[1:], policy_input, **trained)
    return _with_q(policy, q, key=critic_input, **trained)


def ensemble_soft_actor_critic_networks(
    critics: QHeadParameters,
    policy: BodyParameters,
    policy_head: SACPolicyHeadParameters | None = None,
    target_network: bool = True,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of soft actor-critic with an ensemble of critics.

    Args:
        critics: the head of q, whose layers read observations and actions.
        policy: hidden layers of the policy.
        policy_head: of the policy; None for the usual one.
        target_network: of q.
        **trained: see `soft_actor_critic_networks`.
    """
    head = policy_head or SACPolicyHeadParameters()
    network = _network(head, **{"middleware_parameters": policy, **trained})
    return _with_q(network, critics, **{"create_target_network": target_network, **trained})


def discrete_soft_actor_critic_networks(
    layers: tuple[int, ...] = (256, 256),
    twin_critic: bool = True,
    critic_loss_weight: float = 1.0,
    embedder: Scheme | tuple[int | Conv2d, ...] = Scheme.Empty,
    policy_input: str = "observation",
    critic_input: str = "observation",
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of discrete soft actor-critic.

    Args:
        layers: widths of the hidden layers of the policy and of each Q function, after the embedder.
        embedder: of the observations; `EmbedderScheme.Medium` for images. Both Q functions read one embedder.
        twin_critic, critic_loss_weight, policy_input, critic_input, **trained: see `twin_soft_actor_critic_networks`.
    """
    q = QHeadParameters(tuple(layers), loss_weight=critic_loss_weight, num_critics=2 if twin_critic else 1)
    policy = _network(CategoricalPolicyHeadParameters(), embedder, layers, policy_input, **trained)
    return _with_q(policy, q, embedder, key=critic_input, **trained)


def temporally_abstract_networks(
    layers: tuple[int, ...] = (256, 256), num_critics: int = 2, init_w: float = 0.003, **trained: Any
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of temporally abstract actor-critic.

    The policy also reads the previous trajectory: one linear layer from each of its fields to the width of the
    embedding.

    Args:
        layers: widths of the hidden layers of each network; both read raw observations.
        num_critics: independent Q functions.
        init_w: bound of the first output weights of the critics.
        **trained: see `soft_actor_critic_networks`.
    """
    q = QHeadParameters(tuple(layers), num_critics=num_critics, init_w=init_w)
    return _with_q(_network(SACPolicyHeadParameters(), layers=layers, **trained), q, **trained)


def _with_q(policy: NetworkParameters, q: QHeadParameters, *body: Any, **fields: Any) -> dict[str, NetworkParameters]:
    """Returns a policy and critics with a target network."""
    return {"policy": policy, "q": _network(q, *body, **{"create_target_network": True, **fields})}


def discrete_acer_networks(
    layers: tuple[int | Conv2d, ...] = (100, 100),
    lstm_cells: int | None = None,
    shared: bool = False,
    activation: Activation = "relu",
    q_loss_weight: float = 0.5,
    **trained: Any,
) -> dict[str, NetworkParameters]:
    """Returns the policy and q networks of discrete actor-critic with experience replay. Policy and trunk have target
    networks, which are the average policy.

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
    """Returns the policy, v and advantage networks of actor-critic with experience replay for continuous actions.

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
    convolutions = tuple(itertools.takewhile(lambda layer: isinstance(layer, Conv2d), layers))
    dense: Any = tuple(layers)[len(convolutions) :]

    def network(name: str, head: Any) -> NetworkParameters:
        fields = {"create_target_network": name in ("trunk", "policy"), **trained}
        if shared and name != "trunk":
            return _network(head, key=FEATURES, **fields)
        # The advantage reads the action beside what it sees, so its layers belong to the head.
        hidden = () if name == "advantage" else dense
        return _network(head, convolutions, hidden, activation=activation, lstm_cells=lstm_cells, **fields)

    trunk = {"trunk": FeaturesHeadParameters()} if shared else {}
    return {name: network(name, head) for name, head in {**trunk, **heads}.items()}


def _network(
    head: Any,
    embedder: Scheme | tuple[int | Conv2d, ...] = (),
    layers: tuple[int, ...] = (),
    key: str = "observation",
    activation: Activation = "relu",
    lstm_cells: int | None = None,
    **fields: Any,
) -> NetworkParameters:
    # A Q of continuous actions reads the raw observation beside the action, so all its layers belong to the head.
    dense: dict[str, Any] = {"scheme": Scheme.Empty}
    if layers:
        dense = {"scheme": layers, "activation_function": activation}
    lstm = LSTMMiddlewareParameters(lstm_cells, **dense) if lstm_cells else None
    body: dict[str, Any] = {
        "input_embedders_parameters": {key: InputEmbedderParameters(embedder or Scheme.Empty, activation)},
        "middleware_parameters": lstm or FCMiddlewareParameters(**dense),
    }
    return NetworkParameters(head, **{**body, **fields})


def networks_made_by(function: str, networks: Mapping[str, NetworkParameters]) -> dict[str, NetworkParameters]:
    """Returns how networks that a Python function makes are trained.

    They read an observation that no environment gives, so layers are never built in place of the function's, which has
    this name, perhaps with arguments.
    """
    reads = {f"{MADE_BY}{function}": InputEmbedderParameters()}
    return {name: dataclasses.replace(network, input_embedders_parameters=reads) for name, network in networks.items()}
