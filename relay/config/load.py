"""Which source wins, and what none of them may say."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from relay.base.errors import ConfigError
from relay.config.keys import KEYS
from relay.config.model import Settings
from relay.config.sources import (
    Origin,
    SettingsSource,
    env_name,
    find_close,
    flag_name,
    read_environ,
    read_flags,
    read_repository,
    read_user,
    show_value,
)

_ELSEWHERE = {"base_url": "ANTHROPIC_BASE_URL", "api_key": "ANTHROPIC_API_KEY", "auth_token": "ANTHROPIC_AUTH_TOKEN"}


def _find_in_plan(_key: str) -> Origin:
    return Origin(name="plan front matter")


def load_settings(
    *,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    plan_settings: Mapping[str, Any],
    find_in_plan: Callable[[str], Origin] = _find_in_plan,
    repo_root: Path | None,
    user_dir: Path | None,
) -> Settings:
    """Gather the settings of a command.

    The plan's path is itself a setting: call once without `plan_settings` to find it, then again with them.

    Args:
        flags: Settings typed on the command line by key; None and empty tuples were not typed.
        environ: The environment; only ``RELAY_*`` is looked at.
        plan_settings: The plan's front matter ``relay`` mapping, unchecked.
        find_in_plan: The origin of a key of it.
        repo_root: Where ``relay.toml`` and ``pyproject.toml`` are; None outside a repository.
        user_dir: Where the user's ``config.toml`` is; None: none.

    Raises:
        ConfigError: A setting is unknown, has a value that is not allowed, or came from a file that must not
            say it.
    """
    in_plan = SettingsSource(values=plan_settings, find=find_in_plan, repository=True, is_plan=True)
    sources = (read_flags(flags), read_environ(environ), in_plan, read_repository(repo_root), read_user(user_dir))
    chosen: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, "default")
    found: dict[str, Origin] = {}
    wished: set[str] = set()
    # From the weakest to the strongest, so that a cap of a repository file meets the user's own value.
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
    _require_one_experiment(chosen, found)
    own = tuple(row.price for row in chosen.get("models", {}).values() if row.price is not None)
    chosen["prices"] = (*own, *chosen.get("prices", ()))
    return Settings(**chosen, origins=origins, of_repository=frozenset(wished))


def _read_source(source: SettingsSource) -> Iterator[tuple[str, Any]]:
    """Read every value of a source, refusing what it must not say."""
    for name, raw in source.values.items():
        key = KEYS.get(name)
        if key is None or (name == "plan" and source.is_plan):
            raise _refuse_unknown(name, source)
        try:
            value = key.read(raw)
        except ValueError as exc:
            raise source.find(name).refuse(f"{name}: found {show_value(raw)}; allowed: {exc}") from None
        if source.repository and key.widens(value):
            raise source.find(name).refuse(
                f"{name} = {show_value(raw)} is not the repository's to say",
                hint=f"if you want it, set {env_name(name)}, type its flag, or put it into your own config file",
            )
        yield name, value


def _require_caps_kept(chosen: Mapping[str, Any], found: Mapping[str, Origin], owned: Mapping[str, Any]) -> None:
    """Refuse a cap that a repository file raised above the user's own."""
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


def _require_one_experiment(chosen: Mapping[str, Any], found: Mapping[str, Origin]) -> None:
    """Refuse to switch off a reset that the strategy does not have: the result would be taken for something else."""
    context = chosen.get("context", "reset")
    if "reset" in chosen.get("ablate", ()) and context != "reset":
        raise found["ablate"].refuse(
            f"ablate: context = {context} has no reset to switch off",
            hint="leave out one of the two; without its reset relay is context = none",
        )


def _refuse_unknown(name: Any, source: SettingsSource) -> ConfigError:
    """Explain a key that is no setting."""
    origin = source.find(str(name))
    if name in _ELSEWHERE:
        return origin.refuse(f"{name} is no setting; it comes from the variable {_ELSEWHERE[name]} only")
    if name == "plan":
        return origin.refuse("plan: a plan cannot name the plan to use")
    if name == "relay":
        return origin.refuse("relay is no setting; the file holds settings only", hint="leave [relay] out")
    close = find_close(str(name))
    if close:
        return origin.refuse(f"unknown setting {show_value(name)}; did you mean {close}?")
    return origin.refuse(f"unknown setting {show_value(name)}", hint=f"allowed: {', '.join(KEYS)}")
