"""The documentation site: its strict build, which checks links, anchors and the navigation, and what pages become."""

import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_of_the_documents_is_on_the_site(site):
    expected = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"build_notes", "changes"}
    assert expected <= {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {
        path.stem for path in (site / "notebooks").glob("*.html")
    }


def test_formulas_are_drawn_by_the_browser_alone_and_pages_are_searched(site):
    page = (site / "twin_soft_actor_critic.html").read_text()
    assert page.count("<math") > 20 and "arithmatex" not in page
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//', page)
    assert "target network" in (site / "search" / "search_index.json").read_text()


def test_pictures_outside_of_the_documents_are_copied(site):
    used = {
        path.relative_to(site).as_posix()
        for page in site.glob("*.html")
        for target in re.findall(r'src="([^"]*files/[^"]*)"', page.read_text())
        for path in [(page.parent / target).resolve()]
    }
    assert used and all((site / path).is_file() for path in used)
