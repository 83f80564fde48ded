"""Small files that a phase names, in its session's first message: the first request then is no `read`.

Each is there whole, as `read` shows it, and counts as read. Left out: what tools hide from the model, what git ignores,
what looks like a secret, what speaks with relay's or the user's voice, and the rules and the plan, which the prompt
holds anyway.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice

from relay.base.redaction import find_secrets
from relay.base.secrecy import is_covered
from relay.base.tree import FileState
from relay.base.values import dataclass
from relay.config.model import OWN_LOOP
from relay.git.names import list_paths, render_path
from relay.git.repository import Repo
from relay.git.status import find_unwelcome
from relay.session.usage import BYTES_PER_TOKEN, estimate_tokens
from relay.tools.read import read_whole
from relay.tools.workspace import ALWAYS_PROTECTED, Workspace

MAX_TOKENS = 4_000
"""Of all files together; a larger one is seldom needed whole."""
MAX_NAMED = 500
"""Most paths that are looked at."""

_VOICE = re.compile(
    r"[\W_]*(?:said by the user|the user says|confirmed by review|from the session before you|your phase,"
    r"|not yours to do|rules of (?:its folders|this repository)|relay:)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preload:
    """The files of one first message."""

    files: tuple[tuple[str, str], ...] = ()
    """Of each its name for a heading, and its text."""
    seen: Mapping[str, FileState] = field(default_factory=dict)
    """State of each file, by its path without links."""
    left: tuple[str, ...] = ()
    """Files that would have fitted alone, but not with the smaller ones."""


def reads_first(runner: str) -> bool:
    """Return whether a runner has to read a file by itself before it edits it."""
    if runner == OWN_LOOP:
        return False
    from relay.runners.agents.profiles import PROFILES

    return runner in PROFILES and PROFILES[runner].reads_first


def read_preload(workspace: Workspace, repo: Repo, paths: Iterable[str], secrets: Sequence[str]) -> Preload:
    """Read the files among `paths`, the smallest first, as long as they fit into `MAX_TOKENS`.

    Args:
        paths: As the plan has them; folders and files that are not there are passed over.
        secrets: Values that no text for a model may hold.
    """
    protected = (*ALWAYS_PROTECTED, *workspace.protected)
    named = islice(dict.fromkeys(paths), MAX_NAMED)
    read = (read_whole(workspace, path, MAX_TOKENS * BYTES_PER_TOKEN) for path in named)
    found = {file.path: file for file in read if file and not is_covered(file.path, protected)}
    ignored = find_unwelcome(repo, tuple(found))
    files, seen, left, room = list[tuple[str, str]](), dict[str, FileState](), list[str](), MAX_TOKENS
    for file in sorted(found.values(), key=lambda file: (len(file.text), file.path)):
        if file.path in ignored or find_secrets(file.text, environ_values=secrets) or _speaks_as_relay(file.text):
            continue
        name, text = render_path(file.path), _fence(file.text)
        if (size := estimate_tokens(name + text)) > room:
            left.append(file.path)
            continue
        room -= size
        files.append((name, text))
        seen[file.path] = file.look
    if left:
        files.append(("For want of room not shown", list_paths(left)))
    return Preload(files=tuple(files), seen=seen, left=tuple(left))


def _speaks_as_relay(text: str) -> bool:
    """Return whether a line could pass for the user's or relay's own words: the session before may have written it."""
    return any(_VOICE.match(line) for line in text.splitlines())


def _fence(text: str) -> str:
    """Return a text between fences that nothing in it can close."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}\n{text}\n{fence}"
