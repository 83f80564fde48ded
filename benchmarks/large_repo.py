"""What relay takes in a repository of 100,000 files with a plan of 40 phases, against plain git in the same run.

    python benchmarks/large_repo.py [--files N] [--rounds N] [--trace]

Each round does every step of relay's and, right after it, what git alone takes for the like, so that a busy machine
slows both; read the ratios. ``--trace`` adds the git commands behind each step with their times, from one more round
in which every call is logged; the logging itself costs a shell each.
"""

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from processes import git

from relay.git.config_guard import guard
from relay.git.message import Message
from relay.git.notes import lock_worktree
from relay.git.repository import Repo, open_repo
from relay.plan.model import Plan
from relay.plan.parse import parse_plan
from relay.session.usage import Spent
from relay.store.attempts import AttemptStart, OpenAttempt, close_attempt, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.commit import CommitRequest, commit_paths
from relay.store.completion import store_files
from relay.store.plan_state import PlanSource, ask

PHASES = 40
FILES_IN_A_FOLDER = 100
MANY = 100
LOGGER = """#!/bin/bash
begin=${EPOCHREALTIME/./}
%s "$@"
code=$?
for word in "$@"; do case "$word" in -*|*=*) ;; *) break;; esac; done
echo "$((${EPOCHREALTIME/./} - begin)) $word" >> %s
exit $code
"""


def make_plan() -> str:
    """Write a plan of forty phases with three items each."""
    parts = ["# A long migration\n"]
    for phase in range(1, PHASES + 1):
        items = "".join(f"- [ ] Move part {item} — d{phase:04d}/f{item:03d}.txt\n" for item in range(3))
        parts.append(f"\n## Phase {phase} — Step {phase}\nVerify: `test -d .`\n{items}")
    return "".join(parts)


def make_repository(root: Path, files: int) -> None:
    """Make the repository in one stream, and check it out."""
    git(root, "init", "-q", "-b", "main", ".")
    for key, value in (("user.name", "Bench"), ("user.email", "bench@example.invalid"), ("gc.auto", "0")):
        git(root, "config", key, value)
    with subprocess.Popen(("git", "fast-import", "--quiet"), cwd=root, stdin=subprocess.PIPE) as importer:
        assert importer.stdin is not None
        for chunk in _stream(files):
            importer.stdin.write(chunk)
    if importer.returncode:
        raise SystemExit("git fast-import failed")
    git(root, "checkout", "-q", "-f", "main")
    git(root, "status", "--porcelain")


def _stream(files: int) -> Iterator[bytes]:
    yield b"commit refs/heads/main\ncommitter Bench <bench@example.invalid> 1760000000 +0000\ndata 5\nstart\n"
    plan = make_plan().encode()
    yield b"M 100644 inline PLAN.md\ndata %d\n%s\n" % (len(plan), plan)
    for number in range(files):
        data = f"file {number} of the bench\n".encode() * 20
        yield b"M 100644 inline %s\ndata %d\n%s\n" % (find_name(number).encode(), len(data), data)


def find_name(number: int) -> str:
    """Return the path of a file."""
    return f"d{number // FILES_IN_A_FOLDER:04d}/f{number % FILES_IN_A_FOLDER:03d}.txt"


