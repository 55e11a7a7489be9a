"""The project writes the field's words: phrases of its own that readers would have to translate do not come back."""

import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Regular expression -> what to write instead.
PHRASES = {
    r"\bslow cop(y|ies)\b|\bfollows? (it|them|`\w+`|\w+) slowly\b|\bfollows? slowly\b": "target network, Polyak "
    "averaging",
    r"\bslow value\b|\bfast network\b": "target value, online network",
    r"\bchoices and numbers\b|\b(for|are|of) (choices|numbers)\b|\breal numbers?\b|\breal-valued\b|\ba choice "
    r"among\b": ("discrete actions, continuous actions"),
    r"\bwhat is due\b|\bthat (is|are|were|was) due\b": "updates, update-to-data ratio",
    r"\bwhat was played\b|\bwhile( training is)? playing\b|\bthe playing\b": "transitions; while collecting",
    r"\bplayers?\b|\bwho plays\b|\bpolicy that plays\b": "collector, actor",
    r"\bstretch(es)?\b|\bgrowing tape\b": "sequence (TAAC), segment (ACER), rollout, transitions",
    r"\b(begins?|began|begun|dealt|drawn?|draws|deals?) anew\b": "episode start, restart, reset",
    r"\bwhat it remembers\b|\bit remembers\b|\bremembers the state\b": "policy state, recurrent state",
    r"\bthe draws?\b(?! of (a|the) (curve|picture))|\bdraws? of the policy\b": "reparameterised sample",
    r"\bgo(es)? on\b|\bwent on\b|\bgoing on\b": "continue, resume",
    r"\bof one's own\b|\bones? of their own models\b": "custom",
    r"\bundecided\b": "tie",
    r"\bhalves\b": "rows of the agent and of the demonstrations; diagnostics",
    r"\bdoes nothing else\b|\bdo nothing else\b": "say what it does",
    r"\bon one screen\b": "in one file",
    r"\btakes? over\b|\btook over\b": "load",
    r"\bheat-up\b": "warm-up (parameters keep `heatup`)",
}
ALLOWED: dict[str, set[str]] = {}
PAGES = [
    *(ROOT / "tfsac").rglob("*.py"),
    *(ROOT / "examples").glob("*.py"),
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "notebooks").glob("*.ipynb"),
    *(ROOT / "presets").glob("*.py"),
]
WIDTH = 120


def words(path):
    """Returns a file's text in one line; of a notebook its cells without outputs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return one_line(text)


def one_line(text):
    """Returns a text with one space between words."""
    return " ".join(text.split())


def found(text, allowed=()):
    """Returns the phrases of a text that are not to be written, each with what to write instead."""
    hits = []
    for pattern, instead in PHRASES.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            around = text[max(0, match.start() - 40) : match.end() + 40]
            if match[0].lower() not in allowed:
                hits.append(f"...{around}... -> {instead}")
    return hits


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_the_fields_words(path):
    assert found(words(path), ALLOWED.get(path.name, ())) == []


def test_a_phrase_is_found_across_lines_and_in_any_case():
    assert len(found(one_line("The Slow\n  copy follows"))) == 1
    assert found("The target network follows the online network.") == []


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.suffix == ".md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_prose_is_at_most_120_characters_wide(path):
    # Rows of tables and formulas cannot be broken; a script writes the notes below the table of features.
    lines = path.read_text(encoding="utf-8").splitlines()
    long = [
        (i, line) for i, line in enumerate(lines, 1) if len(line) > WIDTH and not line.lstrip().startswith(("|", "$$"))
    ]
    assert [i for i, line in long if path.name != "features.md" or not re.match(r"\d+\. ", line)] == []


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > WIDTH] == []
