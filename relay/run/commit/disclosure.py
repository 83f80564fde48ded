"""What a leg's change would disclose: lines of it, and names of new files, that look like secrets.

Only lines that the change adds count: what was in the file before is the user's, and a session that edits near it
is not to blame. A line that carries the comment of `relay.base.redaction.ALLOW` is let through and told to the user.
"""

import os
from collections.abc import Iterator, Sequence

from relay.base.redaction import ALLOW, find_secrets, redact
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git.names import render_path
from relay.git.objects import load_blob, read_entries
from relay.git.repository import Repo
from relay.git.trees import GITLINK

_SHOWN = 20
"""Enough lines to see what is wrong; a file full of keys need not fill a context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """One added line, or name, that looks like a secret."""

    words: str
    """``src/x.py:12 looks like an AWS access key``."""
    allowed: bool
    """The line says that a person has looked."""


def find_disclosures(
    repo: Repo, base: str | None, tree: str, paths: Sequence[str], values: Sequence[str]
) -> tuple[Disclosure, ...]:
    """Return the suspicious lines that `tree` adds to `base` in these paths.

    Args:
        base: Commit or tree before the change; None when there was nothing.
        tree: Tree after the change.
        paths: What will be committed; deleted ones are passed over.
        values: Of the environment, see `relay.base.redaction.find_secret_values`.
    """
    before = read_entries(repo, base, paths) if base and paths else {}
    after = read_entries(repo, tree, paths) if paths else {}
    names = [found for path in sorted(set(after) - set(before)) for found in _find_in_name(path, values)]
    return (
        *(Disclosure(words=f"the name {shown} looks like it holds {kind}", allowed=False) for shown, kind in names),
        *(
            Disclosure(words=f"{render_path(path)}:{line} looks like {kind}", allowed=allowed)
            for path, entry in sorted(after.items())
            if entry[0] != GITLINK and entry != before.get(path)
            for line, kind, allowed in _find_added(repo, before.get(path), entry[1], values)
        ),
    )


def _find_in_name(path: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a new file's name discloses, with the name as it can be shown."""
    for found in find_secrets(path, environ_values=values):
        yield redact(render_path(path), environ_values=values), found.kind


def _find_added(
    repo: Repo, before: tuple[str, str] | None, after: str, values: Sequence[str]
) -> Iterator[tuple[int, str, bool]]:
    text = _read(repo, after)
    findings = find_secrets(text, environ_values=values)
    if not findings:
        return
    known = set(_read(repo, before[1]).split("\n")) if before and before[0] != GITLINK else set()
    lines = text.split("\n")
    for finding in findings:
        if lines[finding.line - 1] not in known:
            yield finding.line, finding.kind, finding.allowed


def _read(repo: Repo, object_id: str) -> str:
    return os.fsdecode(load_blob(repo, object_id))


def render_refusal(found: Sequence[Disclosure]) -> str:
    """Return what the session is told, so that it can repair it."""
    return (
        "Nothing was committed: lines that you added look like secrets.\n- "
        + list_some([one.words for one in found], _SHOWN, joint="\n- ")
        + "\nTake them out: read the value from the environment, or use an obvious placeholder. "
        f"An example that is no secret may keep its line with the comment `{ALLOW}`; the user is told."
    )
