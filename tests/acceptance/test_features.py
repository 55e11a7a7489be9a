"""The table of agents and features in the docs is what this version does: every cell is tried again, which takes an hour
on two cores.
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
    """Returns "works" or "refused" by agent and feature."""
    lines = TABLE.read_text().splitlines()
    notes = [line for line in lines if re.match(r"\d+\. ", line)]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|"))
    agents = {words: agent for agent, words in features.AGENTS.items()}
    names = {words: feature for feature, (words, _, _) in features.FEATURES.items()}
    cells = {}
    for words, *row in rows:
        for agent, cell in zip(head[1:], row, strict=True):
            refused = re.fullmatch(r"refused \((\d+)\)", cell)
            assert cell == "works" or int(refused[1]) <= len(notes)
            cells[agents[agent], names[words]] = "refused" if refused else cell
    return cells


def test_the_table_has_every_agent_and_feature():
    assert committed().keys() == {(agent, feature) for agent in features.AGENTS for feature in features.FEATURES}


@pytest.mark.acceptance
@pytest.mark.parametrize("agent", features.AGENTS)
def test_an_agent_does_with_every_feature_what_the_table_says(agent, tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, features.__file__, f"--agents={agent}", f"--folder={tmp_path}", f"--out={out}"]
    assert subprocess.run(command, check=False).returncode == 0
    found = {feature: result.partition(":")[0] for _, feature, result in map(json.loads, out.read_text().splitlines())}
    assert found == {feature: committed()[agent, feature] for feature in features.FEATURES}
