"""Checks every cell of the table in docs/features.md, which takes an hour on two cores."""

import json
import pathlib
import re
import subprocess
import sys

import features
import pytest

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "features.md"


def documented_results():
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


def test_table_has_every_agent_and_feature():
    assert documented_results().keys() == {
        (agent, feature) for agent in features.AGENTS for feature in features.FEATURES
    }


@pytest.mark.acceptance
@pytest.mark.parametrize("agent", features.AGENTS)
def test_agent_matches_the_table(agent, tmp_path):
    out = tmp_path / "results.jsonl"
    command = [sys.executable, features.__file__, f"--agents={agent}", f"--folder={tmp_path}", f"--out={out}"]
    assert subprocess.run(command, check=False).returncode == 0
    actual = {feature: result.partition(":")[0] for _, feature, result in map(json.loads, out.read_text().splitlines())}
    assert actual == {feature: documented_results()[agent, feature] for feature in features.FEATURES}
