"""Render a page as one HTML text of bounded size, and write it to a file.

The file is below ``.relay/``, which git ignores, or where the user says; a user's file is never overwritten.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from relay.base.errors import RepoError
from relay.base.tree import replace_with_file
from relay.base.walk import NotAFileError, open_folder, open_ignored, open_regular
from relay.insight.report.blocks import MOST_CHARS, MOST_ROWS, Page
from relay.plan.text import STATE_DIR
from relay.session.pictures import Picture

MOST_BYTES = 4 * 1024 * 1024
"""Size of a page. A larger one is made again with fewer rows, shorter texts and fewer folds, and says so."""
MARK = "<!doctype html><!-- made by relay report -->"
"""The beginning of each page; a file without it is never overwritten."""
_LINES = 10
"""A text of several lines may be so many times as long as another text."""
_HERE = Path(__file__).parent

Clean = Callable[[str], str]
"""Makes control characters and characters that reorder text visible."""


def render_page(page: Page, *, clean: Clean, most_bytes: int = MOST_BYTES, refresh_s: int = 0) -> str:
    """Write a page as HTML of bounded size.

    Args:
        clean: Applied to every text before it is escaped.
        most_bytes: Bound on its UTF-8; a page without any row may still be larger.
        refresh_s: Seconds after which a browser asks for it again; 0 for never.
    """
    halvings = 0
    while len((html := _render(page, clean, halvings, refresh_s)).encode()) > most_bytes and MOST_ROWS >> halvings:
        halvings += 1
    return html


def _render(page: Page, clean: Clean, halvings: int, refresh_s: int) -> str:
    """Write a page with half of the rows, folds, pictures and lengths of texts, or half of that, and so on."""
    rows, chars, room = MOST_ROWS >> halvings, max(40, MOST_CHARS >> halvings), MOST_BYTES // 2 >> halvings

    def finish(value: Any) -> Any:
        """Make any value safe that the template shows; the library escapes what is no markup of relay's own."""
        if isinstance(value, Markup):
            return value
        text = str(value)
        more = len(text) - chars
        return clean(text if more <= 0 else f"{text[:chars]}… (+{more:,} characters)")

    def finish_lines(text: str) -> Markup:
        """Do the same with a text of several lines, of which the beginning and the end are shown."""
        most = chars * _LINES // 2
        more = len(text) - 2 * most
        shown = text if more <= 0 else f"{text[:most]}\n… ({more:,} characters left out)\n{text[-most:]}"
        lines = (re.split("( +)", line) for line in shown.expandtabs(4).splitlines())
        cleaned = ([part if part.isspace() else clean(part) for part in line] for line in lines)
        return Markup("\n").join(map(Markup().join, cleaned))

    def take_room(picture: Picture) -> bool:
        """Return whether a picture still fits."""
        nonlocal room
        fits = len(picture.data) <= room
        room -= len(picture.data) if fits else 0
        return fits

    style = (_HERE / "page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    jinja = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finish,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = {
        "page": page,
        "refresh_s": refresh_s,
        "most": rows,
        "cut": halvings > 0,
        "lines": finish_lines,
        "fits": take_room,
    }
    html: str = jinja.get_template("page.html").render(mark=Markup(MARK), style=Markup(style), digest=digest, **shown)  # noqa: S704  # own text
    return html


FOLDER = "reports"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]")
_NAME_CHARS = 120


def save_page(repo_root: Path, name: str, html: str) -> Path:
    """Put a page below ``.relay/reports/``; it replaces an earlier page of that name.

    Args:
        repo_root: The work tree.
        name: Ids of the runs; characters that could lead elsewhere are replaced.

    Raises:
        RepoError: It cannot be written.
    """
    file = f"{_STRANGE.sub('_', name).lstrip('.')[:_NAME_CHARS] or 'report'}.html"
    path = repo_root / STATE_DIR / FOLDER / file
    try:
        with open_ignored(repo_root, (STATE_DIR,), FOLDER) as folder:
            replace_with_file(folder, file, html.encode())
    except OSError as error:
        raise RepoError(f"{path} cannot be written: {error.strerror}", hint="relay report --output FILE") from error
    return path


def save_page_as(path: Path, html: str) -> Path:
    """Write a page to a path of the user's; only another page of relay's is replaced.

    Raises:
        RepoError: It cannot be written, or another file stands there.
    """
    try:
        with open_folder(path.parent.resolve(), ()) as folder:
            if not _may_replace(path.name, folder):
                raise RepoError(f"{path} is there and was not made by relay report", hint="give a name that is free")
            replace_with_file(folder, path.name, html.encode())
    except OSError as error:
        raise RepoError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _may_replace(name: str, folder: int) -> bool:
    try:
        descriptor = open_regular(name, folder)
    except FileNotFoundError:
        return True
    except NotAFileError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(MARK)) == MARK.encode()
