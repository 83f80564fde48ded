"""`relay help PAGE`: the pages of the documentation, which the package brings along."""

from pathlib import Path

import click

from relay.cli.screen import say
from relay.prompts.package_data import get_shipped

_FOLDERS = ("tutorial.md", "how-to/*.md", "reference/*.md", "explanation/*.md")


def list_pages() -> dict[str, Path]:
    """Return the pages by name, such as `how-to/night`."""
    docs = get_shipped("docs")
    found = (path for pattern in _FOLDERS for path in sorted(docs.glob(pattern)))
    return {path.relative_to(docs).with_suffix("").as_posix(): path for path in found}


def show_page(word: str) -> bool:
    """Show a page by its name, with or without its folder, or a list of all; return whether there is such a page."""
    pages = list_pages()
    if word == "pages":
        for name, path in pages.items():
            title, _, _ = path.read_text(encoding="utf-8").partition("\n")
            say(f"{name:<24} {title.removeprefix('# ')}")
        return True
    found = [path for name, path in pages.items() if word in {name, path.stem}]
    for path in found:
        click.echo_via_pager(path.read_text(encoding="utf-8").rstrip("\n"))
    return bool(found)
