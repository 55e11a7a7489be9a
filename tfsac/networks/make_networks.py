"""Makes all networks of an agent, or those that its policy acts through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

import keras
import numpy as np

from tfsac.errors import TfsacError
from tfsac.networks.custom_models import check_models
from tfsac.networks.network import Network, Networks
from tfsac.networks.observations import with_keys
from tfsac.networks.unit_weights import project
from tfsac.parameters import AgentParameters, ParameterError
from tfsac.types import TARGET, Spec

FIRST = "trunk"  # networks that read its features are made after it
ModelMaker = Callable[[], Mapping[str, keras.Model]]
SpecOf = Callable[[str, Networks], Spec]


def make_networks(
    parameters: AgentParameters,
    spec_of: SpecOf,
    seed: int,
    models: ModelMaker | None = None,
    names: Collection[str] | None = None,
) -> dict[str, Network]:
    """Makes the networks that the parameters describe. A target network `<name>_target` starts with the weights of its
    online network.

    Args:
        parameters, seed: the agent's parameters, and the seed of the initial weights.
        spec_of: returns the spec of a network's inputs, given its name and the networks made before it.
        models: returns a Keras model for each network, used instead of the parameters' layers; called again for target
            networks, each time after `keras.utils.set_random_seed(seed)`. See `tfsac.networks.custom_models`.
        names: names of the networks to make, including target networks; None for all.

    Raises:
        TfsacError: networks that do not fit the spec, or models that do not fit the networks.
    """

    def read_by(name: str, networks: Networks) -> Spec:
        return with_keys(name, parameters.networks[name], spec_of(name, networks))

    order = sorted(parameters.networks, key=lambda name: name != FIRST)
    seeds = {name: int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i, name in enumerate(order)}
    targets = {
        name
        for name in order
        if parameters.networks[name].create_target_network and (names is None or name + TARGET in names)
    }
    networks: dict[str, Network] = {}
    earlier: list[keras.Variable] = []
    online_models = _models(models, parameters, read_by, seed, earlier) if models else {}
    target_models = _models(models, parameters, read_by, seed, earlier) if models and targets else {}
    for name in sorted(order, key=lambda name: name in parameters.encoders):
        settings, encoder = parameters.networks[name], parameters.encoders.get(name, "")
        is_online = names is None or name in names
        spec = read_by(name, networks) if is_online or name in targets else None
        if spec is None:
            continue
        if encoder and encoder not in networks:  # only the policy, with its own embedders of the same shapes
            embedders = parameters.networks[encoder].input_embedders_parameters
            settings = dataclasses.replace(settings, input_embedders_parameters=embedders)
        if is_online:
            network = Network(name, settings, spec, seeds[name], online_models.get(name), networks.get(encoder))
            networks[name] = network
            if settings.unit_weights != "none":
                project(network, settings.unit_weights)
        if name in targets:
            target = Network(name + TARGET, settings, spec, seeds[name], target_models.get(name))
            networks[name + TARGET] = target
            if is_online:
                target.copy_from(networks[name])
    return networks


def _models(
    models: ModelMaker, parameters: AgentParameters, spec_of: SpecOf, seed: int, earlier: list[keras.Variable]
) -> dict[str, keras.Model]:
    """Calls the user's function. The run's seed determines the initial weights, which are added to `earlier`."""
    if parameters.encoders:
        raise TfsacError("agent.shared_encoder must be false with custom Keras models")
    for name, network in parameters.networks.items():
        if special := network.special_layers:
            raise ParameterError(f"Custom Keras models bring their own layers, got {special} in network {name!r}")
    keras.utils.set_random_seed(seed)
    heads = {name: network.head_parameters for name, network in parameters.networks.items()}
    return check_models(models(), heads, {name: spec_of(name, {}) for name in heads}, earlier)
