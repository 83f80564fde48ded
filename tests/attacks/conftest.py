"""A machine worth attacking, and the product running on it: the real program, as root and as an ordinary user.

The model is hostile: a script says what it calls, the rehearsal server speaks it, `relay run` and `relay plan` are
started as a person would start them. What a call got is read from the results that relay sent back to the model.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from relay.sandbox.bwrap import find_bwrap
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.sandbox.acts import share_memory
from tests.terminal import answer_at_terminal
from tests.warm import run_bytes

ROOT = Path(__file__).parents[2]
NOBODY = 65534
"""The user that attacks are tried as when the tests run as root."""
USERS = ("root", "user") if os.geteuid() == 0 else ("user",)
PACKAGES = [entry for entry in sys.path if entry.endswith("site-packages")]
KEY = "rehearsal-key-that-must-not-leak"
LEAKS = ("THROUGH", "ssh-secret", "aws-secret", "netrc-secret", "env-secret", "aside-secret", "agent-secret", KEY)
"""What a result must never hold: each stands in one place that a command may not read, or is printed on success."""

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [x] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt

## Phase 3 — Again
Verify: `grep -q again world.txt`
- [ ] Say it again — world.txt
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """One call of the model and what relay answered."""

    name: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a command of relay's ended."""

    code: int
    out: bytes
    err: bytes
    got: tuple[Got, ...]
    """In the order of the calls."""
    systems: tuple[str, ...]
    """The system text of every request."""
    messages: tuple[str, ...]
    """The first message of every request."""
    errors: tuple[str, ...]
    """What the rehearsal server complained about."""

    @property
    def tail(self) -> str:
        """The end of what was printed, for the message of a failed assertion."""
        return (self.out[-1500:] + self.err[-1500:]).decode(errors="replace")


