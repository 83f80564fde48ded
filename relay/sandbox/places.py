"""Paths that the sandbox hides, protects or shows.

Hidden are the user's secrets. Protected are nested git directories, rules files and files with secrets in the
repository. Shown are virtual environments that PATH does not lead to.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from relay.base.errors import SandboxError
from relay.base.secrecy import is_secret_name
from relay.base.values import dataclass
from relay.sandbox.links import GENERATED, MOST, Links, find_links, list_entries, require_few
from relay.sandbox.policy import Level, Policy
from relay.sandbox.toolchains import find_stores, list_kept

SHARED_HIDDEN = ("/run", "/tmp", "/var/tmp", "/home", "/root")  # noqa: S108  # hidden, not used
"""Sockets, other programs' files and homes: replaced by empty directories."""

_NO_HOME = frozenset(
    map(Path, ("/", "/bin", "/sbin", "/usr", "/usr/bin", "/usr/sbin", "/etc", "/dev", "/proc", "/sys", "/lib", "/var"))
)
"""A home directory that is one of these (containers, service users) cannot be hidden without the system itself."""

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
"""Readable only for uid 0, and then hidden."""

_ABSOLUTE = re.compile(r"(?:^|(?<=[=:,]))/[^,;:=\s]+|(?<=unix://)/[^,;:=\s]+")
"""Paths in a variable: ``/run/agent``, ``unix:///run/docker.sock``, ``unix:path=/run/bus,guid=1``."""

_SSH_HOST_KEYS = Path("/etc/ssh")


def find_home_directory(env: Mapping[str, str]) -> Path | None:
    """Return the resolved home directory, or None when there is none that could be hidden."""
    home = Path(env.get("HOME", ""))
    if not home.is_absolute() or not is_dir(home):
        return None
    home = home.resolve()
    return None if home in _NO_HOME else home


