"""News as a channel takes it: what is started, or what Apprise is told. Pure; details may hold anything."""

import sys
from collections.abc import Mapping
from typing import Any

from relay.config.news import Channel, fill_variables
from relay.news.occasions import News

Job = Mapping[str, Any]
"""What `relay.news.call` does: the ``words`` of a program, or ``url``, ``title``, ``text`` and ``kind`` for Apprise."""
_KINDS = {"done": "success", "blocked": "failure", "stopped": "failure", "red": "failure"}
_MAC = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
_TAME = str.maketrans({"@": "\uff20", "<": "\u2039", ">": "\u203a"})
"""Chats call whole channels for some words (``@everyone``, ``<!channel>``), and Apprise lets some of them through."""


def render_news(channel: Channel, news: News, environ: Mapping[str, str]) -> Job:
    """Write news as a channel takes it.

    Raises:
        KeyError: A variable that the address names is not set.
    """
    text = f"{news.text} · {news.details}" if channel.details and news.details else news.text
    if channel.url:
        url, kind = fill_variables(channel.url, environ), _KINDS.get(news.occasion, "warning")
        return {"url": url, "title": news.title, "text": text.translate(_TAME), "kind": kind}
    if channel.command:
        given = {"{title}": news.title, "{text}": text, "{occasion}": news.occasion}
        # A word is replaced that is a mark as a whole: what a text says is never looked at for marks.
        return {"words": [given.get(word, word) for word in channel.command]}
    if sys.platform == "darwin":
        return {"words": ["osascript", *(word for line in _MAC for word in ("-e", line)), news.title, text]}
    return {"words": ["notify-send", "--app-name=relay", "--", news.title, text]}
