"""The documentation site: its strict build, which checks links, anchors and the navigation."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_site_is_built_with_every_page_its_formulas_and_pictures(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder, pages in (("docs", "*.md"), ("notebooks", "*.ipynb")):
        built = tmp_path if folder == "docs" else tmp_path / folder
        assert {path.stem for path in (ROOT / folder).glob(pages)} <= {path.stem for path in built.glob("*.html")}
    page = (tmp_path / "twin_soft_actor_critic.html").read_text()
    assert page.count("<math") > 20
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//', page)  # nothing of other servers
    for path in tmp_path.glob("*.html"):
        for target in re.findall(r'src="([^"]*files/[^"]*)"', path.read_text()):
            assert (path.parent / target).is_file()