def find_emptied(home: Path | None, apart: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories that a command sees empty, resolved, parents before what is below them.

    Args:
        home: Home directory.
        apart: Those of the policy.
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
    """Return directories that commands need although they lie below a hidden one.

    Args:
        home: Home directory.
        env: relay's environment; its PATH entries and VIRTUAL_ENV are where the user works.
        python: Prefixes of the Python that runs relay.
    """
    places = list(list_kept(home, env))
    places += [store.place for store in find_stores(home, env)]
    on_path = [Path(part) for part in env.get("PATH", "").split(os.pathsep) if part.startswith("/")]
    places += [*on_path, *(part.parent for part in on_path if is_environment(part.parent))]
    places += [Path(prefix) for prefix in python if prefix.startswith("/")]
    places.append(Path("/home/linuxbrew/.linuxbrew"))
    return tuple(dict.fromkeys(place for place in places if is_there(place)))


def is_environment(place: Path) -> bool:
    """Say whether a directory is a virtual environment of Python's, or one of conda."""
    return is_there(place / "pyvenv.cfg") or is_there(place / "conda-meta")


def find_credentials(home: Path | None) -> tuple[Path, ...]:
    """Return the places of credentials that exist, links resolved."""
    places = [home / name for name in HOME_SECRETS] if home else []
    places += [Path(name) for name in SYSTEM_SECRETS]
    if _SSH_HOST_KEYS.is_dir():
        places += sorted(_SSH_HOST_KEYS.glob("ssh_host_*_key"))
    return tuple(dict.fromkeys(place.resolve() for place in places if os.access(place, os.R_OK)))


def find_unix_sockets(table: Path = Path("/proc/net/unix")) -> tuple[Path, ...]:
    """Return the path of every bound Unix socket of this network namespace that exists."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return ()
    names = {fields[7] for fields in (line.split(maxsplit=7) for line in lines) if len(fields) == 8}  # noqa: PLR2004
    return tuple(sorted(Path(name) for name in names if name.startswith("/") and is_there(Path(name))))


def find_named_sockets(env: Mapping[str, str], table: Path = Path("/proc/self/mountinfo")) -> tuple[Path, ...]:
    """Return the sockets that variables name (``SSH_AUTH_SOCK``, ``DOCKER_HOST``), and those mounted as files.

    They may have been bound in another network namespace, in whose list they stand: a container has the host's so.
    """
    named = [match for value in env.values() if "/" in value for match in _ABSOLUTE.findall(value)]
    try:
        mounts = [line.split()[4] for line in table.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        mounts = []
    mounted = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place) for place in mounts)
    return tuple(sorted({find_real(Path(place)) for place in (*named, *mounted) if is_socket(place)}))


def is_socket(place: str) -> bool:
    """Say whether a path leads to a Unix socket."""
    try:
        return stat.S_ISSOCK(os.stat(place).st_mode)  # noqa: PTH116  # one call
    except (OSError, ValueError):
        return False


def find_real(place: Path) -> Path:
    """Return where a path leads; one that leads in a circle, for which pathlib raises, comes back as it is."""
    return Path(os.path.realpath(place))


def is_searchable(place: Path) -> bool:
    """Say whether every directory above a path lets this user through without any capability.

    uid 0 reaches everything, but not in the sandbox, where it has no capabilities: a mount point below a closed
    directory cannot be made there, and what lies below it cannot be reached there either.
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
    """Say whether a path can be reached; False also where a directory above it is closed to this user."""
    return os.access(place, os.F_OK)


def is_dir(place: Path) -> bool:
    """Say whether a directory can be reached; pathlib raises where a directory above it is closed."""
    return is_there(place) and place.is_dir()


def is_below(path: Path, places: Iterable[Path]) -> bool:
    """Say whether `path` is one of `places` or lies below one; all are absolute."""
    inner = f"{path}/"
    return any(inner.startswith(f"{place}/" if place.name else "/") for place in places)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a scan of the repository found. Directories that are links are not walked."""

    protected: tuple[Path, ...]
    """Nested `.git` entries and files with a protected name."""
    secrets: tuple[Path, ...]
    sockets: tuple[Path, ...] = ()
    """Unix sockets that somebody else made: no session was running yet."""
    links: Links = field(default_factory=Links)
    """What has names elsewhere; empty where commands write nothing."""


def scan_repository(policy: Policy, level: Level) -> Found:
    """Walk the repository.

    Raises:
        SandboxError: More paths need protection than a sandbox can hold.
    """
    found = _walk(policy)
    if level is not Level.WORKSPACE_WRITE or policy.writable_links:
        return found
    return replace(found, links=require_few(find_links(policy.root, _list_protected(policy, found))))


def _list_protected(policy: Policy, found: Found) -> tuple[Path, ...]:
    """Return the files that must not be written by another name of theirs either."""
    names = ("config", "config.worktree", "HEAD", "index", "packed-refs")
    git_files = [place / name for place in policy.git_dirs for name in names]
    git_files += [file for place in policy.git_dirs for file in (*place.glob("hooks/*"), *place.glob("info/*"))]
    return (*policy.protected, *found.protected, *git_files)


def _walk(policy: Policy) -> Found:
    protected: list[Path] = []
    secrets: list[Path] = []
    sockets: list[Path] = []
    for _, entries in list_folders(policy):
        for entry in entries:
            if entry.name == ".git" or entry.name in policy.protected_names:
                protected += _find_real(entry, policy.root)
            elif entry.is_dir(follow_symlinks=False):
                continue
            elif is_secret_name(entry.name):
                secrets += _find_real(entry, policy.root)
            elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                sockets.append(Path(entry.path))
    if len(protected) + len(secrets) + len(sockets) > MOST:
        raise SandboxError(
            f"{policy.root} holds {len(protected)} nested git directories and rules files and {len(secrets)} files "
            f"that look like secrets, and {len(sockets)} sockets; the sandbox can protect {MOST}",
            hint="move them out of the repository",
        )
    return Found(
        protected=tuple(sorted(set(protected))), secrets=tuple(sorted(set(secrets))), sockets=tuple(sorted(sockets))
    )


def list_folders(policy: Policy) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yield each directory with what is in it; not git's, nor those of agents, nor trees that tools generate."""
    pending, closed = [os.fspath(policy.root)], {".git", *policy.protected_names, *GENERATED}
    while pending:
        folder = pending.pop()
        entries = list_entries(folder)
        yield folder, entries
        pending += [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name not in closed]


def _find_real(entry: os.DirEntry[str], root: Path) -> list[Path]:
    """A rules file or a secret that is a link is covered where its text is, as long as that is in the repository."""
    place = Path(entry.path)
    real = find_real(place) if entry.is_symlink() else place
    return [real] if real != root and real.is_relative_to(root) and real.exists() else []


def make_hiding(policy: Policy) -> Callable[[str], bool]:
    """Return a test for whether commands may read nothing at a path of the repository, or below it."""
    places = [
        os.fspath(place)
        for place in (*find_credentials(find_home_directory(policy.env)), *map(find_real, policy.unreadable))
    ]
    hidden = frozenset(
        os.path.relpath(place, policy.root) for place in places if Path(place).is_relative_to(policy.root)
    )

    def is_hidden(path: str) -> bool:
        above = (path, *map(str, PurePosixPath(path).parents))
        return is_secret_name(above[0].rpartition("/")[2]) or not hidden.isdisjoint(above)

    return is_hidden
