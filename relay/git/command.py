"""The one place that runs git.

All access is a child process with a fixed argv. No binding is used: GitPython cannot open sha256 repositories or
version-4 indexes, nor list an index with names that are not UTF-8; it starts git with the whole environment, so that an
inherited ``GIT_DIR`` leads it into another repository, its ``index.diff`` ran a filter of the repository's (tried with
3.2.1), and its import takes as long as all of ``relay status``. pygit2 brings its own config and filter behaviour, and
relay must do what the user's git does.

What a repository's config can make git execute stays off: the flags below switch off hooks, fsmonitor, pagers,
editors, external diffs, credential helpers and every transport (measured, 19 vectors x 17 operations). Filter drivers
and configured hooks cannot be switched off by a fixed flag; `relay.git.config_guard` does that by name. The
environment is an allow list, so no inherited ``GIT_*`` redirects relay to another repository and no secret reaches a
child.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.values import dataclass

SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=true",
    "sequence.editor=true",
    "core.sshCommand=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "diff.external=",
    # Git collects in the background, after the call has returned, and takes locks then.
    "gc.auto=0",
    "maintenance.auto=false",
    # A collection of the user's holds it for a moment; for packed refs a second is git's default.
    "core.filesRefLockTimeout=1000",
    "protocol.allow=never",
    "submodule.recurse=false",
    # A file whose whole seconds and size are the same is not the same for that.
    "core.checkStat=default",
    "core.trustctime=true",
    # Git's default leaves loose objects unsynced: 11 of 24 simulated power cuts made a repository unreadable.
    "core.fsync=committed",
    "core.fsyncMethod=fsync",
    # What is written and read as commit text must not depend on the repository's taste.
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "core.commentChar=#",
    "trailer.separators=:",
)
"""Given with every call. ``core.attributesFile`` is left alone: it selects drivers but executes nothing."""

# A file may be named `*` or `:(top)`, hence literal pathspecs; without --no-optional-locks a mere status writes the
# user's index.
_PLAIN_FLAGS = ("--no-pager", "--no-optional-locks", "--literal-pathspecs")
_WAYS = frozenset({"core.sshCommand=false", "credential.helper="})
FLAGS = (*_PLAIN_FLAGS, *(flag for setting in SETTINGS for flag in ("-c", setting)))
REMOTE_FLAGS = (*_PLAIN_FLAGS, *(flag for setting in SETTINGS if setting not in _WAYS for flag in ("-c", setting)))
"""Without what keeps git from remotes: for a git that reads no configuration of a repository's."""

KEPT_ENVIRONMENT = frozenset({
    "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH",
    "DEVELOPER_DIR", "GNUPGHOME", "SSH_AUTH_SOCK",
    # These three only say where the user's own configuration is; all other GIT_* is dropped.
    "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM",
})  # fmt: skip

