"""Demonstration files: recording, loading, validation, and Minari datasets."""

import importlib.util
import pathlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
import tiny
from pages import run_page
from toys import HybridIdentity

from tfsac import api
from tfsac.environments import action_map, make, nested_mask, spec_of
from tfsac.errors import TfsacError
from tfsac.exporting import loading
from tfsac.memories import Demonstrations, TransitionMemory, load_demonstrations, save_demonstrations
from tfsac.types import ArraySpec, DiscreteSpec, Spec, map_action

SPEC = Spec(
    observation={"joints": ArraySpec((3,), "float32"), "camera": ArraySpec((2, 2, 3), "uint8")},
    action=ArraySpec((2,), "float32", np.float32([-2.0, 0.1]), np.float32([2.5, 0.7])),
)
# A team of three with four discrete actions and masks.
TEAM = Spec(
    {"agent_state": ArraySpec((3, 2), "float32"), "action_mask": ArraySpec((3, 4), "bool")},
    DiscreteSpec(4, (3,), start=1),
    num_agents=3,
)


@pytest.fixture(scope="module")
def cliff_run(tmp_path_factory):
    """A run in an environment that terminates and truncates, with asymmetric action bounds."""
    tiny.register()
    return tiny.untrained_run(tmp_path_factory.mktemp("cliff") / "run", "TfsacCliff-v0")


def demonstrations(count=7, seed=0):
    rng = np.random.default_rng(seed)
    memory = TransitionMemory(SPEC, count)
    for i in range(count):
        memory.add(
            {"joints": rng.normal(size=(1, 3)), "camera": rng.integers(0, 256, (1, 2, 2, 3))},
            rng.uniform(-1, 1, (1, 2)),
            rng.normal(size=1),
            np.array([i == 3]),
            np.array([i == count - 1]),
            {"joints": rng.normal(size=(1, 3)), "camera": rng.integers(0, 256, (1, 2, 2, 3))},
        )
    return Demonstrations(memory.ring[:, 0], "TfsacCameraArm-v0", np.array([1.5, -2.25]))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "demonstrations.npz"
    save_demonstrations(path, demonstrations())
    return path


@pytest.fixture
def team_file(tmp_path):
    """A file of a team with 6 steps, in episodes of 2 and 4."""
    records = np.zeros(6, TransitionMemory(TEAM, 6).ring.dtype)
    records["action"] = np.random.default_rng(0).integers(0, 4, (6, 3))
    records["observation/action_mask"], records["next_observation/action_mask"] = True, [False, True, True, False]
    records["terminated"][1] = records["truncated"][5] = True
    path = tmp_path / "team.npz"
    save_demonstrations(path, Demonstrations(records, "pettingzoo:mpe2.simple_spread_v3", np.array([1.0, 2.0])))
    return path


def rewrite(path, change=dict, **changes):
    """Rewrites a file after applying a function to its arrays, or replacing some of them."""
    with np.load(path) as file:
        arrays = {**change(dict(file)), **changes}
    np.savez_compressed(path, **arrays)


def test_team_actions_round_trip(team_file):
    team = load_demonstrations(team_file, TEAM, "pettingzoo:mpe2.simple_spread_v3").records
    assert team["action"].dtype == np.int32
    np.testing.assert_array_equal(team["action"], np.random.default_rng(0).integers(0, 4, (6, 3)))
    assert team["next_observation/action_mask"].reshape(-1, 4).tolist() == [[False, True, True, False]] * 18


def test_empty_mask_is_allowed_only_after_termination(team_file):
    with np.load(team_file) as file:
        mask = file["next_observation/action_mask"]
    mask[1, 1] = False
    rewrite(team_file, **{"next_observation/action_mask": mask})
    assert not load_demonstrations(team_file, TEAM).records["next_observation/action_mask"][1, 1].any()
    mask[5, 1] = False  # truncated
    rewrite(team_file, **{"next_observation/action_mask": mask})
    with pytest.raises(TfsacError, match="step 5"):
        load_demonstrations(team_file, TEAM)


