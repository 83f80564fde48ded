"""The job that is interrupted: two phases in four sessions, a user with unfinished business, and a model that copes.

The model is chosen by what its first message says, so a session that was cut off is followed by one that knows what to
do; commands on the way are not idempotent, final contents are.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

PLAN = """\
# Crash course

## Phase 1 — App
Verify: `grep -q two app.txt`
- [ ] Write the app — app.txt

## Phase 2 — Halves
Verify: `grep -q whole half.txt`
- [ ] Make it — half.txt
- [ ] The right one — sub/right.txt
"""
MARKS = {"1": ("app.txt", "two"), "2": ("half.txt", "whole")}
"""What each gate looks for."""
PHASES = {"1": 2, "2": 2}
"""Items of each phase in the end; phase 1 gets one by amendment."""

GIT_CONFIG = "[user]\n\tname = Test User\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n"
HOOK = "#!/bin/sh\ngit diff --cached --quiet; test $? -lt 2\n"

Turn = dict[str, Any]


def _call(name: str, **given: Any) -> Turn:
    return {"name": name, "input": given}


def _write(path: str, content: str) -> Turn:
    return _call("write", path=path, content=content)


def _tick(*items: str) -> list[Turn]:
    return [_call("tick", item=item, evidence="seen") for item in items]


def _phase_1(*, amends: bool) -> list[Turn]:
    shell = "test ! -e was.txt || { mkdir -p sub; mv was.txt sub/is.txt; }; rm -f old.txt; echo extra > extra.txt"
    amend = [_call("amend", phase="1", change="- [ ] Extra — extra.txt", why="it is missing")] if amends else []
    record = _call("record", claim="the app is wrong", because="read it", sources=["app.txt:1"])
    return [
        {"tools": [_call("bash", command=f"echo wrong > app.txt; {shell}"), record, *amend, *_tick("1.1", "1.2")]},
        {"text": "Commit: Write the app"},
        # All of it again, and the last once more: a model that was told of a failing call repeats it, and the
        # rehearsed one cannot be told.
        {"tools": [_call("bash", command=f"{shell} || echo extra > extra.txt"), _write("app.txt", "two\n")]},
        {"text": "Commit: Write the app", "repeat": 3},  # a commit that a failing call refused is asked for again
    ]


def _hand_off(words: str) -> Turn:
    return _call("hand_off", next_step=words, learned=["it is half"], dead_ends=[])


_HALF: list[Turn] = [
    {"tools": [_call("bash", command="printf half >> half.txt"), *_tick("2.1"), _hand_off("make it whole")]}
]
"""The gate is red: handed over without a commit."""
_WHOLE: list[Turn] = [{"tools": [_write("half.txt", "whole\n"), *_tick("2.1"), _hand_off("do the right one")]}]
"""The gate is green: a commit, and the phase goes on."""
_RIGHT: list[Turn] = [
    {"tools": [_call("bash", command="mkdir -p sub; echo right >> sub/right.txt"), *_tick("2.2")]},
    {"tools": [_write("sub/right.txt", "right\n")]},
    {"text": "Commit: Right as well", "repeat": 3},
]
CUT_OFF = "# Interrupted work"


def make_script() -> str:
    """Return the rehearsal script; YAML reads JSON."""
    sessions = [
        _session("app", 1, _phase_1(amends=True), lacks=["Extra"]),
        _session("app, amended", 1, _phase_1(amends=False), contains=["Extra"]),
        _session("right", 2, _RIGHT, contains=["do the right one"]),
        _session("whole", 2, _WHOLE, contains=["make it whole"]),
        _session("half, cut off", 2, _WHOLE, contains=[CUT_OFF]),
        _session("half", 2, _HALF),
    ]
    return json.dumps({"sessions": sessions})


def _session(
    name: str, phase: int, turns: list[Turn], *, contains: list[str] | None = None, lacks: list[str] | None = None
) -> dict[str, Any]:
    when: dict[str, Any] = {"first_message_contains": [f"Carry out phase {phase} now", *(contains or [])]}
    if lacks:
        when["first_message_lacks"] = lacks
    return {"name": name, "when": when, "repeat": True, "turns": turns}


def make_environ(home: Path, base_url: str, *, sandbox: str) -> dict[str, str]:
    """Return the environment of a run; temporary files go to a directory that is not watched."""
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(GIT_CONFIG)
    return {
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": base_url,
        "RELAY_SANDBOX": sandbox,
        "NO_COLOR": "1",
    }


def git(root: Path, *args: str, environ: dict[str, str], check: bool = True) -> str:
    """Run git as the user would."""
    done = subprocess.run(["git", *args], cwd=root, check=check, capture_output=True, env=environ)
    return done.stdout.decode(errors="surrogateescape")


def make_repository(root: Path, environ: dict[str, str]) -> None:
    """Make the repository as the user left it: dirty, staged, untracked and stashed files, a hook, a plan."""
    root.mkdir(parents=True)
    git(root, "init", "-q", environ=environ)
    for name in ("dirty.txt", "staged.txt", "old.txt", "was.txt", "stashed.txt", "kept.txt"):
        (root / name).write_text(f"{name} at first\n")
    git(root, "add", ".", environ=environ)
    git(root, "commit", "-qm", "start", environ=environ)
    (root / "stashed.txt").write_text("for later\n")
    git(root, "stash", "-q", environ=environ)
    (root / "dirty.txt").write_text("dirty.txt at first\nand edited\n")
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt", environ=environ)
    (root / "staged.txt").write_text("staged, and edited since\n")
    (root / "notes").mkdir()
    (root / "notes/untracked.txt").write_text("mine\n")
    (root / "PLAN.md").write_text(PLAN)
    hook = root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)


def copy_repository(source: Path, target: Path) -> None:
    """Copy a repository with its times, which git compares with its index."""
    shutil.copytree(source, target, symlinks=True)