FIXED_ENVIRONMENT = {
    "LC_ALL": "C",
    "PYTHONSAFEPATH": "1",  # a filter that is `python -m …` must not find its module in the work tree
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "force",
    # A repository may allow single protocols in its config and name itself a partial clone of `ext::sh -c …`;
    # this variable overrules any such setting.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}

NULL_ENVIRONMENT: Mapping[str, str] = {}

_HUNG_UP = "the remote end hung up unexpectedly"
_CUT_OFF = (
    b"Out of memory", b"Cannot allocate memory", b"No space left on device", b"Out of diskspace",
    b"Disk quota exceeded", b"Input/output error", b"Too many open files", b".lock': File exists",
)  # fmt: skip
"""In what git says where the machine is at fault: it speaks C here."""
TIMED_OUT = 124
LIMIT_S = 600.0
"""No call takes a minute in a repository of 100,000 files, but a pattern in ``.gitignore`` can take forever."""


_LOOK_S = 1.0
"""How often relay reads the output of a long call."""


class GitError(RepoError):
    """A git command failed that relay expected to work: full disk, damaged repository, missing permission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    """The result of a git command: exit status and both streams as bytes."""

    code: int
    """-N when signal N killed git; its output is incomplete then."""
    out: bytes
    err: bytes

    @property
    def was_cut_off(self) -> bool:
        """Whether git was killed or the machine failed it, so that the arguments were not the reason."""
        return self.code < 0 or (self.code > 0 and any(sign in self.err for sign in _CUT_OFF))

    @property
    def words(self) -> str:
        """The last line git wrote to stderr, fit for a message."""
        lines = [line for line in self.err.decode(errors="replace").splitlines() if line.strip()]
        if self.code < 0:
            return f"it was killed by signal {-self.code}, as the system does where memory runs out"
        if len(lines) > 1 and lines[-1].endswith(_HUNG_UP):  # a filter that could not be started; its words say which
            return f"{lines[-2].strip()}; {lines[-1].strip()}"
        return lines[-1].strip() if lines else f"exit status {self.code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Git bound to one work tree, with one set of switched-off settings."""

    program: str
    """Absolute path, never below the work tree."""
    cwd: Path
    env: Mapping[str, str]
    place: tuple[str, ...] = ()
    """``--git-dir`` and ``--work-tree``; empty only while the repository is being found."""
    settings: tuple[tuple[str, str], ...] = ()
    """Further config that overrules the repository's; names may hold any character."""
    flags: tuple[str, ...] = FLAGS
    """Flags before each subcommand."""
    limit_s: float = LIMIT_S
    """Seconds for a call without a limit of its own."""
    watch: Callable[[bytes], bool] | None = None
    """Called about each second with a call's stderr so far. True means progress: the limit starts anew."""

    def run(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] = NULL_ENVIRONMENT, pass_fds: Sequence[int] = ()
    ) -> bytes:
        """Run git, with `pass_fds` open in it, and return its output.

        Raises:
            GitError: The exit status is not 0.
        """
        return _require(self.probe(*args, stdin=stdin, env=env, pass_fds=pass_fds), args)

    def list_files(self, *args: str) -> list[str]:
        """Return the paths that ``git ls-files`` prints for these arguments, relative to the root.

        Raises:
            GitError: The exit status is not 0.
        """
        return [os.fsdecode(path) for path in self.run("ls-files", "-z", *args).split(b"\0")[:-1]]

    def ask(self, *args: str) -> bytes | None:
        """Run git and return its one line without the newline; None when there is no such thing.

        Git says so by exit status 1 without any output. A git that was killed, ran out of memory or met damage must
        not count as one that found nothing.

        Raises:
            GitError: Git answered otherwise.
        """
        result = self.probe(*args)
        if result.code == 1 and not result.out and not result.err:
            return None
        out = _require(result, args)
        if not out.endswith(b"\n"):
            raise GitError(f"git {args[0]} failed: {result.words}")
        return out[:-1]

    def probe(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] = NULL_ENVIRONMENT,
        timeout_s: float | None = None,
        pass_fds: Sequence[int] = (),
    ) -> GitResult:
        """Run git and return its result whatever the exit status is; `TIMED_OUT` when `timeout_s` passed.

        For callers that look at the repository afterwards, or that treat all failures alike.

        Raises:
            GitError: Git could not be started, or did not end within `limit_s` where no `timeout_s` is given.
        """
        child = self._start(args, env, pass_fds)
        if timeout_s is not None:
            return _collect(child, stdin, timeout_s, self.watch)
        return self._collect(child, args, stdin)

    def open(self, *args: str, env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start git, with `pass_fds` open in it, to be asked again and again: the caller writes, reads and ends it.

        Raises:
            GitError: Git could not be started.
        """
        return self._start(args, env, pass_fds, stderr=subprocess.DEVNULL)

    def _start(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        try:
            # A session of its own: Ctrl-C in the terminal reaches relay only, and nothing can prompt on a tty.
            return subprocess.Popen(
                [self.program, *self.flags, *self.place, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self.cwd,
                env={**self.env, **render_settings(self.settings), **env},
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except OSError as error:
            raise GitError(f"git could not be started: {error.strerror}") from error

    def _collect(self, child: subprocess.Popen[bytes], args: Sequence[str], stdin: bytes = b"") -> GitResult:
        result = _collect(child, stdin, self.limit_s, self.watch)
        if result.code == TIMED_OUT:
            raise GitError(f"git {args[0]} was ended: {result.words}", hint="does a .gitignore hold an odd pattern?")
        return result

    def overruled(self, settings: Sequence[tuple[str, str]]) -> "Git":
        """Return this git with further overruled settings."""
        return replace(self, settings=(*self.settings, *settings)) if settings else self


def _require(result: GitResult, args: Sequence[str]) -> bytes:
    if result.code:
        raise GitError(f"git {args[0]} failed: {result.words}")
    return result.out


def _collect(
    child: subprocess.Popen[bytes], stdin: bytes, limit_s: float, watch: Callable[[bytes], bool] | None
) -> GitResult:
    # A second `communicate` does not send the rest of stdin: only calls without stdin are watched.
    step_s = limit_s if watch is None or stdin else min(_LOOK_S, limit_s)
    ends_s = time.monotonic() + limit_s
    with child:
        try:
            while True:
                try:
                    out, err = child.communicate(stdin, timeout=step_s)
                    return GitResult(code=child.returncode, out=out, err=err)
                except subprocess.TimeoutExpired as error:
                    if watch is not None and watch(error.stderr or b""):
                        ends_s = time.monotonic() + limit_s
                if time.monotonic() >= ends_s or step_s == limit_s:
                    # The whole group: a signing program that waits for a person would keep the pipes open.
                    os.killpg(child.pid, signal.SIGKILL)
                    return GitResult(code=TIMED_OUT, out=b"", err=f"no answer within {round(limit_s, 1):g} s".encode())
        # On an interrupt too: git must not write after relay has released its lock.
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise


def render_settings(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that pass settings to git: ``-c`` cannot carry a name with ``=`` in it."""
    pairs = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings):
        pairs[f"GIT_CONFIG_KEY_{number}"] = key
        pairs[f"GIT_CONFIG_VALUE_{number}"] = value
    return pairs


