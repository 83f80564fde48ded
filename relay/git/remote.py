"""Remotes: what is fetched and pushed for many machines; nothing else of relay speaks to one.

Run like every git here, with what a remote needs let through: the protocols of a clone, the user's ssh, proxies and
credential helpers; what of the repository's configuration counts is in `relay.git.remote_config`. GitPython was tried
for this (3.2.1): its push drops what git says of refs outside of branches and tags, so that a refused lease reads as a
success, it cannot start git without the inherited environment, and its import takes half a second.
"""

import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import REMOTE_FLAGS, Git, GitError, GitResult, get_git
from relay.git.config_guard import find_value, guard
from relay.git.lock_journal import clear_transfer_locks, declare_locks
from relay.git.merging import is_ancestor
from relay.git.names import JOB_BRANCHES
from relay.git.remote_config import find_inside, open_config
from relay.git.repository import Repo
from relay.git.transfer import Transfer, is_progress

_PROTOCOLS = "file:http:https:ssh"
"""``git://`` is neither encrypted nor signed, and ``core.gitProxy`` of a repository would run for it."""
_VARIABLES = (
    "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "KRB5CCNAME", "SSH_ASKPASS", "SSL_CERT_DIR",
    "SSL_CERT_FILE", "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy",
    "no_proxy",
)  # fmt: skip
_LISTED = re.compile(r"(?P<name>[^\t]*)\t(?P<address>.*) \((fetch|push)\)( \[.*\])?")
_ID = re.compile(r"\b[0-9a-f]{40,64}\b")
_LIMIT_S = 600.0
_STALE = ("stale info", "fetch first", "non-fast-forward", "already exists", "remote ref updated since checkout")
"""Why git refuses a ref that is not where its lease says."""
_UNPACK = "error: remote unpack failed: "
_RACED = ("cannot lock ref", "failed to update ref", "incorrect old value provided", "reference already exists")
"""What the remote says when somebody else was faster than this push."""


class RemoteError(RepoError):
    """A remote could not be reached, or does not do what is needed; nothing is known to have changed there."""


