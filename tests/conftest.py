"""A hermetic machine for every test, and a stage: a repository, a scripted endpoint and a real run between them."""

import contextlib
import fcntl
import gc
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

from relay.base.errors import PlanError
from relay.base.hints import AT_ROOT
from relay.base.interrupts import Interrupts
from relay.cli.sessions import make_end_event
from relay.config import load_settings
from relay.git.repository import open_repo
from relay.plan.model import Phase
from relay.plan.parse import parse_plan
from relay.run.loop import run
from relay.run.planning.planner import PlanTask, plan_feature
from relay.run.selection import Selection
from relay.runners.base import RunnerKind
from relay.runners.registry import list_runners
from relay.session.events import Event, GateStarted, RunEnded, ToolFinished
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunRequest
from relay.setup.open import open_run
from relay.store.history import RelayCommit, read_relay_commits
from tests.copied import find_loose_head, refresh_index
from tests.effort import NIGHTLY, is_left_out
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve
from tests.scripted import ScriptedRunner
from tests.sdks import needs_sdk
from tests.warm import run_relay

# The same examples each time: a change is not refused for what it has not touched. "nightly" looks for new ones.
hypothesis.register_profile(
    "relay", deadline=None, max_examples=10, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis.register_profile(
    "nightly", parent=hypothesis.get_profile("relay"), max_examples=1_000, derandomize=False, print_blob=True
)
hypothesis.register_profile("few", parent=hypothesis.get_profile("relay"), max_examples=5)
hypothesis.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "relay"))

