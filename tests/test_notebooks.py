"""Every notebook runs from its first cell to its last, and draws what it promises."""

import pathlib

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
IMPROVE_STEPS = "300"


def outputs_of(notebook):
    return [(cell.source, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def pictures(notebook):
    return [output["data"]["image/png"] for _, output in outputs_of(notebook) if "image/png" in output.get("data", {})]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs_are_small_and_whole(path):
    nbformat = pytest.importorskip("nbformat", reason="reading notebooks needs: pip install 'tfsac[notebooks]'")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "executed in order, once"
    assert path.stat().st_size < 300_000
    assert pictures(notebook)
    for source, output in outputs_of(notebook):
        assert output.output_type != "error", source
        assert output.get("name") != "stderr", source


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="running notebooks needs: pip install 'tfsac[notebooks]'")
    nbformat = pytest.importorskip("nbformat", reason="running notebooks needs: pip install 'tfsac[notebooks]'")
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    monkeypatch.setenv("TFSAC_NOTEBOOK_STEPS", IMPROVE_STEPS)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    # A cell that raises ends the run with CellExecutionError, which shows the cell and the traceback.
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert len(pictures(notebook)) == len(pictures(committed)) > 0
    for source, output in outputs_of(notebook):
        assert output.output_type != "error", source
