"""Virtual environments that commands need although nothing on PATH leads to them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from relay.sandbox.places import is_environment, is_there

_NAMED = re.compile(r"(?<![\w~/.-])(~|\$HOME|\$\{HOME\})?(/[^\s`'\"|&;()<>]{1,300}?)/bin/")
_USUAL = (".venv", "venv", "env")
"""Names under which a repository holds a link to its environment."""
_PARTS = ("pyvenv.cfg", "bin", "lib", "lib64", "include", "share", "etc", "conda-meta")
"""What is shown of one: where somebody made an environment of a directory with other things, not those."""
_MOST = 20


def find_environments(
    text: str, root: Path, environ: Mapping[str, str], others: Iterable[Path] = ()
) -> tuple[Path, ...]:
    """Return the parts of the environments that commands in a text name, that links at the root lead to, and of others.

    Args:
        text: A plan, and commands; anybody may have written it.
        root: The work tree.
        environ: relay's environment; its HOME is meant by ``~``.
        others: Other ones of the repository: a copy of an environment names the one that it was copied from.
    """
    found = dict.fromkeys(islice(_find(text, root, others, environ.get("HOME", "")), _MOST))
    return tuple(place / part for place in found for part in _PARTS if is_there(place / part))


def _find(text: str, root: Path, others: Iterable[Path], home: str) -> Iterator[Path]:
    for name in _USUAL:
        if (root / name).is_symlink() and is_environment(root / name):
            yield (root / name).resolve()
    yield from (place for other in others for name in _USUAL if is_environment(place := other / name))
    for start, rest in dict.fromkeys(_NAMED.findall(text)):
        place = Path(f"{home}{rest}" if start else rest)
        if place.is_absolute() and ".." not in place.parts and is_environment(place):
            yield place
