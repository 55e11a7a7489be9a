"""The documentation site builds in strict mode, which checks links, anchors and navigation."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_site_has_every_page_formula_and_image(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    for folder, pages in (("docs", "*.md"), ("notebooks", "*.ipynb")):
        built = tmp_path if folder == "docs" else tmp_path / folder
        assert {path.stem for path in (ROOT / folder).glob(pages)} <= {path.stem for path in built.glob("*.html")}
    page = (tmp_path / "twin_soft_actor_critic.html").read_text()
    assert page.count("<math") > 20
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//', page)  # no external resources
    for path in tmp_path.glob("*.html"):
        for target in re.findall(r'src="([^"]*files/[^"]*)"', path.read_text()):
            assert (path.parent / target).is_file()
