"""Whole runs with prior data, recorded by `tfsac record`: they learn from its rewards, resume exactly and export."""

import json

import numpy as np
import pytest
import tiny
from resume_tools import RUN, complete_run, crashed, preset, same_run, weights
from toys import tiny_preset

from tfsac import api, cli
from tfsac.environments import make
from tfsac.memories import load_demonstrations, save_demonstrations
from tfsac.parameters import TwinSoftActorCriticAgentParameters, override, twin_soft_actor_critic_networks
from tfsac.training import Trainer

STEPS = 30  # of an episode
FILTERED = {
    "environment.filters.reward_rescale_factor": 7.0,
    "environment.filters.reward_clipping_range": [-1.0, 0.0],
    "environment.filters.observation_normalization": True,
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Episodes of a run whose filters change rewards and observations."""
    folder = tmp_path_factory.mktemp("recorded")
    changes = {**FILTERED, "environment.max_episode_steps": STEPS}
    run_dir = tiny.untrained_run(folder / "run", "Pendulum-v1", override(tiny_preset(), changes))
    flags = [f"--run_dir={run_dir}", f"--out={folder / 'data.npz'}", "--episodes=2", "--stochastic"]
    assert cli.run(["record", *flags]) == 0
    return folder / "data.npz"


def with_data(path, **changes):
    """A tiny run with prior data, n-step sums and everything else that has state."""
    networks = twin_soft_actor_critic_networks((16,), learning_rate=1e-3, batch_size=32)
    usual = {
        "agent": TwinSoftActorCriticAgentParameters(networks=networks),
        "agent.memory": {"kind": "prior_data", "demonstrations": str(path), "share": 0.25, "max_size": 120},
        "agent.algorithm.n_step": 3,
        "environment.filters.return_scaling": {"bound": 5.0},
        "environment.max_episode_steps": 40,
    }
    return override(preset(), {**usual, **changes})


def test_recorded_files_have_all_that_learning_needs_with_raw_rewards_and_observations(recorded):
    env = make("Pendulum-v1", max_episode_steps=STEPS)
    with np.load(recorded) as file:
        data = {name: file[name] for name in file.files}
    assert data["truncated"].tolist() == [*[False] * (STEPS - 1), True] * 2 and not data["terminated"].any()
    np.testing.assert_allclose(data["returns"], data["reward"].reshape(2, -1).sum(axis=1), rtol=1e-6)
    for i in range(0, 2 * STEPS, 7):  # the environment's own dynamics and rewards, one step each
        cos, sin, speed = data["observation/observation"][i].astype(np.float64)
        env.reset(seed=0)
        env.unwrapped.state = np.array([np.arctan2(sin, cos), speed])
        following, reward, *_ = env.step(2.0 * data["action"][i])
        assert data["reward"][i] == pytest.approx(reward, rel=1e-4, abs=1e-4)
        np.testing.assert_allclose(data["next_observation/observation"][i], following, atol=1e-4)
    env.close()


@pytest.fixture(scope="module")
def uninterrupted(recorded, tmp_path_factory):
    return complete_run(tmp_path_factory.mktemp("uninterrupted") / "run", with_data(recorded))


@pytest.mark.slow
def test_every_update_has_its_share_of_the_data_from_the_first_one_on(recorded, tmp_path):
    trainer, shares = Trainer(with_data(recorded), tmp_path / "run", RUN, quiet=True), []
    of_data = {tuple(row) for row in trainer.memory.demonstrations.ring["observation/observation"][:, 0].tolist()}
    sample = trainer.memory.sample

    def watched(*arguments):
        batch = sample(*arguments)
        rows = batch.observation["observation"]
        shares.extend(sum(tuple(row) in of_data for row in update.tolist()) for update in rows)
        return batch

    trainer.memory.sample = watched
    trainer.run()
    assert shares == [8] * trainer.counters.updates and trainer.counters.updates > 100


@pytest.mark.slow
def test_the_rewards_of_the_data_are_learned_from(recorded, uninterrupted, tmp_path):
    found = load_demonstrations(recorded, uninterrupted.environments.spec)
    found.records["reward"] += 1.0
    save_demonstrations(tmp_path / "other.npz", found)
    other = complete_run(tmp_path / "run", with_data(tmp_path / "other.npz"))
    before, after = weights(uninterrupted), weights(other)
    assert all((before[name] != after[name]).any() for name in ("policy/0", "q/0"))
    assert other.filters.returns.count == uninterrupted.filters.returns.count  # which the data do not enter


@pytest.mark.slow
def test_a_crashed_and_resumed_run_equals_the_uninterrupted_one(recorded, uninterrupted, tmp_path):
    crashed(tmp_path / "run", 163, with_data(recorded))
    resumed = Trainer(with_data(recorded), tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 150
    resumed.run()
    same_run(resumed, uninterrupted)
    assert resumed.filters.state() == uninterrupted.filters.state()


@pytest.mark.slow
def test_a_resumed_run_finds_data_that_were_moved_and_refuses_others(recorded, tmp_path):
    path = tmp_path / "data.npz"
    path.write_bytes(recorded.read_bytes())
    crashed(tmp_path / "run", 60, with_data(path))
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"]["agent"]["memory"]["demonstrations"] == str(path)
    resumed = Trainer(with_data(path.rename(tmp_path / "moved.npz")), tmp_path / "run", RUN, resume=True, quiet=True)
    assert resumed.counters.env_steps == 50
    resumed.close()
    found = load_demonstrations(tmp_path / "moved.npz", resumed.environments.spec)
    found.records["reward"] += 1.0
    save_demonstrations(tmp_path / "other.npz", found)
    with pytest.raises(ValueError, match="demonstrations changed since the checkpoint was written"):
        Trainer(with_data(tmp_path / "other.npz"), tmp_path / "run", RUN, resume=True, quiet=True)


def test_the_page_is_typed_from_any_folder_and_the_policy_needs_no_data_any_more(recorded, tmp_path, monkeypatch):
    (tmp_path / "data.npz").write_bytes(recorded.read_bytes())
    monkeypatch.chdir(tmp_path)
    memory = {"kind": "prior_data", "demonstrations": "data.npz", "max_size": 1000}
    assert tiny.train("run", changes={"agent.memory": memory}) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"]["agent"]["memory"]["demonstrations"] == str(tmp_path / "data.npz")
    (tmp_path / "data.npz").unlink()
    assert len(api.evaluate("run", 2).returns) == 2
