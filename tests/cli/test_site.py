"""The site: built strictly, without the network, with every page in its menu and a search that works from a file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
MENU = ["Tutorial", "How-to", "Reference", "Explanation"]


@pytest.mark.nightly
def test_the_site_has_every_page_and_what_is_made_from_the_code_and_asks_no_other_host(tmp_path):
    """As `make site` builds it: a warning, such as a link that leads nowhere, is an error.

    What is loaded is beside the page; the search's index is a script, and no page is fetched for a summary.
    """
    words = [
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        "--builder",
        "html",
        "--doctree-dir",
        str(tmp_path / "trees"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, "docs", str(tmp_path / "html")],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = [path for path in (tmp_path / "html").rglob("*.*") if path.suffix in {".html", ".js"}]
    site = {str(path.relative_to(tmp_path / "html")): path.read_text("utf-8") for path in found}
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"index.html"} - set(re.findall(r'href="([^"#]+)"', site["index.html"])) == set()
    assert re.findall(r'class="caption-text">([^<]+)', site["index.html"])[:4] == MENU
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src="(https?:[^"]+)|<link[^>]+href="(https?:[^"]+)""")
    assert [name for name, text in site.items() if name.endswith(".html") and loaded.search(text)] == []
    assert site["searchindex.js"].startswith("Search.setIndex(")
    assert "SHOW_SEARCH_SUMMARY: false" in site["_static/documentation_options.js"]
    assert "--max-cost" in site["reference/commands.html"]
    assert "git was not found on PATH" in re.sub(r"<[^>]+>", "", site["reference/messages.html"])
