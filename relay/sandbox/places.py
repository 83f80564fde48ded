"""Finds the paths that the sandbox hides, protects or shows.

It hides the user's secrets. It protects nested git directories, rules files and files with secrets in the repository.
It shows virtual environments that are not on PATH.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.secrecy import is_secret_name
from relay.base.values import dataclass
from relay.sandbox.policy import PROTECTED_NAMES
from relay.sandbox.toolchains import find_stores, list_kept

INSTALLED = frozenset({"node_modules", ".pnpm-store", ".venv", "venv", ".tox", ".nox"})
TOOL_CACHES = frozenset({"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"})
GENERATED = INSTALLED | TOOL_CACHES
"""Trees that tools make and remove; a protected file in one would pin it in place."""

MOST = 400
"""Each protected path is a mount; bwrap takes 9,000 arguments and reads the mount table for each mount."""

CACHES = (".cache", ".tmp", ".vite", ".vite-temp", ".vitest")
"""Directories of node_modules that tests and builds write; they hold no package."""


SHARED_HIDDEN = ("/run", "/tmp", "/var/tmp", "/home", "/root")  # noqa: S108  # hidden, not used
"""Sockets, other programs' files and homes: commands see empty directories."""

_NO_HOME = frozenset(
    map(Path, ("/", "/bin", "/sbin", "/usr", "/usr/bin", "/usr/sbin", "/etc", "/dev", "/proc", "/sys", "/lib", "/var"))
)
"""Homes of containers and service users that cannot be hidden without hiding the system."""

_FIRST_PERSON_UID = 1000

HOME_SECRETS = (
    ".aws",
    ".azure",
    ".bash_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude",
    ".claude.json",
    ".codex",
    ".config/anthropic",
    ".config/claude",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/opencode",
    ".config/rclone",
    ".config/sops",
    ".databrickscfg",
    ".docker",
    ".fly",
    ".gem/credentials",
    ".gemini",
    ".git-credentials",
    ".gnupg",
    ".gradle/gradle.properties",
    ".kube",
    ".local/share/keyrings",
    ".local/share/opencode",
    ".m2/settings.xml",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".oci",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".python_history",
    ".ssh",
    ".terraform.d",
    ".vault-token",
    ".yarnrc.yml",
    ".zsh_history",
)

SYSTEM_SECRETS = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/NetworkManager/system-connections",
    "/etc/openvpn",
    "/etc/ssl/private",
    "/etc/wireguard",
    "/etc/wpa_supplicant",
    "/var/lib/kubelet",
    "/var/spool/cron",
    "/var/backups",
)
"""Only uid 0 can read these, and relay hides them from it."""

_ABSOLUTE = re.compile(r"(?:^|(?<=[=:,]))/[^,;:=\s]+|(?<=unix://)/[^,;:=\s]+")
"""Paths in a variable: ``/run/agent``, ``unix:///run/docker.sock``, ``unix:path=/run/bus,guid=1``."""

_SSH_HOST_KEYS = Path("/etc/ssh")


def find_home_directory(env: Mapping[str, str]) -> Path | None:
    """Return the resolved home directory, or None if there is none that can be hidden."""
    home = Path(env.get("HOME", ""))
    if not home.is_absolute() or not is_dir(home):
        return None
    home = home.resolve()
    return None if home in _NO_HOME else home


def find_emptied(home: Path | None, apart: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories that commands see empty, resolved, parents first.

    Args:
        home: Home directory.
        apart: `Policy.apart`.
    """
    candidates = [*map(Path, SHARED_HIDDEN), *_find_homes_of_others(), *apart]
    real = {place.resolve() for place in candidates if is_dir(place)} - _NO_HOME
    outer = {place for place in real if real.isdisjoint(place.parents)}
    return tuple(sorted(outer | ({home} if home else set())))


def _find_homes_of_others() -> Iterable[Path]:
    try:
        lines = Path("/etc/passwd").read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        match line.split(":"):
            case [_, _, uid, _, _, home, *_] if uid.isdigit() and int(uid) >= _FIRST_PERSON_UID and home:
                yield Path(home)
            case _:
                continue


def find_toolchains(home: Path | None, env: Mapping[str, str], python: Iterable[str]) -> tuple[Path, ...]:
    """Return directories below hidden ones that commands need.

    Args:
        home: Home directory.
        env: relay's environment, with the user's PATH and VIRTUAL_ENV.
        python: Prefixes of the Python that runs relay.
    """
    places = list(list_kept(home, env))
    places += [place for _, place in find_stores(home, env)]
    on_path = [Path(part) for part in env.get("PATH", "").split(os.pathsep) if part.startswith("/")]
    places += [*on_path, *(part.parent for part in on_path if is_environment(part.parent))]
    places += [Path(prefix) for prefix in python if prefix.startswith("/")]
    places.append(Path("/home/linuxbrew/.linuxbrew"))
    return tuple(dict.fromkeys(place for place in places if is_there(place)))


def is_environment(place: Path) -> bool:
    """Return whether a directory is a virtual environment of Python or an environment of conda."""
    return is_there(place / "pyvenv.cfg") or is_there(place / "conda-meta")


def find_credentials(home: Path | None) -> tuple[Path, ...]:
    """Return the existing files and directories of credentials, links resolved."""
    places = [home / name for name in HOME_SECRETS] if home else []
    places += [Path(name) for name in SYSTEM_SECRETS]
    if _SSH_HOST_KEYS.is_dir():
        places += sorted(_SSH_HOST_KEYS.glob("ssh_host_*_key"))
    return tuple(dict.fromkeys(place.resolve() for place in places if os.access(place, os.R_OK)))


def find_unix_sockets(table: Path = Path("/proc/net/unix")) -> tuple[Path, ...]:
    """Return the existing paths of the Unix sockets bound in this network namespace."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return ()
    names = {fields[7] for fields in (line.split(maxsplit=7) for line in lines) if len(fields) == 8}  # noqa: PLR2004
    return tuple(sorted(Path(name) for name in names if name.startswith("/") and is_there(Path(name))))


def find_named_sockets(env: Mapping[str, str], table: Path = Path("/proc/self/mountinfo")) -> tuple[Path, ...]:
    """Return the sockets that variables name (``SSH_AUTH_SOCK``, ``DOCKER_HOST``), and those mounted as files.

    A socket of another network namespace is not in this one's list: a container can have the host's sockets.
    """
    named = [match for value in env.values() if "/" in value for match in _ABSOLUTE.findall(value)]
    try:
        mounts = [line.split()[4] for line in table.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        mounts = []
    mounted = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place) for place in mounts)
    return tuple(sorted({find_real(Path(place)) for place in (*named, *mounted) if is_socket(place)}))


