"""The setting `notify`: the receivers of a run's notifications, their channels and occasions."""

import re
from collections.abc import Mapping
from typing import Any

from relay.base.values import dataclass
from relay.config.forms import SWITCH, TEXTS, Form, make_choice, make_list, make_record, make_text, make_words

OCCASIONS = ("done", "blocked", "stopped", "limit", "red", "cost", "question")
"""Occasions of notifications:

done     everything requested is done
blocked  a session asked for a person
stopped  work is left, for any other reason
limit    a request has to wait for minutes
red      a gate is red that should be green
cost     80 % of the cap is spent
question a session asks the user something, or a phase waits for a yes (run --approve)
"""
USUAL = ("done", "blocked", "stopped", "limit", "cost", "question")
_ONE = 'one of url = "ntfys://ntfy.sh/TOPIC", command = ["PROGRAM", "{text}"] and form = "desktop"'
_ADDRESS = "an address as Apprise has them, such as ntfys://ntfy.sh/TOPIC; ${NAME} in it stands for a variable"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A way to notify a person: an address, a program, or without both the desktop."""

    url: str = ""
    """An address of Apprise; ``${NAME}`` in it is replaced by a variable."""
    command: tuple[str, ...] = ()
    """A program; ``{title}``, ``{text}`` and ``{occasion}`` are replaced where they are a whole word."""
    on: tuple[str, ...] = USUAL
    details: bool = False
    """Whether to include details of the repository: plan, branch, phase and reason."""

    @property
    def name(self) -> str:
        """The channel's name for a person, without secrets."""
        if self.command:
            return self.command[0]
        scheme, mark, rest = self.url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].partition("?")[0]
        return (host if mark and scheme in {"http", "https"} else scheme) or "desktop"

    @property
    def text(self) -> str:
        """The channel in one line, without secrets."""
        return f"{self.name} on {', '.join(self.on)}"


def fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace each ``${NAME}`` by the variable's value.

    Raises:
        KeyError: The variable with this name is not set.
    """
    return _VARIABLE.sub(lambda found: environ[found[1]], text)


def _read_channels(value: Any) -> tuple[Channel, ...]:
    rows = [value] if isinstance(value, Mapping) else value
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError("a list of tables, one for each way to call you")
    return tuple(_CHANNEL(row) for row in rows)


def _make_channel(form: str = "", url: str = "", command: tuple[str, ...] = (), **found: Any) -> Channel:
    if bool(url) + bool(command) + (form == "desktop") != 1 or (form == "command" and not command):
        raise ValueError(_ONE)
    return Channel(url=url, command=command, **found)


_CHANNEL = make_record(
    {
        "command": TEXTS,
        "details": SWITCH,
        "form": make_choice("desktop", "command"),
        "on": make_words(*OCCASIONS, least=1),
        "url": make_text(_ADDRESS, r"[a-z][a-z0-9+.-]*://\S+|\$\{[A-Za-z_]\w*\}\S*"),
    },
    _make_channel,
    "in each",
)
NOTIFY = Form(read=_read_channels, schema=make_list(_CHANNEL.schema))