def test_save_load_round_trip_and_num_episodes(saved):
    for num_episodes, count, returns in ((2, 7, [1.5, -2.25]), (1, 4, [1.5])):
        loaded = load_demonstrations(saved, SPEC, num_episodes=num_episodes)
        np.testing.assert_array_equal(loaded.records, demonstrations().records[:count])
        assert loaded.returns.tolist() == returns and loaded.level == "TfsacCameraArm-v0"
    for num_episodes in (3, 0):
        with pytest.raises(TfsacError, match="num_episodes must be 1 to 2"):
            load_demonstrations(saved, SPEC, num_episodes=num_episodes)


def test_file_of_another_level_is_rejected(saved):
    for level in ("TfsacCameraArm-v0", "tests.tiny:TfsacCameraArm-v0"):
        assert len(load_demonstrations(saved, SPEC, level).records) == 7
    with pytest.raises(TfsacError, match=r"Pendulum-v1, got TfsacCameraArm-v0"):
        load_demonstrations(saved, SPEC, "Pendulum-v1")


def test_file_with_other_visible_entries_is_rejected(tmp_path):
    run_dir, out = tmp_path / "run", tmp_path / "out.npz"
    preset = tiny.shrunk(tiny.load_preset("cart_pole_discrete_sac"), **{"environment.visible_entries": (2, 0)})
    tiny.untrained_run(run_dir, "CartPole-v1", preset)
    assert api.record(run_dir, out, episodes=1).visible_entries == (2, 0)
    spec = loading.load_policy(run_dir).acting.spec
    assert load_demonstrations(out, spec).visible_entries == (2, 0)
    for wrong in ((0, 2), None):
        with pytest.raises(TfsacError, match="visible_entries"):
            load_demonstrations(out, spec, "CartPole-v1", visible_entries=wrong)


def test_existing_file_is_not_overwritten(saved):
    before = saved.read_bytes()
    for path in (saved, saved.with_suffix("")):  # NumPy would append .npz
        with pytest.raises((FileExistsError, TfsacError), match="npz"):
            save_demonstrations(path, demonstrations(seed=1))
    assert saved.read_bytes() == before


def test_recorded_episodes_are_complete_with_agent_actions(cliff_run, tmp_path):
    out = tmp_path / "new folder" / "cliff.npz"
    recorded = api.record(cliff_run, out, episodes=4, seed=5)
    spec = spec_of(make("TfsacCliff-v0"))
    loaded = load_demonstrations(out, spec)
    np.testing.assert_array_equal(loaded.records, recorded.records)
    assert loaded.level == "TfsacCliff-v0"
    rows = loaded.records
    ends = np.flatnonzero(rows["terminated"] | rows["truncated"])
    assert np.diff(np.r_[-1, ends]).tolist() == [3, 5, 3, 5]
    assert rows["terminated"][ends].tolist() == [True, False, True, False]
    assert not (rows["terminated"] & rows["truncated"]).any()
    assert np.abs(rows["action"]).max() <= 1.0
    # The reward of the cliff is the action in its own range, -0.3 to 0.7.
    np.testing.assert_allclose(-0.3 + (rows["action"][:, 0] + 1.0) * 0.5, rows["reward"], atol=1e-6)
    sums = [part.sum() for part in np.split(rows["reward"], ends[:-1] + 1)]
    np.testing.assert_allclose(loaded.returns, sums, atol=1e-5)
    inside = np.setdiff1d(np.arange(len(rows)), ends)
    np.testing.assert_array_equal(
        rows["next_observation/observation"][inside], rows["observation/observation"][inside + 1]
    )


def steps(first, last):
    return lambda arrays: {n: x if n in ("meta", "returns") else x[first:last] for n, x in arrays.items()}


def change_array(name, change):
    return lambda arrays: {**arrays, name: change(arrays[name])}


DAMAGED = {
    "empty": ("saved", steps(0, 0), "empty"),
    "incomplete episode": ("saved", steps(0, 6), "truncated"),
    "not finite": ("saved", change_array("observation/joints", lambda x: np.full_like(x, np.nan)), "observation/joints"),
    "actions out of bounds": ("saved", change_array("action", lambda x: x - 1.5), "actions"),
    "invalid discrete actions": ("team_file", change_array("action", lambda x: x + 4), "actions"),
    "missing field": ("saved", lambda arrays: {n: x for n, x in arrays.items() if n != "next_observation/joints"}, "next_observation/joints"),
    "other format": ("saved", change_array("meta", lambda x: np.array('{"format": 2, "level": "x"}')), "format"),
    "pickled objects": ("saved", change_array("reward", lambda x: np.array([{}] * 7, object)), "not a demonstration file"),
}  # fmt: skip


