"""What others say to relay, until it is taken: so much of it and no more is in relay's memory."""

import threading
from collections import deque
from typing import Generic, TypeVar

MOST_WAITING = 4
"""A program that says more before that is taken is not read: it waits."""
MessageT = TypeVar("MessageT")


class Intake(Generic[MessageT]):
    """Messages in order, from threads to one that takes them. Mutable."""

    def __init__(self) -> None:
        self._waiting: deque[MessageT] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: MessageT, *, most: int = MOST_WAITING, wait_s: float | None = None) -> bool:
        """Add one, once there are fewer than `most`; False where nobody takes it.

        Args:
            wait_s: How long to wait for that; None: until it is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._waiting) < most, wait_s)
            if self._closed or len(self._waiting) >= most:
                return False
            self._waiting.append(message)
            self._changed.notify_all()
            return True

    def take(self, wait_s: float) -> MessageT | None:
        """Return the next one; None when none has come in so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, wait_s)
            if not self._waiting:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def close(self) -> tuple[MessageT, ...]:
        """Take nothing more, and let go whoever waits with one; return what had come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = tuple(self._waiting)
            self._waiting.clear()
            return left
