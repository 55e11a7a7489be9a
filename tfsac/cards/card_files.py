"""The files of a model card's folder, and the checks of one that came from somewhere else. No TensorFlow.

README.md       what a stranger reads; its head is the metadata of a Hugging Face model repository
config.json     the preset, how it was run, versions, spaces, and the checksums of the policy's files
results.json    returns of every episode
policy/         the SavedModel
policy.tflite   the same for LiteRT (optional)
curve.png       the learning curve
replay.mp4      the first episode (optional)
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import shlex
from collections.abc import Iterable
from typing import Any

from tfsac.files import read_object

PAGE, CONFIG, RESULTS, CURVE, FILM = "README.md", "config.json", "results.json", "curve.png", "replay.mp4"
POLICY, LITE = "policy", "policy.tflite"
FORMAT, CHECKSUMS = "card", "policy_files"  # in config.json


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of the policy's files by their paths in a card's folder."""
    files = [path for path in [*(folder / POLICY).rglob("*"), folder / LITE] if path.is_file()]
    return {path.relative_to(folder).as_posix(): _checksum(path) for path in sorted(files)}


def write_json(path: pathlib.Path, content: dict[str, Any]) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_card(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """Checks a card's folder as far as that takes no TensorFlow.

    Args:
        folder: of the card; its page, its pictures, its results and one of the two policies may be missing.

    Returns:
        the policy's folder or file, and the config.

    Raises:
        FileNotFoundError: no such folder, no card, or no policy in it.
        ValueError: config or policy are damaged.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"A model card is a folder that tfsac card wrote. Received: {folder}")
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"A model card of tfsac has a {CONFIG}. Received: {folder}")
    try:
        config = read_object(folder / CONFIG)
    except (OSError, ValueError) as error:
        size = (folder / CONFIG).stat().st_size
        raise ValueError(
            f"{folder / CONFIG} is damaged ({error}); download it again. Received: {size} bytes"
        ) from error
    if config.get(FORMAT) != 1:
        run = config.keys() >= {"preset", "run"}
        command = f"tfsac card {shlex.quote(f'--run_dir={folder}')} --out=FOLDER"
        hint = f" This is a run: {command} makes a card of it." if run else ""
        raise ValueError(f"{folder / CONFIG} is not of a model card.{hint} Received: {folder}")
    try:
        listed = {str(name): str(checksum) for name, checksum in config[CHECKSUMS].items()}
    except (LookupError, AttributeError) as error:
        raise ValueError(f"{folder / CONFIG} is damaged; download it again. Received: no {CHECKSUMS}") from error
    saved_model = [name for name in listed if name.startswith(f"{POLICY}/")]
    if any((folder / name).exists() for name in saved_model):
        _check_files(folder, saved_model, listed)
        return folder / POLICY, config
    if LITE in listed and (folder / LITE).is_file():
        _check_files(folder, [LITE], listed)
        return folder / LITE, config
    raise FileNotFoundError(f"The card has no policy: download {POLICY}/ or {LITE} too. Received: {folder}")


def read_results(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the returns that a card tells; empty where its file is missing.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / RESULTS
    if not path.is_file():
        return {}
    try:
        found = read_object(path)
        if not {"returns", "mean", "std", "seed"} <= found.keys():
            raise ValueError("it has no returns")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); download it again, or remove it. Received: {path.stat().st_size} bytes"
        ) from error
    return found


def _check_files(folder: pathlib.Path, names: Iterable[str], listed: dict[str, str]) -> None:
    for name in names:
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"A file of the policy is missing; download the whole card. Received: no {path}")
        if _checksum(path) != listed[name]:
            raise ValueError(
                f"{path} is not the file that the card was made with; download it again (with Git, git lfs pull). "
                f"Received: {path.stat().st_size} bytes"
            )


def _checksum(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
