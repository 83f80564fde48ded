"""Find the repository that relay works in, and read its refs from git's plain files, or by git where only git can tell.

One file holds one ref, ``packed-refs`` holds the refs without a file, HEAD names a branch after ``ref:``. Source:
gitrepository-layout(5). Only git can read a reftable, symbolic refs and links.

Worth, at 2 ms a git process: a phase of four tools reads HEAD 49 times (+53 processes, 105 ms) and a ref 33 times (+37,
75 ms). ``git cat-file --batch-command`` could do neither: it does not say which branch HEAD names, and where a ref is
missing it finds a branch of the same name.
"""

import contextlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.secrecy import NOTHING_NAMED, Hidden
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.walk import read_bytes
from relay.git.command import Git, GitError, GitResult, get_git, get_version
from relay.git.names import SWITCH
from relay.git.object_database import read_known, store_object

_DISCOVERY = re.compile(
    rb"(true|false)\n(?P<git_dir>.*)\n(?P<inside>true|false)\n(?P<common>.*)\n(?P<format>sha1|sha256)\n(?P<top>.*)\n\Z",
    re.DOTALL,
)
"""Fixed words between the paths, so that a newline in a path does not matter."""

_ID = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")
_HEAD = re.compile(rb"ref: (refs/heads/[^\x00-\x20\x7f]+)\n")


def find_head_ref(git_dir: Path) -> str | None:
    """Return the full name of the branch that HEAD names; None when it names none, or only git can tell."""
    try:
        found = _HEAD.fullmatch(_read(git_dir / "HEAD") or b"")
    except OSError:
        return None
    name = os.fsdecode(found[1]) if found else ""
    return name if _is_ordinary(name) else None


def find_id(common_dir: Path, ref: str) -> str | None:
    """Return the object id of a ref (a full name, not HEAD); empty without the ref, None when only git can tell."""
    if not _is_ordinary(ref) or (common_dir / "reftable").is_dir():
        return None
    try:
        data = _read(common_dir / ref)
        packed = _read(common_dir / "packed-refs") if data is None else None
    except OSError:
        return None
    if data is not None:
        found = _ID.fullmatch(data)
        return found[1].decode() if found else None
    if packed and not packed.endswith(b"\n"):
        return None
    before, there, _ = (packed or b"").partition(b" " + os.fsencode(ref) + b"\n")
    object_id = before.rpartition(b"\n")[2]
    return object_id.decode() if there and _ID.fullmatch(object_id + b"\n") else ""


def may_have_refs(common_dir: Path, prefixes: Iterable[str]) -> bool:
    """Return False where there is surely no ref below `prefixes`: `relay status` asks five times, 2 ms each."""
    if (common_dir / "reftable").is_dir() or any(os.path.lexists(common_dir / prefix) for prefix in prefixes):
        return True
    try:
        packed = _read(common_dir / "packed-refs") or b""
    except OSError:
        return True
    return any(b" " + os.fsencode(prefix) in packed for prefix in prefixes)


def _is_ordinary(ref: str) -> bool:
    parts = ref.split("/")
    return parts[0] == "refs" and not any(part.startswith(".") or not part or "\n" in part for part in parts)