@dataclass(slots=True, kw_only=True)
class Arena:
    """A repository, a home with credentials, a directory that is nobody's business, and listening servers."""

    base: Path
    user: str
    python: str
    """The interpreter of relay and of what the attacks start."""
    warm: Callable[["Arena"], tuple[str, ...]]
    """What starts relay as a user without its imports; see `tests/starter.py`."""
    places: dict[str, str] = field(default_factory=dict)
    """`@NAME@` in a script becomes its value."""

    @property
    def root(self) -> Path:
        return self.base / "repo"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.base / "tmp"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join((str(ROOT), *PACKAGES)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "SSH_AUTH_SOCK": str(self.outside / "agent"),
            "NO_PROXY": "*",
        }

    def as_user(self, argv: Sequence[str]) -> list[str]:
        """Return a command that gives up root where the user is an ordinary one."""
        if self.user == "root" or os.geteuid() != 0:
            return list(argv)
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *argv]

    def git(self, *args: str, at: Path | None = None) -> str:
        argv = self.as_user(["git", *args])
        done = subprocess.run(argv, cwd=at or self.root, env=self.environ, check=True, capture_output=True, text=True)
        return done.stdout

    def write(self, path: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        """Write a file below the repository that belongs to the user."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        target.chmod(mode)
        if self.user == "user" and os.geteuid() == 0:
            for place in (target, *target.parents[: -len(self.root.parents) - 1]):
                os.lchown(place, NOBODY, NOBODY)
        return target

    def commit(self, subject: str = "more") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--no-verify", "--allow-empty", "-m", subject)

    def give(self) -> None:
        """Make everything the user's."""
        if self.user == "user" and os.geteuid() == 0:
            subprocess.run(("chown", "-hR", f"{NOBODY}:{NOBODY}", str(self.base)), check=True)

    def fill(self, value: Any) -> Any:
        """Replace the names of places in everything that is text."""
        text = json.dumps(value)
        for name, place in self.places.items():
            text = text.replace(f"@{name}@", place)
        return json.loads(text)

    def play(
        self,
        sessions: Sequence[Mapping[str, Any]],
        *args: str,
        terminal: bool = False,
        answers: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        warm: bool = False,
    ) -> Played:
        """Run relay against a hostile model; `before` is put in front of the command, `answers` typed at a terminal.

        `warm` saves the imports, where nobody looks at relay's own process.
        """
        script = json.dumps({"sessions": self.fill(list(sessions))})
        with serve(parse_script(script)) as server:
            env = {**self.environ, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.base_url, **(environ or {})}
            program = self.warm(self) if warm else (*before, self.python, "-P", "-m", "relay")
            if warm and not terminal:
                done = run_bytes(program[-1], args, cwd=self.root, environ=env)
                code, out, err = done.returncode, done.stdout, done.stderr
            else:
                argv = self.as_user([*program, *args])
                if terminal:
                    argv[0] = shutil.which(argv[0]) or argv[0]
                    environ = {**env, "TERM": "xterm-256color"}
                    shown, code = answer_at_terminal(
                        argv, list(answers), cwd=self.root, environ=environ, prompt="[Y/n]: "
                    )
                    out, err = shown.encode(), b""
                else:
                    done = subprocess.run(
                        argv, cwd=self.root, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                        timeout=120,
                    )  # fmt: skip
                    code, out, err = done.returncode, done.stdout, done.stderr
            bodies = [request.body for request in server.requests if request.path == "/v1/messages" and request.body]
            systems = tuple(json.dumps(body.get("system", "")) for body in bodies)
            messages = tuple(_read_text(body["messages"][0]["content"]) for body in bodies)
            got, errors = _read_results(bodies), tuple(server.errors)
            return Played(code=code, out=out, err=err, got=got, systems=systems, messages=messages, errors=errors)

    def call(self, calls: Sequence[tuple[str, Mapping[str, Any]]], *args: str, **more: Any) -> Played:
        """Have the model make these calls in one session, one each turn, then end."""
        turns: list[Mapping[str, Any]] = [{"tools": [{"name": name, "input": dict(given)}]} for name, given in calls]
        done = {"turns": [{"text": "Done."}], "repeat": True}
        return self.play([{"turns": [*turns, {"text": "Done."}], "then": "next"}, done], *args, **more)

    def is_running(self, word: str) -> bool:
        """Say whether a process has this word in its command line."""
        lines = (path for path in Path("/proc").glob("[0-9]*/cmdline"))
        return any(word in _read_line(line) for line in lines)

    def state(self, *, whole: bool = False) -> dict[str, tuple[int, bytes]]:
        """Mode and content of everything that must stay as it is; `whole` means all of the work tree too."""
        kept = [self.outside, self.home, *(self.root / name for name in KEPT)]
        found = {path: seen for top in kept if os.path.lexists(top) for path, seen in _walk(top)}
        own = tuple(str(self.root / name) for name in (".git", ".relay"))
        return found | {path: seen for path, seen in _walk(self.root) if whole and not path.startswith(own)}


KEPT = (
    *("PLAN.md", "AGENTS.md", "docs", "relay.toml", "vendor", ".gitconfig-team", ".git/hooks", ".git/config"),
    *(".git/info", ".git/HEAD", ".git/relay/said"),
)
"""What no command and no tool may change below the repository, whatever the level."""


def _read_line(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""  # it ended meanwhile


def _walk(top: Path) -> Iterator[tuple[str, tuple[int, bytes]]]:
    for path in (top, *sorted(top.rglob("*"))):
        status = path.lstat()
        body = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        yield str(path), (status.st_mode, body)


def _read_text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _read_results(bodies: list[Any]) -> tuple[Got, ...]:
    """Return every call with its result, found in what relay sent."""
    calls: dict[str, str] = {}
    got: dict[str, Got] = {}
    for body in bodies:
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_use":
                    calls[block["id"]] = block["name"]
                elif block.get("type") == "tool_result":
                    text = _read_text(block.get("content", ""))
                    identity = block["tool_use_id"]
                    got[identity] = Got(name=calls[identity], text=text, is_error=bool(block.get("is_error")))
    return tuple(got.values())


def build(base: Path) -> None:
    """Lay out the repository and the secrets."""
    root, home, outside = base / "repo", base / "home", base / "outside"
    for folder in (root / "docs", root / "src", outside, home / ".ssh", home / ".aws", base / "tmp"):
        folder.mkdir(parents=True)
    files = {
        root / "PLAN.md": PLAN,
        root / "AGENTS.md": "# Rules\nBe brief.\n",
        root / "docs/AGENTS.md": "nested rules\n",
        root / "hello.txt": "hello\n",
        root / "src/app.py": "VALUE = 1\n",
        root / ".env": "DATABASE_PASSWORD=env-secret\n",
        root / ".gitignore": ".env\nvendor/\n.relay/\nnode_modules/\n",
        root / ".gitconfig-team": "[alias]\n\tst = status\n",
        outside / "file": "outside\n",
        home / ".ssh/id_ed25519": "ssh-secret\n",
        home / ".aws/credentials": "aws-secret\n",
        home / ".netrc": "netrc-secret\n",
        home / ".gitconfig": "[user]\n\tname = T\n\temail = t@example.org\n[init]\n\tdefaultBranch = main\n",
    }
    for path, text in files.items():
        path.write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    for folder in (root, root / "vendor/lib"):
        subprocess.run(("git", "init", "-q", "--template=", str(folder)), env=env, check=True)
        (folder / ".git/hooks").mkdir()
    subprocess.run(("git", "config", "include.path", "../.gitconfig-team"), cwd=root, env=env, check=True)
    for args in (("add", "-A"), ("commit", "-qm", "start")):
        subprocess.run(("git", *args), cwd=root, env=env, check=True)
    (root / ".env.local").write_text("env-secret\n")  # git neither has nor ignores it


def listen(stack: ExitStack, family: socket.AddressFamily, address: Any) -> socket.socket:
    """Open a server that nobody may reach."""
    server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    server.bind(address)
    server.listen(8)
    return server


def open_servers(arena: Arena, stack: ExitStack) -> None:
    """Start what the model would like to talk to, and tell the scripts where it is."""
    tcp = listen(stack, socket.AF_INET, ("127.0.0.1", 0))
    abstract = f"relay-attack-{secrets.token_hex(8)}"
    listen(stack, socket.AF_UNIX, f"\0{abstract}")
    agent = stack.enter_context(tempfile.TemporaryDirectory(prefix="ssh-", dir="/tmp"))
    listen(stack, socket.AF_UNIX, f"{agent}/agent.1")
    listen(stack, socket.AF_UNIX, str(arena.outside / "agent"))
    docker = "/run/relay-attack-docker.sock" if os.access("/run", os.W_OK) else f"{agent}/docker.sock"
    docker = docker.replace("docker", f"docker-{os.getpid()}-{arena.user}")
    listen(stack, socket.AF_UNIX, docker)
    stack.callback(Path(docker).unlink)
    for place in (agent, f"{agent}/agent.1", docker, str(arena.outside / "agent")):
        Path(place).chmod(0o777)
    relative = arena.base / "relative"
    for name in ("plain", "moved"):
        listen(stack, socket.AF_UNIX, str(arena.root / f"vendor/{name}.sock"))
    (arena.root / "vendor/moved.sock").rename(arena.root / "vendor/renamed.sock")
    relative.mkdir()
    (arena.base / "linked").symlink_to(relative)
    listen(stack, socket.AF_UNIX, str(arena.base / "linked/by-link.sock"))
    for server in (*arena.root.glob("vendor/*.sock"), relative / "by-link.sock"):
        server.chmod(0o777)
    # As the same user: another's environment is closed anyway, and the control would have nothing to find.
    sleep = arena.as_user(("/bin/sleep", "600"))
    aside = stack.enter_context(subprocess.Popen(sleep, env={"PATH": os.defpath, "SERVER_TOKEN": "aside-secret"}))
    stack.callback(aside.kill)
    arena.places |= {
        "OUT": str(arena.outside),
        "HOME": str(arena.home),
        "ROOT": str(arena.root),
        "PYTHON": arena.python,
        "TCP": str(tcp.getsockname()[1]),
        "ABSTRACT": abstract,
        "AGENT": f"{agent}/agent.1",
        "DOCKER": docker,
        "BASE": str(arena.base),
        "ASIDE": str(aside.pid),
        "SHARED": str(share_memory(stack)),
    }


def find_python(user: str) -> str | None:
    """Return an interpreter that the user may run: this one, or the system's of the same version."""
    if user == "root" or os.geteuid() != 0:
        return sys.executable
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        real = Path(python).resolve()
        if real.exists() and all(folder.stat().st_mode & 1 for folder in real.parents):
            return python
    return None


@pytest.fixture
def without_bwrap() -> tuple[str, ...]:
    """What to put in front of a command so that it finds no bubblewrap, here by a mount that bubblewrap makes."""
    program = find_bwrap()
    hide = ("--ro-bind", os.devnull, os.path.realpath(program)) if program else ()
    return (str(program), "--dev-bind", "/", "/", *hide, "--") if program else ()


@pytest.fixture
def leaks() -> tuple[str, ...]:
    return LEAKS


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("arena")
    build(base)
    return base


@pytest.fixture(scope="session")
def warm(start_warm: Callable[..., tuple[str, ...]]) -> Callable[["Arena"], tuple[str, ...]]:
    """One warm relay for each user, started when it is first asked for."""
    opened: dict[str, tuple[str, ...]] = {}

    def find(arena: Arena) -> tuple[str, ...]:
        if arena.user not in opened:
            # root's is the one of all other tests: to import relay takes longer than an attack.
            _, *rest = start_warm(tuple(arena.as_user((arena.python,))), arena.environ)
            opened[arena.user] = (arena.python, *rest)
        return opened[arena.user]

    return find


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try each attack as one of the users, now this and now that one; in the night as each of them."""
    if NIGHTLY:
        return
    config.hook.pytest_deselected(items=[item for item in items if not _has_turn(item)])
    items[:] = [item for item in items if _has_turn(item)]


def _has_turn(item: pytest.Item) -> bool:
    user = (
        item.callspec.params.get("arena") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    )
    if user is None:
        return True
    turn = zlib.crc32(item.name.replace(f"{user}-", "").replace(f"[{user}]", "").encode()) % len(USERS)
    return bool(user == USERS[turn])


@pytest.fixture(scope="session")
def arenas() -> Iterator[Path]:
    """Where attacks take place: where nothing is hidden anyway, if possible, and where other users may go."""
    outside = os.environ.get("TESTS_ARENAS") or ("/opt" if os.access("/opt", os.W_OK) else None)
    place = Path(tempfile.mkdtemp(prefix="relay-attack-", dir=outside)).resolve()
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(params=USERS)
def arena(
    request: pytest.FixtureRequest, template: Path, arenas: Path, warm: Callable[["Arena"], tuple[str, ...]]
) -> Iterator[Arena]:
    """The place of one attack."""
    python = find_python(request.param)
    if python is None:
        pytest.skip("no Python that an ordinary user may run has the packages of this one")
    base = next(base for number in count() if not (base := arenas / str(number)).exists())
    try:
        shutil.copytree(template, base, symlinks=True)
        base.chmod(0o755)
        made = Arena(base=base, user=request.param, python=python, warm=warm)
        with ExitStack() as stack:
            open_servers(made, stack)
            (made.outside / "cached").write_text("cached\n")  # as pnpm links its cache
            (made.root / "node_modules/package").mkdir(parents=True)
            (made.root / "node_modules/package/index.js").hardlink_to(made.outside / "cached")
            made.give()
            yield made
    finally:
        shutil.rmtree(base, ignore_errors=True)
