"""The sources of settings: which source wins, what no source may set, and a model's table for the user's file."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from relay.base.documents import TomlError, parse_toml
from relay.base.errors import ConfigError, FlagError
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.words import shorten
from relay.config.keys import KEYS
from relay.config.model import AS_KNOWN, CONTEXTS, FEATURES, ModelSettings, Settings
from relay.session.prices import UserPrice

MAX_FILE_BYTES = 1024 * 1024
ARM = "RELAY_ARM"
"""Variable by which `relay lab compare` tells a run what its arm changes beside settings."""
_FLAGS = {"max_cost_usd": "--max-cost"}
_SHOWN_CHARS = 80
"""Longest part of a message's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The place that sets a setting."""

    name: str
    """The flag, variable or file in messages."""
    is_file: bool = False
    is_flag: bool = False
    line: int = 0
    """1-based, in a file; 0 if a plain search does not find the key."""

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name

    def refuse(self, words: str, *, hint: str = "") -> ConfigError:
        """Return the error for a setting that is invalid, or must not be set here."""
        if self.is_file:
            return ConfigError(words, path=self.name, line=self.line, hint=hint)
        kind = FlagError if self.is_flag else ConfigError
        return kind(f"{self.name}: {words}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """A source of settings."""

    values: Mapping[Any, Any]
    find: Callable[[str], Origin]
    """Returns the origin of a key."""
    repository: bool = False
    """Whether it is a file of the repository: anyone may have written it."""
    is_plan: bool = False
    """Whether it is the plan's front matter."""
    is_text: bool = False
    """Whether numbers and switches are written as text."""


def find_user_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the user's config directory of relay, whether or not it exists; None without a home."""
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # relative values must be ignored: XDG base directory specification
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.config"
    return Path(base) / "relay"


def read_flags(flags: Mapping[str, Any]) -> SettingsSource:
    """Return the typed settings."""
    typed = {name: value for name, value in flags.items() if value is not None and value != ()}
    values = {name: _read_text(name, value) for name, value in typed.items()}
    return SettingsSource(values=values, find=lambda key: Origin(name=flag_name(key), is_flag=True), is_text=True)


def read_environ(environ: Mapping[str, str]) -> SettingsSource:
    """Return the settings of ``RELAY_*`` variables; refuse a misspelt one, ignore foreign and empty ones."""
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        name = variable.removeprefix("RELAY_").lower()
        if not variable.startswith("RELAY_") or not text:
            continue
        if name in KEYS:
            values[name] = _read_text(name, text)
        elif name in NO_SETTING:
            raise ConfigError(f"{variable} is no setting", hint=NO_SETTING[name])
        elif close := find_close(name, similarity=0.8):
            raise ConfigError(f"{variable} is no setting; did you mean {env_name(close)}?")
    return SettingsSource(values=values, find=lambda key: Origin(name=env_name(key)), is_text=True)


def find_unknown(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ``RELAY_*`` variables that are no setting."""
    return tuple(
        name
        for name, text in environ.items()
        if text and name != ARM and name.startswith("RELAY_") and name.removeprefix("RELAY_").lower() not in KEYS
    )


def _read_text(name: str, value: Any) -> Any:
    """Return typed text as a file's value where a file has a list, or more than one kind of value."""
    if name not in KEYS or not isinstance(value, str):
        return value
    text = value.strip()
    if name == "notify" and text == "off":
        return []
    if text.startswith(("[", "{")):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    if name == "network" and text.lower() not in {"true", "1", "false", "0"}:
        return {"hosts": [host.strip() for host in text.split(",")]}
    split = KEYS[name].split
    return [part.strip() for part in re.split(split, text) if part.strip()] if split else text


def read_repository(root: Path | None) -> SettingsSource:
    """Return the settings of ``relay.toml``, or of ``[tool.relay]`` in ``pyproject.toml``; both at once are refused."""
    if root is None:
        return SettingsSource(values={}, find=lambda key: Origin(name=key))
    own = _read_inside(root, "relay.toml")
    shared = _read_inside(root, "pyproject.toml") or ""
    # Parse pyproject.toml only if it can have a table for relay: other tools report its errors.
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
    """Return the settings of the user's own file."""
    path = user_dir / "config.toml" if user_dir else None
    text = _read_file(path, str(path)) or "" if path else ""
    return _from_table(_parse_toml(text, str(path)), text, str(path), repository=False)


def _from_table(values: dict[str, Any], text: str, name: str, *, repository: bool, start: int = 0) -> SettingsSource:
    """Return a parsed file as a source; an origin has the key's line if a plain search finds it."""

    def locate(key: str) -> Origin:
        pattern = rf"^[ \t]*(?:\[(?:tool\.relay\.)?)?[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]"
        found = re.compile(pattern, re.MULTILINE).search(text, start)
        line = text.count("\n", 0, found.start()) + 1 if found else 0
        return Origin(name=name, is_file=True, line=line)

    return SettingsSource(values=values, find=locate, repository=repository)


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    if not text:
        return {}
    try:
        return parse_toml(text)
    except TomlError as error:
        raise ConfigError(str(error), path=name, line=error.line) from None


def _read_inside(root: Path, name: str) -> str | None:
    """Read a file of the repository; refuse a link that leads out of it."""
    real = os.path.realpath(root / name)
    if not Path(real).is_relative_to(os.path.realpath(root)):
        raise ConfigError(f"{name} is a link to a file outside the repository; allowed: a file of the repository")
    return _read_file(Path(real), name)


def _read_file(path: Path, name: str) -> str | None:
    """Read a regular file of limited size; None without one."""
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
    """Return the key that the user probably meant."""
    import difflib

    return next(iter(difflib.get_close_matches(name, KEYS, n=1, cutoff=similarity)), None)


def env_name(name: str) -> str:
    """Return the variable of a key."""
    return f"RELAY_{name.upper()}"


def flag_name(name: str) -> str:
    """Return the flag of a key, whether or not a command has it."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def find_other_way(flag: str) -> str:
    """Return what to do instead of a flag that is no setting's; empty for an unknown one."""
    return NO_SETTING.get(flag.removeprefix("--").replace("-", "_"), "")


def show_value(value: Any) -> str:
    """Return a setting's value as written, cut to one line."""
    return shorten(repr(value), _SHOWN_CHARS)


NO_SETTING = {
    "base_url": "it comes from the variable ANTHROPIC_BASE_URL only",
    "api_key": "it comes from the variable ANTHROPIC_API_KEY only",
    "auth_token": "it comes from the variable ANTHROPIC_AUTH_TOKEN only",
    "relay": "leave [relay] out: the file holds settings only",
    "max_turns": "a session hands over after 500 requests",
}
"""Names that look like a setting, with what to do instead."""


def load_settings(
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    plan_settings: Mapping[str, Any],
    find_in_plan: Callable[[str], Origin] = lambda _key: Origin(name="plan front matter"),
    repo_root: Path | None,
    user_dir: Path | None,
) -> Settings:
    """Load the settings of a command.

    The plan's path is itself a setting: call once without `plan_settings` to find it, then again with them.

    Args:
        flags: Typed settings by key; None and empty tuples were not typed.
        environ: Only ``RELAY_*`` counts; ``RELAY_ARM`` is an experiment's.
        plan_settings: The ``relay`` mapping of the plan's front matter, unchecked.
        find_in_plan: Returns the origin of a key of the plan.
        repo_root: The directory of ``relay.toml`` and ``pyproject.toml``; None outside a repository.
        user_dir: The directory of the user's ``config.toml``; None without one.

    Raises:
        ConfigError: A setting is unknown or invalid, or its source must not set it.
    """
    in_plan = SettingsSource(values=plan_settings, find=find_in_plan, repository=True, is_plan=True)
    sources = (read_flags(flags), read_environ(environ), in_plan, read_repository(repo_root), read_user(user_dir))
    chosen: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    found: dict[str, Origin] = {}
    wished: set[str] = set()
    # From the weakest to the strongest source, to compare a repository's cap with the user's own value.
    owned = {f.name: f.default for f in fields(Settings) if f.default is not MISSING}
    for source in reversed(sources):
        for key, value in _read_source(source):
            join = KEYS[key].join if key in chosen else None
            chosen[key] = join(chosen[key], value) if join else value
            found[key] = origin = source.find(key)
            origins[key] = f"{origin}, {origins[key]}" if join else str(origin)
            (wished.add if source.repository else wished.discard)(key)
            if not source.repository:
                owned[key] = value
    _require_caps_kept(chosen, found, owned)
    return Settings(**chosen, **parse_arm(environ.get(ARM, "")), origins=origins, of_repository=frozenset(wished))


def parse_arm(text: str) -> dict[str, Any]:
    """Read what an arm of an experiment changes beside its settings; return fields of `Settings`.

    Raises:
        ConfigError: A part of it is none, or one contradicts another.
    """
    parts = text.split("+") if text else []
    without = {part.removeprefix("ablate=") for part in parts if part.startswith("ablate=")}
    strategies = [part for part in parts if not part.startswith("ablate=")] or [CONTEXTS[0]]
    allowed = f"one of {', '.join(CONTEXTS)}, and ablate= with some of {', '.join(FEATURES)}, joined by +"
    if len(strategies) > 1 or strategies[0] not in CONTEXTS or not without <= {*FEATURES}:
        raise ConfigError(f"{ARM}: found {show_value(text)}; allowed: {allowed}")
    if "reset" in without and strategies[0] != "reset":  # the result would look like another experiment's
        raise ConfigError(f"{ARM}: {strategies[0]} has no reset to switch off", hint="leave out one of them")
    return {"context": strategies[0], "ablate": tuple(word for word in FEATURES if word in without)}


def _read_source(source: SettingsSource) -> Iterator[tuple[str, Any]]:
    """Yield the values of a source; refuse those that it must not set."""
    for name, raw in source.values.items():
        key = KEYS.get(name)
        if key is None or (name == "plan" and source.is_plan):
            raise _refuse_unknown(name, source)
        try:
            value = key.read(raw, is_text=source.is_text)
        except ValueError as exc:
            raise source.find(name).refuse(f"{name}: found {show_value(raw)}; allowed: {exc}") from None
        if source.repository and key.widens(value):
            raise source.find(name).refuse(
                f"{name} = {show_value(raw)} may not be set by a repository",
                hint=f"if you want it, set {env_name(name)}, type its flag, or put it into your own config file",
            )
        yield name, value


def _require_caps_kept(chosen: Mapping[str, Any], found: Mapping[str, Origin], owned: Mapping[str, Any]) -> None:
    """Refuse a cap that a repository file raises above the user's own."""
    for name, value in chosen.items():
        if not KEYS[name].cap:
            continue
        limit = owned[name]
        if limit is not None and (value is None or value > limit):
            raise found[name].refuse(
                f"{name}: found {'none' if value is None else f'{value:,g}'}; a repository may "
                f"lower this cap but not raise it above yours, {limit:,g}",
                hint=f"to raise it yourself, set {env_name(name)}, type {flag_name(name)}, or use your config file",
            )


def _refuse_unknown(name: Any, source: SettingsSource) -> ConfigError:
    """Return the error for a key that is no setting."""
    origin = source.find(str(name))
    if name in NO_SETTING:
        return origin.refuse(f"{name} is no setting", hint=NO_SETTING[name])
    if name == "plan":
        return origin.refuse("plan: a plan cannot name the plan to use")
    close = find_close(str(name))
    if close:
        return origin.refuse(f"unknown setting {show_value(name)}; did you mean {close}?")
    return origin.refuse(f"unknown setting {show_value(name)}", hint=f"allowed: {', '.join(KEYS)}")


_UNKNOWN = {
    "window_tokens": (200_000, "its context window"),
    "max_output_tokens": (32_000, "its longest answer"),
    "price": (UserPrice(input=0.0, output=0.0), "USD per million tokens; 0 on a machine of your own"),
}
"""Values that a model needs, each with a placeholder and a description."""


def render_model_table(model: str, known: ModelSettings) -> str:
    """Return a model's table as TOML; placeholders for unknown values are marked."""
    lines = [(f'reset_at = "{known.reset_at}"', "")] if known.reset_at is not None else []
    for name, (assumed, words) in _UNKNOWN.items():
        value = getattr(known, name)
        remark = f"put this right: {words}" if value is None else words
        lines.append((f"{name} = {_render(assumed if value is None else value)}", remark))
    lines += [(f"compat = {_render(known.compat)}", "")] if known.compat != AS_KNOWN else []
    width = max(len(line) for line, _ in lines)
    shown = (f"{line:<{width}}  # {remark}" if remark else line for line, remark in lines)
    return "\n".join((f"[models.{json.dumps(model)}]", *shown))


def _render(value: Any) -> str:
    if isinstance(value, Struct):
        items = ((name, item) for name, item in asdict(value).items() if item is not None)
        return "{" + ", ".join(f"{name} = {_render(item)}" for name, item in items) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)


def show_user_file(environ: Mapping[str, str]) -> str:
    """Return the path of the user's settings file, with ``~`` for the home directory."""
    path = (find_user_dir(environ) or Path("~/.config/relay")) / "config.toml"
    home = environ.get("HOME", "")
    return f"~/{path.relative_to(home)}" if home.startswith("/") and path.is_relative_to(home) else str(path)
