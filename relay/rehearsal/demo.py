"""The example project, built from a plan to three commits while you watch: the whole product on a scripted model.

Only the model's judgement is scripted (``examples/rehearsal.yaml``). The demo starts ``relay plan`` and ``relay run``
as a person would; they talk HTTP to a server on loopback. Sandbox, checks, commits and interruption are real.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from relay.base.errors import ExitCode, RelayError, SandboxError
from relay.base.hints import AT_ROOT
from relay.base.values import dataclass
from relay.base.words import shorten
from relay.git.command import get_git
from relay.git.identity import find_identity
from relay.git.repository import Repo, open_repo
from relay.prompts.package_data import get_shipped
from relay.rehearsal.script import load_script
from relay.rehearsal.server import Player, serve
from relay.sandbox.policy import Level, Policy
from relay.sandbox.run import open_sandbox
from relay.store.history import RelayCommit, read_relay_commits

FEATURE = "add org-scoped API keys"
PLAN_PATH = "PLAN.md"

_PATIENCE_S = 300.0
"""Longest time of one command; it needs seconds, so a command that takes this long hangs."""
_GRACE_S = 10.0
_POLL_S = 0.05
_COLUMNS = 80
_SUBJECT_CHARS = 26
"""Room for it in a line."""
_SILENCE_S = 1.0
"""How long the model is silent before relay is killed, so that a person notices."""

Printer = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The surroundings of the demo."""

    root: Path
    environ: Mapping[str, str]
    """Environment of the commands: the user's, with another endpoint and key, and without settings."""
    player: Player
    say: Printer
    flags: tuple[str, ...]
    """Flags of every command that opens a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a command ended."""

    shown: str
    """As a person would have typed it."""
    code: int


def run_demo(*, keep: Path | None, say: Printer, environ: Mapping[str, str]) -> int:
    """Play the demo.

    Args:
        keep: Directory of the repository: a new or an empty one. None makes one among the temporary files and leaves it
            there.
        say: Prints lines; commands write to the same terminal in between.

    Returns:
        0, or the exit status of the command that failed; 3 if the script was not played to its end.

    Raises:
        RelayError: The directory is in use, there is no git, or this installation lacks the examples.
    """
    examples = get_shipped("examples")
    script = load_script(examples / "rehearsal.yaml")
    root = _make_root(keep)
    say(_INTRODUCTION)
    repo = _make_repository(examples / "project", root, say, environ)
    with serve(script) as player:
        stage = _Stage(
            root=root,
            environ=_make_environment(environ, player.base_url),
            player=player,
            say=say,
            flags=_choose_flags(repo, environ, say),
        )
        failed = _play(stage)
        problems = (*player.errors, *(() if failed else player.unplayed))
    if failed or problems:
        return _report_failure(root, say, failed, problems)
    _show_result(repo, say)
    _run(replace(stage, flags=()), "status")
    say("\nWhere to look next:\n")
    say(_render_table(_list_commands(repo.root, environ)))
    say(f"\nThe script of the model is {get_shipped('examples') / 'rehearsal.yaml'}.")
    say('For your own project: relay init, then relay plan "…" and relay run, with')
    say("ANTHROPIC_API_KEY set.")
    return ExitCode.DONE


_INTRODUCTION = """\
relay demo: a feature of three phases, planned and built in a new repository.

The model is rehearsed: a script says what it answers (examples/rehearsal.yaml),
so this needs no key and no network, and shows nothing of a model's judgement.
Everything else is real: the commands, HTTP, the sandbox, the checks, git."""


# The project


def _make_root(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="relay-demo-")).resolve()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        used = any(keep.iterdir())
    except OSError as error:
        raise RelayError(f"{keep} cannot be used: {error.strerror}") from error
    if used:
        raise RelayError(
            f"{keep} is not empty; the demo makes a repository of its own", hint="give a directory that does not exist"
        )
    return keep.resolve()


def _make_repository(project: Path, root: Path, say: Printer, environ: Mapping[str, str]) -> Repo:
    """Copy the project and commit it, as its developers would have."""
    for path in sorted(project.rglob("*")):
        inner = path.relative_to(project)
        if path.is_file() and "__pycache__" not in inner.parts:
            target = root / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())  # without the mode: an installation may be read-only
    get_git(environ, root, None).run("init", "--quiet", "--initial-branch=main", str(root))
    repo = open_repo(root, environ)
    if find_identity(repo, environ) is None:
        repo.git.run("config", "--local", "user.name", "relay demo")
        repo.git.run("config", "--local", "user.email", "demo@localhost.invalid")
    identity = find_identity(repo, environ)
    repo.git.run("add", ".")
    repo.git.run("commit", "--quiet", "--message=A book of organisations", env=identity.environment if identity else {})
    say(f"\nThe project, a small web service, is in {root}")
    return repo