GIT_CONFIG = """\
[user]
    name = Test User
    email = test@example.invalid
[init]
    defaultBranch = main
    templateDir = ~/template
[commit]
    gpgSign = false
[maintenance]
    auto = false
[receive]
    autoGC = false
"""
"""Without maintenance behind each commit and push of a test: a process for each, which finds nothing to do."""

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
- [ ] Say it twice — world.txt
"""


_SHARED = "TESTS_SHARED"
"""The variable that names the directory of all workers, and of the users that they try things as."""


def pytest_configure(config: pytest.Config) -> None:
    """Point everything that reads the user's environment at an empty directory, before any test is collected."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shared = Path(tempfile.mkdtemp(prefix="relay-tests-shared-"))
        shared.chmod(0o755)
        config.add_cleanup(lambda: _remove(shared))
        os.environ[_SHARED] = str(shared)
        config.pluginmanager.register(_Teller(config))
    gc.disable()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it, and so would children
    home = Path(tempfile.mkdtemp(prefix="relay-tests-home-"))
    config.add_cleanup(lambda: _remove(home))
    (home / ".gitconfig").write_text(GIT_CONFIG)
    for name in ("hooks", "info"):  # without the samples: every test would make and remove them
        (home / "template" / name).mkdir(parents=True)
    for name in list(os.environ):
        if name.startswith(("GIT_", "ANTHROPIC_", "RELAY_", "XDG_")):
            del os.environ[name]
    os.environ.pop("CI", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each relay that is started compiles itself
    sys.dont_write_bytecode = False
    os.environ |= {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class _Teller:
    """Names a test that fails when it does: among ten thousand dots its sign says nothing until the end."""

    config: pytest.Config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.partition("\n")[0] if crash else ""
            reporter.write(f"\nFAILED {report.nodeid} {why}\n", flush=True)


def pytest_xdist_auto_num_workers() -> int:
    """Start twice as many workers as there are processors: a third of their time tests wait."""
    return 2 * (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker begin with another room: it compiles a share of the tests and reads what others compiled."""
    report = yield
    if collector.path == Path(__file__).parent and "PYTEST_XDIST_WORKER" in os.environ:
        number, of = (os.environ["PYTEST_XDIST_" + name] for name in ("WORKER", "WORKER_COUNT"))
        first = len(report.result) * int(number.removeprefix("gw")) // int(of)
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out nightly tests, unless a test is named."""
    by_name = any("::" in word for word in collector.config.args)
    return [] if not NIGHTLY and not by_name and is_left_out(obj) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Begin with what needs a rig, an SDK or all sources, so that one worker opens it.

    The plugin of hypothesis looks for constants in all modules, and keeps them: one worker does, the others read them.
    """
    items.sort(key=lambda i: i.path)  # not as each has collected them: all shuffle the same
    with Path(__file__).open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield
    items.sort(
        key=lambda i: ("rig" not in getattr(i, "fixturenames", ()), not needs_sdk(i), "test_shape" not in i.path.name)
    )


def pytest_collection_finish() -> None:
    """Keep the collector from looking through modules and tests again and again: they stay to the end."""
    gc.freeze()
    gc.set_threshold(100_000)  # with the 700 of the library a tenth of what the pure rooms take
    gc.enable()


def _remove(home: Path) -> None:
    """Remove a directory of this test process."""
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(autouse=True)
def bound_processor(request):
    """Fail a test that takes more seconds of processor than its mark allows, however busy the machine is."""
    if (mark := request.node.get_closest_marker("processor")) is None:
        yield
        return

    def end(*_):
        pytest.fail(f"took more than {mark.args[0]} s of processor")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, mark.args[0])
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="session")
def start_warm() -> Iterator[Callable[..., tuple[str, ...]]]:
    """Find a warm relay (see `starter.py`), or start one for all workers; what it returns stands before its arguments.

    It takes the words that start its interpreter, and the environment of the imports.
    """
    with contextlib.ExitStack() as stack:

        def start(interpreter: Sequence[str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
            folder = Path(os.environ[_SHARED], hashlib.sha256(repr(interpreter).encode()).hexdigest()[:8])
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(0o777)
            with (folder / "lock").open("w") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                try:
                    alive = os.open(folder / "alive", os.O_WRONLY | os.O_NONBLOCK)
                except OSError:  # there was none, or it has ended with the last one that used it
                    alive = _start_warm(folder, interpreter, environ)
            stack.callback(os.close, alive)
            return (sys.executable, "-I", "-S", str(Path(__file__).with_name("caller.py")), f"{folder}/socket")

        yield start


def _start_warm(folder: Path, interpreter: Sequence[str], environ: Mapping[str, str] | None) -> int:
    """Start a warm relay, which ends when nobody has a descriptor like the returned one any more."""
    shutil.rmtree(folder / "relay", ignore_errors=True)
    for name in ("alive", "socket"):
        (folder / name).unlink(missing_ok=True)
    here = Path(__file__).parent
    job = folder / "relay"  # what `python -m relay` is there, for the jobs of a warm relay
    job.mkdir()
    (job / "__init__.py").touch()
    (job / "__main__.py").write_text(
        f"import sys\nsys.path.insert(0, {str(here)!r})\nfrom caller import call\n"
        f"call({str(folder / 'socket')!r}, sys.argv[1:])\n"
    )
    os.mkfifo(folder / "alive")
    # A process in between, so that it is no child of the worker that happens to be the first.
    words = ("sh", "-c", '"$@" <alive &', "sh", *interpreter, str(here / "starter.py"), str(folder / "socket"))
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, env=environ) as begun:
        alive = os.open(folder / "alive", os.O_WRONLY)
        assert begun.stdout
        assert begun.stdout.readline() == b"ready\n"
    return alive


@pytest.fixture(scope="session")
def program(start_warm: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    """What stands before relay's arguments to run it as a process without its imports."""
    return start_warm((sys.executable,))


def make_impatient(kind: RunnerKind, idle_s: float) -> RunnerKind:
    """Return a runner whose endpoint may be silent for so long."""
    return replace(kind, open=lambda given: kind.open(replace(given, endpoint_idle_s=idle_s)))


@dataclass
class Stage:
    """One repository with an endpoint that plays scripts."""

    root: Path
    events: list[Event] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)
    server: Endpoint | None = None
    on_tool: Callable[[], None] | None = None
    """Called when a tool has finished."""
    on_gate: Callable[[], None] | None = None
    """Called when verify commands are about to run."""
    plan_path: str = "PLAN.md"
    idle_timeout_s: float | None = None
    """Shorter than relay's own, for endpoints that stall."""
    find_program: Callable[[], tuple[str, ...]] = tuple
    """What `relay` puts before its arguments."""
    arranged: Path = Path()
    """What repositories were left like, by the name of what was done."""

    @property
    def tree(self) -> Path:
        """The first work tree of relay's own."""
        return self.root.with_name(f"{self.root.name}.relay") / "1"

    def relay(
        self, *args: str, answer: str = "", path: str = "", environ: Mapping[str, str] = MappingProxyType({})
    ) -> subprocess.CompletedProcess[str]:
        """Run the whole program at the root, with `answer` on its standard input."""
        environ = {**os.environ, **environ, "PATH": path or os.environ["PATH"]}
        return run_relay(self.find_program()[-1], args, cwd=self.root, environ=environ, answer=answer)

    def git(self, *args: str, answer: str | None = None) -> str:
        """Run git and return what it prints."""
        done = subprocess.run(["git", *args], cwd=self.root, check=True, capture_output=True, text=True, input=answer)
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file of the work tree."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def edit(self, old: str, new: str) -> None:
        """Change what the plan says."""
        text = (self.root / "PLAN.md").read_text()
        assert old in text
        self.write("PLAN.md", text.replace(old, new))

    def commit(self, subject: str = "start") -> str:
        """Commit everything and return the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return find_loose_head(self.root / ".git") or self.git("rev-parse", "HEAD").strip()

    def run(
        self,
        script: str,
        *,
        phase: str = "",
        all_: bool = True,
        unchecked: bool = False,
        **flags: object,
    ) -> RunEnded:
        """Play a script against `relay run`."""
        with self._open(SessionKind.RUN, script, flags=flags) as ctx:
            return make_end_event(run(ctx, Selection(phase_id=phase, all=all_, unchecked=unchecked)), AT_ROOT)

    def plan(self, script: str, task: PlanTask, **flags: object) -> RunEnded:
        """Play a script against `relay plan`."""
        with self._open(SessionKind.PLAN, script, flags=flags) as ctx:
            return make_end_event(plan_feature(ctx, task), AT_ROOT)

    def play(
        self, runner: ScriptedRunner, *, phase: str = "", all_: bool = True, unchecked: bool = False, **flags: object
    ) -> RunEnded:
        """Run the plan on a scripted runner: no endpoint."""
        selection = Selection(phase_id=phase, all=all_, unchecked=unchecked)
        with self.enter(SessionKind.RUN, flags=flags, runner=runner) as ctx:
            return make_end_event(run(ctx, selection), AT_ROOT)

    def play_plan(self, runner: ScriptedRunner, task: PlanTask, **flags: object) -> RunEnded:
        """Plan on a scripted runner, in the same way."""
        with self.enter(SessionKind.PLAN, flags=flags, runner=runner) as ctx:
            return make_end_event(plan_feature(ctx, task), AT_ROOT)

    @contextmanager
    def _open(self, kind: SessionKind, script: str, *, flags: dict[str, object]) -> Iterator[RunContext]:
        with serve(parse_script(script)) as self.server:
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": self.server.base_url}
            # Nobody looks at the history but its own tests, and all of it is searched for secrets.
            with self.enter(kind, flags={"history": False, **flags}, environ=environ) as ctx:
                yield ctx

    @contextmanager
    def enter(
        self,
        kind: SessionKind,
        *,
        flags: Mapping[str, object] = MappingProxyType({}),
        environ: Mapping[str, str] = MappingProxyType({}),
        runner: ScriptedRunner | None = None,
        more: Mapping[str, RunnerKind] = MappingProxyType({}),
    ) -> Iterator[RunContext]:
        """Open a run, on relay's own runner unless another one is given; `more` are there besides."""
        self.events.clear()
        plan_settings: Mapping[str, object] = {}
        phases: tuple[Phase, ...] = ()
        with contextlib.suppress(PlanError, FileNotFoundError):
            plan = parse_plan((self.root / self.plan_path).read_text())
            plan_settings, phases = plan.settings, plan.phases
        typed = {name: value for name, value in flags.items() if name != "arm"}
        settings = load_settings(
            flags=typed,
            environ={"RELAY_ARM": str(flags.get("arm", ""))},
            plan_settings=plan_settings,
            repo_root=self.root,
            user_dir=None,
        )
        request = RunRequest(
            kind=kind,
            repo=open_repo(self.root),
            settings=settings,
            plan_path=self.plan_path,
            environ={"PATH": "/usr/bin:/bin", **environ},
            phases=tuple(phase for phase in phases if not phase.done),
        )
        runners = list_runners(settings) if runner is None else {settings.runner: runner.kind}
        if self.idle_timeout_s is not None:
            runners = {name: make_impatient(kind, self.idle_timeout_s) for name, kind in runners.items()}
        with open_run(request, self._observe, self.interrupts, runners={**runners, **more}) as ctx:
            yield ctx

    def _observe(self, event: Event) -> None:
        self.events.append(event)
        if self.on_tool is not None and isinstance(event, ToolFinished):
            self.on_tool()
        if self.on_gate is not None and isinstance(event, GateStarted):
            self.on_gate()

    def arrange(self, name: str, act: Callable[[], Any]) -> Any:
        """Do something to the repository; what any worker did before to one of the same content is copied.

        Returns what `act` returned then.
        """
        kept = self.arranged / f"{name} {self._digest()}"
        if kept.exists():
            shutil.rmtree(self.root)
            shutil.copytree(kept / "root", self.root, symlinks=True)
            return pickle.loads((kept / "result").read_bytes())
        result = act()
        with keep_first(kept) as made:
            shutil.copytree(self.root, made / "root", symlinks=True)
            (made / "result").write_bytes(pickle.dumps(result))
        return result

    def _digest(self) -> str:
        """Return a digest of the work tree, the refs and the configuration."""
        found = hashlib.sha256()
        for place, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - {"objects", "logs"}) if place.endswith(".git") else sorted(folders)
            for path in (Path(place, name) for name in sorted(names) if name != "index"):
                found.update(
                    os.fsencode(path.relative_to(self.root))
                    + b"\0"
                    + (path.read_bytes() if path.is_file() else b"")
                    + b"\0"
                )
        return found.hexdigest()

    def calm(self) -> None:
        """Forget that a stop was asked for."""
        self.interrupts.close()
        self.interrupts = Interrupts(sleep=self.waits.append)
        self.on_tool = None

    def commits(self) -> tuple[RelayCommit, ...]:
        """Relay's commits of the plan, newest first."""
        return read_relay_commits(open_repo(self.root), self.plan_path)

    def seen(self, kind: type) -> list[Any]:
        """All events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def keep_first(kept: Path) -> Iterator[Path]:
    """Make a directory that all workers see whole or not at all, the one who is first, that is."""
    made = Path(tempfile.mkdtemp(dir=kept.parent))
    yield made
    try:
        made.rename(kept)
    except OSError:  # another was
        shutil.rmtree(made)


@pytest.fixture(scope="session")
def arranged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `Stage.arranged`; one for all workers."""
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "arranged"
    place.mkdir(exist_ok=True)
    return place


@pytest.fixture(scope="session")
def stage_template(arranged: Path) -> Path:
    """What a stage's repository is copied from: four processes less for each."""
    kept = arranged / "stage"
    if not kept.exists():
        with keep_first(kept) as root:
            root.chmod(0o755)
            made = Stage(root=root)
            made.git("init", "-q", "-b", "main", "--template=")
            for folder in ("hooks", "info"):
                (made.root / ".git" / folder).mkdir()
            made.write("AGENTS.md", "# Rules\nBe brief.\n")
            made.write("PLAN.md", PLAN)
            made.commit()
    return kept


@pytest.fixture
def stage(stage_template: Path, arranged: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A committed repository with a two-phase plan."""
    root = tmp_path / "repo"
    shutil.copytree(stage_template, root)
    waits: list[float] = []
    made = Stage(root=root.resolve(), waits=waits, interrupts=Interrupts(sleep=waits.append))
    made.find_program = lambda: request.getfixturevalue("program")
    made.arranged = arranged
    refresh_index(made.root)  # the files are others than those that it knows
    yield made
    made.interrupts.close()


@pytest.fixture
def berlin(monkeypatch):
    """A clock on the wall that is not UTC."""
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
