"""Switching off by name what no fixed flag switches off: filter drivers and configured hooks.

A clean filter runs whenever git compares a file whose time changed, so even ``git status`` executes
``filter.<name>.clean``. Drivers from the user's own configuration (system, global) stay: LFS lives there. Drivers
from the repository's configuration, from a file inside the work tree that any configuration includes, or whose program
may be in the work tree, are overruled by the user's value for the same key, else by nothing.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from relay.base.values import dataclass
from relay.git.command import Git
from relay.git.config_listing import read_listing
from relay.git.filter_commands import is_outside, runs_outside
from relay.git.repository import Repo

_FILTER = re.compile(r"filter\.(?P<name>.*)\.(?P<key>clean|smudge|process|required)", re.DOTALL)
_COMMAND = re.compile(rf"{_FILTER.pattern}|gpg\.ssh\.defaultkeycommand", re.DOTALL)
_PROGRAM = re.compile(r"gpg\.(.*\.)?program", re.DOTALL)
_HOOK = re.compile(r"hook\.(?P<name>.*)\.[a-z]+", re.DOTALL)
_PLAIN_EXTENSIONS = frozenset({
    "extensions.noop", "extensions.objectformat", "extensions.partialclone", "extensions.preciousobjects",
    "extensions.relativeworktrees", "extensions.worktreeconfig",
})  # fmt: skip
_FILTER_KEYS = ("clean", "smudge", "process", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One line of the effective configuration, in the order in which later ones win."""

    key: str
    """Section and variable in lower case, the part between as written."""
    value: str
    trusted: bool
    """Whether it comes from the user's own files, outside the repository."""
    is_bare: bool = False
    """It has no value, and is true."""


def read_config(repo: Repo) -> tuple[Setting, ...]:
    """Return the configuration as it stands now, without relay's own overrides."""
    entries = _list_entries(read_listing(repo))
    of_user = {source for source, _ in entries if source[0] in {b"system", b"global"}}
    trusted = {source for source in of_user if _is_outside_file(repo.root, source[1])}
    return tuple(_parse_setting(repo.root, entry, trusted=source in trusted) for source, entry in entries)


def _list_entries(listing: bytes) -> list[tuple[tuple[bytes, bytes], bytes]]:
    """Return scope and origin of each entry, and the entry; relay's own overrides are none."""
    parts = listing.split(b"\0")
    entries = zip(zip(parts[0::3], parts[1::3], strict=False), parts[2::3], strict=False)
    return [(source, entry) for source, entry in entries if source[0] != b"command"]


def _is_outside_file(root: Path, origin: bytes) -> bool:
    file = os.path.realpath(os.path.join(root, os.fsdecode(origin).removeprefix("file:")))  # noqa: PTH118  # for speed
    return not f"{file}/".startswith(os.path.join(root, ""))  # noqa: PTH118  # the root may be "/"


def _parse_setting(root: Path, entry: bytes, *, trusted: bool) -> Setting:
    key, end, value = os.fsdecode(entry).partition("\n")
    trusted = trusted and (not _COMMAND.fullmatch(key) or runs_outside(value, root))
    trusted = trusted and (not _PROGRAM.fullmatch(key) or is_outside(value, root))
    return Setting(key=key, value=value, trusted=trusted, is_bare=not end)


def find_value(config: tuple[Setting, ...], key: str, *, trusted_only: bool = False) -> str | None:
    """Return the value that wins for `key` (section and variable in lower case); None when it is not set."""
    values = [s.value for s in config if s.key == key and (s.trusted or not trusted_only)]
    return values[-1] if values else None


def is_true(value: str | None, *, default: bool) -> bool:
    """Read a boolean setting as git does; a key without a value arrives as an empty string and is true."""
    return default if value is None else value.lower() in {"", "true", "yes", "on", "1"}


def find_own_filters(config: tuple[Setting, ...]) -> frozenset[str]:
    """Return the names of filter drivers that the repository defines, unless the user defines them alike."""
    drivers: dict[str, None] = {}
    for setting in config:
        match = _FILTER.fullmatch(setting.key)
        if match and not setting.trusted:
            drivers[match["name"]] = None
    return frozenset(name for name in drivers if _differs(config, name))


def _differs(config: tuple[Setting, ...], name: str) -> bool:
    keys = [f"filter.{name}.{key}" for key in ("clean", "process")]
    return any(find_value(config, key) != find_value(config, key, trusted_only=True) for key in keys)


def overrule(config: tuple[Setting, ...]) -> tuple[tuple[str, str], ...]:
    """Return the settings that take a repository's filter drivers and all configured hooks out of action."""
    pairs: dict[str, str] = {}
    for setting in config:
        driver = _FILTER.fullmatch(setting.key)
        if driver and not setting.trusted:
            pairs |= _disarm(config, f"filter.{driver['name']}")
        hook = _HOOK.fullmatch(setting.key)
        if hook:
            pairs[f"hook.{hook['name']}.enabled"] = "false"
    return tuple(pairs.items())


def _disarm(config: tuple[Setting, ...], driver: str) -> dict[str, str]:
    found = {key: find_value(config, f"{driver}.{key}", trusted_only=True) for key in _FILTER_KEYS}
    if not (found["clean"] or found["process"]):
        found["required"] = None
    # With `required` left true, git would fail on every file of a driver that has no command any more.
    return {f"{driver}.{key}": found[key] or ("false" if key == "required" else "") for key in _FILTER_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Git for commands that may run filters or hooks, and the configuration it was made from."""

    git: Git
    config: tuple[Setting, ...]

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean setting."""
        return is_true(find_value(self.config, key), default=default)


def is_plain(repo: Repo) -> bool:
    """Return whether objects, and refs that only relay uses, are written as by default: then relay may do it itself."""
    return _is_plain(read_listing(repo))


@lru_cache(maxsize=16)
def _is_plain(listing: bytes) -> bool:
    """Read it of the same configuration once: it is asked for with each object."""
    config = tuple(
        Setting(key=key, value=value, trusted=False)
        for _, entry in _list_entries(listing)
        for key, _, value in (os.fsdecode(entry).partition("\n"),)
    )
    odd = find_value(config, "core.sharedrepository") or is_true(find_value(config, "core.protecthfs"), default=False)
    logs = (find_value(config, "core.logallrefupdates") or "").lower()
    formats = {setting.key for setting in config if setting.key.startswith("extensions.")}
    return not odd and logs != "always" and formats <= _PLAIN_EXTENSIONS


def guard(repo: Repo) -> Guarded:
    """Read the configuration now and return git with everything it names switched off.

    Done once per operation: a config may include a file of the work tree, which a session can write. Git is asked again
    when such a file, or any other of the configuration, is not what it was (`relay.git.config_listing`).
    """
    config = read_config(repo)
    return Guarded(git=repo.git.overruled(overrule(config)), config=config)


def find_filters(guarded: Guarded, paths: tuple[str, ...]) -> Mapping[str, str]:
    """Return the filter driver's name for each of `paths` that has one, by the attributes in force."""
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    parts = guarded.git.run("check-attr", "-z", "--stdin", "filter", stdin=stdin).split(b"\0")
    triples = zip(parts[0::3], parts[2::3], strict=False)
    return {os.fsdecode(p): os.fsdecode(v) for p, v in triples if v not in {b"unspecified", b"unset", b"set"}}