def _make_environment(environ: Mapping[str, str], base_url: str) -> Mapping[str, str]:
    """Send every request to the server, and leave the user's settings out: the demo is the same everywhere."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("ANTHROPIC_", "RELAY_"))}
    here = str(Path(sys.executable).parent)  # the plan's commands say python3 and need a current one
    return kept | {
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "rehearsal",
        "RELAY_PROVIDER": "anthropic",  # whatever the user's own settings say
        "NO_PROXY": "*",
        "no_proxy": "*",
        "PATH": f"{here}:{environ.get('PATH', '/usr/bin:/bin')}",
    }


def _choose_flags(repo: Repo, environ: Mapping[str, str], say: Printer) -> tuple[str, ...]:
    """Look for a sandbox; without one the script's commands, which are known, run unconfined."""
    try:
        with open_sandbox(Policy(root=repo.root, env=environ, git_dirs=(repo.git_dir,)), Level.WORKSPACE_WRITE) as box:
            say(f"Commands of the model run in a sandbox: {box.mechanism}.")
    except SandboxError as error:
        say(_fill(f"Commands of the model run without a sandbox: {error}."))
        say(_fill(f"What helps: {AT_ROOT.write(error.hint)}."))
        say(_fill("The demo goes on without, because its commands are known; real work should not."))
        return ("--sandbox", "off")
    return ()


# The play


def _play(stage: _Stage) -> _Ended | None:
    """Plan, run, kill, run again; return the command that failed."""
    stage.say("\nFirst a plan. The session that writes it can read and nothing else.")
    ended = _run(stage, "plan", FEATURE)
    if ended.code:
        return ended
    stage.say(f"\nHere you would review {PLAN_PATH}. Then it is built, a fresh session for each phase.")
    stage.say("In phase 1 a check fails and is repaired; phase 2 is too long for one session;")
    stage.say("in phase 3 relay is killed.")
    killed = _run_until_silent(stage, "run")
    if killed is not None:
        return killed
    stage.say("\nrelay was killed (SIGKILL) while it waited for the model, with no time to save")
    stage.say("anything. Run it again.")
    ended = _run(stage, "run")
    return ended if ended.code else None


def _run(stage: _Stage, *words: str) -> _Ended:
    with _started(stage, words) as command:
        try:
            code = command.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = ExitCode.BUG
    return _Ended(shown=_show(words), code=code)


def _run_until_silent(stage: _Stage, *words: str) -> _Ended | None:
    """Kill a command once the model is silent; return how it ended if it ended before."""
    deadline = time.monotonic() + _PATIENCE_S
    with _started(stage, words) as command:
        while command.poll() is None and time.monotonic() < deadline:
            if stage.player.state.held:
                time.sleep(_SILENCE_S)
                command.kill()
                return None
            time.sleep(_POLL_S)
    return _Ended(shown=_show(words), code=command.returncode or ExitCode.BUG)


@contextmanager
def _started(stage: _Stage, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a relay command on the user's terminal; end it with the block."""
    stage.say(f"\n$ {_show((*words, *stage.flags))}")
    sys.stdout.flush()  # the command writes to the same place
    command = subprocess.Popen(
        # -P: Python must not import the project's modules in place of relay's.
        [sys.executable, "-P", "-m", "relay", *words, *stage.flags],
        cwd=stage.root,
        env=stage.environ,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield command
    finally:
        if command.poll() is None:
            command.terminate()
        try:
            command.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()


def _fill(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, break_on_hyphens=False)


def _show(words: Sequence[str]) -> str:
    return shlex.join(["relay", *words])


# The end


def _report_failure(root: Path, say: Printer, ended: _Ended | None, problems: Sequence[str]) -> int:
    say("\nThe demo did not go as it should.")
    if ended is not None:
        say(f"- `{ended.shown}` ended with exit status {ended.code}.")
    for problem in problems:
        say(f"- {problem}")
    say(f"The repository is left as it is: {root}")
    return ended.code if ended is not None and ended.code > 0 else ExitCode.BUG


def _show_result(repo: Repo, say: Printer) -> None:
    commits = read_relay_commits(repo, PLAN_PATH)
    say("\nOne commit for each phase, with its ticks in PLAN.md. Their trailers are all the")
    say("state there is:\n")
    say("$ git log")
    say(_render_table([_describe_commit(commit) for commit in commits]))
    say("\nWhat it took, in dollars as a real model would have cost:")


def _list_commands(root: Path, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return commands that show the result, with what each shows."""
    installed = shutil.which("relay", path=environ.get("PATH"))
    relay = "relay" if installed else shlex.quote(str(Path(sys.executable).with_name("relay")))
    return [
        (f"cd {shlex.quote(str(root))}", ""),
        (f"{relay} status", "where the plan stands, from the commits alone"),
        ("git show", "the last phase: code, ticks and trailers in one commit"),
        (f"cat {PLAN_PATH}", "the plan with its boxes"),
    ]


def _describe_commit(commit: RelayCommit) -> tuple[str, ...]:
    what = f"phase {commit.phase}" if commit.phase else "plan"
    gate = f"gate {commit.gate.split()[0]}" if commit.gate else ""
    sandbox = f"sandbox {commit.sandbox}" if commit.sandbox else ""
    return (f"* {commit.commit[:7]}", what, commit.status, gate, sandbox, shorten(commit.subject, _SUBJECT_CHARS))


def _render_table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
