"""Fetch from and push to remotes; no other module of relay talks to one.

Git runs with relay's fixed flags, but may use a clone's protocols and the user's ssh, proxies and credential helpers;
`open_config` says which settings of the repository count. GitPython's `RemoteProgress` reads the progress of a
transfer. Its `Remote.push` is not used (3.2.1): for a ref outside of branches and tags it returns the same empty list
after a success and beside a refused lease, and its git gets the whole inherited environment.

Fetch and push obey more than a hundred keys, and each release of git adds some: programs, files to write, proxies,
certificates, options of the remote. So `open_config` allows keys instead of forbidding them: it gives git another
common directory, with a configuration that relay writes, without hooks, and with the repository's objects and refs
through links (as ``contrib/workdir/git-new-workdir`` of git makes them). relay copies the user's own settings there
too, since a condition such as ``includeIf "gitdir:~/work/"`` depends on the repository's own place.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import REMOTE_FLAGS, Git, GitError, GitResult, get_git
from relay.git.config_guard import GitSetting, find_value, guard
from relay.git.lock_journal import clear_transfer_locks, declare_locks
from relay.git.names import JOB_BRANCHES
from relay.git.objects import is_ancestor
from relay.git.repository import Repo
from relay.git.worktrees import list_roots

_ALLOWED = re.compile(
    r"core\.(repositoryformatversion|sharedrepository|logallrefupdates|filemode|ignorecase|precomposeunicode"
    r"|(loose)?compression)"
    r"|extensions\.(?!worktreeconfig$)[a-z]+"
    r"|remote\..*\.(url|pushurl|fetch|promisor|partialclonefilter)"
    r"|url\..*\.insteadof"
    # Where CI systems keep the token of a job, and what helps against a server's limits; none of it opens a file.
    r"|http\.(.*\.)?(extraheader|version|postbuffer|lowspeedlimit|lowspeedtime)"
    r"|credential\.(.*\.)?username|user\.(name|email)|protocol\.version",
    re.DOTALL,
)
"""The keys that a repository may set: its remotes, and the storage of its objects and refs."""
_LINKED = ("objects", "refs", "packed-refs", "reftable", "logs", "worktrees", "shallow", "info")
_MADE_BY_GIT = frozenset({"packed-refs", "shallow"})
"""Files that git may create, through a link to a missing file."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"}
_URL = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*://")
_SUFFIXES = ("", "/.git", ".git", ".git/.git")
"""Suffixes that git tries for a path. Source: git 2.39, path.c, enter_repo."""


@contextmanager
def open_config(repo: Repo, config: Iterable[GitSetting]) -> Iterator[Mapping[str, str]]:
    """Yield the variables by which git finds the configuration for remotes, for the length of the block.

    Args:
        config: The current configuration of the repository and the user.
    """
    settings = tuple(config)
    with tempfile.TemporaryDirectory(prefix="relay-remote-") as folder:
        place = Path(folder)
        common, own = place / "common", place / "config"
        common.mkdir()
        for name in _LINKED:
            if name in _MADE_BY_GIT or (repo.common_dir / name).exists():
                (common / name).symlink_to(repo.common_dir / name)
        (common / "HEAD").write_bytes((repo.common_dir / "HEAD").read_bytes())
        _write(own, (setting for setting in settings if setting.trusted))
        others = (one for one in settings if not one.trusted and "\n" not in one.value)
        _write(common / "config", (one for one in others if _ALLOWED.fullmatch(one.key)))
        yield {"GIT_COMMON_DIR": str(common), "GIT_CONFIG_GLOBAL": str(own), "GIT_CONFIG_NOSYSTEM": "1"}


def _write(file: Path, settings: Iterable[GitSetting]) -> None:
    file.write_bytes(os.fsencode("".join(map(_render, settings))))


def _render(setting: GitSetting) -> str:
    section, _, rest = setting.key.partition(".")
    part, dot, name = rest.rpartition(".")
    if section.startswith("include"):
        return ""  # the included settings are in the list already
    quoted = part.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[{section} "{quoted}"]' if dot else f"[{section}]"
    value = "" if setting.is_bare else f' = "{"".join(_ESCAPES.get(char, char) for char in setting.value)}"'
    return f"{head}\n\t{name}{value}\n"


