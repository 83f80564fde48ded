"""Where a page is put: below ``.relay/``, which git ignores, or where the user says; never over a file of theirs."""

import os
import re
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.replacement import replace_with_file
from relay.base.walk import NotAFileError, open_folder, open_ignored, open_regular
from relay.insight.report.page import MARK
from relay.plan.files import STATE_DIR

FOLDER = "reports"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]")
_NAME_CHARS = 120


def save_page(repo_root: Path, name: str, html: str) -> Path:
    """Put a page below ``.relay/reports/``; an earlier one of the name is replaced.

    Args:
        repo_root: The work tree.
        name: Of the runs; what could lead elsewhere is taken out of it.

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
    """Put a page where the user says; only another page of relay's is replaced.

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
