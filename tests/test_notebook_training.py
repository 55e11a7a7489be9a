"""Training in a notebook: output, an interrupted cell, and resuming in the next one."""

import asyncio
import pathlib
import threading
import time

import pytest

SKIP_REASON = "notebooks need: pip install 'tfsac[notebooks]'"
CELLS = (
    """
import tfsac
from toys import tiny_preset

preset = tfsac.override(tiny_preset(), {"schedule.improve_steps": 1_000_000, "schedule.steps_between_evaluation_periods": 50})
result = tfsac.train(preset, "run")
print("reason", result.reason)
""",
    """
preset = tfsac.override(preset, {"schedule.improve_steps": max(50, result.counters.env_steps)})
result = tfsac.train(preset, "run", resume=True)
print("reason", result.reason)
""",
    """
tfsac.plot("run")
""",
    """
import os, signal

class InterruptTwice(tfsac.Callback):
    def on_step(self, trainer):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

print("reason", tfsac.train(tiny_preset(), "other", callbacks=[InterruptTwice()]).reason)
""",
)


def text_of(outputs):
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.acceptance
def test_interrupted_cell_is_resumed_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(__file__).parent))  # for toys
    pytest.importorskip("ipykernel", reason=SKIP_REASON)
    nbclient = pytest.importorskip("nbclient", reason=SKIP_REASON)
    from nbformat import v4

    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )

    def interrupt():
        metrics = tmp_path / "run" / "metrics.csv"
        while not metrics.is_file() or len(metrics.read_text().splitlines()) < 4:
            time.sleep(0.1)
        asyncio.run(client.km.interrupt_kernel())

    with client.setup_kernel():
        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        first = client.execute_cell(notebook.cells[0], 0).outputs
        thread.join()
        second = client.execute_cell(notebook.cells[1], 1).outputs
        (figure,) = client.execute_cell(notebook.cells[2], 2).outputs
        last = client.execute_cell(notebook.cells[3], 3).outputs
    assert "reason SIGINT" in text_of(first) and "Continue with: " in text_of(first)
    assert "reason finished" in text_of(second) and "/run from step " in text_of(second)
    for outputs in (first, second):
        assert "evaluation return" in text_of(outputs) and "±" in text_of(outputs)
    assert figure["data"]["image/png"]
    assert "reason SIGINT" in text_of(last)
