"""Each setting's key: how its value is read, and what a repository's file may not make of it."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from relay.base.secrecy import RULES
from relay.base.values import dataclass
from relay.config.agents import AGENTS
from relay.config.forms import (
    SWITCH,
    VARIABLE,
    Form,
    make_choice,
    make_list,
    make_number,
    make_object,
    make_record,
    make_rows,
    make_text,
    make_texts,
    make_words,
)
from relay.config.model import COMMIT_HOOKS, CONTEXTS, FEATURES, MOST_JOBS, PROVIDERS, Compat, ModelSettings
from relay.config.network import CLOSED, PATTERN, read_network
from relay.config.news import NOTIFY
from relay.config.servers import SERVERS
from relay.plan.statements import EFFORTS, MODEL_NAME, RUNNER_NAME
from relay.session.gauge import LEAST_LINES, RESET_AT_GRAMMAR, ResetAt, parse_reset_at, parse_reset_line
from relay.session.prices import PRICE_KEYS, Price, parse_price, parse_prices

_DAY_S = 86_400


def _read_hidden(value: Any) -> tuple[str, ...]:
    """Read a list of paths that commands may not read; a bare text is a list of one."""
    items = [value] if isinstance(value, str) else value
    allowed = "a list of paths: absolute, from ~/ on, or relative to the repository; without `..`"
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError(allowed)
    for item in items:
        parts = [part for part in item.removeprefix("~/").split("/") if part not in {"", "."}]
        if not parts or ".." in parts or parts[0] == "~" or re.search(r"[\0\n]", item):
            raise ValueError(allowed)
    return tuple(items)


def _read_command(value: Any) -> tuple[str, ...]:
    """Read a program and its arguments; a bare text is split as a shell splits words, and no shell runs it."""
    allowed = "a list of words: a program and its arguments"
    try:
        items = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(allowed) from None
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in items):
        raise ValueError(allowed)
    if items and (not items[0] or (not items[0].startswith("/") and "/" in items[0])):
        raise ValueError(f"{allowed}; the program by its absolute path, or by its name on PATH")
    return tuple(items)


def _read_hooks(value: Any) -> tuple[str, ...]:
    """Read which commit hooks are run: all for ``run``, none for ``skip``, else some by name."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        items = [items]
    if len(items) == 1 and items[0] in ("run", "skip"):
        return COMMIT_HOOKS if items[0] == "run" else ()
    if not all(item in COMMIT_HOOKS for item in items):
        raise ValueError(f"run, skip, or some of {', '.join(COMMIT_HOOKS)}")
    return tuple(name for name in COMMIT_HOOKS if name in items)


def _read_ports(value: Any) -> tuple[int, ...]:
    """Read a list of ports; below 1024 no command may listen, so none can be shown there."""
    items = value if isinstance(value, list | tuple) else [value]
    ports = [int(item) if isinstance(item, str) and item.isdecimal() else item for item in items]
    if not all(isinstance(port, int) and not isinstance(port, bool) and 1024 <= port < 65536 for port in ports):  # noqa: PLR2004
        raise ValueError("a list of ports from 1024 to 65535")
    return tuple(dict.fromkeys(ports))


def _read_reset_at(value: Any) -> ResetAt:
    """Read a reset line; a bare whole number is a number of tokens."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(RESET_AT_GRAMMAR)  # noqa: TRY004  # as above
    try:
        return parse_reset_at(str(value))
    except ValueError:
        raise ValueError(RESET_AT_GRAMMAR) from None


def _read_trial(value: Any) -> tuple[str, ...]:
    """Read the lines of a trial; ``none`` is no trial."""
    if value == "none":
        return ()
    allowed = f"{{reset_at = [at least {LEAST_LINES} different lines]}}, each none or {RESET_AT_GRAMMAR}"
    lines = value.get("reset_at") if isinstance(value, Mapping) and set(value) == {"reset_at"} else None
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError(allowed)
    try:
        different = {parse_reset_line(line) for line in lines}
    except ValueError:
        raise ValueError(allowed) from None
    if len(different) < LEAST_LINES or len(different) < len(lines):
        raise ValueError(allowed)
    return tuple(lines)


def _make_model(model: str) -> Form:
    """Return the form of what is said of one model."""
    price = Form(read=lambda item: parse_price(model, item), schema=_PRICE)
    return make_record({**MODEL_KEYS, "price": price, "compat": _COMPAT}, ModelSettings, "for each model")


def _merge_models(weak: Mapping[str, ModelSettings], strong: Mapping[str, ModelSettings]) -> dict[str, ModelSettings]:
    """Put two tables of models together: of each model the fields that the stronger one gives, then the weaker's."""
    return {**weak, **{model: _fill(row, weak.get(model)) for model, row in strong.items()}}


