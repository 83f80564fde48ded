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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.errors import ExitCode, RelayError, SandboxError
from relay.base.hints import AT_ROOT
from relay.base.values import dataclass
from relay.git.command import get_git
from relay.git.identity import find_identity
from relay.git.repository import Repo, open_repo
from relay.prompts.package_data import get_shipped
from relay.rehearsal.script import load_script
from relay.rehearsal.server import Player, serve
from relay.sandbox.policy import Level, Policy
from relay.sandbox.run import open_sandbox

FEATURE = "add org-scoped API keys"
PLAN_PATH = "PLAN.md"

_PATIENCE_S = 300.0
"""Longest time of one command; it needs seconds, so a command that takes this long hangs."""
_GRACE_S = 10.0
_POLL_S = 0.05
_COLUMNS = 80
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
        say("\nThe demo did not go as it should.")
        for problem in (*([failed[0]] if failed else []), *problems):
            say(f"- {problem}")
        say(f"The repository is left as it is: {root}")
        return failed[1] if failed and failed[1] > 0 else ExitCode.BUG
    say("\nOne commit for each phase, with its ticks in PLAN.md; their trailers are all the state")
    say("there is. What it took is in dollars as a real model would have cost:\n")
    say(f"$ git log --oneline\n{repo.git.run('log', '--oneline').decode(errors='replace').rstrip()}")
    _run(replace(stage, flags=()), "status")
    relay = "relay" if shutil.which("relay", path=environ.get("PATH")) else Path(sys.executable).with_name("relay")
    say(_NEXT.format(root=shlex.quote(str(root)), relay=relay, script=examples / "rehearsal.yaml"))
    return ExitCode.DONE


_INTRODUCTION = """\
relay demo: a feature of three phases, planned and built in a new repository.

The model is rehearsed: a script says what it answers (examples/rehearsal.yaml),
so this needs no key and no network, and shows nothing of a model's judgement.
Everything else is real: the commands, HTTP, the sandbox, the checks, git."""

_NEXT = """
Where to look next:

cd {root}
{relay} status   where the plan stands, from the commits alone
git show       the last phase: code, ticks and trailers in one commit
cat PLAN.md    the plan with its boxes

The script of the model is {script}.
For your own project: relay init, then relay plan "…" and relay run, with
ANTHROPIC_API_KEY set."""


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


def _play(stage: _Stage) -> tuple[str, int] | None:
    """Plan, run, kill, run again; return what a command that failed did, and its exit status."""
    stage.say("\nFirst a plan. The session that writes it can read and nothing else.")
    if failed := _run(stage, "plan", FEATURE):
        return failed
    stage.say(f"\nHere you would review {PLAN_PATH}. Then it is built, a fresh session for each phase.")
    stage.say("In phase 1 a check fails and is repaired; phase 2 is too long for one session;")
    stage.say("in phase 3 relay is killed.")
    if failed := _run(stage, "run", until_silent=True):
        return failed
    stage.say("\nrelay was killed (SIGKILL) while it waited for the model, with no time to save")
    stage.say("anything. Run it again.")
    return _run(stage, "run")


def _run(stage: _Stage, *words: str, until_silent: bool = False) -> tuple[str, int] | None:
    """Run a command on the user's terminal, or kill it once the model is silent.

    Returns:
        None if it ended without an error, or was killed so; else what it did, and its exit status.
    """
    stage.say(f"\n$ {_show((*words, *stage.flags))}")
    sys.stdout.flush()  # the command writes to the same place
    command = subprocess.Popen(
        # -P: Python must not import the project's modules in place of relay's.
        [sys.executable, "-P", "-m", "relay", *words, *stage.flags],
        cwd=stage.root,
        env=stage.environ,
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while command.poll() is None and time.monotonic() < deadline:
            if until_silent and stage.player.state.held:
                time.sleep(_SILENCE_S)
                command.kill()
                return None
            time.sleep(_POLL_S)
        unplayed = until_silent or command.returncode is None
        code = command.returncode or (ExitCode.BUG if unplayed else ExitCode.DONE)
    finally:
        if command.poll() is None:
            command.terminate()
        try:
            command.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
    return (f"`{_show(words)}` ended with exit status {code}.", code) if code else None


def _fill(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, break_on_hyphens=False)


def _show(words: Sequence[str]) -> str:
    return shlex.join(["relay", *words])
