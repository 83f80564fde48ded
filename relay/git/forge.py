"""Requests of a forge (GitHub, GitLab), by the user's own `gh` or `glab` with its own login; relay sees no token.

The programs ask nobody, and relay reads a bounded part of what they print. All of it is others' text.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relay.base.errors import RelayError
from relay.base.program import run_program
from relay.base.values import dataclass
from relay.git.command import clean_path
from relay.git.remote import find_remote
from relay.git.repository import Repo

_MAX_BYTES = 8 * 1024 * 1024
_LIMIT_S = 120.0
_FIELD = re.compile(r"\{(title|body|branch|base|number|comment)\}")
_COMMENT_URL = re.compile(r"#issuecomment-([0-9]{1,20})$")
_LINE_CHARS = 300
_QUIET = {"GH_PROMPT_DISABLED": "1", "NO_PROMPT": "1", "NO_COLOR": "1", "GH_NO_UPDATE_NOTIFIER": "1"}


class ForgeError(RelayError):
    """The program is missing, failed, or printed what relay cannot read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of a reviewer, or what a failed check prints; any text."""

    key: str
    """Names it for good, such as ``comment 12``; plain words."""
    by: str
    """The author's login, or the check's name."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRemark:
    """A thread of a review that nobody has resolved, a review's text, or a failed check of the newest commit."""

    is_check: bool
    said: tuple[Comment, ...]
    path: str = ""
    """Any text; empty where it names no file."""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The arguments of a forge's own program, with fields to fill in.

    The program reads the text from standard input, or from an argument if it reads no other.
    """

    make: tuple[str, ...]
    find: tuple[str, ...]
    """Prints the branch's present request as JSON."""
    branch_key: str
    number_key: str
    update: tuple[str, ...]
    base: tuple[str, ...]
    comments: tuple[str, ...]
    """Prints the request's comments as JSON."""
    comment: tuple[str, ...]
    change: tuple[str, ...]
    """Replaces the text of a comment."""


