"""Updates that report losses only: they learn the same and compute less; averages and non-finite values."""

import collections

import numpy as np
import pytest
import strategy_tools as cases
import tensorflow as tf
import tiny
from agent_tools import variables
from toys import tiny_preset, vector_spec

from tfsac import load_preset, override, train
from tfsac.agents import TwinSoftActorCriticAgent
from tfsac.agents.compiled_updates import updates_that_report
from tfsac.parameters import (
    RunParameters,
    TwinSoftActorCriticAgentParameters,
    TwinSoftActorCriticAlgorithmParameters,
    twin_soft_actor_critic_networks,
)
from tfsac.training import NonFiniteError, Trainer, non_finite
from tfsac.training.reporting import Means
from tfsac.types import Transition, UpdateResult

# Agents, and whether all updates are made in one call.
CALLS = [
    ("twin, temperature outside log space, policy delay", False),
    ("discrete", True),
    *(
        pytest.param(name, together, marks=pytest.mark.acceptance)
        for name in ("taac", "acer, discrete", "twin, imitation", "v")
        for together in (False, True)
    ),
]


def updated(name, period, together):
    """Returns an agent after five updates, the metrics, and which of them are reported."""
    agent = cases.make_agent(name)
    cases.fix_noise(agent)
    agent.compiled.updates_between_diagnostics = period
    stacked = cases.global_batches(agent)
    calls = [slice(0, 5)] if together else [slice(i, i + 1) for i in range(5)]
    results = [agent.update(tf.nest.map_structure(lambda x, call=call: x[call], stacked)) for call in calls]
    return agent, *(np.concatenate([getattr(result, name) for result in results]) for name in ("metrics", "reported"))


def has_diagnostics(reported):
    """Returns which updates report diagnostics, by the last metric, a learning rate."""
    return reported[:, -1].tolist()


@pytest.mark.parametrize(("name", "together"), CALLS)
@pytest.mark.slow
def test_reported_metrics_do_not_change_learning(name, together):
    agent, metrics, reported = updated(name, 1, together)
    other, other_metrics, other_reported = updated(name, 2, together)
    assert has_diagnostics(reported) == [True] * 5
    assert has_diagnostics(other_reported) == [update in ([3, 4] if together else [1, 3]) for update in range(5)]
    ours, theirs = variables(agent), variables(other)
    assert ours.keys() == theirs.keys()
    for variable, value in ours.items():
        np.testing.assert_allclose(theirs[variable], value, rtol=1e-5, atol=1e-7, err_msg=variable)
    assert agent.metric_names == other.metric_names
    losses = np.array([metric.startswith("loss/") for metric in agent.metric_names])
    np.testing.assert_array_equal(np.isnan(metrics), ~reported)
    np.testing.assert_array_equal(np.isnan(other_metrics), ~other_reported)
    np.testing.assert_array_equal(other_reported, reported & (other_reported[:, -1:] | losses))
    np.testing.assert_allclose(other_metrics[other_reported], metrics[other_reported], rtol=1e-4, atol=1e-6)
    assert 1 <= losses.sum() < len(losses) and other.compiled.traces == (1 if together else 2)


def operations(agent, kind):
    """Counts the operations that the outputs and side effects of the graph of a single update need."""
    graph = agent.compiled._graph(kind).graph
    pending = [x.op for x in graph.outputs] + list(graph.control_outputs)
    needed = {operation.name: operation for operation in pending}
    while pending:
        operation = pending.pop()
        for other in [*(x.op for x in operation.inputs), *operation.control_inputs]:
            if other.name not in needed:
                needed[other.name] = other
                pending.append(other)
    return collections.Counter(operation.type for operation in needed.values())


def test_losses_only_update_computes_no_diagnostics():
    networks = twin_soft_actor_critic_networks((16,), batch_size=8)
    agent = TwinSoftActorCriticAgent(TwinSoftActorCriticAgentParameters(networks=networks), vector_spec())
    every, losses = operations(agent, "all"), operations(agent, "losses")
    assert every["L2Loss"] > 0 == losses["L2Loss"]  # norms of gradients
    assert losses["MatMul"] == every["MatMul"] and losses["Mean"] < every["Mean"]
    assert sum(losses.values()) < sum(every.values())