def _read(file: str | Path) -> bytes | None:
    """Return what is in a file; None when there is none, or a directory.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    try:
        # relay must not wait for a FIFO in a ref's place, nor follow a link.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return None
        return read_bytes(fd, sys.maxsize) if stat.S_ISREG(mode) else b""
    finally:
        os.close(fd)


class BranchError(RepoError):
    """The run's branch is no longer checked out."""

    def __init__(self, now: str, branch: str) -> None:
        words = f"{now or 'no branch'} was checked out meanwhile, and this run works on {branch}"
        super().__init__(f"{words}, where what it has of the phase is kept", hint=f"{SWITCH} {shlex.quote(branch)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """One work tree of a git repository; paths are absolute and without symlinks."""

    root: Path
    git_dir: Path
    """The work tree's git directory; differs from `common_dir` in a linked work tree."""
    common_dir: Path
    object_format: str
    """``sha1`` or ``sha256``."""
    git: Git
    hidden: Hidden = NOTHING_NAMED
    """Paths that relay never stores where a session could read them."""
    on: str = field(default="", compare=False)
    """The branch that HEAD must name, if it names any; empty for any branch."""

    @property
    def relay_dir(self) -> Path:
        """The directory of relay's lock and private indexes, per work tree; it holds no state that matters."""
        return self.git_dir / "relay"

    def make_relay_dir(self) -> Path:
        """Return `relay_dir`, made if it was missing.

        Raises:
            RepoError: The path is no directory: through a link relay would write and remove files elsewhere.
        """
        place = self.relay_dir
        with contextlib.suppress(FileExistsError):
            place.mkdir()
        if not stat.S_ISDIR(place.lstat().st_mode):
            raise RepoError(
                f"{place} is no directory, and relay keeps its lock in one of that name",
                hint="look where it leads, and remove it: nothing that relay keeps there is lost with it",
            )
        return place

    @property
    def objects_dir(self) -> Path:
        """Git's directory of loose objects and packs."""
        return self.common_dir / "objects"

    @property
    def zero_id(self) -> str:
        """The object id that means "does not exist" in a compare-and-swap."""
        return "0" * (64 if self.object_format == "sha256" else 40)

    @property
    def empty_tree(self) -> str:
        """The id of the tree without entries, which git knows without having it."""
        if self.object_format == "sha256":
            return "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
        return "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

    @property
    def branch(self) -> str | None:
        """The branch that HEAD names, read anew each time; None when HEAD is detached.

        Raises:
            RepoError: HEAD must name another branch.
        """
        name = find_head_ref(self.git_dir)
        if name is None:
            name = os.fsdecode(self.git.ask("symbolic-ref", "-q", "HEAD") or b"")
        self._require_on(name)
        return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None

    def _require_on(self, ref: str) -> None:
        if self.on and ref and ref != f"refs/heads/{self.on}":
            raise BranchError(ref.removeprefix("refs/heads/"), self.on)

    def head(self) -> str | None:
        """Return the commit that HEAD names now; None on an unborn branch.

        Raises:
            GitError: HEAD's commit cannot be read, or git cannot say; that is no unborn branch.
            RepoError: HEAD must name another branch.
        """
        ref = find_head_ref(self.git_dir)
        self._require_on(ref or "")
        commit = find_id(self.common_dir, ref) if ref else None
        if commit and (self.read_object(commit) or ("",))[0] == "commit":
            return commit
        found = self._ask_for_commit("HEAD")
        if found is not None:
            return found
        try:
            # For a torn branch file git prints nothing when asked for HEAD, and an error when asked for the branch.
            named = self.git.ask("rev-parse", "-q", "--verify", ref or "HEAD")
        except GitError as error:
            last, file = self.find_logged_head(), shlex.quote(str(self.common_dir / (ref or "HEAD")))
            hint = f"the log of HEAD ends with its commit: echo {last} > {file}" if last else ""
            raise GitError(str(error), hint=hint) from error
        if named is not None:
            raise GitError(f"HEAD is at {named.decode()}, which is no commit that can be read", hint="git fsck")
        return None

    def find_logged_head(self) -> str:
        """Return the commit that HEAD was at last, by its log; empty without a log."""
        last = (_read(self.git_dir / "logs/HEAD") or b"").rstrip(b"\n").rpartition(b"\n")[2]
        found = re.match(rb"[0-9a-f]+ ([0-9a-f]{40,64}) ", last)
        return found[1].decode() if found else ""

    def list_refs(self, *prefixes: str) -> dict[str, str]:
        """Return ``ref: object id`` for all refs below `prefixes` (``refs/…/``), by name.

        Raises:
            GitError: Git cannot say.
        """
        if not may_have_refs(self.common_dir, prefixes):
            return {}
        said = os.fsdecode(self.git.run("for-each-ref", "--format=%(objectname) %(refname)", *prefixes))
        return {ref: commit for commit, _, ref in (line.partition(" ") for line in said.split("\n")[:-1])}

    def read_object(self, object_id: str) -> tuple[str, bytes] | None:
        """Return kind and bytes of an object, by its id or another name; None where there is none that can be read."""
        return read_known(self.git, self.common_dir, object_id)

    def store_object(self, kind: str, *content: bytes) -> str:
        """Store an object of these bytes, and return its id.

        Raises:
            GitError: It cannot be stored.
        """
        return store_object(self.git, self.common_dir, kind, content)

    def find_commit(self, rev: str) -> str | None:
        """Return the id of the commit that `rev` names; None when there is none."""
        return self.head() if rev == "HEAD" else self._ask_for_commit(rev)

    def _ask_for_commit(self, rev: str) -> str | None:
        found = self.git.ask("rev-parse", "-q", "--verify", "--end-of-options", f"{rev}^{{commit}}")
        return None if found is None else found.decode()


def open_repo(cwd: Path, environ: Mapping[str, str] | None = None) -> Repo:
    """Find the repository around `cwd`: a plain one, a linked work tree or a submodule.

    The root is the nearest directory with a ``.git`` in it; git must agree, so that a ``core.worktree`` in a hostile
    config cannot point relay at other files.

    Raises:
        RepoError: No work tree, a bare repository, another user's repository, a git directory that belongs to another
            work tree, one whose root is the home directory or ``/``, or a git that is missing, or too old to say so.
        GitError: Git could not say which it is.
    """
    environ = os.environ if environ is None else environ
    here = Path(os.path.realpath(cwd))
    root = next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), None)
    git = get_git(environ, here, root)
    root, git_dir, common_dir, object_format = _discover(git, here, root)
    _require_root(root, environ)
    _require_own(root, git_dir, common_dir)
    return Repo(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        object_format=object_format,
        git=replace(git, cwd=root, place=(f"--git-dir={git_dir}", f"--work-tree={root}")),
    )


