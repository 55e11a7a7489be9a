"""Damages single bytes and whole files of a run's folder and counts how a resume handles each damage.

    python benchmarks/damages.py --damages=600 --seed=0

Each damage is applied to a fresh copy of a tiny run's folder, to a file of the newest checkpoint, a chunk of the memory
or a file of the run: a bit is flipped, or the file is truncated, emptied or deleted. The copy is then restored in this
process, as with `--resume`. Columns: the previous checkpoint was used, the file was repaired, the damage was rejected
with a one-line error, it was not noticed, or it caused an unexplained error. The last two must be empty, except for
flips in the name of the checksum in config.json.
"""

import argparse
import collections
import pathlib
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

KINDS = ("flip", "truncate", "empty", "delete")
OUTCOMES = ("before used", "mended", "refused", "unnoticed", "uncaught")


def damage(path, kind, rng):
    """Damages a file."""
    content = bytearray(path.read_bytes())
    if kind == "flip":
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    elif kind == "truncate":
        content = content[: rng.integers(1, len(content))]
    elif kind == "empty":
        content = bytearray()
    path.write_bytes(content)
    if kind == "delete":
        path.unlink()


def outcome(trainer, folder, damaged):
    """Restores a run's folder as `--resume` does, and returns the outcome."""
    from tfsac.training.checkpoints import CheckpointManager
    from tfsac.training.run_directory import CONFIG, RunDirectory

    directory = RunDirectory(folder)
    trainer.memory.total_rows = 0
    missing = not damaged.exists()
    manager = CheckpointManager(directory.checkpoints, trainer.agent, trainer.memory, trainer._checkpoints.identity)
    try:
        if damaged.name == CONFIG and damaged.parent == folder and damaged.exists():
            directory.read()
        newest = manager.saved_checkpoints()[-1]
        restored = manager.restore()
        notes = restored.notes
        directory.note_resume(trainer.preset, trainer.settings, 60, restored.run_files)
    except (RuntimeError, ValueError, OSError) as error:
        return "refused" if "\n" not in str(error) else "uncaught"
    except Exception:
        return "uncaught"
    if restored.path != newest:
        return "before used"
    # A resume restores the run's files to their saved contents, and recreates a missing config.
    whole = restored.run_files.get(damaged.name)
    if notes or (damaged.parent == folder and whole is not None and (missing or damaged.read_bytes() == whole)):
        return "mended"
    return "unnoticed"


def count(number, seed, folder):
    """Returns outcomes by (file, kind) for `number` damages of a tiny run in a folder."""
    from toys import tiny_preset

    from tfsac import api
    from tfsac.parameters import RunParameters, override
    from tfsac.training import Trainer

    changes = {
        "schedule.heatup_steps": 30,
        "schedule.improve_steps": 30,
        "schedule.steps_between_evaluation_periods": 20,
    }
    preset = override(tiny_preset(), {**changes, "agent.networks.*.batch_size": 16})
    run = RunParameters(checkpoint_save_steps=25)
    original, copy, rng = folder / "run", folder / "copy", np.random.default_rng(seed)
    api.train(preset, original, run, quiet=True)
    trainer = Trainer(preset, original, run, resume=True, quiet=True)
    trainer.close()
    newest, memory = trainer._checkpoints.saved_checkpoints()[-1], trainer._checkpoints.chunks
    names = sorted(path.relative_to(original) for folder in (newest, memory) for path in folder.iterdir())
    names += [pathlib.Path(name) for name in ("metrics.csv", "best.npz", "config.json")]
    table = collections.Counter()
    for i in range(number):
        name, kind = names[i % len(names)], KINDS[int(rng.choice(4, p=[0.7, 0.1, 0.1, 0.1]))]
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(original, copy, ignore=shutil.ignore_patterns("events", "policy"))
        damage(copy / name, kind, rng)
        found = outcome(trainer, copy, copy / name)
        table[_shown(name), found] += 1
        if found in ("unnoticed", "uncaught"):
            print(f"{name} {kind}: {found}")
    return table


def _shown(name):
    if name.parts[0] == "checkpoints":
        return "chunk" if name.parts[1] == "memory" else f"{name.parts[1]}/{name.name}"
    return name.name


def printed(table):
    """Returns outcomes as text, one row per file."""
    names = sorted({name for name, _ in table})
    lines = [f"{'file':<44}" + "".join(f"{outcome:>13}" for outcome in OUTCOMES)]
    lines += [f"{name:<44}" + "".join(f"{table[name, outcome] or '-':>13}" for outcome in OUTCOMES) for name in names]
    totals = {outcome: sum(table[name, outcome] for name in names) for outcome in OUTCOMES}
    return "\n".join(
        [
            *lines,
            f"{'all, of ' + str(sum(totals.values())):<44}"
            + "".join(f"{totals[outcome] or '-':>13}" for outcome in OUTCOMES),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = count(arguments.damages, arguments.seed, pathlib.Path(folder))
    print(printed(table))


if __name__ == "__main__":
    main()
