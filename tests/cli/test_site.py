"""The site: built strictly, without the network, with every page in its menu and a search that works from a file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make site` builds it: a warning, such as a link that leads nowhere, is an error."""
    place = tmp_path_factory.mktemp("site")
    words = ["--quiet", "--fail-on-warning", "--keep-going", "--builder", "html", "--doctree-dir", str(place / "trees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, "docs", str(place / "html")],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return place / "html"


@pytest.mark.nightly
def test_every_page_is_in_the_menu(site):
    front = (site / "index.html").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.html"} - set(re.findall(r'href="([^"#]+)"', front)) == set()
    assert re.findall(r'class="caption-text">([^<]+)', front)[:4] == ["Tutorial", "How-to", "Reference", "Explanation"]


@pytest.mark.nightly
def test_a_page_asks_no_other_host(site):
    """What is loaded is beside the page; links that a person follows may lead anywhere."""
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+href="(https?:[^"]+)""")
    assert [path.name for path in site.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.nightly
def test_the_search_needs_no_server(site):
    """The index is a script, and no page is fetched for a summary."""
    assert (site / "searchindex.js").read_text(encoding="utf-8").startswith("Search.setIndex(")
    assert "SHOW_SEARCH_SUMMARY: false" in (site / "_static/documentation_options.js").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_what_is_made_from_the_code_is_there(site):
    assert "--max-cost" in (site / "reference/commands.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", (site / "reference/messages.html").read_text(encoding="utf-8"))
    assert "git was not found on PATH" in text