@pytest.mark.parametrize("file, change, words", DAMAGED.values(), ids=DAMAGED)
def test_invalid_arrays_are_rejected(request, file, change, words):
    path = request.getfixturevalue(file)
    rewrite(path, change)
    with pytest.raises(TfsacError, match=words):
        load_demonstrations(path, SPEC if file == "saved" else TEAM)


def test_dtypes_are_converted_but_shapes_must_match(saved):
    rewards = np.arange(7, dtype="float64")
    rewrite(saved, reward=rewards)
    np.testing.assert_array_equal(load_demonstrations(saved, SPEC).records["reward"], rewards.astype("float32"))
    for change in ({"action": ArraySpec((3,), "float32")}, {"observation": {"joints": ArraySpec((4,), "float32")}}):
        with pytest.raises(TfsacError, match="does not fit the environment"):
            load_demonstrations(saved, SPEC._replace(**change))


def test_damaged_file_is_rejected(saved):
    content = saved.read_bytes()
    changed = bytearray(content)
    changed[content.index(b"reward.npy") + 40] ^= 0xFF  # within the compressed data
    for damaged in (changed, content[: len(content) // 2]):
        saved.write_bytes(damaged)
        with pytest.raises(TfsacError, match="damaged"):
            load_demonstrations(saved, SPEC)


@pytest.fixture
def minari(monkeypatch, tmp_path):
    """The package, with a temporary folder for datasets."""
    if importlib.util.find_spec("minari") is None or importlib.util.find_spec("h5py") is None:
        pytest.skip("Minari datasets are not tested: pip install 'tfsac[minari]'")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return importlib.import_module("minari")


def create(minari, dataset_id, episodes, env=None, **spaces):
    """Creates a dataset of episodes, lists of (observation, action, reward, terminated, truncated, next observation)."""
    buffers = []
    for i, steps in enumerate(episodes):
        _, action, reward, terminated, truncated, following = zip(*steps, strict=True)
        observations = [steps[0][0], *following]
        if isinstance(observations[0], dict):
            observations = {key: [each[key] for each in observations] for key in observations[0]}
        ends = {"terminations": list(terminated), "truncations": list(truncated)}
        actions = map_action(lambda *parts: list(parts), *action)
        fields = {"observations": observations, "actions": actions, "rewards": list(reward), **ends}
        buffers.append(minari.data_collector.EpisodeBuffer(id=i, **fields))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for author, description and so on
        minari.create_dataset_from_buffers(dataset_id, buffers, env, jpeg_encoding=False, **spaces)


def collected(minari, dataset_id, level, lengths=(3,)):
    """Creates a dataset of random episodes, truncated to these lengths, and returns the columns of its steps."""
    env, episodes = gym.make(level), []
    env.action_space.seed(0)
    for seed, length in enumerate(lengths):
        observation, _ = env.reset(seed=seed)
        steps = []
        while not steps or not (steps[-1][3] or steps[-1][4]):
            action = env.action_space.sample()
            following, reward, terminated, truncated, _ = env.step(action)
            truncated = truncated or (len(steps) == length - 1 and not terminated)
            steps.append((observation, action, reward, terminated, truncated, following))
            observation = following
        episodes.append(steps)
    create(minari, dataset_id, episodes, env)
    env.close()
    return list(zip(*(step for steps in episodes for step in steps), strict=True))


@pytest.mark.parametrize("level, lengths", [("Pendulum-v1", [5, 3, 8]), ("CartPole-v1", [100, 4, 100])])
def test_minari_dataset_is_loaded(minari, level, lengths):
    columns = collected(minari, "mine/random-v0", level, lengths)
    observation, action, reward, terminated, truncated, following = columns
    spec = spec_of(make(level))
    inverse = action_map(spec).inverse
    loaded = load_demonstrations("minari:mine/random-v0", spec, level, inverse=inverse)
    rows = loaded.records
    assert rows.dtype == TransitionMemory(spec, 1).ring.dtype
    expected = {"observation/observation": np.float32(observation), "reward": np.float32(reward)}
    expected |= {"next_observation/observation": np.float32(following), "terminated": terminated}
    for name, values in {**expected, "truncated": truncated}.items():
        np.testing.assert_array_equal(rows[name], values, err_msg=name)
    scale = 1 if level == "CartPole-v1" else 2  # torques up to 2
    np.testing.assert_allclose(rows["action"], np.array(action) / scale, atol=1e-6)
    ends = np.flatnonzero(rows["terminated"] | rows["truncated"])
    assert loaded.level == level
    np.testing.assert_allclose(loaded.returns, np.add.reduceat(np.array(reward), [0, *ends[:-1] + 1]), rtol=1e-12)
    first = load_demonstrations("minari:mine/random-v0", spec, level, 2, inverse)
    np.testing.assert_array_equal(first.records, rows[: ends[1] + 1])


@pytest.mark.parametrize("structure", ["dict", "nested"])
def test_minari_dataset_of_hybrid_actions_is_loaded(minari, structure):
    env = HybridIdentity(structure, mask="flat", steps=4)
    spec = spec_of(env)
    observation, _ = env.reset(seed=0)
    steps = []
    for _ in range(4):
        action = env.action_space.sample(mask=nested_mask(observation["action_mask"], spec.action))
        following, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation, action, reward, terminated, truncated, following))
        observation = following
    create(minari, "mine/hybrid-v0", [steps], observation_space=env.observation_space, action_space=env.action_space)
    inverse = action_map(spec).inverse
    rows = load_demonstrations("minari:mine/hybrid-v0", spec, inverse=inverse).records
    for i, (_, action, *_) in enumerate(steps):
        for name, part in inverse(action).items():
            np.testing.assert_allclose(rows[f"action/{name}"][i], part, atol=1e-6)
    for key in ("observation", "action_mask"):
        np.testing.assert_array_equal(rows["observation/" + key], [observation[key] for observation, *_ in steps])
        np.testing.assert_array_equal(rows["next_observation/" + key], [following[key] for *_, following in steps])
    other = spec_of(HybridIdentity("tuple", mask="flat"))
    with pytest.raises(TfsacError, match="does not fit the environment"):
        load_demonstrations("minari:mine/hybrid-v0", other, inverse=action_map(other).inverse)