class LostObjectError(RemoteError):
    """A ref of the remote names an object that it has not: as a rule `git gc --prune=now` there, during a push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefUpdate:
    """One ref to be changed at a remote, by compare-and-swap."""

    ref: str
    """The full name."""
    old: str | None
    """What it must hold; None where it must not exist."""
    new: str | None
    """What it shall hold; None to have it removed."""


class PushEnd(StrEnum):
    """How a push ended; in none of these but `DONE` has anything changed."""

    DONE = "done"
    MOVED = "moved"
    """A ref was not where it had to be: somebody else was faster."""
    REFUSED = "refused"
    """The remote does not want it: rights, a hook, a full disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """How a push ended, and what the remote said."""

    end: PushEnd
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote of a repository, by the name that its configuration has for it or by its address."""

    repo: Repo
    name: str
    environ: Mapping[str, str]
    """The user's: what of it ssh, proxies and credentials need is handed on."""
    limit_s: float = _LIMIT_S
    """How long one exchange may take without coming further."""
    most_s: float = math.inf
    """How long one transfer may take, also where it comes further."""
    tell: Callable[[str], object] = lambda _: None
    """Told how far a transfer is that takes a while."""

    def find_address(self) -> str:
        """Return the address that the name stands for, the name itself where it is one; a path from the root on."""
        found = self._run("ls-remote", "--get-url", "--", self.name).out.decode(errors="surrogateescape").strip()
        return str((self.repo.root / found).resolve()) if (self.repo.root / found).is_dir() else found

    def list_refs(self, *patterns: str) -> Mapping[str, str]:
        """Return what the refs hold that match any of the patterns (of ``git ls-remote``).

        Raises:
            RemoteError: It cannot be reached.
        """
        result = self._run("ls-remote", "--refs", "--upload-pack=git-upload-pack", "--", self.name, *patterns)
        lines = (line.decode(errors="surrogateescape") for line in result.out.splitlines())
        return {ref: commit for commit, _, ref in (line.partition("\t") for line in lines)}

    def fetch(self, *refspecs: str) -> None:
        """Fetch refs, and remove what a pattern has here and the remote has not; no tags, no submodules.

        Raises:
            RemoteError: It cannot be reached, or a ref that is not forced would not go forward.
        """
        clear_transfer_locks(self.repo)  # of one that was killed: it would keep all the others away
        flags = ("--no-tags", "--prune", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
        args = ("fetch", "--progress", *flags, "--upload-pack=git-upload-pack", "--", self.name, *refspecs)
        with declare_locks(self.repo, self.repo.common_dir / "packed-refs.lock"):
            result = self._probe(*args)
        if result.code:
            raise self._find_lost(result) or self._explain("fetch", result)

    def _find_lost(self, result: GitResult) -> LostObjectError | None:
        """Look whether what could not be fetched is a ref of relay's own whose commit the remote has lost."""
        if not (named := set(_ID.findall(result.err.decode(errors="replace")))):
            return None
        refs = [
            ref
            for ref, commit in self.list_refs("refs/relay/*", f"refs/heads/{JOB_BRANCHES}*").items()
            if commit in named
        ]
        if not refs:
            return None
        names = " ".join(map(shlex.quote, refs))
        return LostObjectError(
            f"{self.name} has lost what {names} names", hint=f"git push {self.name} --delete {names}"
        )

    def push(self, *updates: RefUpdate) -> Pushed:
        """Change refs, all of them or none.

        A connection that ends before the remote has answered leaves open whether it did: it is asked.

        Raises:
            RemoteError: It cannot be reached, or cannot say what it did.
        """
        for update in updates:
            _require_forward(self.repo, update)
        leases = tuple(f"--force-with-lease={update.ref}:{update.old or ''}" for update in updates)
        refspecs = (f"{update.new or ''}:{update.ref}" for update in updates)
        flags = ("--porcelain", "--atomic", "--no-verify", "--no-recurse-submodules", "--no-signed", "--no-follow-tags")
        result = self._probe(
            "push", "--progress", *flags, *leases, "--receive-pack=git-receive-pack", "--", self.name, *refspecs
        )
        if not result.code:
            return Pushed(end=PushEnd.DONE)
        return _judge(result) or self._ask(updates, result)

    def _ask(self, updates: Sequence[RefUpdate], result: GitResult) -> Pushed:
        found = self.list_refs(*(update.ref for update in updates))
        if all(found.get(update.ref) == update.new for update in updates):
            return Pushed(end=PushEnd.DONE)
        if all(found.get(update.ref) == update.old for update in updates):
            raise self._explain("push", result)
        return Pushed(end=PushEnd.MOVED, words=result.words)

    def _run(self, *args: str) -> GitResult:
        result = self._probe(*args)
        if result.code:
            raise self._explain(args[0], result)
        return result

    def _probe(self, *args: str) -> GitResult:
        with _open_way(self.repo, self.environ) as git:
            self._require_outside(git)
            look = partial(self._look, Transfer(f"git {args[0]} {self.name}", self.tell))
            watch = look if args[0] in {"fetch", "push"} else None
            return replace(git, watch=watch).probe(*args, timeout_s=self.limit_s)

    def _require_outside(self, git: Git) -> None:
        """Refuse a remote that the repository itself holds.

        Raises:
            RemoteError: One of its addresses is there.
        """
        listed = (_LISTED.fullmatch(line) for line in os.fsdecode(git.run("remote", "--verbose")).splitlines())
        addresses = [found["address"] for found in listed if found and found["name"] == self.name]
        own = addresses or [os.fsdecode(git.probe("ls-remote", "--get-url", "--", self.name).out).rstrip("\n")]
        for address in own:
            place = find_inside(self.repo, address)
            if place and (addresses or place.exists()):  # else it is a name that nobody has set
                raise RemoteError(
                    f"{self.name} is {place}, which the repository itself holds: its hooks and settings are no user's",
                    hint=f"git remote set-url {self.name} ADDRESS, of a place outside of the repository",
                )

    def _look(self, transfer: Transfer, said: bytes) -> bool:
        if transfer.age_s >= self.most_s:  # git is ended
            raise RemoteError(f"{transfer.what}: not through after {transfer.age_s:.0f} s")
        return transfer.look(said)

    def _explain(self, what: str, result: GitResult) -> RemoteError:
        said = [line for line in result.err.decode(errors="replace").splitlines() if line.strip()]
        words = next((line for line in said if line.startswith(("fatal: ", "ssh: "))), result.words)
        is_known = "does not appear to be a git repository" not in words
        hint = f"try it: git {what} {self.name}" if is_known else "git remote -v shows those that there are"
        return RemoteError(f"git {what} {self.name}: {words}", hint=hint)


def make_store(folder: Path, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository for what is fetched, without hooks and on no branch of anybody's."""
    get_git(environ, folder, None).run("init", "--quiet", "--initial-branch=relay-none", "--template=", name)


@contextmanager
def _open_way(repo: Repo, environ: Mapping[str, str]) -> Iterator[Git]:
    """Give a git with a way to remotes, which obeys the user's configuration and nearly nothing of the repository's."""
    guarded = guard(repo)
    given = {name: environ[name] for name in _VARIABLES if environ.get(name)}
    if find_value(guarded.config, "core.sshcommand", trusted_only=True) is None and "GIT_SSH" not in given:
        given.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    with open_config(repo, guarded.config) as places:
        env = {**guarded.git.env, "GIT_ALLOW_PROTOCOL": _PROTOCOLS, **given, **places}
        yield replace(guarded.git, flags=REMOTE_FLAGS, env=env)


def _require_forward(repo: Repo, update: RefUpdate) -> None:
    """Refuse to take commits out of a branch that is not relay's own.

    Raises:
        GitError: It would.
    """
    is_own = not update.ref.startswith("refs/heads/") or update.ref.startswith(f"refs/heads/{JOB_BRANCHES}")
    if is_own or update.old is None:
        return
    if update.new is None or not is_ancestor(repo, update.old, update.new):
        raise GitError(f"{update.ref} would not go forward from {update.old[:10]}; nothing was pushed")


def _judge(result: GitResult) -> Pushed | None:
    """Read what git says of each ref; None where it says nothing of any."""
    rows = [line.split("\t") for line in result.out.decode(errors="replace").splitlines()]
    refused = [row[2] for row in rows if len(row) == 3 and row[0] == "!"]  # noqa: PLR2004  # flag, refs, summary
    own = [words for words in refused if "atomic push failed" not in words and "atomic transaction failed" not in words]
    if not refused:
        return None
    said = result.err.decode(errors="replace")
    if _names(own or refused, _STALE) or _names([said], _RACED):
        return Pushed(end=PushEnd.MOVED, words="; ".join(own or refused))
    remote = [line.removeprefix(_UNPACK) for line in said.splitlines() if line.startswith(("remote: ", _UNPACK))]
    remote = [line.removeprefix("remote: ").strip() for line in remote if not is_progress(line)]
    return Pushed(end=PushEnd.REFUSED, words="; ".join(dict.fromkeys(remote[:5] + own)) or result.words)


def _names(texts: Iterable[str], reasons: Sequence[str]) -> bool:
    return any(reason in text for text in texts for reason in reasons)
