"""Notebooks run completely and produce their committed number of figures."""

import pathlib

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
IMPROVE_STEPS = "300"  # enough for updates and several evaluations
SKIP_REASON = "notebooks need: pip install 'tfsac[notebooks]'"


def read(path):
    return pytest.importorskip("nbformat", reason=SKIP_REASON).read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.id != "colab-install"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def figures(notebook):
    return [output["data"]["image/png"] for output in outputs(notebook) if "image/png" in output.get("data", {})]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_outputs_are_complete(path):
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))  # in order, in one go
    assert path.stat().st_size < 300_000
    assert figures(notebook)
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        assert "/tmp" not in output.get("text", "")


@pytest.mark.acceptance
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    pytest.importorskip("ipykernel", reason=SKIP_REASON)
    nbclient = pytest.importorskip("nbclient", reason=SKIP_REASON)
    expected, notebook = len(figures(read(path))), read(path)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    monkeypatch.setenv("TFSAC_NOTEBOOK_STEPS", IMPROVE_STEPS)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert len(figures(notebook)) == expected
