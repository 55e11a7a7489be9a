"""MuJoCo Playground tasks as vector environments whose members are reset separately."""

import json

import gymnasium as gym
import numpy as np
import pytest
import tiny
from pages import ROOT, run_page

from tfsac.parameters import RunParameters, to_json
from tfsac.preset_lookup import load_preset

pytest.importorskip("mujoco_playground", reason="needs tfsac[playground]")

import jax
from jax import numpy as jnp
from mujoco_playground import State, registry

from tfsac.playground import Playground

pytestmark = [pytest.mark.acceptance, pytest.mark.filterwarnings("ignore")]  # raised in JAX and MuJoCo


class Walk:
    """A point that starts in [0, 1) and moves by its action; it terminates above 3, and an action of 1 makes it NaN."""

    action_size = 1

    def reset(self, rng):
        return self.state(jax.random.uniform(rng), jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        position = jnp.where(action[0] == 1.0, jnp.nan, state.data + action[0])
        return self.state(position, -position, ((position > 3.0) | jnp.isnan(position)).astype(float))

    def state(self, position, reward, done):
        observation = {"state": position[None], "privileged_state": jnp.stack([position, 2.0 * position])}
        return State(position, observation, reward, done, {}, {})


@pytest.fixture
def walk(monkeypatch):
    monkeypatch.setattr(registry, "load", lambda task, config_overrides: Walk())
    return Playground("Walk", 3, 4)


def positions(observation):
    assert np.array_equal(
        2.0 * np.asarray(observation["state"])[:, 0], np.asarray(observation["privileged_state"])[:, 1]
    )
    return np.asarray(observation["state"])[:, 0]


def test_episodes_end_by_termination_time_limit_or_divergence(walk):
    first = positions(walk.reset(seed=1)[0])
    assert len({*first}) == 3 and (first >= 0.0).all() and (first < 1.0).all()
    actions = np.array([[0.9], [-0.5], [0.5]])
    for i in range(1, 5):
        observation, reward, terminated, truncated, info = walk.step(actions)
        np.testing.assert_allclose(positions(observation), first + i * actions[:, 0], rtol=1e-6)
        np.testing.assert_array_equal(reward, -positions(observation))
        np.testing.assert_array_equal(terminated, positions(observation) > 3.0)
        np.testing.assert_array_equal(truncated, [i == 4 and not ended for ended in terminated])
    assert terminated[0] and not info["diverged"].any()

    walk.reset(seed=1)
    observation, reward, terminated, truncated, info = walk.step([[1.0], [0.0], [0.5]])
    np.testing.assert_allclose(positions(observation), first + np.array([0.0, 0.0, 0.5]))
    assert [*reward] == [0.0, -first[1], -first[2] - 0.5] and not terminated.any()
    assert [*truncated] == [*info["diverged"]] == [True, False, False]


def test_masked_reset_leaves_other_environments_unchanged(walk):
    first = positions(walk.reset(seed=1)[0])
    walk.step(np.full((3, 1), 0.5))
    mixed = positions(walk.reset(options={"reset_mask": np.array([False, True, False])})[0])
    np.testing.assert_allclose(mixed[[0, 2]], first[[0, 2]] + 0.5)
    assert 0.0 <= mixed[1] < 1.0 and mixed[1] != first[1]
    ends = [walk.step(np.zeros((3, 1)))[3].tolist() for _ in range(4)]
    assert ends == [[False] * 3] * 2 + [[True, False, True], [True] * 3]
    assert np.array_equal(positions(walk.reset(seed=1)[0]), first)


def test_task_as_level_has_its_time_limit():
    env = gym.make_vec("tfsac.playground:CartpoleBalance", 2, "vector_entry_point")
    assert env.spec.max_episode_steps == 1000 and env.single_observation_space.shape == (5,)
    compiled = [env.reset(seed=seed)[0] for seed in (1, 1, 2)]
    assert np.array_equal(compiled[0], compiled[1]) and not np.array_equal(compiled[0], compiled[2])
    for _ in range(2):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert np.isfinite(observation).all() and (np.asarray(reward) > 0.0).all() and not (terminated | truncated).any()
    assert env._step._cache_size() == 1  # one compilation


def test_collection_docs_page_runs(tmp_path):
    shorter = {
        "--run_dir=runs/cheetah": "--num_envs=8 --level=tfsac.playground:CartpoleBalance --run_dir=runs/cheetah",
        "--num_envs=64": "--num_envs=8",
        "playing_steps=64": "playing_steps=8",
        "batch_size=256": "batch_size=8",
        "70_000": "64",
        "=10_000": "=64",
    }
    for name in ("many_environments_sac", "flash_sac_many_environments"):
        preset = tiny.shrunk(load_preset(name), **tiny.SHORTER)
        path = tmp_path / f"tiny_{name}.json"
        path.write_text(json.dumps({"preset": to_json(preset), "run": to_json(RunParameters())}))
        shorter[f"--preset={name}"] = f"--preset={path.name}"
    run_page(ROOT / "docs" / "collection.md", tmp_path, shorter, ["--notensorboard"], "Thousands of environments")
    assert (tmp_path / "exported" / "balance" / "saved_model.pb").exists()
