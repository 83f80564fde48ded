"""The setting `notify`: whom a run calls, over what, and what about."""

from collections.abc import Mapping
from typing import Any

from relay.config.forms import (
    HEADERS,
    SWITCH,
    TEXTS,
    Form,
    find_address,
    make_choice,
    make_list,
    make_record,
    make_words,
)
from relay.regexes import regex
from relay.values import dataclass

OCCASIONS = ("done", "blocked", "stopped", "limit", "red", "cost", "question")
"""What there is to tell:

done     all that was asked for is done
blocked  a session asked for a person
stopped  work is left, for any other reason
limit    a request has to wait for minutes
red      a gate went red that should have been green
cost     80 % of the cap is spent
question a session asks the user something, or a phase waits for a yes (run --approve)
"""
USUAL = ("done", "blocked", "stopped", "limit", "cost", "question")
FORMS = ("ntfy", "slack", "discord", "json", "desktop", "command")
_WITH_URL = frozenset(FORMS[:4])
_ADDRESS = "https://… or http://…; ${NAME} in it stands for a variable"
_VARIABLE = regex(r"\$\{([A-Za-z_]\w*)\}")


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


def fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Put variables' values in the place of ``${NAME}``.

    Raises:
        KeyError: One is not set; its name.
    """
    return _VARIABLE.sub(lambda found: environ[found[1]], text)


def _read_channels(value: Any) -> tuple[Channel, ...]:
    rows = [value] if isinstance(value, Mapping) else value
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError("a list of tables, one for each way to call you")
    return tuple(_CHANNEL(row) for row in rows)


def _make_channel(form: str = "", url: str = "", command: tuple[str, ...] = (), **found: Any) -> Channel:
    if not form:
        raise ValueError(f"form: {', '.join(FORMS)}")
    if url and form not in _WITH_URL:
        raise ValueError(f"url: {form} has none")
    if form in _WITH_URL and not url:
        raise ValueError(f"url: {_ADDRESS}")
    if bool(command) != (form == "command"):
        raise ValueError('command: a list of words, for the form "command" alone')
    return Channel(form=form, url=url, command=command, **found)


def _read_url(value: Any) -> str:
    bare = _VARIABLE.sub("x", value) if isinstance(value, str) else ""
    found = find_address(bare)
    if bare != "x" and (found is None or found.scheme not in {"http", "https"}):
        raise ValueError(_ADDRESS)
    return str(value)


_CHANNEL = make_record(
    {
        "command": TEXTS,
        "details": SWITCH,
        "form": make_choice(*FORMS),
        "headers": HEADERS,
        "on": make_words(*OCCASIONS, least=1),
        "url": Form(read=_read_url, schema={"type": "string"}),
    },
    _make_channel,
    "in each",
)
NOTIFY = Form(read=_read_channels, schema=make_list({**_CHANNEL.schema, "required": ["form"]}))
