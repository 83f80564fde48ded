"""The places that settings come from, read but not judged."""

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relay.base.errors import ConfigError, FlagError
from relay.base.toml_text import TomlError, parse_toml
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.words import shorten
from relay.config.keys import KEYS

MAX_FILE_BYTES = 1024 * 1024
_FLAGS = {"max_cost_usd": "--max-cost"}
_SHOWN_CHARS = 80
"""A line of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where one setting was said."""

    name: str
    """A flag, a variable or a file, as it is shown."""
    is_file: bool = False
    is_flag: bool = False
    line: int = 0
    """1-based, in a file; 0 when a plain search does not find the key."""

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name

    def refuse(self, words: str, *, hint: str = "") -> ConfigError:
        """Make the error of a setting that must not be said here, or not so."""
        if self.is_file:
            return ConfigError(words, path=self.name, line=self.line, hint=hint)
        kind = FlagError if self.is_flag else ConfigError
        return kind(f"{self.name}: {words}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """One place that settings come from."""

    values: Mapping[Any, Any]
    find: Callable[[str], Origin]
    """The origin of a key."""
    repository: bool = False
    """Whether it is a file of the repository, which anyone may have written."""
    is_plan: bool = False
    """Whether it is the plan's front matter."""


def find_user_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the user's directory for relay's config, whether or not it exists; None without a home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # relative values are to be ignored: XDG base directory specification
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.config"
    return Path(base) / "relay"


def read_flags(flags: Mapping[str, Any]) -> SettingsSource:
    """Take the settings that were typed."""
    typed = {name: value for name, value in flags.items() if value is not None and value != ()}
    return SettingsSource(values={name: _decode(name, value) for name, value in typed.items()}, find=_find_flag)


def read_environ(environ: Mapping[str, str]) -> SettingsSource:
    """Take ``RELAY_*``; a foreign variable is left alone, one that looks misspelt is refused (empty: unset)."""
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        name = variable.removeprefix("RELAY_").lower()
        if not variable.startswith("RELAY_") or not text:
            continue
        if name in KEYS:
            values[name] = _decode(name, text)
        elif close := find_close(name, similarity=0.8):
            raise ConfigError(f"{variable} is no setting; did you mean {env_name(close)}?")
    return SettingsSource(values=values, find=lambda key: Origin(name=env_name(key)))


def find_unknown(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ``RELAY_*`` variables that are set and mean nothing to relay."""
    return tuple(
        name
        for name, text in environ.items()
        if text and name.startswith("RELAY_") and name.removeprefix("RELAY_").lower() not in KEYS
    )


def _find_flag(key: str) -> Origin:
    return Origin(name=flag_name(key), is_flag=True)


def _decode(name: str, value: Any) -> Any:
    """Turn what was typed as text into the type that a file would give; what does not fit stays text."""
    key = KEYS.get(name)
    if key is None or not isinstance(value, str):
        return value
    text = value.strip()
    if key.split:
        return [part.strip() for part in re.split(key.split, text) if part.strip()]
    if name == "network":
        words: dict[str, Any] = {"true": True, "1": True, "false": False, "0": False}
        return words.get(text.lower(), {"hosts": [host.strip() for host in text.split(",")]})
    if name == "notify" and text == "off":
        return []
    if name in {"plan", "model", "reset_at"}:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if math.isfinite(number) and number.is_integer() else number


def read_repository(root: Path | None) -> SettingsSource:
    """Take ``relay.toml``, or ``[tool.relay]`` of ``pyproject.toml``; never both."""
    if root is None:
        return SettingsSource(values={}, find=lambda key: Origin(name=key))
    own = _read_inside(root, "relay.toml")
    shared = _read_inside(root, "pyproject.toml") or ""
    # Other tools' files are theirs to check: parsed only when it can hold a table for relay.
    tool = _parse_toml(shared, "pyproject.toml").get("tool", {}) if "relay" in shared else {}
    table = tool.get("relay") if isinstance(tool, dict) else None
    if table is None:
        text = own or ""
        return _from_table(_parse_toml(text, "relay.toml"), text, "relay.toml", repository=True)
    if own is not None:
        raise ConfigError("relay.toml and [tool.relay] in pyproject.toml both hold settings; keep one of them")
    if not isinstance(table, dict):
        raise ConfigError("tool.relay is not a table", path="pyproject.toml")
    start = re.search(r"^\s*\[\s*tool\s*\.\s*relay\b", shared, re.MULTILINE)
    return _from_table(table, shared, "pyproject.toml", repository=True, start=start.start() if start else 0)


def read_user(user_dir: Path | None) -> SettingsSource:
    """Take the user's own file."""
    path = user_dir / "config.toml" if user_dir else None
    text = _read_file(path, str(path)) or "" if path else ""
    return _from_table(_parse_toml(text, str(path)), text, str(path), repository=False)


def _from_table(values: dict[str, Any], text: str, name: str, *, repository: bool, start: int = 0) -> SettingsSource:
    """Make a source of a parsed file; an origin has the key's line where a plain search finds it."""

    def locate(key: str) -> Origin:
        pattern = rf"^[ \t]*(?:\[(?:tool\.relay\.)?)?[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]"
        found = re.compile(pattern, re.MULTILINE).search(text, start)
        line = text.count("\n", 0, found.start()) + 1 if found else 0
        return Origin(name=name, is_file=True, line=line)

    return SettingsSource(values=values, find=locate, repository=repository)


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse a TOML file."""
    if not text:
        return {}
    try:
        return parse_toml(text)
    except TomlError as error:
        raise ConfigError(str(error), path=name, line=error.line) from None


def _read_inside(root: Path, name: str) -> str | None:
    """Read a file of the repository; a link that leads out of it is refused."""
    real = os.path.realpath(root / name)
    if not Path(real).is_relative_to(os.path.realpath(root)):
        raise ConfigError(f"{name} is a link to a file outside the repository; allowed: a file of the repository")
    return _read_file(Path(real), name)


def _read_file(path: Path, name: str) -> str | None:
    """Read a regular file of a sane size; None when there is none."""
    try:
        content = read_start(path, MAX_FILE_BYTES)
        if content is None or len(content) > MAX_FILE_BYTES:
            raise ConfigError(f"allowed: a regular file of at most {MAX_FILE_BYTES:,} bytes", path=name)
        return content.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{name} cannot be read: {exc}") from None


def find_close(name: str, *, similarity: float = 0.6) -> str | None:
    """Return the key that was probably meant."""
    import difflib

    return next(iter(difflib.get_close_matches(name, KEYS, n=1, cutoff=similarity)), None)


def env_name(name: str) -> str:
    """Return the variable of a key."""
    return f"RELAY_{name.upper()}"


def flag_name(name: str) -> str:
    """Return the flag of a key, whether or not a command has it."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def show_value(value: Any) -> str:
    """Return a setting's value as written, cut to fit on one line."""
    return shorten(repr(value), _SHOWN_CHARS)
