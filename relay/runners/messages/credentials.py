"""What proves who asks: a value that renews itself, and the user's `key_command`, which prints one.

A wire (`transport.py`) asks for the value before each request, and once more after a refusal.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from relay.base.errors import RunnerError
from relay.base.program import run_program
from relay.base.redaction import hide_values, redact_for_strangers
from relay.base.values import dataclass
from relay.base.words import shorten
from relay.git.command import clean_path

COMMAND_LIMIT_S = 60.0
"""Longest time for `key_command`: a password manager may wait for a finger."""
REFUSED = frozenset({401, 403})
"""Statuses after which a credential is renewed."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a request is signed with."""

    value: Hashable
    """A token; for AWS the frozen keys. Two that are equal are the same."""
    secrets: tuple[str, ...]
    """The parts of it that must be shown nowhere."""
    words: str = ""
    """Where it comes from, if that is known only now."""


class Credential:
    """A value that can be renewed. Several threads may use it. Mutable: learns where it comes from.

    Args:
        words: What it is, without its value.
        fetch: Returns what is good now; given True, what is not known to be refused. Raises CredentialError.
        advice: What the user can do where it is refused.
    """

    def __init__(self, words: str, fetch: Callable[[bool], Proof], *, advice: str) -> None:
        self.words = words
        self.advice = advice
        self._fetch = fetch
        self._known: dict[str, None] = {}
        self._lock = Lock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """All values so far that must be shown nowhere."""
        return tuple(self._known)

    def use(self) -> Any:
        """Return the value for one request.

        Raises:
            CredentialError: There is none.
        """
        with self._lock:
            return self._take(fresh=False)

    def renew(self, refused: Any) -> bool:
        """Get another value in place of one that was refused; return False if there is only the same again.

        Raises:
            CredentialError: There is none.
        """
        with self._lock:  # another thread may have renewed it
            return bool(self._take(fresh=False) != refused or self._take(fresh=True) != refused)

    def _take(self, *, fresh: bool) -> Any:
        proof = self._fetch(fresh)
        self.words = proof.words or self.words
        self._known |= dict.fromkeys(proof.secrets)
        return proof.value


class KeyCommand:
    """The user's command that prints a key. It runs outside of the sandbox, because only its user can have set it.

    Mutable: keeps the key.

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
        safe = clean_path(environ.get("PATH", os.defpath), None)
        for folder in apart:
            safe = clean_path(safe, folder)
        self._environ = {**environ, "PATH": safe}
        self._words = tuple(words)
        self.name = f"key_command ({self._words[0]})"
        """For the user."""
        self._limit_s = limit_s
        # Found once: what a session puts in front of it later is not run.
        found = shutil.which(self._words[0], path=safe)
        named = (Path(found), Path(found).resolve()) if found else ()
        self._program = None if any(place.is_relative_to(folder) for place in named for folder in apart) else found
        self._key = ""

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

    def fetch(self, fresh: bool) -> Proof:  # noqa: FBT001  # as every fetch
        """Return the key; run the command first where there is none, or another one is wanted.

        Raises:
            CredentialError: It cannot be started, does not end in time, fails, or prints no key.
        """
        if fresh or not self._key:
            self._key = self._run()
        return Proof(value=self._key, secrets=(self._key,))

    def _run(self) -> str:
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
        key = ended.out.decode("utf-8", "replace").strip()
        if ended.code:
            told = hide_values(ended.err.decode("utf-8", "replace"), (key,) if key else ())
            told = " ".join(redact_for_strangers(told, self._environ).split())
            told = shorten(told, _SHOWN_CHARS) or "it says nothing"
            raise CredentialError(f"{self.name} ended with {ended.code}: {told}", hint=self.advice)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            what = "nothing" if not key else "something that is no key: a key is one word"
            raise CredentialError(f"{self.name} printed {what}", hint=self.advice)
        return key


def find_work_trees(here: Path) -> tuple[Path, ...]:
    """Return the work tree around a directory and the one that it was made from, links resolved; else `here` alone."""
    here = here.resolve()
    top = next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), here)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if (top / ".git").is_file():
            folder, _, _ = (top / ".git").read_text().removeprefix("gitdir:").strip().rpartition("/.git/")
            return (top, Path(folder)) if folder.startswith("/") else (top,)
    return (top,)