@pytest.mark.parametrize(("delay", "first"), [(1, None), (2, None), (2, 1), (3, 1), (3, None), (20, None), (20, 1)])
@pytest.mark.parametrize("together", [1, 2, 4, 20])
@pytest.mark.parametrize("period", [1, 4, 6, 20])
def test_delayed_policy_updates_are_reported(delay, first, together, period):
    algorithm = TwinSoftActorCriticAlgorithmParameters(
        num_updates_between_policy_updates=delay, first_policy_update=first
    )
    reported = [
        end - i
        for end in range(together, 401, together)
        for i in range(updates_that_report(end - together, together, period, algorithm))
    ]
    assert 400 // period - 1 <= len(reported) < 400 / period * max(1, min(delay, together)) + together
    assert any(algorithm.policy_learns_in(update) for update in reported)


def test_means_are_over_reporting_updates():
    means = Means(["loss/q", "q/target"])
    means.add(np.array([[1.0, np.nan], [3.0, 5.0]], np.float32))
    means.add(np.array([[8.0, np.nan]], np.float32))
    restored = Means(means.names)
    restored.restore(means.state())
    for each in (means, restored):
        assert each.counts.tolist() == [3, 1] and each.take() == {"loss/q": 4.0, "q/target": 5.0}
        assert np.isnan([*each.take().values()]).all() and each.counts.tolist() == [0, 0]


def test_non_finite_metrics_are_detected_in_every_update(tmp_path):
    batch = Transition(
        {"observation": np.zeros((3, 2, 3))}, *[np.zeros((3, 2))] * 3, {"observation": np.zeros((3, 2, 3))}
    )
    nan, names = np.nan, ["loss/q", "q/target"]

    def check(metrics, diagnosed=1):
        reported = np.array([[True, update >= 3 - diagnosed] for update in range(3)])
        result = UpdateResult(np.array(metrics), np.zeros((3, 0)), None, reported)
        non_finite.refuse_non_finite(names, result, batch, 10, 40, tmp_path)

    check([[1.0, nan], [1.0, nan], [1.0, 1.0]])
    with pytest.raises(NonFiniteError, match=r"^loss/q is \S+ at update 12 "):
        check([[1.0, nan], [np.inf, nan], [1.0, 1.0]])
    with pytest.raises(NonFiniteError, match=r"^q/target is \S+ at update 13 "):
        check([[1.0, nan], [1.0, nan], [1.0, nan]])
    with pytest.raises(NonFiniteError, match=r"^q/target is \S+ at update 12 "):
        check([[1.0, nan], [1.0, nan], [1.0, 1.0]], diagnosed=2)


@pytest.mark.slow
def test_resumed_run_diagnoses_every_nth_update(tmp_path):
    run = RunParameters(seed=3, updates_between_diagnostics=7)
    for steps in (40, 65):
        preset = tiny_preset(schedule__improve_steps=steps, schedule__steps_between_evaluation_periods=30)
        Trainer(preset, tmp_path / "run", run, resume=steps > 40, quiet=True).run()
    rows = tiny.rows(tmp_path / "run")
    updates = int(rows[-1]["updates"])
    assert sum(int(row["averaged/losses"]) for row in rows) == updates == 65
    assert sum(int(row["averaged/diagnostics"]) for row in rows) == updates // 7


@pytest.mark.parametrize("alpha", [1.0, 1e-4])
def test_run_warns_about_targets_beyond_the_atoms(tmp_path, capsys, alpha):
    preset = tiny.shrunk(load_preset("xqc_mujoco"), **{"agent.algorithm.temperature.initial_alpha": alpha})
    train(override(preset, {"environment.level": "Pendulum-v1"}), tmp_path / "run")
    assert capsys.readouterr().out.count("beyond their atoms (q/clipped_mass)") == (alpha == 1.0)
