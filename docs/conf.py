"""The documentation site: `make site` builds it into build/site with Sphinx, MyST and Furo.

The pages are plain Markdown that reads on its own. What only the site has is added while it is built: the menu, and
what is made from the code (options of commands, all refusals).
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

from relay import __version__
from tests.cli.manual import write_options_page
from tests.cli.refusals import write_list

project = "relay"
author = "The relay developers"
release = version = __version__
extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
nitpicky = True
smartquotes = False  # it would make a dash of the two of an option
myst_heading_anchors = 4
suppress_warnings: list[str] = []

html_theme = "furo"
html_title = f"relay {__version__}"
html_show_sphinx = html_show_copyright = html_show_sourcelink = html_copy_source = False
html_show_search_summary = False  # it would be fetched, which no browser does for a page that was opened as a file
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "default", "github-dark"

MENU = {
    "Tutorial": ["tutorial"],
    "How-to": [
        f"how-to/{name}"
        for name in (
            "exit-4", "checks", "endpoints", "night", "several-phases", "review", "compare", "rehearse", "marathon",
            "mac",
        )
    ],
    "Reference": [
        f"reference/{name}"
        for name in (
            "messages", "commands", "plan", "gate", "agents", "git", "settings", "sandbox", "toolchains", "servers",
            "news", "events", "json", "api", "fleet",
        )
    ],
    "Explanation": [f"explanation/{name}" for name in ("relays", "promises", "trust", "limits", "architecture")],
    "Working on relay": ["contributing/style", "contributing/promises"],
}  # fmt: skip
MADE = {"reference/messages": write_list, "reference/commands": write_options_page}


def add_what_only_the_site_has(_app: Sphinx, name: str, text: list[str]) -> None:
    """Put the menu below the first page, and what is made from the code below the pages about it."""
    if name == "index":
        trees = (f"```{{toctree}}\n:hidden:\n:caption: {kind}\n\n" + "\n".join(pages) for kind, pages in MENU.items())
        text[0] += "\n\n" + "\n```\n\n".join(trees) + "\n```\n"
    if name in MADE:
        text[0] += f"\n\n{MADE[name]()}"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_what_only_the_site_has)
