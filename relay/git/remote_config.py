"""The configuration of a git that speaks to a remote: the user's own, and of the repository's what this module names.

Fetch and push obey more than a hundred keys, and each release of git adds some: programs, files that are written,
proxies, certificates, options of the remote's. So git is not told what of the repository's configuration to leave
alone; it gets another common directory, with a configuration that relay has written, and the repository's objects and
refs through links (as ``contrib/workdir/git-new-workdir`` of git makes them). Hooks are not there either. What the user
has set is read once more there, in the place of their files, since a condition such as ``includeIf "gitdir:~/work/"``
asks for the repository's own place.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from relay.git.config_guard import Setting
from relay.git.repository import Repo
from relay.git.worktrees import list_roots

_ALLOWED = re.compile(
    r"core\.(repositoryformatversion|sharedrepository|logallrefupdates|filemode|ignorecase|precomposeunicode"
    r"|(loose)?compression)"
    r"|extensions\.(?!worktreeconfig$)[a-z]+"
    r"|remote\..*\.(url|pushurl|fetch|promisor|partialclonefilter)"
    r"|url\..*\.insteadof"
    # Where CI systems keep the token of a job, and what helps against a server's limits; none of it opens a file.
    r"|http\.(.*\.)?(extraheader|version|postbuffer|lowspeedlimit|lowspeedtime)"
    r"|credential\.(.*\.)?username|user\.(name|email)|protocol\.version",
    re.DOTALL,
)
"""What a repository may say: where its remotes are, and how its own objects and refs are kept."""
_LINKED = ("objects", "refs", "packed-refs", "reftable", "logs", "worktrees", "shallow", "info")
_MADE_BY_GIT = frozenset({"packed-refs", "shallow"})
"""Files that git may make: it follows a link to what is not there yet."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"}
_URL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*://")
_SUFFIXES = ("", "/.git", ".git", ".git/.git")
"""What git tries behind a path. Source: git 2.39, path.c, enter_repo."""


@contextmanager
def open_config(repo: Repo, config: Iterable[Setting]) -> Iterator[Mapping[str, str]]:
    """Give the variables by which git finds the configuration for remotes, as long as the block lasts.

    Args:
        config: All of the repository's and the user's, as it stands now.
    """
    settings = tuple(config)
    with tempfile.TemporaryDirectory(prefix="relay-remote-") as folder:
        place = Path(folder)
        common, own = place / "common", place / "config"
        common.mkdir()
        for name in _LINKED:
            if name in _MADE_BY_GIT or (repo.common_dir / name).exists():
                (common / name).symlink_to(repo.common_dir / name)
        (common / "HEAD").write_bytes((repo.common_dir / "HEAD").read_bytes())
        _write(own, (setting for setting in settings if setting.trusted))
        _write(common / "config", (setting for setting in settings if not setting.trusted and _is_allowed(setting)))
        yield {"GIT_COMMON_DIR": str(common), "GIT_CONFIG_GLOBAL": str(own), "GIT_CONFIG_NOSYSTEM": "1"}


def _is_allowed(setting: Setting) -> bool:
    return _ALLOWED.fullmatch(setting.key) is not None and "\n" not in setting.value


def _write(file: Path, settings: Iterable[Setting]) -> None:
    file.write_bytes(os.fsencode("".join(map(_render, settings))))


def _render(setting: Setting) -> str:
    section, _, rest = setting.key.partition(".")
    part, dot, name = rest.rpartition(".")
    if section.startswith("include"):
        return ""  # what it brings in is among the others
    quoted = part.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[{section} "{quoted}"]' if dot else f"[{section}]"
    value = "" if setting.is_bare else f' = "{"".join(_ESCAPES.get(char, char) for char in setting.value)}"'
    return f"{head}\n\t{name}{value}\n"


def find_inside(repo: Repo, address: str) -> Path | None:
    """Return the place that an address names in the repository, one of its work trees or its git directory, if it does.

    What serves it there would be started by a repository that a session writes, or that came with this one.
    """
    own = (repo.root, repo.common_dir, *list_roots(repo))
    for path in _find_paths(address):
        for suffix in _SUFFIXES:
            place = Path(os.path.realpath(f"{repo.root / path}{suffix}"))
            if any(place.is_relative_to(root) for root in own):
                return place
    return None


def _find_paths(address: str) -> tuple[str, ...]:
    """Return the paths on this machine that git may take an address for."""
    if address.startswith("file://"):
        return (f"/{unquote(address.removeprefix('file://'), errors='surrogateescape')}",)
    colon, slash = address.find(":"), address.find("/")
    if _URL.match(address) or 0 <= colon < (slash if slash >= 0 else len(address)):
        return ()  # it is another machine's
    return (address, os.path.expanduser(address))  # noqa: PTH111  # never raises; git's server expands it too