def is_socket(place: str) -> bool:
    """Return whether a path leads to a Unix socket."""
    try:
        return stat.S_ISSOCK(os.stat(place).st_mode)  # noqa: PTH116  # one call
    except (OSError, ValueError):
        return False


def find_real(place: Path) -> Path:
    """Return the real path; a circle of links, for which pathlib raises, is returned as it is."""
    return Path(os.path.realpath(place))


def is_searchable(place: Path) -> bool:
    """Return whether every directory above a path lets this user through without any capability.

    In the sandbox uid 0 has no capabilities: it cannot make a mount point below a closed directory, and commands cannot
    reach the files below it either.
    """
    return all(_lets_through(parent) for parent in place.parents)


def _lets_through(directory: Path) -> bool:
    try:
        found = directory.stat()
    except OSError:
        return False
    if found.st_uid == os.geteuid():
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid in {os.getegid(), *os.getgroups()}:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def is_there(place: Path) -> bool:
    """Return whether a path can be reached; False also if a directory above it is closed to this user."""
    return os.access(place, os.F_OK)


def is_dir(place: Path) -> bool:
    """Return whether a directory can be reached; pathlib raises if a directory above it is closed."""
    return is_there(place) and place.is_dir()


def is_below(path: Path, places: Iterable[Path]) -> bool:
    """Return whether `path` is one of `places` or lies below one; all are absolute."""
    return f"{path}/".startswith(tuple(f"{place}/" if place.name else "/" for place in places))


_NAMED = re.compile(r"(?<![\w~/.-])(~|\$HOME|\$\{HOME\})?(/[^\s`'\"|&;()<>]{1,300}?)/bin/")
_USUAL = (".venv", "venv", "env")
"""Names of a repository's environment, or of a link to it."""
_PARTS = ("pyvenv.cfg", "bin", "lib", "lib64", "include", "share", "etc", "conda-meta")
"""The parts of an environment that are shown: its directory may hold other files."""
_MOST = 20


def find_environments(
    text: str, root: Path, environ: Mapping[str, str], others: Iterable[Path] = ()
) -> tuple[Path, ...]:
    """Return the parts of the environments that commands name, of linked ones, and of those of other work trees.

    Args:
        text: A plan and commands, by any author.
        root: The work tree.
        environ: relay's environment; its HOME replaces ``~``.
        others: Other work trees: a copied environment names the original.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a scan of the repository. Linked directories are not walked."""

    protected: tuple[Path, ...]
    """Nested `.git` entries and files with a protected name."""
    secrets: tuple[Path, ...]
    sockets: tuple[Path, ...] = ()
    """Unix sockets that no session made: none was running yet."""


def scan_repository(root: Path) -> Found:
    """Walk the repository.

    Raises:
        SandboxError: More paths need protection than a sandbox can hold.
    """
    protected: list[Path] = []
    secrets: list[Path] = []
    sockets: list[Path] = []
    for _, entries in list_folders(root):
        for entry in entries:
            if entry.name == ".git" or entry.name in PROTECTED_NAMES:
                protected += _find_real(entry, root)
            elif entry.is_dir(follow_symlinks=False):
                continue
            elif is_secret_name(entry.name):
                secrets += _find_real(entry, root)
            elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                sockets.append(Path(entry.path))
    if len(protected) + len(secrets) + len(sockets) > MOST:
        raise SandboxError(
            f"{root} holds {len(protected)} nested git directories and rules files and {len(secrets)} files "
            f"that look like secrets, and {len(sockets)} sockets; the sandbox can protect {MOST}",
            hint="move them out of the repository",
        )
    return Found(
        protected=tuple(sorted(set(protected))), secrets=tuple(sorted(set(secrets))), sockets=tuple(sorted(sockets))
    )


def list_folders(root: Path) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each directory with its entries, except git's and agents' directories and trees that tools generate."""
    pending, closed = [os.fspath(root)], {".git", *PROTECTED_NAMES, *GENERATED}
    while pending:
        folder = pending.pop()
        entries = list[os.DirEntry[str]]()
        with suppress(OSError), os.scandir(folder) as found:  # what relay cannot list no command can
            entries += found
        yield folder, entries
        pending += [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name not in closed]


def _find_real(entry: os.DirEntry[str], root: Path) -> list[Path]:
    """Return the real path of a rules file or secret, if that is in the repository."""
    place = Path(entry.path)
    real = find_real(place) if entry.is_symlink() else place
    return [real] if real != root and real.is_relative_to(root) and real.exists() else []