def open_worktree(repo: Repo, root: Path) -> Repo:
    """Open another work tree of the same repository; git need not be asked for what they share.

    Raises:
        RepoError: There is none of this repository.
    """
    try:
        said = read_start(root / ".git", os.pathconf("/", "PC_PATH_MAX"))  # None: a directory
        link = ".git" if said is None else os.fsdecode(said.removeprefix(b"gitdir: ").rstrip(b"\n"))
        git_dir = Path(os.path.realpath(root / link))
    except (OSError, ValueError) as error:
        raise RepoError(f"{root} is no work tree any more: {error}", hint="git worktree repair") from error
    _require_own(root, git_dir, repo.common_dir)
    git = replace(repo.git, cwd=root, place=(f"--git-dir={git_dir}", f"--work-tree={root}"))
    return replace(repo, root=root, git_dir=git_dir, git=git, on="")


def _discover(git: Git, here: Path, root: Path | None) -> tuple[Path, Path, Path, str]:
    """Ask git for root, git directory, common directory and object format.

    Raises:
        RepoError: As for `open_repo`.
    """
    result = git.probe(
        "rev-parse", "--path-format=absolute", "--is-bare-repository", "--absolute-git-dir",
        "--is-inside-work-tree", "--git-common-dir", "--show-object-format", "--show-toplevel",
    )  # fmt: skip
    found = _DISCOVERY.match(result.out)
    if found is None or found["inside"] == b"false":
        get_version(git)  # an old git fails for options that it does not know
        raise _explain(here, result)
    if root is None or os.path.realpath(os.fsdecode(found["top"])) != str(root):
        raise RepoError(
            f"the repository's config says that its work tree is {os.fsdecode(found['top'])!r}, not here",
            hint="git config --unset core.worktree",
        )
    git_dir, common_dir = (Path(os.path.realpath(os.fsdecode(found[name]))) for name in ("git_dir", "common"))
    return root, git_dir, common_dir, found["format"].decode()


