"""The skills of a repository (``.agents/skills/*/SKILL.md``): each by name and one line; a session reads the body.

The format is that of agentskills.io: front matter with a `name`, which is the folder's, and a `description`. A skill is
a regular file of the work tree, reached through no link; sessions cannot write there (`relay.sandbox.policy`).
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from relay.base.documents import YamlLimits, YamlTextError, compose, construct
from relay.base.secrecy import NOTHING_NAMED, Hidden
from relay.base.values import dataclass
from relay.base.walk import list_names, open_parent, open_regular
from relay.base.words import shorten
from relay.session.usage import estimate_tokens

FOLDER = ".agents/skills"
MAX_TOKENS = 300
"""Most estimated tokens of all lines with their title; every session pays them."""
MAX_SKILLS = 100
"""Most skills that are looked at, in the order of their names."""
MAX_BYTES = 64 * 1024
_TITLE_TOKENS = 30
_WIDTHS = (240, 160, 120, 80, 50)
"""Most characters of a description; the first width at which all skills fit counts."""
_OWN = "relay"
"""The skill of `relay init --skill`, for those who start relay, and not for its sessions."""
_NAME = re.compile(r"[a-z0-9](?:-?[a-z0-9]){0,63}")
_HEAD = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_LIMITS = YamlLimits(chars=8_000, depth=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill that sessions are told of."""

    name: str
    line: str
    """Its description on one line, cut to fit."""
    sha256: str
    """Of the file."""

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.name}/SKILL.md"


def load_skills(root: Path, hidden: Hidden = NOTHING_NAMED) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills of a work tree that fit into `MAX_TOKENS`, and a warning for each that is left out."""
    if any((root / place).is_symlink() for place in (".agents", FOLDER)):
        return (), (f"{FOLDER} is a link: no skill is read",)
    names = sorted(name for name in list_names(root / FOLDER) if name != _OWN and not name.startswith("."))
    found: list[Skill] = []
    warnings: list[str] = []
    for name in names[:MAX_SKILLS]:
        try:
            found += _read_skill(root, name, hidden)
        except ValueError as fault:
            warnings.append(f"the skill {FOLDER}/{name} {fault}; it is left out")
    shown = _fit(found)
    if left := [skill.name for skill in found[len(shown) :]] + names[MAX_SKILLS:]:
        warnings.append(f"skills from {FOLDER}/{left[0]} on are left out: {MAX_TOKENS} tokens are for all of them")
    return shown, tuple(warnings)


def render_skills(skills: tuple[Skill, ...]) -> str:
    """Return one line for each skill, for a session's first message."""
    return "\n".join(f"- {skill.name}: {skill.line}" for skill in skills)


def _fit(skills: list[Skill]) -> tuple[Skill, ...]:
    cut: list[Skill] = []
    for width in _WIDTHS:
        cut = [replace(skill, line=shorten(skill.line, width)) for skill in skills]
        if _is_fitting(cut):
            return tuple(cut)
    while not _is_fitting(cut):
        cut.pop()
    return tuple(cut)


def _is_fitting(skills: list[Skill]) -> bool:
    return estimate_tokens(render_skills(tuple(skills))) <= MAX_TOKENS - _TITLE_TOKENS


def _read_skill(root: Path, name: str, hidden: Hidden) -> Iterator[Skill]:
    """Yield a skill; none if this is no folder with a SKILL.md.

    Raises:
        ValueError: It cannot be used, and why.
    """
    path = f"{FOLDER}/{name}/SKILL.md"
    if (root / FOLDER / name).is_symlink():
        raise ValueError("is a link")
    try:
        with open_parent(root, path) as (parent, last), os.fdopen(open_regular(last, parent), "rb") as stream:
            names, data = os.fstat(stream.fileno()).st_nlink, stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        raise ValueError("has a SKILL.md that is a link, no regular file, or not readable") from None
    if names > 1 or hidden.covers(path):
        raise ValueError("is a hidden file, or has another name elsewhere (a hard link), which may be one")
    if len(data) > MAX_BYTES:
        raise ValueError(f"has a SKILL.md of more than {MAX_BYTES:,} bytes")
    if not _NAME.fullmatch(name):
        raise ValueError("has a name that is not of lower-case letters, digits and single hyphens")
    found = _HEAD.match(data.decode("utf-8", "replace"))
    if not found:
        raise ValueError("does not begin with front matter (--- … ---)")
    try:
        node = compose(found[1], _LIMITS)
        head = construct(node) if node else None
    except YamlTextError as error:
        raise ValueError(f"has front matter that {error}") from None
    given = head if isinstance(head, dict) else {}
    if given.get("name") != name:
        raise ValueError("has a `name` in its front matter that is not its folder's")
    text = given.get("description")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split()) if isinstance(text, str) else ""
    if not line:
        raise ValueError("has no `description` in its front matter")
    yield Skill(name=name, line=line, sha256=hashlib.sha256(data).hexdigest())
