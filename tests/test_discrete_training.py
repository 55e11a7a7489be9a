"""Runs with discrete actions, masks and teams: resuming, failures, normalisation, export and recording."""

import dataclasses
import re

import gymnasium as gym
import numpy as np
import pytest
import tiny
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from resume_tools import CHANGES, assert_same_run, complete_run, crash_at, weights
from toys import discrete_spec, tiny_preset

from tfsac import api, cli, exporting
from tfsac import parameters as p
from tfsac.agents import DiscreteSoftActorCriticAgent
from tfsac.environments import EnvironmentFailure, Filters, as_arrays
from tfsac.exporting import loading
from tfsac.memories import load_demonstrations
from tfsac.preset_lookup import read_config
from tfsac.training import Policy, Trainer

pytestmark = pytest.mark.slow  # every test trains a run

CORRIDOR, LENGTH, START = "TfsacCorridor-v0", 6, 5
TEAM = "toys:TeamIdentity-v0"
RUN = p.RunParameters(seed=3, checkpoint_save_steps=50, updates_between_diagnostics=1)


class Corridor(gym.Env):
    """A corridor with actions left (5), stay (6) and right (7) that terminates at its right end; at most ten steps.

    Moves into walls are masked, and raise.

    Args:
        fail_at: the step, counted over all episodes, at which no action is valid.
    """

    metadata = {"render_modes": []}

    def __init__(self, fail_at=0):
        self.observation_space = Dict(observation=Box(-100.0, 100.0, (2,)), action_mask=MultiBinary(3))
        self.action_space = Discrete(3, start=START)
        self.fail_at, self.steps, self.position, self.length = fail_at, 0, 0, 0

    def _observe(self, wrong):
        mask = np.int8([self.position > 0, 1, self.position < LENGTH]) if not wrong else np.zeros(3, np.int8)
        observation = np.float32([10.0 * self.position, self.np_random.normal(-3.0, 0.1)])
        return {"observation": observation, "action_mask": mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.length = int(self.np_random.integers(0, LENGTH - 1)), 0
        return self._observe(False), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        move = int(action) - START - 1
        if not 0 <= self.position + move <= LENGTH:
            raise ValueError(f"There is a wall. Received: {action}")
        self.position, self.length, self.steps = self.position + move, self.length + 1, self.steps + 1
        observation = self._observe(self.steps == self.fail_at)
        return observation, move - 0.1, self.position == LENGTH, self.length == 10, {}


if CORRIDOR not in gym.registry:
    gym.register(CORRIDOR, entry_point=Corridor)


def tiny_run(
    level, kind=p.DiscreteSoftActorCriticAgentParameters, networks=p.discrete_soft_actor_critic_networks, **changes
):
    """Returns the preset of a tiny run, by default with discrete actions, with automatic temperature."""
    reads = {"policy_input": "agent_state", "critic_input": "global_state"} if level == TEAM else {}
    created = networks((16,), learning_rate=1e-3, batch_size=32, **reads)
    agent = kind(memory=p.ExperienceReplayParameters(1000), networks=created)
    return p.override(dataclasses.replace(tiny_preset(level), agent=agent), changes)


STATEFUL = {**CHANGES, "schedule.improve_steps": 80}
GREEDY = {"agent.exploration": {"initial_epsilon": 0.9, "final_epsilon": 0.05, "decay_steps": 60}}


@pytest.mark.parametrize("level", [CORRIDOR, pytest.param(TEAM, marks=pytest.mark.acceptance)])
def test_resumed_run_equals_uninterrupted_run(tmp_path, level):
    preset = tiny_run(level, **STATEFUL | GREEDY)
    uninterrupted = complete_run(tmp_path / "uninterrupted", preset)
    assert "temperature/0" in weights(uninterrupted) and uninterrupted.counters.updates > 60
    crash_at(tmp_path / "run", 167, preset)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 150
    if level == CORRIDOR:  # the run continues in the middle of an episode
        assert resumed.environments.length[0] > 0 and not resumed.environments.is_first[0]
    resumed.run()
    assert_same_run(resumed, uninterrupted)


def test_invalid_mask_stops_the_run_without_data_loss(tmp_path):
    preset = tiny_run(CORRIDOR, **{"environment.kwargs": {"fail_at": 134}})
    failed = Trainer(preset, tmp_path / "run", RUN, quiet=True)
    with pytest.raises(EnvironmentFailure, match=r"action_mask.*step 133"):
        failed.run()
    assert [path.name for path in failed._checkpoints.saved_checkpoints()] == ["000000100", "000000133"]
    before = failed.memory.between(0, 133)
    resumed = Trainer(preset, tmp_path / "run", RUN, resume=True, quiet=True)
    assert (resumed.counters, resumed.memory.total_rows) == (failed.counters, 133)
    assert resumed.counters.updates == 33 and not tiny.newest(resumed.memory, 1)["truncated"].any()
    for name, value in weights(failed).items():
        np.testing.assert_array_equal(weights(resumed)[name], value, err_msg=name)
    assert resumed.run().counters.env_steps == 200  # the step counter restarts
    np.testing.assert_array_equal(resumed.memory.between(0, 133), before)


NORMALISED = {"environment.filters.observation_normalization": True}


def test_masks_are_not_normalised(tmp_path):
    trainer = Trainer(tiny_run(CORRIDOR, **NORMALISED), tmp_path / "run", RUN, quiet=True)
    batches, update = [], trainer.agent.update
    trainer.agent.update = lambda batch: batches.append(batch) or update(batch)
    trainer.run()
    assert trainer.filters.observations.keys() == {"observation"}
    assert trainer.filters.observations["observation"].mean[1] == pytest.approx(-3.0, abs=0.05)
    mask, at = (np.concatenate([batch.observation[key] for batch in batches]) for key in ("action_mask", "observation"))
    assert mask.dtype == bool and mask[..., 1].all() and (~mask[..., 0]).mean() > 0.1
    assert at[~mask[..., 0], 0].max() < at[mask[..., 0], 0].min()  # at the left wall, and elsewhere
    assert np.abs(at).max() < 6 and np.abs(at.mean(axis=(0, 1))).max() < 0.5


@pytest.fixture(scope="module", params=["masked", "continuous team"])
def run_dir(request, tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    if request.param == "masked":
        preset = tiny_run(CORRIDOR, **NORMALISED)
    else:
        twin = p.TwinSoftActorCriticAgentParameters, p.twin_soft_actor_critic_networks
        preset = tiny_run(TEAM, *twin, **{"environment.kwargs": {"discrete": False}, **NORMALISED})
    api.train(preset, folder, RUN, quiet=True)
    return folder


def policy_preset(run_dir):
    return read_config(run_dir / "config.json")[0]


@pytest.mark.parametrize("format", ["saved_model", pytest.param("tflite", marks=pytest.mark.slow)])
def test_exported_policy_matches_live_policy(run_dir, tmp_path, capsys, format):
    if format == "tflite":
        pytest.importorskip("ai_edge_litert")
    out = tmp_path / "policy"
    flags = [f"--out={out}", f"--format={format}", "--verify", "--values"]
    assert cli.run(["export", f"--run_dir={run_dir}", *flags]) == 0
    assert re.search(r"over \d+ observations: \S+ \(within 1e-05\)", capsys.readouterr().out)
    policy = loading.load_policy(run_dir)
    observations = api.observations_of(run_dir, policy)
    arrays = [as_arrays(observation, policy.acting.spec) for observation in observations]
    exported = exporting.load_exported(out)({key: np.stack([array[key] for array in arrays]) for key in arrays[0]})
    assert exported.dtype == policy.acting.spec.action.dtype
    np.testing.assert_allclose(exported, [policy.act(observation) for observation in observations], rtol=0, atol=1e-5)
    if policy_preset(run_dir).environment.level == CORRIDOR:
        assert set(exported.tolist()) <= {START, START + 1, START + 2}


def test_recorded_actions_load_as_demonstrations(run_dir, tmp_path):
    out, preset = tmp_path / "expert.npz", policy_preset(run_dir)
    level, spec = preset.environment.level, loading.load_policy(run_dir).acting.spec
    assert cli.run(["record", f"--run_dir={run_dir}", f"--out={out}", "--episodes=6", "--seed=2"]) == 0
    loaded = load_demonstrations(out, spec, level)
    np.testing.assert_allclose(loaded.returns, api.evaluate(run_dir, 6, seed=2).returns)
    action = loaded.records["action"]
    assert action.shape[1:] == spec.action.shape and action.dtype == spec.action.dtype
    if level == CORRIDOR:
        mask = loaded.records["observation/action_mask"]
        assert mask.dtype == bool and np.take_along_axis(mask, action[:, None], axis=1).all()


@pytest.mark.parametrize(("mask", "message"), [([0, 0, 0, 0], "allow an action"), ([1, 1], "shape")])
def test_policy_rejects_invalid_masks(mask, message):
    spec = discrete_spec(masked=True)
    networks = p.discrete_soft_actor_critic_networks((16,), batch_size=32)
    agent = DiscreteSoftActorCriticAgent(p.DiscreteSoftActorCriticAgentParameters(networks=networks), spec)
    policy, observation = Policy(agent.policy, Filters(p.FilterParameters(), spec)), np.zeros(3, np.float32)
    assert policy.act({"observation": observation, "action_mask": np.array([0, 1, 0, 0])}) == 1
    with pytest.raises(ValueError, match=message):
        policy.act({"observation": observation, "action_mask": np.array(mask)})
