"""Mistakes in networks, typed as `--set`: each ends in one line with status 2, and nothing is written."""

import pytest

from tfsac import cli

P, E = "agent.networks.", "agent.networks.policy.input_embedders_parameters"
# Preset, what is set, a word of the error.
WRONG = [
    ("pendulum_twin_sac", E + '={"observatoin": {"scheme": [8]}}', "'observation'"),
    ("pendulum_twin_sac", E + "={}", "input_embedders_parameters"),
    ("pendulum_twin_sac", P + 'policy.middleware_parameters={"kind": "lstm"}', "LSTM"),
    ("pendulum_twin_sac", P + 'q.head_parameters={"kind": "v"}', "'q'"),
    ("pendulum_twin_sac", P + "v.learning_rate=1e-3", "learning_rate"),
    ("pendulum_twin_sac", P + "policy.create_target_network=true", "target network"),
    ("acer_pendulum", P + "advantage.head_parameters.num_critics=2", "num_critics"),
]


@pytest.mark.parametrize(("preset", "assignment", "word"), WRONG, ids=[assignment for _, assignment, _ in WRONG])
def test_a_mistake_ends_in_one_line(tmp_path, capsys, preset, assignment, word):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", f"--preset={preset}", f"--run_dir={tmp_path / 'run'}", f"--set={assignment}"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tfsac: ")]
    assert ended.value.code == 2 and word in line
    assert not (tmp_path / "run").exists()
