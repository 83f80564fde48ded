"""What of a machine is hidden from commands, and what of that they need all the same: lists, and their paths."""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

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