_GH_API, _GLAB_API = "repos/{owner}/{repo}/issues", "projects/:fullpath/merge_requests/{number}"
_PROGRAMS = {
    "gh": _Program(
        make=("pr", "create", "--draft", "--title", "{title}", "--body-file", "-", "--head", "{branch}"),
        find=("pr", "view", "{branch}", "--json", "number,state,headRefName"),
        branch_key="headRefName",
        number_key="number",
        update=("pr", "edit", "{number}", "--body-file", "-"),
        base=("--base", "{base}"),
        comments=("pr", "view", "{number}", "--json", "comments"),
        comment=("api", "--method", "POST", f"{_GH_API}/{{number}}/comments", "-F", "body=@-"),
        change=("api", "--method", "PATCH", f"{_GH_API}/comments/{{comment}}", "-F", "body=@-"),
    ),
    "glab": _Program(
        make=(
            *("mr", "create", "--draft", "--yes", "--title", "{title}"),
            *("--description", "{body}", "--source-branch", "{branch}"),
        ),
        find=("mr", "view", "{branch}", "--output", "json"),
        branch_key="source_branch",
        number_key="iid",
        update=("mr", "update", "{number}", "--description", "{body}"),
        base=("--target-branch", "{base}"),
        comments=("api", "--paginate", f"{_GLAB_API}/notes?per_page=100&sort=asc"),
        comment=("api", "--method", "POST", f"{_GLAB_API}/notes", "--field", "body=@-"),
        change=("api", "--method", "PUT", f"{_GLAB_API}/notes/{{comment}}", "--field", "body=@-"),
    ),
}
PROGRAMS = tuple(_PROGRAMS)
_QUERY = (
    "query($owner:String!,$name:String!,$number:Int!){repository(owner:$owner,name:$name){pullRequest(number:$number){"
    "reviews(last:100){nodes{databaseId state body author{login}}}"
    "reviewThreads(last:100){nodes{isResolved path line comments(last:20){nodes{databaseId body author{login}}}}}"
    "commits(last:1){nodes{commit{statusCheckRollup{contexts(last:100){nodes{__typename"
    " ...on CheckRun{databaseId name conclusion title annotations(first:5){nodes{path message location{start{line}}}}}"
    " ...on StatusContext{id context state description}}}}}}}}}}"
)
_FAILED = frozenset({"FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE"})
_OPEN = frozenset({"open", "opened", "locked"})
_ID = re.compile(r"[A-Za-z0-9_=-]{1,120}")
_NO_SPACE = re.compile(r"\S|\Z")
_MOST_COMMENTS = 20
"""Of a thread the newest, as `_QUERY` asks for them."""
_MOST_LINES = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """A forge, by one of `PROGRAMS`."""

    repo: Repo
    name: str
    path: str
    """The program."""
    environ: Mapping[str, str]
    limit_s: float = _LIMIT_S
    """Seconds for one call of the program."""

    def find_open_request(self, branch: str) -> str | None:
        """Return the number of a branch's open request; None without one."""
        program, said = _PROGRAMS[self.name], ""
        with contextlib.suppress(ForgeError):  # there is none, as a rule
            said = self._start(program.find, branch=branch)
        for found in _parse(said):
            try:
                # The program takes a branch that is called 42 for the number of a request.
                if found[program.branch_key] == branch and str(found["state"]).casefold() in _OPEN:
                    return str(int(found[program.number_key]))
            except (ValueError, KeyError, TypeError):
                continue
        return None

    def put_request(self, branch: str, title: str, body: str, *, base: str | None = None) -> str:
        """Make a draft, or replace the text of the branch's open request; return what happened, in words.

        Raises:
            ForgeError: The program failed.
        """
        program, number = _PROGRAMS[self.name], self.find_open_request(branch)
        target = program.base if base else ()
        given = {"title": title, "body": body, "branch": branch, "base": base or ""}
        if number is not None:
            self._start((*program.update, *target), body, number=number, **given)
            return f"replaced the text of {number}"
        return _find_last_line(self._start((*program.make, *target), body, **given))

    def put_comment(self, number: str, text: str, *, mark: str) -> str:
        """Comment on a request, or replace the text of this user's own comment with the mark; return what happened.

        Args:
            mark: In `text` too. A comment of anybody else that has it stays as it is.

        Raises:
            ForgeError: The program failed.
        """
        program = _PROGRAMS[self.name]
        own = self._find_own(number, mark)
        if own:
            self._start(program.change, text, number=number, comment=own)
            return f"replaced the comment on {number}"
        self._start(program.comment, text, number=number)
        return f"commented on {number}"

    def list_remarks(self, number: str) -> tuple[ReviewRemark, ...]:
        """Return the failed checks of a request, and what its reviewers want.

        Raises:
            ForgeError: The program failed.
        """
        if self.name == "gh":
            words = ("api", "graphql", "-F", "owner={owner}", "-F", "name={repo}", "-F", "number={number}")
            answer = next(_parse(self._start((*words, "--raw-field", f"query={_QUERY}"), number=number)), {})
            return tuple(_read_github(find_at(answer, "data", "repository", "pullRequest")))
        threads = _parse(self._start(("api", "--paginate", f"{_GLAB_API}/discussions?per_page=100"), number=number))
        newest = next(_parse(self._start(("api", f"{_GLAB_API}/pipelines?per_page=1"), number=number)), {}).get("id")
        jobs: Iterator[dict[str, Any]] = iter(())
        if isinstance(newest, int):
            jobs = _parse(self._start(("api", f"projects/:fullpath/pipelines/{newest}/jobs?scope=failed&per_page=100")))
        return tuple(_read_gitlab(threads, jobs))

    def _find_own(self, number: str, mark: str) -> str:
        """Return the id of the comment with the mark; empty without one."""
        rows = _parse(self._start(_PROGRAMS[self.name].comments, number=number))
        if self.name == "gh":
            listed = [row for found in rows for row in find_rows(found, "comments") if row.get("viewerDidAuthor")]
            found = [
                match[1]
                for row in listed
                if mark in str(row.get("body")) and (match := _COMMENT_URL.search(str(row.get("url"))))
            ]
        else:
            user = next(_parse(self._start(("api", "user"))), {}).get("id")
            marked = [row for row in rows if mark in str(row.get("body")) and isinstance(row.get("id"), int)]
            found = [str(row["id"]) for row in marked if user and find_at(row, "author", "id") == user]
        return found[0] if found else ""

    def _start(self, words: Sequence[str], text: str = "", **given: str) -> str:
        """Run the program and return its output.

        Args:
            text: Its standard input.
            given: The fields of `words`.

        Raises:
            ForgeError: It cannot start, failed, took too long, or printed too much.
        """
        filled = [_FIELD.sub(lambda found: given[found[1]], word) for word in words]
        try:
            ended = run_program(
                (self.path, *filled),
                env={**self.environ, **_QUIET},
                cwd=self.repo.root,
                limit_s=self.limit_s,
                stdin=text.encode(errors="replace"),
                most_bytes=_MAX_BYTES + 1,
            )
        except OSError as error:  # it cannot start, or the text is too long for an argument
            raise ForgeError(f"{self.name} could not be started: {error.strerror}") from None
        if ended.code is None:
            raise ForgeError(f"{self.name} did not end in {self.limit_s:g} s and was killed")
        if len(ended.out) > _MAX_BYTES:
            raise ForgeError(f"{self.name} printed more than {_MAX_BYTES // 2**20} MiB")
        if ended.code:
            said = _find_last_line(ended.err.decode(errors="replace"))
            raise ForgeError(f"{self.name} ended with {ended.code}{f': {said}' if said else ''}")
        return ended.out.decode(errors="replace")


