"""Files that no session may see: usual names for credentials, and what the setting `paths` hides.

The sandbox, the file tools, the rules, the ledger's sources and the snapshots all ask here.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from relay.base.values import dataclass

SECRET_NAMES = (".env", ".env.*", ".netrc", ".pypirc", ".git-credentials")
"""Patterns for names of files that usually hold credentials, in any directory."""

TEMPLATE_SUFFIXES = (".example", ".sample", ".template", ".dist", ".defaults", ".tmpl")
"""A file with a secret name and one of these endings is a template, kept readable."""

RULES = re.compile(r"(?i).+\.(?:md|mdc|mdx|txt|rst|adoc)|\.[a-z]+rules")
"""Names of files from which relay reads rules for agents, where another person than the user may choose the file."""

_EDITORS_OWN = re.compile(r"^\.?#|[~#]+$|___jb_\w+___$")
"""What Emacs, vim and JetBrains' editors put around the name of a file for their copies of it."""

_SECRET = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in SECRET_NAMES), re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """The hidden files of a repository."""

    places: tuple[str, ...] = ()
    """Further hidden paths, relative to the root without links, each with everything below it."""

    def covers(self, path: str) -> bool:
        """Return whether a path of the repository, without dots and links, is hidden."""
        return is_secret_name(path.rpartition("/")[2]) or is_covered(path, self.places)


NOTHING_NAMED = Hidden()
"""Only the files with a secret name are hidden."""


def is_secret_name(name: str) -> bool:
    """Return whether files of this name usually hold credentials; in any spelling that a file system may equate."""
    folded = _EDITORS_OWN.sub("", fold_name(name))
    return _SECRET.fullmatch(folded) is not None and not folded.endswith(TEMPLATE_SUFFIXES)


def fold_name(name: str) -> str:
    """Return a form that is equal for two names that some file system treats as one.

    Case folded, NFC, and without the invisible characters that HFS+ ignores (CVE-2014-9390).
    """
    if name.isascii():
        return name.lower()
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", visible).casefold())


def is_covered(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path without dots and links is one of the patterns or lies below one.

    Patterns are paths; with a leading ``**/`` they hold at any depth. Compared as `fold_name` has it.
    """
    if not patterns:
        return False
    parts = tuple(fold_name(part) for part in path.split("/") if part)
    for pattern in patterns:
        anywhere, want = _parse_pattern(pattern)
        starts = range(len(parts) - len(want) + 1) if anywhere else (0,)
        if want and any(parts[at : at + len(want)] == want for at in starts):
            return True
    return False


@lru_cache(maxsize=256)
def _parse_pattern(pattern: str) -> tuple[bool, tuple[str, ...]]:
    parts = pattern.removeprefix("**/").split("/")
    return pattern.startswith("**/"), tuple(fold_name(part) for part in parts if part not in {"", "."})
