"""The number of weights of a network, counted before it is made, and networks that are too large."""

import pytest
import strategy_tools
import tiny

from tfsac.networks.observations import with_embedders
from tfsac.networks.sizes import count_weights
from tfsac.parameters import RunParameters, override
from tfsac.testing import discrete_spec, vector_spec
from tfsac.training.build import build_agent

NETWORKS = "agent.networks."


@pytest.mark.parametrize(
    "case",
    ["v", "discrete", "discrete, team", "discrete, shared encoder, policy delay", "taacq, two rewards", "acer, discrete, lstm",
     "acer, gaussian", "acer, gaussian, lstm, trunk"],
)  # fmt: skip
def test_the_count_is_that_of_the_model(case):
    agent_class, parameters, spec = strategy_tools.CASES[case]
    agent = agent_class(parameters, spec)
    for name, given in agent.network_parameters.items():
        one = agent.policy_class.spec_of_network(name, parameters, spec, agent.networks)
        made, _ = with_embedders(name, given, one.observation)
        assert count_weights(made, one) == agent.networks[name].model.count_params(), name


@pytest.mark.parametrize(
    "changes",
    [
        {"policy.middleware_parameters.scheme": [10**9]},
        {"*.input_embedders_parameters.observation.scheme": [10**9]},
        {"q.head_parameters.network_layers_sizes": [10**8, 10**8]},
        {"policy.middleware_parameters.scheme": [2**40 - 1]},
    ],
    ids=str,
)
def test_a_network_too_large_for_the_machine_is_refused_before_anything_is_written(tmp_path, changes):
    flags = {NETWORKS + path: value for path, value in changes.items()}
    with pytest.raises(
        ValueError, match=r"GiB: choose fewer or narrower layers under agent.networks.\w+. Received: [\d,]+ weights$"
    ):
        tiny.train(tmp_path / "run", "--preset=pendulum_sac", changes=flags)
    assert not (tmp_path / "run").exists()


def test_too_many_critics_and_too_wide_lstms_are_refused_too():
    for preset, path, value in (
        (tiny.taac(), "q.head_parameters.num_critics", 10**9),
        (tiny.acer(lstm=True), "policy.middleware_parameters.number_of_lstm_cells", 10**7),
    ):
        spec = vector_spec(3, 2) if preset.agent.kind.startswith("temporally") else discrete_spec(3, 2)
        with pytest.raises(ValueError, match="choose fewer or narrower layers"):
            build_agent(override(preset, {NETWORKS + path: value}), RunParameters(), spec)


def test_an_argument_of_the_optimizer_may_be_set_alone():
    changed = override(
        tiny.taac(), {NETWORKS + "*.optimizer_type": "SGD", NETWORKS + "*.optimizer_kwargs.momentum": 0.5}
    )
    assert changed.agent.networks["q"].optimizer_kwargs == {"momentum": 0.5}