def find_forge(repo: Repo, environ: Mapping[str, str], name: str = "") -> Forge | None:
    """Return the forge of a name, else of the first installed program; None if it is not installed.

    A program inside the repository is not the user's and does not count. Where the remote's address says GitLab,
    `glab` comes first.
    """
    address = os.fsdecode(repo.git.ask("config", "--get", f"remote.{find_remote(repo, repo.branch)}.url") or b"")
    names = sorted(_PROGRAMS, key=lambda one: (one == "glab") != ("gitlab" in address.casefold()))
    path = clean_path(environ.get("PATH", ""), repo.root.resolve())
    for one in [name] if name else names:
        if place := shutil.which(one, path=path):
            return Forge(repo=repo, name=one, path=place, environ=environ)
    return None


def _read_github(pull: Any) -> Iterator[ReviewRemark]:
    """Yield what GitHub's answer to `_QUERY` says; what has another shape is left out."""
    for row in find_rows(pull, "reviews", "nodes"):
        if row.get("state") in {"CHANGES_REQUESTED", "COMMENTED"} and (said := _read_said("review", row)):
            yield ReviewRemark(is_check=False, said=(said,))
    for row in find_rows(pull, "reviewThreads", "nodes"):
        if row.get("isResolved") is False:
            yield from _make_thread(find_rows(row, "comments", "nodes"), row.get("path"), row.get("line"))
    for commit in find_rows(pull, "commits", "nodes"):
        for row in find_rows(commit, "commit", "statusCheckRollup", "contexts", "nodes"):
            if not {row.get("conclusion"), row.get("state")}.isdisjoint(_FAILED):
                yield from _make_check(row)


def _make_check(row: dict[str, Any]) -> Iterator[ReviewRemark]:
    notes = find_rows(row, "annotations", "nodes")
    texts = (
        row.get("title"),
        row.get("description"),
        row.get("failure_reason"),
        *(one.get("message") for one in notes),
    )
    place = next((one for one in notes if find_at(one, "location", "start", "line")), {})
    if key := _read_key("check", row):
        by = _read_text(row.get("name") or row.get("context"))
        said = Comment(key=key, by=by, text=" ".join(filter(None, map(_read_text, texts))))
        line = find_at(place, "location", "start", "line")
        yield _place(ReviewRemark(is_check=True, said=(said,)), place.get("path"), line)


def _read_gitlab(threads: Iterator[dict[str, Any]], jobs: Iterator[dict[str, Any]]) -> Iterator[ReviewRemark]:
    for thread in threads:
        notes = [note for note in find_rows(thread, "notes") if not note.get("system")]
        if any(note.get("resolvable") and note.get("resolved") is False for note in notes):
            place = find_at(notes[0], "position") or {}
            yield from _make_thread(notes, find_at(place, "new_path"), find_at(place, "new_line"))
    for job in jobs:
        if not job.get("allow_failure"):
            yield from _make_check(job)


def _make_thread(rows: Sequence[dict[str, Any]], path: Any, line: Any) -> Iterator[ReviewRemark]:
    if said := tuple(one for row in rows[-_MOST_COMMENTS:] if (one := _read_said("comment", row))):
        yield _place(ReviewRemark(is_check=False, said=said), path, line)


def _read_said(kind: str, row: dict[str, Any]) -> Comment | None:
    text, key = _read_text(row.get("body")).strip(), _read_key(kind, row)
    by = _read_text(find_at(row, "author", "login") or find_at(row, "author", "username"))
    return Comment(key=key, by=by, text=text) if text and key else None


def _read_key(kind: str, row: dict[str, Any]) -> str:
    number = str(row.get("databaseId") or row.get("id"))
    return f"{kind} {number}" if _ID.fullmatch(number) else ""


def _read_text(value: Any) -> str:
    """Return a text without lone surrogates, which JSON can escape and no file can hold."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _place(remark: ReviewRemark, path: Any, line: Any) -> ReviewRemark:
    is_line = isinstance(line, int) and 0 < line < _MOST_LINES
    return replace(remark, path=_read_text(path), line=line if is_line else 0)


def find_at(value: Any, *keys: str) -> Any:
    """Return what stands in nested JSON objects under the keys; None where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def find_rows(value: Any, *keys: str) -> list[dict[str, Any]]:
    """Return the objects of a list in nested JSON objects."""
    found = find_at(value, *keys)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _parse(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a program's JSON: one, or those of lists, of which each page prints its own."""
    decoder, at = json.JSONDecoder(), 0
    try:
        while (at := _NO_SPACE.search(text, at).start()) < len(text):  # type: ignore[union-attr]  # any text
            value, at = decoder.raw_decode(text, at)
            yield from (row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict))
    except (ValueError, RecursionError):
        return


def _find_last_line(text: str) -> str:
    return next((line.strip()[:_LINE_CHARS] for line in reversed(text.splitlines()) if line.strip()), "")
