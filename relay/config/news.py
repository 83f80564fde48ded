"""The setting `notify`: whom a run calls, over what, and what about."""

import re
from collections.abc import Mapping
from typing import Any

from relay.base.values import dataclass
from relay.config.forms import SWITCH, TEXTS, Form, make_choice, make_list, make_record, make_text, make_words

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
_ONE = 'one of url = "ntfys://ntfy.sh/TOPIC", command = ["PROGRAM", "{text}"] and form = "desktop"'
_ADDRESS = "an address as Apprise has them, such as ntfys://ntfy.sh/TOPIC; ${NAME} in it stands for a variable"
_GONE = {
    "ntfy": "leave form and headers out: ntfys://ntfy.sh/TOPIC, with a token ntfys://${TOKEN}@ntfy.sh/TOPIC?auth=token",
    "slack": "leave form out: the webhook's address is enough",
    "discord": "leave form out: the webhook's address is enough",
    "json": "leave form and headers out: jsons://HOST/PATH?+NAME=VALUE, where NAME is a header's",
}
"""What is sent by Apprise now, and how its address is written."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One way to call somebody: an address, a program, or where neither is named the desktop."""

    url: str = ""
    """As Apprise has them; ``${NAME}`` in it stands for a variable."""
    command: tuple[str, ...] = ()
    """A program; ``{title}``, ``{text}`` and ``{occasion}`` are replaced where they are a word of it."""
    on: tuple[str, ...] = USUAL
    details: bool = False
    """Say what of the repository it is about too: plan, branch, phase and reason."""

    @property
    def name(self) -> str:
        """What a person calls it, without what may be secret."""
        if self.command:
            return self.command[0]
        scheme, mark, rest = self.url.partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].partition("?")[0]
        return (host if mark and scheme in {"http", "https"} else scheme) or "desktop"

    @property
    def text(self) -> str:
        """In one line, without what may be secret."""
        return f"{self.name} on {', '.join(self.on)}"


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
    for row in rows:
        if (form := row.get("form")) in _GONE:
            raise ValueError(f'form "{form}" is sent by Apprise now (docs/news.md): {_GONE[form]}')
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
"""An endpoint for news."""
