"""What the documents tell users to type can be typed, and what they point to is there."""

import pathlib
import re
import shlex

import pytest

import tfsac
from tfsac.cli.command_registry import parse
from tfsac.cli.train import requested_run

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^\s*tfsac train (--preset=.*)$", re.MULTILINE)
# A page's own test loads the last ones.
PLACEHOLDERS = ("...", "PRESET", "FILE", "RUN", "--preset=runs/", "my_preset.py", "my_exploration.py")


def commands(page):
    """Returns the training commands of a page, those that go on in the next line too."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in COMMAND.findall(text) if not any(mark in line for mark in PLACEHOLDERS)]


COMMANDS = [(page.name, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_document_describes_an_experiment(page, line):
    preset, _ = requested_run(parse("train", shlex.split(line, comments=True))[0])
    assert preset.environment.level


def anchors(page):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_document_lead_somewhere(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    links = [link.partition("#") for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [target for target, _, _ in links if target and not (page.parent / target).exists()] == []
    to_headings = [(page.parent / target if target else page, anchor) for target, _, anchor in links if anchor]
    assert [(to.name, anchor) for to, anchor in to_headings if to.suffix == ".md" and anchor not in anchors(to)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_that_a_document_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tfsac|tests|benchmarks|presets|docs|notebooks)/[\w./]*[\w/])`", text))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_citation_is_of_this_version():
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "tfsac" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_functions_that_the_reference_gives_to_tfsac_are_there():
    offered = (ROOT / "docs" / "reference.md").read_text().partition("## Other modules")[0]
    names = [
        name
        for names in re.findall(r"^      members: \[(.*)\]$", offered, flags=re.MULTILINE)
        for name in names.split(", ")
    ]
    assert len(names) > 15 and set(names) <= set(tfsac.__all__)
