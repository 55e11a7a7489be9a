"""All networks of an agent, or those that its policy acts through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from tfsac.errors import TfsacError
from tfsac.networks.custom_models import check_models
from tfsac.networks.network import Network
from tfsac.networks.unit_weights import project
from tfsac.parameters import AgentParameters, ParameterError
from tfsac.types import TARGET, Spec

FIRST = "trunk"  # what reads its features is made after it
ModelMaker = Callable[[], Mapping[str, keras.Model]]
SpecOf = Callable[[str, Mapping[str, Network]], Spec]


def make_networks(
    parameters: AgentParameters,
    spec_of: SpecOf,
    seed: int,
    models: ModelMaker | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Network]:
    """Makes the networks that parameters describe; a target network `<name>_target` begins with the weights of its
    online network.

    Args:
        parameters: of the agent. A network that shares another's encoder reads its embedders.
        spec_of: what a network reads, by its name and the networks that were made before it.
        seed: of the first weights.
        models: makes a Keras model for each network, instead of the parameters' layers; called once more for target
            networks, each time after `keras.utils.set_random_seed(seed)`. See `tfsac.networks.custom_models`.
        names: of the networks to make, target networks among them; None for all.

    Raises:
        TfsacError: networks that do not fit the spec, or models that do not fit the networks.
    """
    network_parameters = parameters.networks
    order = sorted(network_parameters, key=lambda name: name != FIRST)
    seeds = {name: int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i, name in enumerate(order)}
    selected = {name for name in order if names is None or name in names}
    targets = {
        name
        for name in order
        if network_parameters[name].create_target_network and (names is None or name + TARGET in names)
    }
    networks: dict[str, Network] = {}
    custom_models = _models(models, parameters, spec_of, seed) if models else {}
    earlier = [variable for model in custom_models.values() for variable in model.variables]
    copies = _models(models, parameters, spec_of, seed, earlier) if models and targets else {}
    for name in sorted(selected | targets, key=lambda name: (name in parameters.encoders, order.index(name))):
        network_settings, spec, encoder = (
            network_parameters[name],
            spec_of(name, networks),
            parameters.encoders.get(name),
        )
        if encoder and encoder not in selected:  # the policy alone, with embedders of its own of the same shapes
            embedders = network_parameters[encoder].input_embedders_parameters
            network_settings = dataclasses.replace(network_settings, input_embedders_parameters=embedders)
        if name in selected:
            networks[name] = Network(
                name, network_settings, spec, seeds[name], custom_models.get(name), networks.get(encoder or "")
            )
            if network_settings.unit_weights != "none":
                project(networks[name], network_settings.unit_weights)
        if name in targets:
            networks[name + TARGET] = Network(name + TARGET, network_settings, spec, seeds[name], copies.get(name))
            if name in selected:
                networks[name + TARGET].copy_from(networks[name])
    return networks


def _models(
    models: ModelMaker, parameters: AgentParameters, spec_of: SpecOf, seed: int, earlier: Sequence[Any] = ()
) -> dict[str, keras.Model]:
    """Calls the user's function; the run's seed decides the first weights."""
    if parameters.encoders:
        raise TfsacError("agent.shared_encoder must be false with custom Keras models")
    for name, network in parameters.networks.items():
        if special := network.special_layers:
            raise ParameterError(f"Custom Keras models bring their own layers, got {special} in network {name!r}")
    keras.utils.set_random_seed(seed)
    heads = {name: network.head_parameters for name, network in parameters.networks.items()}
    return check_models(models(), heads, {name: spec_of(name, {}) for name in heads}, earlier)
