"""Commands, links, file names and functions in the documentation are valid."""

import re
import shlex

import pytest
from pages import ROOT

import tfsac
from tfsac.cli.command_registry import parse
from tfsac.cli.train import requested_run

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^\s*tfsac train (--preset=.*)$", re.MULTILINE)
# Other tests cover the last ones.
PLACEHOLDERS = ("...", "PRESET", "FILE", "RUN", "--preset=runs/", "my_preset.py", "my_exploration.py")


def commands(page):
    """Returns the training commands of a page, including continued lines."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in COMMAND.findall(text) if not any(mark in line for mark in PLACEHOLDERS)]


COMMANDS = [(page.name, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_documented_training_commands_are_valid(page, line):
    preset, _ = requested_run(parse("train", shlex.split(line, comments=True))[0])
    assert preset.environment.level


def anchors(page):
    """Returns the anchors of the headings of a page, like GitHub."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_documents_exist(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [target for target, _, _ in links if target and not (page.parent / target).exists()] == []
    to_headings = [(page.parent / target if target else page, anchor) for target, _, anchor in links if anchor]
    assert [(to.name, anchor) for to, anchor in to_headings if to.suffix == ".md" and anchor not in anchors(to)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_documents_exist(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tfsac|tests|benchmarks|presets|docs|notebooks)/[\w./]*[\w/])`", text))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_citation_has_current_version():
    assert f"\nversion: {tfsac.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_functions_in_the_reference_exist():
    offered = (ROOT / "docs" / "reference.md").read_text().partition("## Other modules")[0]
    names = ", ".join(re.findall(r"^      members: \[(.*)\]$", offered, flags=re.MULTILINE)).split(", ")
    assert len(names) > 15 and set(names) <= set(tfsac.__all__)