def _fill(strong: Any, weak: Any) -> Any:
    """Take from `weak` what is None in `strong`, also within the values that both have."""
    if weak is None or type(strong) is not type(weak) or not isinstance(strong, ModelSettings | Compat):
        return weak if strong is None else strong
    return replace(strong, **{f.name: _fill(getattr(strong, f.name), getattr(weak, f.name)) for f in fields(strong)})


def _read_prices(value: Any) -> tuple[Price, ...]:
    """Read the table of prices."""
    if not isinstance(value, Mapping):
        raise ValueError("a table of tables, one for each model")  # noqa: TRY004  # as above
    return parse_prices(value)


def _never(_: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """How one setting is read and what a repository may not make of it."""

    read: Form
    split: str | None = None
    """What separates the entries of a list in a flag or variable, as a pattern; None for what is not a list."""
    widens: Callable[[Any], bool] = _never
    """Whether this value, from a repository file, takes rights that are the user's to give."""
    cap: bool = False
    """A spending cap: repository files may lower it only."""
    join: Callable[[Any, Any], Any] | None = None
    """Given the weaker and the stronger value, how both count; None: the stronger one alone."""


_TOKENS = make_number(1, 1e9, whole=True)
_HOSTS = make_object({"hosts": {"type": "array", "items": {"type": "string", "pattern": PATTERN}}}, "hosts")
_NETWORK = Form(read=read_network, schema={"anyOf": [{"type": "boolean"}, _HOSTS]})
_PORTS = Form(read=_read_ports, schema=make_list({"type": "integer", "minimum": 1024, "maximum": 65535}))
_LINES = make_object({"reset_at": {"type": "array", "items": {"type": "string"}}}, "reset_at")
_TRIAL = Form(read=_read_trial, schema={"anyOf": [{"const": "none"}, _LINES]})
_RESET_AT = Form(read=_read_reset_at, schema={"type": ["string", "integer"]})
MODEL_KEYS: Mapping[str, Form] = {
    "reset_at": _RESET_AT,
    "window_tokens": _TOKENS,
    "max_output_tokens": _TOKENS,
}
"""What may be said of one model, besides `COMPAT_KEYS` and its price."""
COMPAT_KEYS: Mapping[str, Form] = {
    "cache": make_choice("request", "blocks", "off"),
    "cache_hour": SWITCH,
    "thinking": make_choice("adaptive", "budget", "off"),
    "thinking_display": SWITCH,
    "unsigned_thinking": SWITCH,
    "system_messages": SWITCH,
    "pictures": SWITCH,
}
_COMPAT = make_record(COMPAT_KEYS, Compat, "in compat")
_PRICE = make_object({name: {"type": "number", "minimum": 0} for name in PRICE_KEYS}, "input", "output")


_COMMA = ","
_BLANK = r"[,:\s]"  # between names
_PATHS = rf"{os.pathsep}|,(?=\s*(?:[~/]|$))"
"""Between paths: as PATH has it, or a comma where the next one begins at the root or at home."""
_ABSOLUTE = r"/[^\0\n]*[^\0\n/]"
_INSIDE = r"(?!/)(?!(?:.*/)?\.(?:\.|[gG][iI][tT])(?:/|$))[^\0\n]+"
_SUBJECT = r"[^{}\x00-\x1f\x7f]{0,40}\{subject\}[^{}\x00-\x1f\x7f]{0,40}"
_NAME = r"(?!\.\.?$)[^/\0\n]{1,255}"
_SOCKETS = make_texts("docker, podman or absolute paths", rf"docker|podman|{_ABSOLUTE}")
_MODEL = make_text("a model id", MODEL_NAME, optional=True)
_CHANGE = rf"effort=(?:{'|'.join(EFFORTS)})|model={MODEL_NAME}"
_CHANGES = f"a list of effort={'|'.join(EFFORTS)} and model=ID"
_NAMES = make_texts("a list of plain file names", _NAME)
_DIRS = make_texts("a list of paths, absolute or from ~/ on", rf"~/[^\0\n]*[^\0\n/]|{_ABSOLUTE}")

KEYS: Mapping[str, Key] = {
    "plan": Key(
        read=make_text("a path", r"[^\0\n]+"), widens=lambda path: path.startswith("/") or ".." in path.split("/")
    ),
    "model": Key(read=make_text("a model id", MODEL_NAME)),
    "effort": Key(read=make_choice(*EFFORTS, optional=True)),
    "plan_model": Key(read=_MODEL),
    "plan_critic": Key(read=SWITCH),
    "done_dir": Key(read=make_text("a path relative to the repository, without .. and .git", _INSIDE, optional=True)),
    "escalate": Key(read=make_texts(_CHANGES, _CHANGE), split=_COMMA),
    "fallback_model": Key(read=_MODEL),
    "runner": Key(read=make_text("the name of a runner", RUNNER_NAME)),
    "provider": Key(read=make_choice(*PROVIDERS), widens=lambda name: name != PROVIDERS[0]),
    "key_command": Key(
        read=Form(read=_read_command, schema=make_list({"type": "string", "minLength": 1})), widens=bool
    ),
    "agents": Key(read=AGENTS, widens=bool),
    "mcp_servers": Key(read=SERVERS, widens=bool),
    "reset_at": Key(read=_RESET_AT),
    "models": Key(
        read=make_rows("model", _make_model),
        widens=lambda models: any(row.price is not None for row in models.values()),
        join=_merge_models,
    ),
    "max_cost_usd": Key(read=make_number(0, 1e6, optional=True), cap=True),
    "max_phase_cost_usd": Key(read=make_number(0, 1e6, optional=True), cap=True),
    "max_tokens_total": Key(read=make_number(0, 1e12, whole=True, optional=True), cap=True),
    "max_sessions": Key(read=make_number(1, 1_000, whole=True)),
    "max_turns": Key(read=make_number(1, 100_000, whole=True)),
    "max_repairs": Key(read=make_number(0, 100, whole=True)),
    "explore_model": Key(read=_MODEL),
    "review": Key(read=make_choice("off", "phase", "plan")),
    "review_model": Key(read=_MODEL),
    "review_runner": Key(read=make_text("the name of a runner", RUNNER_NAME, optional=True)),
    "review_max_cost_usd": Key(read=make_number(0, 1e6, optional=True), cap=True),
    "max_output_tokens": Key(read=make_number(1, 1e6, whole=True, optional=True)),
    "max_wait_s": Key(read=make_number(0, 7 * _DAY_S)),
    "idle_timeout_s": Key(read=make_number(1, 3_600)),
    "agent_idle_timeout_s": Key(read=make_number(1, _DAY_S)),
    "cache_ttl": Key(read=make_choice("auto", "5m", "1h")),
    "context": Key(read=make_choice(*CONTEXTS)),
    "trial": Key(read=_TRIAL),
    "history": Key(read=SWITCH, widens=bool),
    "ablate": Key(read=make_words(*FEATURES), split=_COMMA, widens=bool),
    "prices": Key(read=Form(read=_read_prices, schema={"type": "object", "additionalProperties": _PRICE}), widens=bool),
    "verify": Key(read=make_texts("a list of commands", r"[^\0]*\S[^\0]*"), split="\n"),
    "setup": Key(read=make_texts("a list of commands", r"[^\0]*\S[^\0]*"), split="\n"),
    "jobs": Key(read=make_number(1, MOST_JOBS, whole=True), widens=lambda jobs: jobs > 1),
    "pr": Key(read=SWITCH, widens=bool),
    "copy": Key(
        read=make_texts("a list of paths relative to the repository, without .. and .git", _INSIDE), split=_PATHS
    ),
    "command_timeout_s": Key(read=make_number(1, _DAY_S)),
    "gate_timeout_s": Key(read=make_number(1, _DAY_S)),
    "sandbox": Key(read=make_choice("auto", "container", "off"), widens=lambda word: word != "auto"),
    "hooks": Key(
        read=Form(read=_read_hooks, schema=make_list({"enum": ["run", "skip", *COMMIT_HOOKS]})),
        split=_BLANK,
        widens=lambda names: names != COMMIT_HOOKS,
    ),
    "commit_subject": Key(read=make_text("one line with {subject} once in it", _SUBJECT)),
    "signoff": Key(read=SWITCH, widens=bool),
    "network": Key(read=_NETWORK, widens=lambda network: network != CLOSED),
    "localhost": Key(read=_PORTS, split=_BLANK, widens=bool),
    "sockets": Key(read=_SOCKETS, split=_COMMA, widens=bool),
    "writable_dirs": Key(read=_DIRS, split=_PATHS, widens=bool),
    "readable_dirs": Key(read=_DIRS, split=_PATHS, widens=bool),
    "env_file": Key(
        read=make_text("a path relative to the repository, without .. and .git", _INSIDE, optional=True), widens=bool
    ),
    "writable_links": Key(read=SWITCH, widens=bool),
    "unreadable": Key(
        read=Form(read=_read_hidden, schema=make_list({"type": "string", "minLength": 1})),
        split=_PATHS,
        join=lambda weak, strong: (*strong, *weak),
    ),
    "env": Key(read=make_texts("a list of variable names", VARIABLE), split=_BLANK, widens=bool),
    "notify": Key(read=NOTIFY, widens=bool),
    "otel_endpoint": Key(read=make_text("an http(s):// address", r"https?://[^\s@]+", optional=True), widens=bool),
    "rules_fallback_names": Key(read=_NAMES, split=_COMMA, widens=lambda names: not all(map(RULES.fullmatch, names))),
    "ledger_tokens": Key(read=make_number(0, 100_000, whole=True)),
    "rules_max_bytes": Key(read=make_number(0, 1024 * 1024, whole=True)),
    "rules_root_markers": Key(read=_NAMES, split=_COMMA, widens=lambda names: names != (".git",)),
    "rules_global_dir": Key(read=make_text("an absolute path", _ABSOLUTE, optional=True), widens=bool),
}
