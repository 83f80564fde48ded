"""Each setting's key: how its value is read, and what a repository's file may not make of it."""

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec.structs import asdict, replace

from relay.base.secrecy import RULES
from relay.base.values import dataclass
from relay.config.decoding import choice, decode, told
from relay.config.model import COMMIT_HOOKS, PROVIDERS, Compat, ModelSettings, Paths, Roles, Settings
from relay.config.network import CLOSED, NetworkSetting, join_network, make_network

_HOOKS = f"run, skip, or some of {', '.join(COMMIT_HOOKS)}"


def _split_command(value: Any) -> Any:
    """Split a bare text as a shell splits words; no shell runs it. What cannot be split stays, and is refused."""
    with contextlib.suppress(ValueError):
        return shlex.split(value) if isinstance(value, str) else value
    return None


def _check_command(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and (not words[0] or (not words[0].startswith("/") and "/" in words[0])):
        raise ValueError("the program by its absolute path, or by its name on PATH; its arguments")
    return words


def _choose_hooks(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hooks to run: all for ``run``, none for ``skip``, else some by name."""
    if names in (("run",), ("skip",)):
        return COMMIT_HOOKS if names == ("run",) else ()
    if not set(names) <= set(COMMIT_HOOKS):
        raise ValueError(_HOOKS)
    return tuple(name for name in COMMIT_HOOKS if name in names)


def _fill(strong: Any, weak: Any) -> Any:
    """Take from `weak` what is None in `strong`, also within the values that both have."""
    if weak is None or not isinstance(strong, ModelSettings | Compat | Roles):
        return weak if strong is None else strong
    return replace(strong, **{name: _fill(getattr(strong, name), getattr(weak, name)) for name in asdict(strong)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """How one setting is read and what a repository may not make of it."""

    kind: Any = None
    """The type of what is written; None: the type of the field in `Settings`."""
    prepare: Callable[[Any], Any] = lambda value: value
    """Called before a value is decoded; raises ValueError."""
    finish: Callable[[Any], Any] = lambda value: value
    """Returns the setting of a decoded value; raises ValueError with what is allowed."""
    split: str | None = None
    """What separates the entries of a list in a flag or variable, as a pattern; None for what is not a list."""
    widens: Callable[[Any], bool] = lambda _: False
    """Whether this value, from a repository file, takes rights that are the user's to give."""
    cap: bool = False
    """A spending cap: repository files may lower it only."""
    join: Callable[[Any, Any], Any] | None = None
    """Given the weaker and the stronger value, how both count; None: the stronger one alone."""

    def read(self, value: Any, *, is_text: bool = False) -> Any:
        """Return the setting of a written value.

        Args:
            is_text: As in `decode`.

        Raises:
            ValueError: It does not fit; the message says what is allowed.
        """
        bare = get_args(self.kind)[0] if get_origin(self.kind) is Annotated else self.kind
        if value == "none" and NoneType in get_args(bare):
            value = None
        given = self.prepare(value)
        if get_origin(bare) is tuple and not isinstance(given, list | tuple):
            given = [given]
        return self.finish(decode(given, self.kind, is_text=is_text))


_COMMA = ","
_BLANK = r"[,:\s]"  # between names
_CAP = Key(cap=True)
_OWN = Key(widens=bool)

_SPECIAL: Mapping[str, Key] = {
    "plan": Key(widens=lambda path: path.startswith("/") or ".." in path.split("/")),
    "roles": Key(join=lambda weak, strong: _fill(strong, weak)),
    "escalate": Key(split=_COMMA),
    "provider": Key(widens=lambda name: name != PROVIDERS[0]),
    "key_command": Key(prepare=_split_command, finish=_check_command, widens=bool),
    "agents": _OWN,
    "mcp_servers": _OWN,
    "models": Key(
        # Of each model the fields that the stronger table gives, then the weaker's.
        widens=lambda models: any(row.price is not None for row in models.values()),
        join=lambda weak, strong: {**weak, **{model: _fill(row, weak.get(model)) for model, row in strong.items()}},
    ),
    "max_cost_usd": _CAP,
    "max_phase_cost_usd": _CAP,
    "max_tokens_total": _CAP,
    "history": _OWN,
    "verify": Key(split="\n"),
    "setup": Key(split="\n"),
    "jobs": Key(widens=lambda jobs: jobs > 1),
    "pr": _OWN,
    "copy": Key(split="[:,]"),
    "sandbox": Key(widens=lambda word: word != "auto"),
    "hooks": Key(
        kind=Annotated[tuple[Annotated[str, choice("run", "skip", *COMMIT_HOOKS)], ...], told(_HOOKS)],
        finish=_choose_hooks,
        split=_BLANK,
        widens=lambda names: names != COMMIT_HOOKS,
    ),
    "signoff": _OWN,
    "network": Key(
        kind=NetworkSetting, finish=make_network, widens=lambda network: network != CLOSED, join=join_network
    ),
    "paths": Key(
        widens=lambda paths: bool(paths.write or paths.read),
        join=lambda weak, strong: Paths(
            **{name: (*getattr(strong, name), *getattr(weak, name)) for name in asdict(strong)}
        ),
    ),
    "env_file": _OWN,
    "env": Key(split=_BLANK, widens=bool),
    "notify": _OWN,
    "rules_fallback_names": Key(split=_COMMA, widens=lambda names: not all(map(RULES.fullmatch, names))),
}
_TYPES = {
    name: kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name not in {"of_repository", "origins", "context", "ablate"}
}
KEYS: Mapping[str, Key] = {
    **{name: Key(kind=kind) for name, kind in _TYPES.items()},
    **{name: dataclasses.replace(key, kind=key.kind or _TYPES[name]) for name, key in _SPECIAL.items()},
}
