"""Resets: networks, temperatures and optimizers are reinitialised; memory and counters are kept."""

import dataclasses
import re

import agent_tools
import numpy as np
import pytest
import strategy_tools as tools
import user_code
from toys import tiny_preset

from tfsac.parameters import RunParameters
from tfsac.training import Trainer
from tfsac.training.updates import Resets

STEPS = (120, 150, 151)
CASES = {"twin, imitation", "v", "discrete, team", "taacl"}
SEED = 4


def resets_of(name):
    """Returns the `Resets` of a case's agent and the list of agents that they create."""
    agent_class, parameters, spec = tools.CASES[name]
    algorithm = dataclasses.replace(parameters.algorithm, reset_steps=STEPS)
    parameters, created = dataclasses.replace(parameters, algorithm=algorithm), []

    def make_agent(seed):
        created.append(agent_class(parameters, spec, seed=seed))
        return created[-1]

    return Resets(agent_class(parameters, spec, seed=SEED), STEPS, make_agent, SEED), created


def agent_variables(agent):
    """Returns all variables but counters, seeds and averages, by name."""
    arrays = tools.variables(agent)
    arrays |= {
        f"model {name} {i}": variable.numpy()
        for name, network in agent.networks.items()
        for i, variable in enumerate(network.model.variables)
    }
    return {name: value for name, value in arrays.items() if not name.startswith(("counters", "average"))}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "v" else pytest.mark.acceptance) for name in sorted(CASES)]
)
@pytest.mark.slow
def test_reset_agent_is_new_but_keeps_its_counters(name):
    resets, created = resets_of(name)
    agent = resets.agent
    first, batches = agent_variables(agent), tools.global_batches(agent)
    agent.update(batches)
    learned, updates = agent_variables(agent), int(agent.updates)
    assert not resets.pending(119) and resets.pending(120) == 1
    resets.reset(1)
    assert not resets.pending(149)
    new = agent_variables(agent)
    assert_equal(new, agent_variables(created[0]))
    for kind in ("network policy", "network q", "model q"):
        kernels = [key for key in new if key.startswith(kind) and first[key].std() > 0]
        assert kernels and all((new[key] != first[key]).any() and (new[key] != learned[key]).any() for key in kernels)
    for optimizer in agent.optimizers.values():
        assert not any(moment.numpy().any() for moment in (*optimizer.momentums, *optimizer.velocities))
    assert all(int(optimizer.iterations.numpy()) == 0 for optimizer in agent.optimizers.values())
    assert int(agent.updates) == updates and int(agent.noise_seed) == SEED
    seen = {key: x[0, 0] if agent.batch_axis else x[0] for key, x in batches.observation.items()}
    with agent.averaged_policy():  # begins again
        ours, theirs = (one.policy.act(seen, mode="greedy").action for one in (agent, created[0]))
    np.testing.assert_array_equal(ours, theirs)  # the acting weights are new, too


def test_resets_have_different_weights():
    resets, created = resets_of("v")
    kernels = []
    for step, number in ((120, 1), (151, 3)):
        assert resets.pending(step) == number
        resets.reset(number)
        kernels.append(resets.agent.networks["policy"].trainable_variables[0].numpy())
    assert (kernels[0] != kernels[1]).all() and len(created) == 2 and not resets.pending(10**9)
    third, _ = resets_of("v")
    third.reset(third.pending(400))  # skipped resets make no difference
    assert_equal(agent_variables(third.agent), agent_variables(resets.agent))


def test_reset_includes_non_trainable_variables():
    resets, created = resets_of("v")
    for name in ("q", "v_target"):
        model = resets.agent.networks[name].model
        model.layers[-1].trainable = False
        for variable in model.variables:
            variable.assign(variable + 7.0)
    resets.reset(1)
    assert_equal(agent_variables(resets.agent), agent_variables(created[0]))


def test_reset_recreates_custom_models(tmp_path):
    created = []
    preset = tiny_preset(agent__algorithm__reset_steps=(120,), schedule__improve_steps=20)
    models = lambda: created.append(user_code.models_with_v()) or created[-1]  # noqa: E731
    Trainer(preset, tmp_path / "run", models=models, quiet=True).run()
    assert len(created) == 4  # online and target networks, twice


@pytest.mark.slow
def test_run_resets_before_updates_and_keeps_memory(tmp_path, capsys):
    seen = {}
    trainer = Trainer(tiny_preset(agent__algorithm__reset_steps=(120, 150)), tmp_path / "run")
    reset, update = trainer._resets.reset, trainer.agent.update

    def watched_reset(number):
        rows, env_steps = trainer.memory.between(0, trainer.memory.total_rows).copy(), trainer.counters.env_steps
        reset(number)
        seen[env_steps] = agent_tools.weights(trainer.agent)
        np.testing.assert_array_equal(trainer.memory.between(0, trainer.memory.total_rows), rows)
        assert len(rows) == env_steps and trainer.counters.updates == env_steps - 101 == int(trainer.agent.updates)

    def watched_update(batch):
        result = update(batch)
        steps = trainer.counters.env_steps
        since = steps - max([100, *(step - 1 for step in (120, 150) if step <= steps)])
        assert {int(optimizer.iterations.numpy()) for optimizer in trainer.agent.optimizers.values()} == {since}
        return result

    trainer._resets.reset, trainer.agent.update = watched_reset, watched_update
    trainer.run()
    assert list(seen) == [120, 150] and agent_tools.changed(seen[120], seen[150]) == {"policy", "q", "v", "v_target"}
    assert int(trainer.agent.resets) == 2 and trainer.counters.updates == 100
    printed = capsys.readouterr().out
    assert re.findall(r"Reset (\d of \d) at step (\d+)", printed) == [("1 of 2", "120"), ("2 of 2", "150")]


@pytest.mark.slow
def test_asynchronous_actor_is_reset(tmp_path):
    every_10 = dict.fromkeys(("num_consecutive_playing_steps", "num_consecutive_training_steps"), 10)
    changes = {f"agent__algorithm__{name}": value for name, value in {**every_10, "reset_steps": (125,)}.items()}
    preset = tiny_preset(**changes, schedule__improve_steps=40)
    trainer = Trainer(preset, tmp_path / "run", RunParameters(asynchronous_collection=True), quiet=True)
    policy, reset, acting_weights, reset_weights = trainer._collector.policy, trainer._resets.reset, [], []
    forward, act = policy.forwards["policy"], policy.act
    policy.act = lambda *arguments: acting_weights.append(forward.weights[0]) or act(*arguments)

    def record_reset(number):
        reset(number)
        reset_weights.append(trainer.agent.networks["policy"].trainable_variables[0].numpy())

    trainer._resets.reset = record_reset
    trainer.run()
    steps = [step for step, weights in enumerate(acting_weights) if (weights == reset_weights[0]).all()]
    assert steps == list(range(125, 140))  # until the next call of updates ends