def find_inside(repo: Repo, address: str) -> Path | None:
    """Return the place that an address names inside the repository, a work tree of it or its git directory, else None.

    Git would run the hooks of a repository there, which a session may have written.
    """
    own = (repo.root, repo.common_dir, *list_roots(repo))
    for path in _find_paths(address):
        for suffix in _SUFFIXES:
            place = Path(os.path.realpath(f"{repo.root / path}{suffix}"))
            if any(place.is_relative_to(root) for root in own):
                return place
    return None


def _find_paths(address: str) -> tuple[str, ...]:
    """Return the paths on this machine that git may take an address for."""
    if address.startswith("file://"):
        return (f"/{unquote(address.removeprefix('file://'), errors='surrogateescape')}",)
    colon, slash = address.find(":"), address.find("/")
    if _URL.match(address) or 0 <= colon < (slash if slash >= 0 else len(address)):
        return ()  # it is another machine's
    return (address, os.path.expanduser(address))  # noqa: PTH111  # never raises; git's server expands it too


_LINE_CHARS = 200
"""Longest line that can report progress; other text of a remote could be anything."""
_AMOUNT = re.compile(r"[0-9.]+ ([KMG]i)?B(ytes)?( \| [0-9.]+ ([KMG]i)?B/s)?")
_BAR_CHARS = 20
_UNTOLD_S = 2.0
"""A longer transfer is reported, and again whenever it has taken twice as long."""

_SILENT_S = 30.0
"""A silent transfer is reported after so long."""


