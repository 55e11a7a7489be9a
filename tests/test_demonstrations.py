"""Demonstration files: what a run records can be read back, and nothing else can."""

import json

import numpy as np
import pytest
import tiny

from tfsac import api
from tfsac.environments import make, spec_of
from tfsac.memories import Demonstrations, TransitionMemory, load_demonstrations, save_demonstrations
from tfsac.types import ArraySpec, Spec

SPEC = Spec(
    observation={"joints": ArraySpec((3,), "float32"), "camera": ArraySpec((2, 2, 3), "uint8")},
    action=ArraySpec((2,), "float32", np.float32([-2.0, 0.1]), np.float32([2.5, 0.7])),
)


@pytest.fixture(scope="module")
def cliff_run(tmp_path_factory):
    """A run in an environment that terminates and truncates, with bounds that are not symmetric."""
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


def rewrite(path, **changes):
    """Writes the file again with some arrays changed, or left out where None."""
    with np.load(path) as file:
        arrays = {**dict(file), **changes}
    np.savez_compressed(path, **{name: value for name, value in arrays.items() if value is not None})


def test_what_is_saved_is_loaded_exactly(saved):
    expected, loaded = demonstrations(), load_demonstrations(saved, SPEC)
    assert loaded.records.dtype == expected.records.dtype
    np.testing.assert_array_equal(loaded.records, expected.records)
    assert loaded.level == "TfsacCameraArm-v0"
    np.testing.assert_array_equal(loaded.returns, [1.5, -2.25])


def test_loaded_records_fit_into_a_memory_of_the_same_environment(saved):
    loaded = load_demonstrations(saved, SPEC)
    memory = TransitionMemory(SPEC, 10)
    memory.put(0, loaded.records[:, None])
    memory.total_rows = len(loaded.records)
    np.testing.assert_array_equal(memory.newest(7)[:, 0]["action"], loaded.records["action"])


def test_a_file_that_exists_is_not_overwritten(saved):
    before = saved.read_bytes()
    with pytest.raises(FileExistsError, match=r"Received: .*demonstrations\.npz"):
        save_demonstrations(saved, demonstrations(seed=1))
    assert saved.read_bytes() == before


def test_a_file_named_without_its_ending_is_refused_before_anything_is_written(tmp_path):
    # NumPy would add the ending and so write over another file than the one that was checked.
    with pytest.raises(ValueError, match=r"ends in \.npz\. Received: .*expert$"):
        save_demonstrations(tmp_path / "expert", demonstrations())
    assert list(tmp_path.iterdir()) == []


def test_recorded_episodes_are_whole_and_their_actions_undo_the_rescaling(cliff_run, tmp_path):
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
    # The cliff rewards the action in its own units, -0.3 to 0.7.
    np.testing.assert_allclose(-0.3 + (rows["action"][:, 0] + 1.0) * 0.5, rows["reward"], atol=1e-6)
    sums = [part.sum() for part in np.split(rows["reward"], ends[:-1] + 1)]
    np.testing.assert_allclose(loaded.returns, sums, atol=1e-5)
    inside = np.setdiff1d(np.arange(len(rows)), ends)
    np.testing.assert_array_equal(
        rows["next_observation/observation"][inside], rows["observation/observation"][inside + 1]
    )


def test_recording_the_mode_is_repeatable_and_sampling_differs(cliff_run, tmp_path):
    first = api.record(cliff_run, tmp_path / "a.npz", episodes=2)
    again = api.record(cliff_run, tmp_path / "b.npz", episodes=2)
    sampled = api.record(cliff_run, tmp_path / "c.npz", episodes=2, deterministic=False)
    np.testing.assert_array_equal(first.records, again.records)
    assert np.abs(sampled.records["action"] - first.records["action"]).max() > 0.01
    assert np.abs(sampled.records["action"]).max() <= 1.0


def test_recording_where_a_file_exists_is_refused_before_any_episode(cliff_run, tmp_path):
    out = tmp_path / "mine.npz"
    out.write_bytes(b"precious")
    with pytest.raises(FileExistsError, match=r"Received: .*mine\.npz"):
        api.record(cliff_run, out)
    assert out.read_bytes() == b"precious"


