"""The committed table of agents and features is what this version does: every cell is tried again, which takes an
hour on two cores.
"""

import json
import pathlib
import re
import subprocess
import sys

import features
import pytest

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "features.md"


def committed():
    """Returns the cells of the table by agent and feature: "works", or "refused: " and the reason."""
    lines = TABLE.read_text().splitlines()
    notes = dict(re.match(r"(\d+)\. (.*)", line).groups() for line in lines if re.match(r"\d+\. ", line))
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|"))
    agents = {words: agent for agent, words in features.AGENTS.items()}
    names = {words: feature for feature, (words, _, _) in features.FEATURES.items()}
    cells = {}
    for words, *row in rows:
        for agent, cell in zip(head[1:], row, strict=True):
            refused = re.fullmatch(r"refused \((\d+)\)", cell)
            cells[agents[agent], names[words]] = f"refused: {notes[refused[1]]}" if refused else cell
    return cells


def test_the_table_has_every_agent_and_feature():
    assert committed().keys() == {(agent, feature) for agent in features.AGENTS for feature in features.FEATURES}


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (
            "Preset.agent.memory: the kind must be one of sequences, MODULE:CLASS, got {'kind': 'prioritized'}",
            "The replay memory of this agent is of the kind 'sequences'.",
        ),
        (
            "There is no parameter 'agent.algorithm.n_step'. Did you mean 'x'?",
            "This agent has no parameter `agent.algorithm.n_step`.",
        ),
        (
            "Models (models) are for agents of the kind 'a'. Received: 'b'",
            "Models (models) are for agents of the kind 'a'.",
        ),
    ],
)
def test_a_note_is_a_sentence(refused, sentence):
    assert features.reason_of(f"refused: {refused}") == sentence


def test_the_notes_of_the_table_are_sentences():
    notes = {cell.partition(": ")[2] for cell in committed().values() if cell.startswith("refused")}
    assert len(notes) == 11
    for note in notes:
        assert note[0].isupper() and note.endswith(".") and "Input should" not in note and "Preset." not in note


@pytest.mark.acceptance
@pytest.mark.parametrize("agent", features.AGENTS)
def test_an_agent_does_with_every_feature_what_the_table_says(agent, tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, features.__file__, f"--agents={agent}", f"--folder={tmp_path}", f"--out={out}"]
    assert subprocess.run(command, check=False).returncode == 0
    found = {feature: result for _, feature, result in map(json.loads, out.read_text().splitlines())}
    shown = {
        feature: f"refused: {features.reason_of(x)}" if x.startswith("refused") else x for feature, x in found.items()
    }
    assert shown == {feature: committed()[agent, feature] for feature in features.FEATURES}