def get_git(environ: Mapping[str, str], cwd: Path, keep_out: Path | None) -> Git:
    """Return git from PATH, ignoring relative entries and all entries below `keep_out`.

    An activated virtual environment inside the repository puts a directory that a session can write on PATH; a `git`
    (or a `gpg`, or a filter) planted there must not become relay's own.

    Raises:
        RepoError: There is no git.
    """
    path = clean_path(environ.get("PATH", os.defpath), keep_out)
    program = _find_program("git", path)
    if program is None:
        raise RepoError("git was not found on PATH", hint="install git 2.39.1 or newer")
    env = {name: environ[name] for name in KEPT_ENVIRONMENT if name in environ}
    if "LD_LIBRARY_PATH" in env:
        env["LD_LIBRARY_PATH"] = clean_path(env["LD_LIBRARY_PATH"].replace(";", ":"), keep_out)
    return Git(program=program, cwd=cwd, env={**env, **FIXED_ENVIRONMENT, "PATH": path})


def _find_program(name: str, path: str) -> str | None:
    """Do what `shutil.which` does on POSIX, without a fiftieth of the time that `relay status` has for its import."""
    places = (Path(part, name) for part in path.split(os.pathsep))
    return next((str(place) for place in places if os.access(place, os.X_OK) and place.is_file()), None)


def clean_path(path: str, keep_out: Path | None) -> str:
    """Return PATH without relative entries and entries below `keep_out`, links resolved."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if _is_outside(part, keep_out))


def _is_outside(part: str, keep_out: Path | None) -> bool:
    if not Path(part).is_absolute():
        return False
    if keep_out is None:
        return True
    names = (os.path.normpath(part), os.path.realpath(part))
    return not any(f"{name}/".startswith(os.path.join(keep_out, "")) for name in names)  # noqa: PTH118  # it may be "/"


MINIMUM_GIT = (2, 39, 1)
"""``git hook run`` and ``core.fsync`` came with 2.36. Before 2.39.1 (January 2023) a ``.gitattributes`` can write into
the memory of git, which reads it outside of the sandbox (CVE-2022-23521; likewise CVE-2022-41903)."""

_versions: dict[str, tuple[int, ...]] = {}
"""By program."""


def get_version(git: Git) -> tuple[int, ...]:
    """Return git's version.

    Raises:
        RepoError: Git is too old.
    """
    if git.program not in _versions:
        found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", git.run("version"))
        _versions[git.program] = tuple(int(part or 0) for part in found.groups()) if found else (0, 0)
    version = _versions[git.program]
    if version < MINIMUM_GIT:
        shown, wanted = (".".join(map(str, numbers)) for numbers in (version, MINIMUM_GIT))
        raise RepoError(f"git {shown} is too old; relay needs {wanted} or newer", hint="install a newer git")
    return version
