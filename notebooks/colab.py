"""Adds Colab badges to the notebooks, once the repository has a public address.

    python notebooks/colab.py https://github.com/OWNER/NAME

Each notebook gets a badge that opens it in Colab, and a cell that installs the package in Colab and does nothing
elsewhere. A new address replaces the previous one.
"""

import pathlib
import re
import sys
from typing import Any

import nbformat

BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
INSTALL = """import sys

if "google.colab" in sys.modules:
    %pip install --quiet "tfsac[notebooks,mujoco,box2d,litert] @ git+{repository}\""""


def add_colab(notebook: Any, name: str, repository: str) -> None:
    """Inserts the badge and the installation cell at the top of a notebook.

    Args:
        notebook: an `nbformat` notebook, changed in place.
        name: its file name.
        repository: the address on GitHub, "https://github.com/OWNER/NAME".

    Raises:
        ValueError: the address has another form.
    """
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", repository)
    if found is None:
        raise ValueError(f"the repository must be https://github.com/OWNER/NAME, got {repository!r}")
    place = f"https://colab.research.google.com/github/{found[1]}/blob/main/notebooks/{name}"
    cells = (
        nbformat.v4.new_markdown_cell(f"[![Open in Colab]({BADGE})]({place})", id="colab-badge"),
        nbformat.v4.new_code_cell(INSTALL.format(repository=f"https://github.com/{found[1]}"), id="colab-install"),
    )
    ours = {cell.id for cell in cells}
    notebook.cells = [*cells, *(cell for cell in notebook.cells if cell.id not in ours)]


def main() -> None:
    """Adds the cells to all notebooks in this folder."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    for path in sorted(pathlib.Path(__file__).parent.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        add_colab(notebook, path.name, sys.argv[1])
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main()
