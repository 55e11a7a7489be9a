"""The "coming from" pages: tfsac code runs, and parameters, commands and flags exist."""

import csv
import re
import shlex

import pytest
from pages import ROOT, blocks, commands_of, run_page

from tfsac.cli import COMMANDS
from tfsac.cli.command_registry import parse
from tfsac.parameters import ParameterError, override, parse_assignment, to_json
from tfsac.preset_lookup import load_preset, preset_names

PAGES = sorted((ROOT / "docs").glob("coming_from_*.md"))
PRESETS = {name: load_preset(name) for name in preset_names()}
PATH = re.compile(r"`((?:agent|environment|schedule|validation)\.[\w.*]+(?:=[^`]+)?)`")
ids = {"argvalues": PAGES, "ids": [page.stem for page in PAGES]}


def plain(page):
    """Returns the text of a page without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def tfsac_blocks(page):
    """Returns the blocks of a page that use tfsac, not the other library."""
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.note[0] != "skip"]


def block_text(block):
    """Returns a Python block in Markdown, with its file comment if it has one."""
    note = f"<!-- file: {block.note[1]} -->\n" if block.note[0] == "file" else ""
    return f"{note}```python\n{block.text}```"


def fits(preset, path, value=None):
    """Returns whether a preset has a parameter and accepts the value, if there is one."""
    try:
        if value is not None:
            override(preset, {path: value})
            return True
        node = to_json(preset)
        for part in path.split("."):
            node = next(iter(node.values())) if part == "*" else node[part]
    except (ParameterError, KeyError, TypeError):
        return False
    return True


@pytest.mark.parametrize("page", **ids)
def test_documented_parameters_exist(page):
    named = PATH.findall(plain(page))
    assert len(named) > 10
    missing = []
    for text in named:
        path, value = parse_assignment(text) if "=" in text else (text, None)
        if not any(fits(preset, path, value) for preset in PRESETS.values()):
            missing.append(text)
    assert missing == []


@pytest.mark.parametrize("page", **ids)
def test_documented_commands_and_flags_exist(page):
    commands = [command for block in tfsac_blocks(page) if not block.language for command in commands_of(block.text)]
    commands += [shlex.split(text) for text in re.findall(r"`(tfsac [^`]+)`", plain(page))]
    for program, name, *words in commands:
        assert program == "tfsac" and name in COMMANDS
        flags = {re.sub("^(no)?", "", word[2:].partition("=")[0]) for word in words if word.startswith("--")}
        assert flags <= {"help", *(re.sub("^no", "", flag) for flag in parse(name, [])[0])}, words


SHORT = "import tiny\nfrom tfsac.preset_lookup import load_preset\npreset = tiny.shrunk(load_preset('pendulum_twin_sac'), **tiny.SHORTER)\n"
REPLACED = {
    '"pendulum_twin_sac"': '"short.py"',
    "19_000": "40",
    "heatup_steps=EnvironmentSteps(1_000)": "heatup_steps=EnvironmentSteps(130)",
    "improve_steps=EnvironmentSteps(9_000)": "improve_steps=EnvironmentSteps(20)",
    "EnvironmentEpisodes(5)": "EnvironmentEpisodes(1)",
}


@pytest.mark.acceptance
def test_python_blocks_of_the_pages_run(tmp_path):
    """Runs each block once, although several pages have it. test_spinning_up.py tests those of `tfsac.sac`."""
    texts = [block_text(block) for page in PAGES for block in tfsac_blocks(page) if block.language == "python"]
    texts = [text for text in dict.fromkeys(texts) if not re.search(r"\b(sac|test_policy)\(", text)]
    (tmp_path / "short.py").write_text(SHORT)
    (tmp_path / "page.md").write_text("\n\n".join(texts))
    names = run_page(tmp_path / "page.md", tmp_path, REPLACED)
    assert names["policy"].act([1.0, 0.0, 0.0]).shape == (1,)
    assert all((tmp_path / path).is_dir() for path in re.findall(r'export\(policy, "(\w+)"', "".join(texts)))
    for name, steps in (("pendulum", 80), ("heavy", 60), ("models", 60), ("mine", 150)):
        with (tmp_path / "runs" / name / "metrics.csv").open(newline="") as file:
            assert [int(row["env_steps"]) for row in csv.DictReader(file)][-1] == steps, name
