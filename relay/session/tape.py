"""What a session and its endpoint sent each other, note by note. Pure.

A note is a JSON object with a ``kind``:

- ``session``: the session's settings; the first note. ``runner`` is present if an agent sends the requests.
- ``request``: ``body`` as it was sent; the first ``same`` parts of its conversation are those of the request before.
- ``answer``: ``content``, ``stop_reason`` and ``usage``, or a ``fault`` and its words. For an agent ``path`` and
  ``model``, and no ``content``: its next request holds that.
- ``full``: the tape ends here, because it had grown too long.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

VERSION = 1
Note = Mapping[str, Any]
KeepNote = Callable[[Note], None]
"""Takes the next note. Must not raise."""
_CONVERSATIONS = ("messages", "input", "contents")
"""Fields that hold the conversation, which grows from request to request, in each dialect."""


def find_conversation(body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the name of a request's conversation field, and the conversation."""
    name = next((name for name in _CONVERSATIONS if isinstance(body.get(name), list)), _CONVERSATIONS[0])
    return name, list(body.get(name, ()))


def shorten_request(body: Mapping[str, Any], before: Sequence[Any]) -> Note:
    """Return the note of a request.

    Args:
        before: The conversation of the request before.
    """
    name, messages = find_conversation(body)
    same = 0
    for one, other in zip(messages, before, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return {"kind": "request", "same": same, "body": {**body, name: messages[same:]}}
