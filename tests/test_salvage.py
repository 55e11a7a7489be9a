"""Memories of which a disk lost some rows."""

import shutil

import numpy as np
import pytest

from tfsac.memories import EpisodicMemory, PrioritizedMemory, SequenceMemory, TransitionMemory
from tfsac.memories.salvage import put_back_without
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((1,), "float32")}, ArraySpec((1,), "float32"))
RINGS = {"uniform": TransitionMemory, "prioritized": PrioritizedMemory, "sequence": lambda spec, size, n: SequenceMemory(spec, size, 2, n)}


def filled(make, steps):
    memory = make(SPEC, 40, 2)
    for i in range(steps):
        observation = {"observation": np.full((2, 1), i, np.float32)}
        ends = np.array([i % 7 == 6] * 2)
        if getattr(memory, "rollout_complete", False):
            memory.batches(0, 2, np.random.default_rng(0))
        memory.add(observation, np.zeros((2, 1)), np.full(2, i), ends, np.zeros(2, bool), {"observation": observation["observation"] + 1})
    return memory


@pytest.mark.parametrize("steps", [18, 33])
@pytest.mark.parametrize("kind", RINGS)
def test_a_ring_is_put_back_without_a_gap_before_which_its_episodes_end(kind, steps):
    before, after = filled(RINGS[kind], steps), RINGS[kind](SPEC, 40, 2)
    if kind == "prioritized":
        before.draw(np.random.default_rng(0).random((1, 8)))
        before.update_priorities(np.arange(1.0, 9.0)[None])
    oldest, gap = before.oldest_row, before.total_rows - 6
    begin = max(oldest - 2, 0)  # the first chunk has rows that the ring does not keep any more
    parts = [
        (begin, gap, np.concatenate([before.between(oldest, oldest)] + [before.ring[[i % before.rows]] for i in range(begin, gap)])),
        (gap, gap + 2, None),
        (gap + 2, steps, before.between(gap + 2, steps)),
    ]
    put_back_without(after, parts, before.state(), before.total_rows)
    kept = [*range(oldest, gap), *range(gap + 2, steps)]
    assert after.ring["reward"][: len(kept), 0].tolist() == kept and after.total_rows == len(kept)
    ended = after.ring["truncated"] | after.ring["terminated"]
    assert ended[kept.index(gap - 1)].all()
    assert after.ring["truncated"].sum() == 2 * (not before.ring["terminated"][(gap - 1) % before.rows, 0])
    if kind == "prioritized":
        leaves = before.state()["leaves"].reshape(-1, 2)
        np.testing.assert_array_equal(after.state()["leaves"].reshape(-1, 2), leaves[np.array(kept) % before.rows])


def test_episodes_that_lost_a_record_are_left_out():
    before, after = filled(lambda spec, size, n: EpisodicMemory(spec, size, 4, n), 20), EpisodicMemory(SPEC, 40, 4, 2)
    assert [steps for _, steps in before.episodes] == [7, 7, 7, 7]
    total, oldest = before.total_rows, before.oldest_row
    parts = [(oldest, 10, before.between(oldest, 10)), (10, 12, None), (12, total, before.between(12, total))]
    put_back_without(after, parts, before.state(), total)
    assert [steps for _, steps in after.episodes] == [7, 7, 7] and after.total_rows == 24
    np.testing.assert_array_equal(after.between(0, 8), before.between(0, 8))
    np.testing.assert_array_equal(after.between(8, 24), before.between(16, 32))
    np.testing.assert_array_equal(after.tape, before.state()["tape"])


def test_a_run_is_resumed_without_rows_that_every_checkpoint_needs(tmp_path, capsys):
    from tfsac.parameters import RunParameters, override
    from tfsac.testing import tiny_preset
    from tfsac.training import CheckpointError, Trainer

    changes = {"schedule.heatup_steps": 30, "schedule.improve_steps": 30, "agent.networks.*.batch_size": 16}
    preset, run = override(tiny_preset(), changes), RunParameters(checkpoint_save_steps=25)
    Trainer(preset, tmp_path / "run", run, quiet=True).run()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    oldest = sorted((tmp_path / "copy" / "checkpoints" / "memory").iterdir())[0]
    oldest.write_bytes(oldest.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"Rows 0 to 24 of the replay memory are gone, .*--skip_damaged_rows.*Received: ") as error:
        Trainer(preset, tmp_path / "copy", run, resume=True, quiet=True)
    assert "\n" not in str(error.value)
    skipping = RunParameters(checkpoint_save_steps=25, skip_damaged_rows=True)
    longer = override(preset, {"schedule.improve_steps": 40})
    trainer = Trainer(longer, tmp_path / "copy", skipping, resume=True)
    assert "Without the damaged rows 0 to 24 of the replay memory." in capsys.readouterr().out
    assert len(trainer.memory) == 35 and trainer.counters.env_steps == 60
    assert trainer.run().counters.env_steps == 70 and len(trainer.memory) == 45
    assert not trainer.directory.read()[1].skip_damaged_rows
    again = Trainer(longer, tmp_path / "copy", run, resume=True, quiet=True)
    assert len(again.memory) == 45
    again._close_environments()