class Transfer:
    """Reports the progress of a long transfer. Mutable: it goes on.

    Args:
        what: The transfer, in words.
        tell: Takes a line for the record, ever less often.
        show: Takes the same line, at each look that finds progress.
        clock: In seconds.
    """

    def __init__(
        self,
        what: str,
        tell: Callable[[str], object],
        show: Callable[[str], object] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self._tell, self._show, self._clock = what, tell, show, clock
        self._begun_s = clock()
        self._due_s = _UNTOLD_S
        self._size = self._read_bytes = 0
        self._words = ""
        self._read: Callable[[str], None] | None = None

    def look(self, said: bytes) -> bool:
        """Read git's stderr so far; return whether the transfer has progressed since the last call."""
        took_s, before = self._clock() - self._begun_s, self._words
        if took_s < _UNTOLD_S:  # most transfers end before it pays to import the reader
            is_more, self._size = len(said) > self._size, len(said)
            return is_more
        self._read_lines(said)
        if self._words != before:
            self._show(f"{self.what}: {self._words}")
        if took_s >= (self._due_s if self._words else max(self._due_s, _SILENT_S)):
            self._due_s = 2 * took_s
            self._tell(f"{self.what}: {self._words or 'no answer yet'}")
        return self._words != before

    def end(self) -> None:
        """Take the progress off the screen."""
        if self._words:
            self._show("")

    def _read_lines(self, said: bytes) -> None:
        """Hand the lines that have come since the last call to GitPython's reader."""
        *lines, rest = re.split(rb"[\r\n]", said[self._read_bytes :])
        self._read_bytes = len(said) - len(rest)
        if lines and self._read is None:
            self._read = _make_reader(self._note)
        for line in lines:
            if self._read is not None and len(line) <= _LINE_CHARS:
                self._read(line.decode(errors="replace"))

    def _note(self, stage: str, done: float, total: float, message: str) -> None:
        amount = f", {message}" if _AMOUNT.fullmatch(message) else ""
        if not 0 <= done <= total or not total:
            self._words = f"{stage}: {done:,.0f}{amount}"
            return
        full = round(_BAR_CHARS * done / total)
        bar = "█" * full + "░" * (_BAR_CHARS - full)
        self._words = f"{stage} {bar} {done / total:4.0%} ({done:,.0f} of {total:,.0f}){amount}"


def _make_reader(note: Callable[[str, float, float, str], None]) -> Callable[[str], None]:
    """Return GitPython's reader of git's progress lines. `note` gets stage, count, total (0: unknown) and amount."""
    from git.util import RemoteProgress

    class Reader(RemoteProgress):
        def update(
            self, _op_code: int, cur_count: str | float, max_count: str | float | None = None, message: str = ""
        ) -> None:
            """Hand on what a line says."""
            self.other_lines.clear()  # the library keeps all other lines
            line = (self._cur_line or "").removeprefix("remote: ")
            note(line.partition(":")[0], float(cur_count or 0), float(max_count or 0), message)

    return Reader().new_message_handler()


_PROTOCOLS = "file:http:https:ssh"
"""``git://`` is neither encrypted nor signed, and ``core.gitProxy`` of a repository would run for it."""
_VARIABLES = (
    "GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "KRB5CCNAME", "SSH_ASKPASS", "SSL_CERT_DIR",
    "SSL_CERT_FILE", "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy",
    "no_proxy",
)  # fmt: skip
_LISTED = re.compile(r"(?P<name>[^\t]*)\t(?P<address>.*) \((fetch|push)\)( \[.*\])?")
_LIMIT_S = 600.0
_STALE = ("stale info", "fetch first", "non-fast-forward", "already exists", "remote ref updated since checkout")
"""Git's reasons for refusing a ref that is not where its lease says."""
_UNPACK = "error: remote unpack failed: "
_RACED = ("cannot lock ref", "failed to update ref", "incorrect old value provided", "reference already exists")
"""The remote's words when another push was faster."""


class RemoteError(RepoError):
    """A remote could not be reached, or does not do what is needed; nothing is known to have changed there."""


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
    """How a push ended; only `DONE` has changed anything."""

    DONE = "done"
    MOVED = "moved"
    """A ref has moved meanwhile: another push was faster."""
    REFUSED = "refused"
    """The remote refused it: rights, a hook, a full disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """The end of a push, with the remote's words."""

    end: PushEnd
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote of a repository, by the name that its configuration has for it or by its address."""

    repo: Repo
    name: str
    environ: Mapping[str, str]
    """The user's environment; relay passes on the variables for ssh, proxies and credentials."""
    limit_s: float = _LIMIT_S
    """Seconds for one exchange without progress."""
    tell: Callable[[str], object] = lambda _: None
    """Takes progress messages of a long transfer, ever less often."""
    show: Callable[[str], object] = lambda _: None
    """Takes its progress each second, for a screen, and an empty line at its end."""

    def find_address(self) -> str:
        """Return the remote's address, or its name where that is an address; a path is absolute."""
        found = self._run("ls-remote", "--get-url", "--", self.name).out.decode(errors="surrogateescape").strip()
        return str((self.repo.root / found).resolve()) if (self.repo.root / found).is_dir() else found

    def list_refs(self, *patterns: str) -> Mapping[str, str]:
        """Return ``ref: commit`` for the refs that match any of the patterns of ``git ls-remote``.

        Raises:
            RemoteError: It cannot be reached.
        """
        result = self._run("ls-remote", "--refs", "--upload-pack=git-upload-pack", "--", self.name, *patterns)
        lines = (line.decode(errors="surrogateescape") for line in result.out.splitlines())
        return {ref: commit for commit, _, ref in (line.partition("\t") for line in lines)}

    def fetch(self, *refspecs: str) -> None:
        """Fetch refs without tags and submodules; prune refs of a pattern that the remote lacks.

        Raises:
            RemoteError: The remote cannot be reached, or an unforced ref would not go forward.
        """
        clear_transfer_locks(self.repo)  # a killed fetch's locks would block all others
        flags = ("--no-tags", "--prune", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
        args = ("fetch", "--progress", *flags, "--upload-pack=git-upload-pack", "--", self.name, *refspecs)
        with declare_locks(self.repo, self.repo.common_dir / "packed-refs.lock"):
            result = self._probe(*args)
        if result.code:
            raise self._explain("fetch", result)

    def push(self, *updates: RefUpdate) -> Pushed:
        """Change all of the refs or none.

        When the connection ends before the remote has answered, relay asks the remote for the refs.

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
            if args[0] not in {"fetch", "push"}:
                return git.probe(*args, timeout_s=self.limit_s)
            transfer = Transfer(f"git {args[0]} {self.name}", self.tell, self.show)
            try:
                return replace(git, watch=transfer.look).probe(*args, timeout_s=self.limit_s)
            finally:
                transfer.end()

    def _require_outside(self, git: Git) -> None:
        """Refuse a remote inside the repository.

        Raises:
            RemoteError: One of its addresses is inside.
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

    def _explain(self, what: str, result: GitResult) -> RemoteError:
        said = [line for line in result.err.decode(errors="replace").splitlines() if line.strip()]
        words = next((line for line in said if line.startswith(("fatal: ", "ssh: "))), result.words)
        is_known = "does not appear to be a git repository" not in words
        hint = f"try it: git {what} {self.name}" if is_known else "git remote -v shows those that there are"
        return RemoteError(f"git {what} {self.name}: {words}", hint=hint)


def find_remote(repo: Repo, branch: str | None) -> str:
    """Return the name of the remote that a branch follows, else ``origin``."""
    found = repo.git.ask("config", "--get", f"branch.{branch}.remote") if branch else None
    return os.fsdecode(found or b"origin")


def list_remotes(repo: Repo) -> tuple[str, ...]:
    """Return the names of a repository's remotes."""
    return tuple(os.fsdecode(repo.git.run("remote")).splitlines())


def is_default(repo: Repo, name: str, branch: str) -> bool:
    """Return whether a branch is the default one of a remote, as far as this clone knows."""
    default = repo.git.ask("symbolic-ref", "--quiet", f"refs/remotes/{name}/HEAD") or b""
    return os.fsdecode(default) == f"refs/remotes/{name}/{branch}"


def make_store(folder: Path, name: str, environ: Mapping[str, str]) -> None:
    """Make a repository for fetched objects, without hooks and on a branch that nobody uses."""
    get_git(environ, folder, None).run("init", "--quiet", "--initial-branch=relay-none", "--template=", name)


@contextmanager
def _open_way(repo: Repo, environ: Mapping[str, str]) -> Iterator[Git]:
    """Yield a git that may use remotes; it obeys the user's configuration and the repository's allowed keys."""
    guarded = guard(repo)
    given = {name: environ[name] for name in _VARIABLES if environ.get(name)}
    if find_value(guarded.config, "core.sshcommand", trusted_only=True) is None and "GIT_SSH" not in given:
        given.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    with open_config(repo, guarded.config) as places:
        env = {**guarded.git.env, "GIT_ALLOW_PROTOCOL": _PROTOCOLS, **given, **places}
        yield replace(guarded.git, flags=REMOTE_FLAGS, env=env)


def _require_forward(repo: Repo, update: RefUpdate) -> None:
    """Refuse to remove commits from a branch that is not relay's own.

    Raises:
        GitError: The update would.
    """
    is_own = not update.ref.startswith("refs/heads/") or update.ref.startswith(f"refs/heads/{JOB_BRANCHES}")
    if is_own or update.old is None:
        return
    if update.new is None or not is_ancestor(repo, update.old, update.new):
        raise GitError(f"{update.ref} would not go forward from {update.old[:10]}; nothing was pushed")


def _judge(result: GitResult) -> Pushed | None:
    """Parse git's answer about each ref; None where there is none."""
    rows = [line.split("\t") for line in result.out.decode(errors="replace").splitlines()]
    refused = [row[2] for row in rows if len(row) == 3 and row[0] == "!"]  # noqa: PLR2004  # flag, refs, summary
    own = [words for words in refused if "atomic push failed" not in words and "atomic transaction failed" not in words]
    if not refused:
        return None
    said = result.err.decode(errors="replace")
    if _names(own or refused, _STALE) or _names([said], _RACED):
        return Pushed(end=PushEnd.MOVED, words="; ".join(own or refused))
    remote = [line.removeprefix(_UNPACK) for line in said.splitlines() if line.startswith(("remote: ", _UNPACK))]
    remote = [line.removeprefix("remote: ").strip() for line in remote if "% (" not in line]  # else it is progress
    return Pushed(end=PushEnd.REFUSED, words="; ".join(dict.fromkeys(remote[:5] + own)) or result.words)


def _names(texts: Iterable[str], reasons: Sequence[str]) -> bool:
    return any(reason in text for text in texts for reason in reasons)
