"""Invalid network settings in `--set` print one line, exit with status 2 and write nothing."""

import pytest
from cli_tools import error_line

P, E = "agent.networks.", "agent.networks.policy.input_embedders_parameters"
# Preset, assignment, part of the error message.
INVALID = [
    ("pendulum_twin_sac", E + '={"observatoin": {"scheme": [8]}}', "'observation'"),
    ("pendulum_twin_sac", E + "={}", "input_embedders_parameters"),
    ("pendulum_twin_sac", P + 'policy.middleware_parameters={"kind": "lstm"}', "LSTM"),
    ("pendulum_twin_sac", P + 'q.head_parameters={"kind": "v"}', "'q'"),
    ("pendulum_twin_sac", P + "v.learning_rate=1e-3", "learning_rate"),
    ("pendulum_twin_sac", P + "policy.create_target_network=true", "target network"),
    ("acer_pendulum", P + "advantage.head_parameters.num_critics=2", "num_critics"),
]


@pytest.mark.parametrize(("preset", "assignment", "word"), INVALID, ids=[assignment for _, assignment, _ in INVALID])
def test_invalid_network_setting_prints_one_line(tmp_path, capsys, preset, assignment, word):
    command = ["train", f"--preset={preset}", f"--run_dir={tmp_path / 'run'}", f"--set={assignment}"]
    assert word in error_line(command, capsys)
    assert not (tmp_path / "run").exists()
