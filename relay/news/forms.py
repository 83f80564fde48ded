"""News in the form that each channel takes. Pure; the details may hold anything, and are data in all of them."""

import json
import sys
from collections.abc import Mapping

from relay.config.news import Channel, fill_variables
from relay.news.occasions import News
from relay.values import dataclass

_URGENT = frozenset({"blocked", "stopped", "limit"})
_MAC = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A request."""

    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A program that is started, without a shell."""

    words: tuple[str, ...]


def render_news(channel: Channel, news: News, environ: Mapping[str, str]) -> Post | Errand:
    """Write news as a channel takes it.

    Raises:
        KeyError: A variable that it names is not set.
        ValueError: A variable's value cannot be in a header.
    """
    text = f"{news.text} · {news.details}" if channel.details and news.details else news.text
    if channel.form == "command":
        given = {"{title}": news.title, "{text}": text, "{occasion}": news.occasion}
        return Errand(words=tuple(_replace(word, given) for word in channel.command))
    if channel.form == "desktop":
        if sys.platform == "darwin":
            return Errand(words=("osascript", *(word for line in _MAC for word in ("-e", line)), news.title, text))
        return Errand(words=("notify-send", "--app-name=relay", "--", news.title, text))
    headers = {name: fill_variables(value, environ) for name, value in channel.headers}
    if any(not value.isprintable() or not value.isascii() for value in headers.values()):
        raise ValueError("a header holds what a header cannot")
    if channel.form == "ntfy":
        own = {"Title": news.title, "Priority": "4" if news.occasion in _URGENT else "3"}
        return Post(url=fill_variables(channel.url, environ), headers={**own, **headers}, body=text.encode())
    own = {"Content-Type": "application/json"}
    body = json.dumps(_make_body(channel.form, news, text)).encode()
    return Post(url=fill_variables(channel.url, environ), headers={**own, **headers}, body=body)


def _replace(word: str, given: Mapping[str, str]) -> str:
    """Replace a word that is a mark as a whole: what a text says is never looked at for marks."""
    return given.get(word, word)


def _make_body(form: str, news: News, text: str) -> Mapping[str, object]:
    if form == "slack":
        plain = f"{news.title}: {text}".replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return {"text": plain}
    if form == "discord":
        return {"content": f"{news.title}: {text}", "allowed_mentions": {"parse": []}}
    return {"occasion": news.occasion, "title": news.title, "text": text}