def test_minari_dataset_of_another_environment_is_rejected(minari):
    collected(minari, "pole-v0", "CartPole-v1")
    spec = spec_of(make("Pendulum-v1"))
    with pytest.raises(TfsacError, match="CartPole-v1"):
        load_demonstrations("minari:pole-v0", spec, "Pendulum-v1", inverse=action_map(spec).inverse)
    with pytest.raises(TfsacError, match="does not fit the environment"):
        load_demonstrations("minari:pole-v0", spec, inverse=action_map(spec).inverse)
    with pytest.raises(TfsacError, match="inverse"):
        load_demonstrations("minari:pole-v0", spec)


def test_minari_episodes_without_end_are_truncated(minari):
    env = gym.make("Pendulum-v1")
    spec = spec_of(env)
    step = (np.zeros(3, np.float32), np.float32([0.5]), 1.0, False, False, np.ones(3, np.float32))
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    create(minari, "nameless-v0", [[step] * 2, [step] * 3], **spaces)
    loaded = load_demonstrations("minari:nameless-v0", spec, "Pendulum-v1", inverse=action_map(spec).inverse)
    assert loaded.records["truncated"].tolist() == [False, True, False, False, True]
    assert not loaded.records["terminated"].any()
    assert loaded.level == "" and loaded.returns.tolist() == [2, 3]


@pytest.mark.slow
def test_documented_script_writes_logged_actions(tmp_path):
    page = pathlib.Path(__file__).parents[1] / "docs" / "imitation.md"
    page = run_page(page, tmp_path, section="Demonstration files")
    loaded = load_demonstrations(tmp_path / "logged.npz", page["spec"], "Pendulum-v1")
    np.testing.assert_array_equal(loaded.records["action"], np.full((200, 1), 0.5, np.float32))