def test_recording_needs_at_least_one_episode(cliff_run, tmp_path):
    with pytest.raises(ValueError, match="Received: 0"):
        api.record(cliff_run, tmp_path / "none.npz", episodes=0)
    assert not (tmp_path / "none.npz").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Received: .*nowhere\.npz"):
        load_demonstrations(tmp_path / "nowhere.npz", SPEC)


def test_an_empty_demonstration_is_refused(saved):
    with np.load(saved) as file:
        arrays = {name: value[:0] for name, value in file.items() if name not in ("meta", "returns")}
    rewrite(saved, **arrays)
    with pytest.raises(ValueError, match=r"is empty or truncated\. Received: .*'action': 0"):
        load_demonstrations(saved, SPEC)


def test_fields_of_unequal_length_are_refused(saved):
    rewrite(saved, reward=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"is empty or truncated\. Received: .*'reward': 3"):
        load_demonstrations(saved, SPEC)


@pytest.mark.parametrize("name", ["reward", "action", "observation/joints", "next_observation/joints"])
def test_numbers_that_are_not_finite_are_refused_by_name(saved, name):
    with np.load(saved) as file:
        bad = file[name]
    bad.reshape(-1)[:2] = np.nan, np.inf
    rewrite(saved, **{name: bad})
    with pytest.raises(ValueError, match=rf"must be finite\. Received: {name} with 2 bad entries"):
        load_demonstrations(saved, SPEC)


def test_actions_outside_their_range_are_refused(saved):
    with np.load(saved) as file:
        action = file["action"]
    action[2, 1] = 1.5
    rewrite(saved, action=action)
    with pytest.raises(ValueError, match="Received: "):
        load_demonstrations(saved, SPEC)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            SPEC._replace(action=ArraySpec((3,), "float32")),
            r"TfsacCameraArm-v0: action should be \(3,\)\. Received: \(2,\)",
        ),
        (
            SPEC._replace(observation={"joints": ArraySpec((4,), "float32")}),
            r"joints should be \(4,\)\. Received: \(3,\)",
        ),
        (
            SPEC._replace(observation={"observation": ArraySpec((3,), "float32")}),
            r"observation/observation should be \(3,\)",
        ),
    ],
)
def test_demonstrations_of_another_environment_are_refused(saved, spec, message):
    with pytest.raises(ValueError, match=message):
        load_demonstrations(saved, spec)


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated", "next_observation/joints"])
def test_a_file_without_one_of_the_fields_is_refused(saved, name):
    rewrite(saved, **{name: None})
    with pytest.raises(ValueError, match="Received: "):
        load_demonstrations(saved, SPEC)


@pytest.mark.parametrize("name", ["meta", "returns"])
def test_a_file_without_its_description_is_refused(saved, name):
    rewrite(saved, **{name: None})
    with pytest.raises(ValueError, match="not a demonstration file"):
        load_demonstrations(saved, SPEC)


@pytest.mark.parametrize("meta", ["[]", "{}", json.dumps({"format": 99, "level": "TfsacCameraArm-v0"})])
def test_a_description_that_cannot_be_understood_is_refused(saved, meta):
    rewrite(saved, meta=np.array(meta))
    with pytest.raises(ValueError, match="Received: "):
        load_demonstrations(saved, SPEC)


@pytest.mark.parametrize("damage", ["cut in half", "cut near the end", "one byte changed", "no archive", "nothing"])
def test_a_damaged_file_is_refused_with_its_size(saved, damage):
    content = bytearray(saved.read_bytes())
    if damage == "cut in half":
        content = content[: len(content) // 2]
    elif damage == "cut near the end":
        content = content[:-10]
    elif damage == "one byte changed":
        content[len(content) // 2] ^= 0xFF
    else:
        content = b"not an archive" if damage == "no archive" else b""
    saved.write_bytes(content)
    with pytest.raises(ValueError, match=rf"not a demonstration file.*Received: {len(content)} bytes"):
        load_demonstrations(saved, SPEC)


def test_a_file_with_pickled_objects_is_refused(saved):
    rewrite(saved, reward=np.array([{}] * 7, object))
    with pytest.raises(ValueError, match="not a demonstration file"):
        load_demonstrations(saved, SPEC)
