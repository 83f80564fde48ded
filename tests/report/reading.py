"""Pages read back as a browser would: elements, attributes, texts."""

from collections.abc import Iterable
from html.parser import HTMLParser

from relay.insight.figures import Figures, read_figures
from relay.session.events import Event
from tests.figures.streams import log


class Reader(HTMLParser):
    """What a page consists of. Mutable: a parser."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.others: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))

    def handle_decl(self, decl: str) -> None:
        self.others.append(decl)

    def handle_comment(self, data: str) -> None:
        self.others.append(data.strip())

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    @property
    def tags(self) -> list[str]:
        """The elements in order."""
        return [tag for tag, _ in self.elements]


def fold(events: Iterable[Event]) -> Figures:
    """Fold a stream."""
    return read_figures(log(events))
