"""The setting `notify`: the receivers of a run's notifications, their channels and occasions."""

from typing import Annotated

from msgspec import Meta, Struct

from relay.config.decoding import Text, choice, matching, told

OCCASIONS = ("done", "blocked", "stopped", "limit", "red", "cost", "question")
"""Occasions of notifications:

done     everything requested is done
blocked  a session asked for a person
stopped  work is left, for any other reason
limit    a request has to wait for minutes
red      a gate is red that should be green
cost     50, 75 or 90 % of the cap is spent
question a session asks the user something, or a phase waits for a yes (run --approve)
"""
USUAL = ("done", "blocked", "stopped", "limit", "cost", "question")
_SOME = Meta(min_length=1, description=f"some of {', '.join(OCCASIONS)}")
_ONE = 'one of url = "ntfys://ntfy.sh/TOPIC", command = ["PROGRAM", "{text}"] and form = "desktop"'
_ADDRESS = "an address as Apprise has them, such as ntfys://ntfy.sh/TOPIC; ${NAME} in it stands for a variable"


class Channel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to notify a person: an address, a program, or the desktop."""

    form: Annotated[str, choice("desktop", "command")] | None = None
    url: Annotated[str, matching(_ADDRESS, r"[a-z][a-z0-9+.-]*://\S+|\$\{[A-Za-z_]\w*\}\S*")] | None = None
    """An address of Apprise; ``${NAME}`` in it is replaced by a variable."""
    command: Annotated[tuple[Text, ...], told("a list of texts")] = ()
    """A program; ``{title}``, ``{text}`` and ``{occasion}`` are replaced where they are a whole word."""
    on: Annotated[tuple[Annotated[str, choice(*OCCASIONS)], ...], _SOME] = USUAL
    details: bool = False
    """Whether to include details of the repository: plan, branch, phase and reason."""

    def __post_init__(self) -> None:
        """Require one way."""
        ways = {"url": self.url, "command": self.command, "desktop": self.form == "desktop"}
        if [bool(way) for way in ways.values()].count(True) != 1 or (self.form and not ways[self.form]):
            raise ValueError(_ONE)

    @property
    def name(self) -> str:
        """The channel's name for a person, without secrets."""
        if self.command:
            return self.command[0]
        scheme, mark, rest = (self.url or "").partition("://")
        host = rest.partition("/")[0].rpartition("@")[2].partition("?")[0]
        return (host if mark and scheme in {"http", "https"} else scheme) or "desktop"

    @property
    def text(self) -> str:
        """The channel in one line, without secrets."""
        return f"{self.name} on {', '.join(self.on)}"


Channels = Annotated[tuple[Channel, ...], told("a list of tables, one for each way to call you")]
