"""What items ask for that no session can do: commits, which are relay's, and what is the user's alone. Pure."""

import re

from relay.plan.model import Phase

_COMMIT = re.compile(
    r"[\W\d]*+(?:(?:step|task)\s+[\d.]+\W*)?(?:and\s+)?(?:git\s+)?commit\b|.{0,400}?\bgit\s+commit\b|.{0,400}?\band\s+commit\W*\Z",
    re.IGNORECASE,
)
_OUTSIDE = re.compile(
    r"\bgit\s+push\b|\bpush\b[^.]{0,40}\b(?:origin|remote|github|branch)\b|[\W\d]*+push\W*\Z"
    r"|\b(?:open|create|make|submit|raise)\b[^.]{0,40}\b(?:PR|pull\s+request|merge\s+request)\b"
    r"|\bmove\b[^.]{0,40}\bplan\b|\bplans/completed\b|\bmerge\b[^.]{0,40}\binto\s+`?(?:main|master)\b",
    re.IGNORECASE,
)
_READ_CHARS = 500


def asks_for_commit(text: str) -> bool:
    """Whether an item asks for a commit; relay makes one of each phase."""
    return _COMMIT.match(text[:_READ_CHARS]) is not None


def asks_for_outside(text: str) -> bool:
    """Whether an item asks for a push, a pull request, a merge or for moving the plan file: the user's to do."""
    return _OUTSIDE.search(text[:_READ_CHARS]) is not None


def has_impossible_items(phase: Phase) -> bool:
    """Whether an open item of a phase asks for what no session can do."""
    return any(asks_for_commit(item.text) or asks_for_outside(item.text) for item in phase.open_items)
