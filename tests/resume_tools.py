"""Helpers for tests of interrupted and resumed runs: stateful tiny runs, crashes, and comparisons of two runs."""

import csv
import dataclasses

import numpy as np
import pytest
from agent_tools import variables
from tiny import shrunk
from toys import tiny_preset

from tfsac import parameters as p
from tfsac.preset_lookup import load_preset
from tfsac.training import Trainer

CLOCK_COLUMNS = {"wall_seconds", "steps_per_second"}
# All metrics in every update, so that only one graph is traced.
RUN = p.RunParameters(seed=3, checkpoint_save_steps=50, num_checkpoints_to_keep=2, updates_between_diagnostics=1)
# Everything with state: filters, exploration noise, decaying learning rate, grouped updates, target period.
CHANGES = {
    "environment.filters.observation_normalization": True,
    "agent.exploration": {"noise_std": 0.1},
    "agent.networks.*.learning_rate_decay_steps": 10,
    "agent.networks.*.learning_rate_decay_rate": 0.9,
    "agent.algorithm.num_consecutive_playing_steps": "EnvironmentSteps(4)",
    "agent.algorithm.num_consecutive_training_steps": 4,
    "agent.algorithm.num_steps_between_copying_online_weights_to_target": "TrainingSteps(3)",
    "agent.memory.max_size": 120,
    "schedule.improve_steps": 200,
    "schedule.steps_between_evaluation_periods": 35,
}
# State of other agents and memories: a temperature, twin targets, priorities.
PRIORITISED = {
    "agent.memory": {"kind": "prioritized", "max_size": 120, "beta_anneal_updates": 150},
    "agent.algorithm.num_updates_between_policy_updates": 2,
    "agent.algorithm.n_step": 3,
}


def preset(**changes):
    return p.override(tiny_preset(), CHANGES | changes)


def twin_preset():
    networks = p.twin_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32)
    twin = dataclasses.replace(tiny_preset(), agent=p.TwinSoftActorCriticAgentParameters(networks=networks))
    return p.override(twin, CHANGES | PRIORITISED)


def ensemble_preset():
    """Has running statistics, dropout, a critic subset, unit weights, return scaling, repeated noise, an averaged policy
    and a reset.
    """
    changes = {path: value for path, value in CHANGES.items() if "decay" not in path and "exploration" not in path}
    dropout = p.QHeadParameters((16,), num_critics=3, normalization=p.NormalizationParameters("batch"), dropout=0.1)
    head = p.to_json(load_preset("flash_sac_mujoco").agent.networks["q"].head_parameters)
    more = {
        "agent.networks.q.head_parameters": {**p.to_json(dropout), "distribution": head["distribution"]},
        "agent.algorithm.critic_subset": 2,
        "agent.algorithm.reset_steps": [130],
        "agent.algorithm.rate_for_averaging_policy": 0.1,
        "schedule.heatup_steps": 100,
    }
    return p.override(shrunk(load_preset("flash_sac_mujoco")), {"environment.level": "Pendulum-v1", **changes, **more})


class Crash(BaseException):
    """Is not caught by the code that saves a failed run."""


def rows_without_clocks(run_dir):
    with (run_dir / "metrics.csv").open(newline="") as file:
        return [{key: value for key, value in row.items() if key not in CLOCK_COLUMNS} for row in csv.DictReader(file)]


def weights(trainer):
    variables = {name: network.trainable_variables for name, network in trainer.agent.networks.items()}
    named = {**variables, **trainer.agent.trained}
    return {f"{name}/{i}": variable.numpy() for name, some in named.items() for i, variable in enumerate(some)}


def complete_run(run_dir, parameters):
    trainer = Trainer(parameters, run_dir, RUN, quiet=True)
    trainer.run()
    return trainer


def crash_at(run_dir, step, parameters=None, run=RUN):
    trainer = Trainer(parameters or preset(), run_dir, run, quiet=True)

    def crash():
        if trainer.counters.env_steps == step:
            raise Crash

    trainer._hooks.raise_error = crash  # called after every step; the run would be saved after an error in a callback
    with pytest.raises(Crash):
        trainer.run()
    return trainer


def run_state(trainer):
    """Returns all arrays of the state of a run, by name."""
    memory = trainer.memory
    return {
        **variables(trainer.agent),
        "returns": trainer._reporter.running,
        **memory.state(),
        "rows": memory.between(memory.oldest_row, memory.total_rows),
        **(trainer._collector.policy_state or {}),
        **trainer.environments.observation,
    }


def assert_same_run(resumed, uninterrupted):
    assert rows_without_clocks(resumed.directory.path) == rows_without_clocks(uninterrupted.directory.path)
    ours, theirs = run_state(resumed), run_state(uninterrupted)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    assert resumed.filters.state() == uninterrupted.filters.state() and resumed.counters == uninterrupted.counters
    assert resumed._sampler.state() == uninterrupted._sampler.state()
    assert resumed.agent.policy.rng.bit_generator.state == uninterrupted.agent.policy.rng.bit_generator.state