@dataclass(slots=True, kw_only=True)
class Bench:
    """One repository, and the times of the steps done in it."""

    root: Path
    repo: Repo
    files: int
    environ: dict[str, str]
    log: Path | None = None
    """Where git calls are logged; None when they are not."""
    times: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Milliseconds by step."""
    calls: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    """``(git command, milliseconds)`` by step."""
    count: int = 0

    def time(self, step: str, act: Callable[[], object]) -> None:
        """Do a step and note how long it took."""
        if self.log is not None:
            self.log.write_text("")
        begin = time.perf_counter()
        act()
        self.times[step].append((time.perf_counter() - begin) * 1000)
        if self.log is not None:
            rows = (line.split(" ", 1) for line in self.log.read_text().splitlines())
            self.calls[step] = [(command, int(us) / 1000) for us, command in rows]

    def change(self, number: int) -> tuple[str, ...]:
        """Change some files, spread over the tree, and return their paths."""
        self.count += 1
        step = max(1, self.files // number)
        paths = tuple(find_name((self.count * 7 + at * step) % self.files) for at in range(number))
        for path in paths:
            (self.root / path).write_text(f"changed {self.count}\n")
        return paths

    def relay(self, *args: str) -> None:
        """Run the whole program."""
        subprocess.run(
            (sys.executable, "-P", "-m", "relay", *args),
            cwd=self.root, env=self.environ, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def do_round(self) -> None:
        """Do every step once."""
        self.time("relay status", lambda: self.relay("status"))
        self.time("git status", lambda: git(self.root, "status", "--porcelain"))
        with lock_worktree(self.repo):
            attempt = self.do_attempt()
        self.time("relay status, a phase open", lambda: self.relay("status"))
        close_attempt(self.repo, attempt)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", "what the session did")
        with lock_worktree(self.repo):
            self.do_commits()
        for number in (1, MANY):
            self.change(number)
            self.time(f"git add -A, {number}", lambda: git(self.root, "add", "-A"))
            self.time(f"git commit, {number}", lambda: git(self.root, "commit", "-q", "-m", "by hand"))

    def do_attempt(self) -> OpenAttempt:
        """Open an attempt, save its work step by step, ask where it stands."""
        start = AttemptStart(session_id="5e551011", phase_id="1", plan_path="PLAN.md")
        attempts: list[OpenAttempt] = []
        self.time("attempt start", lambda: attempts.append(open_attempt(self.repo, start)))
        for number in (1, MANY):
            self.change(number)
            self.time(f"snapshot, {number}", functools.partial(self._save, attempts))
        plan = parse_plan((self.root / "PLAN.md").read_text())
        self.time("resume decision", lambda: self._decide(plan))
        return attempts[-1]

    def _save(self, sessions: list[OpenAttempt]) -> None:
        sessions.append(save_wip(self.repo, sessions[-1], WipRecord(spend=Spent())))

    def _decide(self, plan: Plan) -> None:
        ask(PlanSource(plan_name="PLAN.md", load=lambda: plan), self.repo, is_locked=True)

    def do_commits(self) -> None:
        """Commit one and many files with a ticked plan, checked against a snapshot as a phase is."""
        for number in (1, MANY):
            paths = self.change(number)
            plan = (self.root / "PLAN.md").read_bytes().replace(b"- [ ]", b"- [x]", 1)
            request = CommitRequest(
                branch="main",
                head=self.repo.head(),
                message=Message(subject="bench", trailers=(("Relay-Plan", "PLAN.md"), ("Relay-Phase", "1"))),
                paths=paths,
                replace={"PLAN.md": plan},
                files=store_files(self.repo, guard(self.repo), self.repo.head(), paths),
            )
            self.time(f"commit, {number}", functools.partial(self._commit, request))

    def _commit(self, request: CommitRequest) -> None:
        outcome = commit_paths(self.repo, request)
        if outcome.commit is None or outcome.left:
            raise SystemExit(f"the commit ended as {outcome}")


ROWS = (
    ("relay status", "git status"),
    ("relay status, a phase open", "git status"),
    ("resume decision", "git status"),
    ("attempt start", "git status"),
    ("snapshot, 1", "git add -A, 1"),
    (f"snapshot, {MANY}", f"git add -A, {MANY}"),
    ("commit, 1", "git commit, 1"),
    (f"commit, {MANY}", f"git commit, {MANY}"),
)
"""Each step of relay's and what it is held against."""


def show(bench: Bench) -> None:
    """Print the medians as a table in Markdown."""
    print("| step | relay, ms | git alone | ms | ratio |")
    print("| --- | ---: | --- | ---: | ---: |")
    for step, other in ROWS:
        taken, plain = statistics.median(bench.times[step]), statistics.median(bench.times[other])
        print(f"| {step} | {taken:,.0f} | {other} | {plain:,.0f} | {taken / plain:.1f} |")


def show_calls(bench: Bench) -> None:
    """Print the git commands behind each step, the slowest first."""
    print("\n| step | git calls | ms in git | slowest: calls, ms |")
    print("| --- | ---: | ---: | --- |")
    for step, _ in ROWS:
        calls, total = Counter[str](), Counter[str]()
        for command, taken in bench.calls[step]:
            calls[command] += 1
            total[command] += round(taken)
        slow = "; ".join(f"`{name}` {calls[name]}, {taken:,}" for name, taken in total.most_common(5))
        print(f"| {step} | {calls.total()} | {total.total():,} | {slow} |")


def open_bench(folder: Path, root: Path, files: int, *, logged: bool) -> Bench:
    """Open the repository; with `logged` a program stands before git on PATH that notes each call."""
    environ, log = dict(os.environ), None
    if logged:
        log, program = folder / "calls", folder / "bin/git"
        program.parent.mkdir()
        program.write_text(LOGGER % (shutil.which("git"), log))
        program.chmod(0o755)
        environ["PATH"] = f"{program.parent}{os.pathsep}{environ['PATH']}"
    return Bench(root=root, repo=open_repo(root, environ), files=files, environ=environ, log=log)


def main() -> None:
    """Print one line per step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="relay-large-") as name:
        folder = Path(name).resolve()
        root = folder / "repo"
        root.mkdir()
        make_repository(root, options.files)
        bench = open_bench(folder, root, options.files, logged=False)
        for _ in range(options.rounds):
            bench.do_round()
        print(f"{options.files:,} files, {PHASES} phases, median of {options.rounds} rounds\n")
        show(bench)
        if options.trace:
            logged = open_bench(folder, root, options.files, logged=True)
            logged.count = bench.count
            logged.do_round()
            show_calls(logged)


if __name__ == "__main__":
    main()