def _explain(here: Path, result: GitResult) -> RepoError:
    if result.code < 0:
        return GitError(f"git rev-parse failed: {result.words}")
    if result.out.startswith(b"true\n"):
        return RepoError("this is a bare repository; relay works in a work tree", hint="git worktree add DIRECTORY")
    if result.out.startswith(b"false\n"):
        return RepoError("this directory is inside the git directory", hint="change to the work tree")
    if "dubious ownership" in result.words or "safe.directory" in result.words:
        way = result.words if "safe.directory" in result.words else f"add {shlex.quote(str(here))} to safe.directory"
        return RepoError(
            "git does not trust this repository: it belongs to another user", hint=f"if you trust it: {way}"
        )
    if b"not a git repository" in result.err:  # not in its last line, where it stopped at a mount point
        return RepoError(f"{here} is not inside a git repository", hint="git init")
    return GitError(f"git rev-parse failed: {result.words}")


def _require_root(root: Path, environ: Mapping[str, str]) -> None:
    home = environ.get("HOME")
    if root == Path(root.anchor) or (home and root == Path(os.path.realpath(home))):
        raise RepoError(
            f"the git repository here is {root} itself; relay would snapshot everything below it",
            hint="run relay in the project's own repository",
        )


def _require_own(root: Path, git_dir: Path, common_dir: Path) -> None:
    """Refuse another work tree's git directory: a ``.git`` file in an archive can name any repository of the user.

    Git obeys such a file; relay would send that repository's history to a model and commit to its branch.
    """
    link = root / ".git"
    if git_dir == common_dir:
        is_own = git_dir.name != ".git" or git_dir.parent == root
    else:
        is_own = git_dir.parent == common_dir / "worktrees" and find_link(git_dir) == link
    if not is_own:
        raise RepoError(
            f"{link} leads to {git_dir}, which belongs to another work tree, of the repository {common_dir}",
            hint="git worktree repair, if this is a linked work tree that was moved; else remove that file",
        )


_AWAY = "away"


def leave_work_tree(repo: Repo, branch: str) -> Repo:
    """Return a repository whose HEAD names a branch that no work tree has: it has refs and objects, and no files.

    Its git directory is one of relay's own, of which git knows nothing: a linked work tree would keep the user from
    switching to the branch.
    """
    place = repo.make_relay_dir() / _AWAY
    place.mkdir(exist_ok=True)
    (place / "commondir").write_bytes(os.fsencode(f"{repo.common_dir}\n"))
    (place / "HEAD").write_bytes(os.fsencode(f"ref: refs/heads/{branch}\n"))
    git = replace(repo.git, place=(f"--git-dir={place}", f"--work-tree={repo.root}"))
    return replace(repo, git_dir=place, git=git, on=branch)


def is_checked_out(repo: Repo) -> bool:
    """Return whether a repository has a work tree: not one from `leave_work_tree`."""
    return repo.git_dir.name != _AWAY


def list_linked(common_dir: Path) -> tuple[Path, ...]:
    """Return the git directory of each linked work tree; links and unreadable places are left out."""
    with contextlib.suppress(OSError), os.scandir(common_dir / "worktrees") as entries:
        return tuple(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return ()


def find_link(git_dir: Path) -> Path | None:
    """Return the ``.git`` file of a linked work tree, from its git directory; None where that does not say."""
    try:
        data = read_start(git_dir / "gitdir", os.pathconf("/", "PC_PATH_MAX"))
        place = Path(os.path.normpath(git_dir / os.fsdecode(data or b"").rstrip("\n")))
        return Path(os.path.realpath(place.parent), place.name)
    except (OSError, ValueError):  # no path has a NUL in it
        return None
