"""Keys that renew themselves: a token with an end, and the user's `key_command`, which prints one.

A credential signs each request. After a refusal (401, 403) it is asked for a new token once; `signing.py` sends the
request again with that.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from relay.base.errors import RunnerError
from relay.base.program import run_program
from relay.base.redaction import hide_values, redact_for_strangers
from relay.base.values import dataclass
from relay.base.words import shorten

if TYPE_CHECKING:
    import httpx2

COMMAND_LIMIT_S = 60.0
"""Longest time for `key_command`: a password manager may wait for a finger."""
REFUSED = frozenset({401, 403})
"""Statuses after which a credential is renewed."""
RENEW_S = 60.0
"""A token is renewed so long before its end: a request may wait for its connection."""
_MOST_BYTES = 64 * 1024
_SHOWN_CHARS = 300


class CredentialError(RunnerError):
    """No credential can be had now.

    Args:
        passes: Whether the same may work later: the network, an overloaded service.
    """

    def __init__(self, message: str, *, hint: str = "", passes: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.passes = passes


class Credential(Protocol):
    """Signs requests, and can be renewed. Several threads may use it."""

    @property
    def words(self) -> str:
        """What it is and where it comes from, without its value."""

    @property
    def advice(self) -> str:
        """What the user can do where it is refused."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """All values so far that must be shown nowhere."""

    def sign(self, request: "httpx2.Request") -> str:
        """Add the headers that prove who asks; return a name for the value that was used, for `renew`.

        Raises:
            CredentialError: There is no credential.
        """

    def renew(self, refused: str) -> bool:
        """Get a new value in place of one that was refused; return False if there is only the same again.

        Raises:
            CredentialError: There is no credential.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A text for the `authorization` header, and when it ends: seconds since the epoch, None if nobody knows."""

    value: str
    until: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Go with it."""
    words: str = ""
    """Where it comes from, if that is known only now."""


class BearerToken:
    """A token that is fetched when it is first needed, before its end, and after a refusal. Mutable.

    Args:
        words: As `Credential.words`, until a token brings its own.
        fetch: Returns a token; given True, one that is not taken from any file.
        advice: As `Credential.advice`.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        words: str,
        fetch: Callable[[bool], Token],
        *,
        advice: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._words = words
        self.advice = advice
        self._fetch = fetch
        self._clock = clock
        self._token: Token | None = None
        self._known: dict[str, None] = {}
        self._lock = Lock()

    @property
    def words(self) -> str:
        return (self._token and self._token.words) or self._words

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self._known)

    def sign(self, request: "httpx2.Request") -> str:
        """Add the token; fetch it first where there is none, or it ends soon."""
        with self._lock:
            token = self._get()
        request.headers["authorization"] = f"Bearer {token.value}"
        for name, value in token.headers.items():
            before = request.headers.get(name, "")
            if value not in before.split(","):
                request.headers[name] = f"{before},{value}" if before else value
        return token.value

    def _get(self) -> Token:
        """Return a token for one request; where the service that renews it is away, one that ends soon will do."""
        token, now = self._token, self._clock()
        if token is None:
            return self._renew(fresh=False)
        if token.until is None or now <= token.until - RENEW_S:
            return token
        try:
            return self._renew(fresh=True)
        except CredentialError as error:
            if error.passes and now < token.until:
                return token
            raise

    def renew(self, refused: str) -> bool:
        """Fetch a new token, unless another thread has."""
        with self._lock:
            current = self._token
            return (current is not None and current.value != refused) or self._renew(fresh=True).value != refused

    def _renew(self, *, fresh: bool) -> Token:
        token = self._fetch(fresh)
        self._known[token.value] = None
        self._token = token
        return token


class KeyCommand:
    """The user's command that prints a key. It runs outside of the sandbox, because only its user can have set it.

    Args:
        words: Program and arguments; no shell reads them.
        environ: Its environment. A program in `apart`, or in a relative entry of PATH, is not found.
        apart: Directories that sessions write.
    """

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        apart: Sequence[Path] = (),
        *,
        limit_s: float = COMMAND_LIMIT_S,
    ) -> None:
        entries = [entry for entry in environ.get("PATH", os.defpath).split(":") if entry.startswith("/")]
        safe = ":".join(entry for entry in entries if not _is_inside(entry, apart))
        self._environ = {**environ, "PATH": safe}
        self._words = tuple(words)
        self.name = f"key_command ({self._words[0]})"
        """For the user."""
        self._limit_s = limit_s
        # Found once: what a session puts in front of it later is not run.
        found = shutil.which(self._words[0], path=safe)
        self._program = None if found is None or _is_inside(found, apart) else found

    advice = "type the command yourself: it has to print the key and nothing else"

    def require(self) -> None:
        """Check that there is such a program.

        Raises:
            CredentialError: There is none outside of this repository.
        """
        if self._program is None or not self._program.startswith("/"):
            raise CredentialError(
                f"{self.name}: there is no such program on PATH outside of this repository",
                hint="write its absolute path, or put its directory into PATH",
            )

    def fetch(self, _fresh: bool = False) -> Token:  # noqa: FBT001, FBT002  # as every fetch
        """Run it and return the key that it prints.

        Raises:
            CredentialError: It cannot be started, does not end in time, fails, or prints no key.
        """
        self.require()
        try:
            ended = run_program(
                (str(self._program), *self._words[1:]),
                env=self._environ,
                cwd=self._environ.get("HOME") or "/",
                limit_s=self._limit_s,
                most_bytes=_MOST_BYTES,
            )
        except (OSError, ValueError) as error:
            raise CredentialError(f"{self.name} cannot be started: {error}") from None
        if ended.code is None:
            raise CredentialError(f"{self.name} did not end in {self._limit_s:g} s and was killed", hint=self.advice)
        return Token(value=self._read(ended.code, ended.out, ended.err))

    def _read(self, code: int, said: bytes, complaint: bytes) -> str:
        key = said.decode("utf-8", "replace").strip()
        if code:
            told = hide_values(complaint.decode("utf-8", "replace"), (key,) if key else ())
            told = " ".join(redact_for_strangers(told, self._environ).split())
            told = shorten(told, _SHOWN_CHARS) or "it says nothing"
            raise CredentialError(f"{self.name} ended with {code}: {told}", hint=self.advice)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            what = "nothing" if not key else "something that is no key: a key is one word"
            raise CredentialError(f"{self.name} printed {what}", hint=self.advice)
        return key


def _is_inside(place: str, folders: Sequence[Path]) -> bool:
    return any(Path(name).is_relative_to(folder) for name in (place, os.path.realpath(place)) for folder in folders)


def find_work_trees(here: Path) -> tuple[Path, ...]:
    """Return the work tree around a directory and the one that it was made from, links resolved; else `here` alone."""
    here = here.resolve()
    top = next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), here)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if (top / ".git").is_file():
            folder, _, _ = (top / ".git").read_text().removeprefix("gitdir:").strip().rpartition("/.git/")
            return (top, Path(folder)) if folder.startswith("/") else (top,)
    return (top,)
