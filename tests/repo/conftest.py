"""Real git repositories, made hermetic: own HOME, no system configuration, nothing inherited."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.git.repository import Repo, open_repo
from tests.copied import FSCK, find_loose_head
from tests.effort import NIGHTLY

CONFIG = """\
[user]
\tname = Ada User
\temail = ada@example.org
[init]
\tdefaultBranch = main
\ttemplateDir = ~/template
[protocol "file"]
\tallow = always
[commit]
\tgpgSign = false
[maintenance]
\tauto = false
[receive]
\tautoGC = false
"""


@dataclass(frozen=True)
class Box:
    """A work tree with shortcuts; `git` is the user at the keyboard, `open` is relay."""

    root: Path
    home: Path

    def git(self, *args: str | bytes, check: bool = True, cwd: Path | None = None, stdin: bytes = b"") -> bytes:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        done = subprocess.run(
            ["git", *args], cwd=cwd or self.root, env=env, input=stdin, capture_output=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def text(self, *args: str | bytes) -> str:
        return self.git(*args).decode(errors="surrogateescape").strip()

    def write(self, path: str, content: str | bytes = "content\n") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, message: str = "more") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return find_loose_head(self.root / ".git") or self.text("rev-parse", "HEAD")

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}

    def open(self, place: str = ".") -> Repo:
        return open_repo(self.root / place, self.environ)

    def tree(self, rev: str) -> dict[str, bytes]:
        """Return path → content of a commit or tree; links as their target, submodules as their id."""
        found, blobs = {}, []
        for record in self.git("ls-tree", "-rz", "--full-tree", rev).split(b"\0")[:-1]:
            head, _, path = record.partition(b"\t")
            _, kind, found[os.fsdecode(path)] = head.split(b" ")
            blobs += [os.fsdecode(path)] if kind == b"blob" else []
        return found | dict(zip(blobs, self.read_blobs([found[path] for path in blobs]), strict=True))

    def read_blobs(self, ids: Sequence[bytes]) -> Iterator[bytes]:
        """Return what blobs hold, of one git."""
        rest = self.git("cat-file", "--batch", stdin=b"\n".join((*ids, b""))) if ids else b""
        for blob in ids:
            head, _, rest = rest.partition(b"\n")
            size = int(head.removeprefix(blob + b" blob "))
            yield rest[:size]
            rest = rest[size + 1 :]

    def modes(self, rev: str) -> dict[str, str]:
        records = self.git("ls-tree", "-rz", "--full-tree", rev).split(b"\0")[:-1]
        return {os.fsdecode(r.partition(b"\t")[2]): r[:6].decode() for r in records}

    def files(self) -> dict[str, bytes]:
        """Return every file of the work tree outside .git, with its content."""
        found = {}
        for place, directories, names in os.walk(self.root):
            directories[:] = [d for d in directories if d != ".git"]
            for name in names:
                file = Path(place, name)
                content = os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
                found[str(file.relative_to(self.root))] = content
        return found

    def list_git_files(self) -> dict[str, tuple[int, int]]:
        """Return the size of each file that git keeps a history in, and when it was written."""
        found = {}
        for place, folders, names in os.walk(self.root / ".git"):
            folders[:] = set(folders) - {"hooks", "relay"}
            for path in (Path(place, name) for name in names if name != "config"):
                status = path.lstat()
                found[str(path)] = (status.st_size, status.st_mtime_ns)
        return found

    def fsck(self) -> None:
        done = self.git(*FSCK)
        assert done.strip() == b""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One repository that is copied for each test: 2 ms instead of 20."""
    top = tmp_path_factory.mktemp("template")
    (top / "home").mkdir()
    (top / "home/.gitconfig").write_text(CONFIG)
    for name in ("hooks", "info"):  # without the samples
        (top / "home/template" / name).mkdir(parents=True)
    root = top / "work"
    root.mkdir()
    box = Box(root=root, home=top / "home")
    box.git("init", "-q")
    box.write("PLAN.md", "# Plan\n\n## Phase 1 — One\n- [ ] Do it\n")
    box.write("src/app.py", "print(1)\n")
    box.write("src/old.py", "old\n")
    box.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    box.write(".gitignore", "*.log\nbuild/\n")
    box.commit("start")
    return top


@pytest.fixture
def box(template: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Box]:
    """A repository with one commit; at the end its objects must be sound, where a test has relay write or move them."""
    shutil.copytree(template, tmp_path / "box", symlinks=True)
    made = Box(root=tmp_path / "box/work", home=tmp_path / "box/home")
    before = made.list_git_files()  # as old as the template's
    yield made
    asked = NIGHTLY or request.path.stem in {"test_commit", "test_hooks", "test_snapshot", "test_trees", "test_gc_hold"}
    if asked and (made.root / ".git").exists() and made.list_git_files() != before:
        made.fsck()


@pytest.fixture
def new_box(template: Path, tmp_path: Path) -> Callable[..., Box]:
    """Make a repository without commits, with given arguments for git init."""

    def make(*args: str) -> Box:
        shutil.copytree(template / "home", tmp_path / "new/home")
        made = Box(root=tmp_path / "new/work", home=tmp_path / "new/home")
        made.root.mkdir()
        made.git("init", "-q", *args)
        return made

    return make
