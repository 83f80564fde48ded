"""Write and read commit messages: subject, body and trailers.

relay writes and parses trailers as text. ``git interpret-trailers`` and ``git commit --trailer`` execute commands that
a repository's config names. ``%(trailers)`` executes nothing, but ``trailer.*`` and ``core.commentChar`` in a
repository's config make it drop or rename trailers, and with them the state of the run (tested). The result is the same
as ``%(trailers)`` shows in a repository without such settings.
"""

import re
from collections.abc import Iterable, Iterator

from relay.base.values import dataclass
from relay.base.words import HIDING
from relay.git.command import Git
from relay.git.object_database import ask_about
from relay.git.repository import Repo

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]+")
_HIDING = re.compile(f"[{HIDING}]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029]")
LINE_CHARS = 72
"""Longest line of a body or a trailer. Source: git's convention; gitlint's body-max-line-length is 80, often set to 72,
and @commitlint/config-conventional has 100."""
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")
_TRAILER = re.compile(r"(?P<key>[A-Za-z0-9-]+)[ \t]*:(?P<value>.*)", re.DOTALL)

_SKIPS = re.compile(r"\[(skip[ -][a-z]{2,16}|[a-z]{2,16}[ -]skip|no[ -]ci)\]|\*\*\*(NO_CI)\*\*\*", re.IGNORECASE)
"""Makes a forge skip its checks. Source: the documentation of GitHub, GitLab, Azure, CircleCI, Travis and Buildkite."""
_SKIP_TRAILER = re.compile(r"^[ \t]*(skip-checks)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_REFERENCE = r"(?:[\w.-]{1,100}/[\w.-]{1,100})?#\d{1,10}|gh-\d{1,10}|https?://\S{1,300}/\d{1,10}"
_CLOSES = re.compile(
    rf"\b(?:close[sd]?|closing|fix(?:e[sd]|ing)?|resolve[sd]?|resolving|implement(?:s|ed|ing)?)(?::|\s)\s{{0,9}}({_REFERENCE})",
    re.IGNORECASE,
)
"""Makes a forge close an issue. Source: GitHub, GitLab (which also closes on "implements" and on URLs)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The three parts of a commit message."""

    subject: str
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    """Keys may repeat; the order is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitText:
    """A stored commit."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    time: int
    """Committer date in seconds since the epoch."""
    message: Message

    @property
    def found(self) -> tuple[tuple[str, str], ...]:
        """All trailers in order."""
        return self.message.trailers

    def get(self, key: str) -> str:
        """Return the first value of a trailer; empty when there is none.

        The first counts, so that a line that is appended to a message does not change what relay wrote.
        """
        return next((value for name, value in self.found if name == key), "")

    def get_all(self, key: str) -> tuple[str, ...]:
        """Return all values of a trailer in order."""
        return tuple(value for name, value in self.found if name == key)


def make_line(text: str) -> str:
    """Return `text` as one line without control characters and outer blanks, which git reads back unchanged."""
    return _CONTROL.sub(" ", text.encode(errors="replace").decode()).strip()


def clean_text(text: str) -> str:
    """Return a session's text without control characters but line feeds and tabs, and without hiding characters."""
    text = text.replace("\r\n", "\n").encode(errors="replace").decode()
    return _HIDING.sub("", _CONTROL_BUT_LINES.sub(" ", text)).strip("\n")


def disarm(text: str, *, given: str) -> str:
    """Return a session's text without commands to a forge, such as to skip checks or to close an issue.

    The words stay; only their effective form is changed.

    Args:
        text: Untrusted.
        given: Text that a person has read: commands and issue numbers in it are left.
    """
    wanted = given.casefold()

    def disarm_one(match: re.Match[str], named: str, harmless: str) -> str:
        return match[0] if named.casefold() in wanted else harmless

    text = _SKIPS.sub(lambda match: disarm_one(match, match[0], f"({match[1] or match[2]})"), text)
    text = _SKIP_TRAILER.sub(lambda match: disarm_one(match, match[0], f"({match[1]})"), text)
    return _CLOSES.sub(lambda match: disarm_one(match, match[1], f"see {match[1]}"), text)


def render_trailers(trailers: Iterable[tuple[str, str]]) -> str:
    """Return ``Key: value`` for each pair with a value; a value can never start another trailer.

    A long value goes on in indented lines, which git and `parse_message` read as one line.
    """
    lines = [f"{key}: {make_line(value)}" for key, value in trailers if make_line(value)]
    return "".join(f"{_fold(line)}\n" for line in lines)


def _fold(line: str) -> str:
    """Break a line at single blanks, so that unfolding gives it back; a longer word stays whole."""
    folded, *words = _BETWEEN_WORDS.split(line)
    length = len(folded)
    for word in words:
        fits = length + 1 + len(word) <= LINE_CHARS
        folded += f" {word}" if fits else f"\n {word}"
        length = length + 1 + len(word) if fits else 1 + len(word)
    return folded


def render_message(message: Message) -> bytes:
    """Return the bytes of a commit message; control and hiding characters of a session's text are removed."""
    parts = [
        make_line(_HIDING.sub("", message.subject)) or "relay",
        clean_text(message.body),
        render_trailers(message.trailers).rstrip("\n"),
    ]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def join_trailers(text: bytes, trailers: Iterable[tuple[str, str]], *, before: bytes, prefix: str) -> bytes:
    """Return a message that hooks may have edited, with each of `trailers` once, at its end.

    Args:
        before: The message before the hooks. Trailers that hooks added stay in the last paragraph, where readers
            look for them; a paragraph from before only looks like trailers.
        prefix: Trailer lines with this key prefix, in any case, are removed first: only relay writes them.
    """
    own = re.compile(rf"^{re.escape(prefix)}[A-Za-z0-9-]*[ \t]*:.*\n?(?:[ \t]+\S.*\n?)*", re.MULTILINE | re.IGNORECASE)
    kept = own.sub("", text.decode(errors="surrogateescape")).rstrip()
    last = kept.rpartition("\n\n")[2]
    is_new = not before.decode(errors="surrogateescape").rstrip().endswith(last)
    joint = "\n" if is_new and parse_message(kept).trailers else "\n\n"
    return f"{kept}{joint}{render_trailers(trailers)}".encode(errors="surrogateescape")


_FORMAT = "--format=tformat:%H%x00%T%x00%P%x00%ct%x00%B"
_FLAGS = ("-z", "--no-show-signature", "--no-color", "--no-notes", _FORMAT)
_FIELDS = 5


def read_texts(git: Git, *args: str, stdin: bytes = b"") -> tuple[CommitText, ...]:
    """Return the commits that ``git log`` lists for `args`, in its order, in one call.

    NUL separates fields and commits: a commit's text cannot contain it.
    """
    out = git.run("log", *_FLAGS, *args, stdin=stdin)
    parts = out.decode(errors="surrogateescape").split("\0")
    return tuple(_parse_text(parts[n : n + _FIELDS]) for n in range(0, len(parts) - _FIELDS + 1, _FIELDS))


def read_text(repo: Repo, commit: str) -> CommitText:
    """Return one commit.

    Raises:
        GitError: There is no such commit.
    """
    return _find_text(repo, commit) or read_texts(repo.git, "--no-walk", "--end-of-options", commit, "--")[0]


def _find_text(repo: Repo, commit: str) -> CommitText | None:
    """Return the commit of a full id, read by a long-lived git; None when `git log` has to say what is wrong."""
    said = ask_about(repo.git, repo.common_dir, ("-s", "--always", *_FLAGS), commit)
    parts = said.decode(errors="surrogateescape").split("\0")
    return _parse_text(parts[:_FIELDS]) if len(parts) >= _FIELDS else None


def walk_texts(repo: Repo, commit: str, most: int) -> Iterator[CommitText]:
    """Yield a commit and its ancestors, one parent after the other, at most `most`.

    It stops before a merge, and before a commit that cannot be read.
    """
    for _ in range(most):
        text = _find_text(repo, commit)
        if text is None or len(text.parents) > 1:
            return
        yield text
        if not text.parents:
            return
        commit = text.parents[0]


def _parse_text(fields: list[str]) -> CommitText:
    commit, tree, parents, time, text = fields
    parts = tuple(parents.split())
    return CommitText(commit=commit, tree=tree, parents=parts, time=int(time or 0), message=parse_message(text))


def parse_message(text: str) -> Message:
    """Parse a commit message.

    Trailers are the last paragraph, unless it is also the first, if each of its lines is ``Key: value``, an indented
    continuation, or git's note of a cherry-pick.
    """
    lines = text.rstrip().split("\n")
    start = next((n for n in range(len(lines), 0, -1) if not lines[n - 1].strip()), 0)
    trailers = _parse_block(lines[start:]) if start else ()
    body = lines[1:start] if trailers else lines[1:]
    return Message(subject=lines[0], body="\n".join(body).strip("\n"), trailers=trailers)


def _parse_block(lines: list[str]) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for line in lines:
        match = _TRAILER.fullmatch(line)
        if match:
            pairs.append((match["key"], match["value"].strip()))
        elif pairs and line.startswith((" ", "\t")):
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}".strip())
        elif not line.startswith("(cherry picked from commit "):
            return ()
    return tuple((key, value) for key, value in pairs if value)
