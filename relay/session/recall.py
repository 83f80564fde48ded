"""What a session was shown, and which of it a later call names: a file or a line.

Only the runner sees the texts. The events keep its answer (`relay.session.events.ToolFinished.uses`), from which the
figures of use are counted.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from relay.session.usage import estimate_tokens

LARGE_TOKENS = 2_000
"""A smaller result that shows no part of a file is not followed: it costs little, used or not."""
MOST_NAMES = 4_000
"""Names that are kept of one text, each time that it has one."""
MOST_CHARS = 100_000
"""Of one text; a result is shorter."""
MOST_THINGS = 200
"""Texts that are followed at once; the oldest is given up, and counts as not used from then on."""
_LEAST_CHARS = 12
"""A shorter line, such as a bracket, names nothing."""
_WORD = re.compile(r"[\w.@+/-]+")
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}\Z")
_NUMBERING = "0123456789: \t"
"""In front of a line, where a tool shows its number."""


def find_names(text: str) -> Iterator[str]:
    """Yield the paths and the lines that a text names."""
    text = text[:MOST_CHARS]
    for word in _WORD.findall(text):
        path = word.strip("./-")
        if "/" in path or _SUFFIX.search(path):
            yield path
    for line in text.splitlines():
        bare = line.lstrip(_NUMBERING).rstrip()
        if len(bare) >= _LEAST_CHARS:
            yield bare


def hash_call(tool: str, given: Any) -> str:
    """Return a hash that only the same call has."""
    said = json.dumps([tool, given], sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _find_input_names(value: Any) -> Iterator[str]:
    """Yield the names in a call's input; a path is named by its last part too, as listings show it."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            pending += found.values()
        elif isinstance(found, list | tuple):
            pending += found
        elif isinstance(found, str):
            for name in find_names(found):
                yield name
                yield name.rpartition("/")[2]
            yield from found[:MOST_CHARS].split()  # names of files without a suffix


class Recall:
    """Follows the texts that a session was shown until a call names a part of one. Mutable.

    Args:
        preloads: Path and text of each file in the first message.
    """

    def __init__(self, preloads: Iterable[tuple[str, str]] = ()) -> None:
        self._things: dict[str, tuple[str, frozenset[str]]] = {}
        """The file of each text, empty for other texts, and its names."""
        for path, text in preloads:
            self.show(f"preload {path}", text, path=path)

    def show(self, name: str, text: str, *, path: str = "") -> None:
        """Follow a text.

        Args:
            name: As `find_uses` returns it.
            path: The file of which it is a part.
        """
        if not path and estimate_tokens(text) < LARGE_TOKENS:
            return
        self._things[name] = path, frozenset({path, *islice(find_names(text), MOST_NAMES)}) - {""}
        if len(self._things) > MOST_THINGS:
            del self._things[next(iter(self._things))]

    def find_uses(self, given: Any, *, path: str = "") -> tuple[str, ...]:
        """Return what a call names of the followed texts, and follow that no longer.

        Args:
            given: The call's input.
            path: The file that the call shows: showing a file again uses no part of it.
        """
        names = frozenset(_find_input_names(given))
        used = [
            name
            for name, (shown, own) in self._things.items()
            if not (path and path == shown) and not names.isdisjoint(own)
        ]
        for name in used:
            del self._things[name]
        return tuple(used)
