"""Memories of which a disk lost some rows."""

import re

import numpy as np
import pytest
import tiny

from tfsac import api, cli
from tfsac.catalog import load_preset, read_config
from tfsac.memories import EpisodicMemory, PrioritizedMemory, SequenceMemory, TransitionMemory
from tfsac.memories.salvage import put_back_without
from tfsac.parameters import RunParameters, override
from tfsac.training import Callback
from tfsac.types import ArraySpec, Spec

SPEC = Spec({"observation": ArraySpec((1,), "float32")}, ArraySpec((1,), "float32"))
RINGS = {
    "uniform": TransitionMemory,
    "prioritized": PrioritizedMemory,
    "sequence": lambda spec, size, n: SequenceMemory(spec, size, 2, n),
}


def filled(make, steps):
    memory = make(SPEC, 40, 2)
    for i in range(steps):
        observation = {"observation": np.full((2, 1), i, np.float32)}
        ends = np.array([i % 7 == 6] * 2)
        if getattr(memory, "rollout_complete", False):
            memory.batches(0, 2, np.random.default_rng(0))
        memory.add(
            observation,
            np.zeros((2, 1)),
            np.full(2, i),
            ends,
            np.zeros(2, bool),
            {"observation": observation["observation"] + 1},
        )
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
        (
            begin,
            gap,
            np.concatenate(
                [before.between(oldest, oldest)] + [before.ring[[i % before.rows]] for i in range(begin, gap)]
            ),
        ),
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


@pytest.mark.slow
def test_a_run_whose_checkpoints_share_a_damaged_chunk_is_refused_with_its_rows_and_resumed_without_them(
    tmp_path, capsys
):
    run, chunks = tmp_path / "run", tmp_path / "run" / "checkpoints" / "memory"

    class Stop(Callback):
        def on_step(self, trainer):
            if trainer.counters.env_steps == 36:
                trainer.stop("half of it")

    preset = override(load_preset("pendulum_sac"), {**tiny.CHANGES, **tiny.SHORTER})
    api.train(preset, run, RunParameters(checkpoint_save_steps=12), callbacks=[Stop()], quiet=True)
    oldest = min(chunks.iterdir())
    assert oldest.name.startswith("rows-0000000000-0000000012") and len(list(chunks.iterdir())) == 3
    oldest.write_bytes(oldest.read_bytes()[:-1] + b"?")

    def resume(*flags):
        with pytest.raises(SystemExit) as ended:
            cli.main(["train", f"--run_dir={run}", "--resume", *flags])
        return ended.value.code, capsys.readouterr()

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, printed = resume()
    assert status == 2 and re.search(
        r"^tfsac: Rows 0 to 11 of the replay memory are gone.*--skip_damaged_rows.* Received: ", printed.err
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    status, printed = resume("--skip_damaged_rows")
    assert status in (0, None) and "Without the damaged rows 0 to 11 of the replay memory." in printed.out.replace(
        "\n", " "
    )
    assert tiny.rows(run)[-1]["env_steps"] == "60" and (run / "policy").is_dir()
    # It is of this resume alone: neither the next one nor a run of the same config is asked to do it.
    assert not read_config(run / "config.json")[1].skip_damaged_rows
    status, printed = resume()
    assert status in (0, None) and "damaged rows" not in printed.out
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", f"--preset={run / 'config.json'}", f"--run_dir={tmp_path / 'next'}"])
    assert ended.value.code in (0, None) and tiny.rows(tmp_path / "next")[-1]["env_steps"] == "60"
