"""The setting `notify`: whom a run calls, over what, and what about."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from relay.values import dataclass

OCCASIONS = ("done", "blocked", "stopped", "limit", "red", "cost", "question")
"""What there is to tell:

done     all that was asked for is done
blocked  a session asked for a person
stopped  work is left, for any other reason
limit    a request has to wait for minutes
red      a gate went red that should have been green
cost     80 % of the cap is spent
question a session asks the user something
"""
USUAL = ("done", "blocked", "stopped", "limit", "cost", "question")
FORMS = ("ntfy", "slack", "discord", "json", "desktop", "command")
_WITH_URL = frozenset(FORMS[:4])
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One way to call somebody."""

    form: str
    """One of `FORMS`."""
    url: str = ""
    """Of ntfy's topic, a webhook, or whatever takes JSON; ``${NAME}`` in it and in headers stands for a variable."""
    headers: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    """Of the form ``command``; ``{title}``, ``{text}`` and ``{occasion}`` in its words are replaced."""
    on: tuple[str, ...] = USUAL
    details: bool = False
    """Say what of the repository it is about too: plan, branch, phase and reason."""

    @property
    def text(self) -> str:
        """In one line, without what may be secret."""
        return f"{self.form} on {', '.join(self.on)}"


def read_notify(value: Any) -> tuple[Channel, ...]:
    """Read the list of channels.

    Raises:
        ValueError: It is none; says what is allowed.
    """
    rows = [value] if isinstance(value, Mapping) else value
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError("a list of tables, one for each way to call you")
    return tuple(_read_channel(row) for row in rows)


def _read_channel(row: Mapping[str, Any]) -> Channel:
    if not row.keys() <= _KEYS:
        raise ValueError(f"in each some of {', '.join(sorted(_KEYS))}")
    form, on, details = row.get("form"), row.get("on", list(USUAL)), row.get("details", False)
    if form not in FORMS:
        raise ValueError(f"form: {', '.join(FORMS)}")
    if not isinstance(on, list | tuple) or not on or not all(word in OCCASIONS for word in on):
        raise ValueError(f"on: some of {', '.join(OCCASIONS)}")
    if not isinstance(details, bool):
        raise ValueError("details: true or false")  # noqa: TRY004  # every reader refuses with ValueError
    url, headers, command = _read_url(row, form), _read_headers(row), _read_command(row, form)
    return Channel(form=form, url=url, headers=headers, command=command, on=tuple(on), details=details)


def _read_url(row: Mapping[str, Any], form: str) -> str:
    url = row.get("url", "")
    if form not in _WITH_URL:
        if url:
            raise ValueError(f"url: {form} has none")
        return ""
    if not isinstance(url, str) or not url.isprintable() or not _is_address(_VARIABLE.sub("x", url)):
        raise ValueError("url: https://… or http://…; ${NAME} in it stands for a variable")
    return url


def _is_address(url: str) -> bool:
    try:
        found = urlsplit(url)
    except ValueError:
        return False
    return url == "x" or (found.scheme in {"http", "https"} and bool(found.hostname) and " " not in url)


def _read_headers(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found = row.get("headers", {})
    if not isinstance(found, Mapping) or not all(
        _HEADER.fullmatch(str(name)) and isinstance(value, str) and value.isprintable() for name, value in found.items()
    ):
        raise ValueError("headers: a table of texts")
    return tuple((str(name), value) for name, value in found.items())


def _read_command(row: Mapping[str, Any], form: str) -> tuple[str, ...]:
    words = row.get("command", [])
    good = isinstance(words, list | tuple) and all(isinstance(word, str) and "\0" not in word for word in words)
    if not good or bool(words) != (form == "command"):
        raise ValueError('command: a list of words, for the form "command" alone')
    return tuple(words)


def fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Put variables' values in the place of ``${NAME}``.

    Raises:
        KeyError: One is not set; its name.
    """
    return _VARIABLE.sub(lambda found: environ[found[1]], text)


_KEYS = frozenset({"form", "url", "headers", "command", "on", "details"})
_TEXTS = {"type": "array", "items": {"type": "string"}}
NOTIFY_SCHEMA: Mapping[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "form": {"enum": list(FORMS)},
            "url": {"type": "string"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "command": _TEXTS,
            "on": {"type": "array", "items": {"enum": list(OCCASIONS)}, "minItems": 1},
            "details": {"type": "boolean"},
        },
        "required": ["form"],
        "additionalProperties": False,
    },
}
"""The same as JSON Schema."""
