"""`relay shell` from outside: what it runs is what a session would run, and what it shows is so."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

PROBE = """
import json, os, sys
found = json.load(sys.stdin)
def may(place, flags):
    try: os.close(os.open(place, flags))
    except OSError: return False
    return True
def may_make(place): return may(place + '/probe', os.O_CREAT | os.O_WRONLY) and not os.unlink(place + '/probe')
def may_write(place): return may_make(place) if os.path.isdir(place) else may(place, os.O_WRONLY)
def may_read(place): return bool(os.listdir(place)) if os.path.isdir(place) else may(place, os.O_RDONLY)
print(json.dumps({
    'not writable': [p for p in (*found["writable"], *found["lost"], found["tmp"], found["home"]) if not may_make(p)],
    'not protected': [p for p in (*found['protected'], *found['shown']) if may_write(p)],
    'absent': [p for p in (*found['protected'], *found['shown']) if not os.path.lexists(p)],
    'not masked': [p for p in found['masked'] if may_read(p)],
    'variables': sorted(os.environ),
    'entries': [p + '/' + name for p in found['hidden'] for name in os.listdir(p)],
}))
"""
OWN = {"PS1", "PWD", "SHLVL", "_", "LC_CTYPE"}
"""Of the shell, of Python and of this command."""


def lay_out(project, environ):
    files = {"AGENTS.md": "rules\n", ".env": "KEY=env-secret\n", "PLAN.md": "no plan yet\n", "private/key": "secret\n"}
    for name, text in (*files.items(), ("relay.toml", 'paths.hide = ["private"]\n')):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    environ |= {"DATABASE_URL": "postgres://db", "NODE_OPTIONS": "--x"}


def test_what_is_shown_is_so(relay, program, project, environ):
    """Each line of the list is tried by a command in the same sandbox; a plan that can be read is not needed."""
    lay_out(project, environ)
    ran = relay("doctor", "--sandbox", "--json")
    found = json.loads(ran.out)["sandbox"]
    assert (ran.code, ran.err, found["mechanism"], found["level"]) == (0, "", "bwrap", "workspace-write")
    assert str(project) in found["writable"]
    names = {os.path.relpath(path, project) for path in (*found["protected"], *found["masked"])}
    assert names >= {"AGENTS.md", ".git", ".relay", "PLAN.md", "relay.toml", ".env", "private"}
    assert found["opened"] == found["gaps"] == []
    assert "DATABASE_URL" in found["dropped"]
    assert {"NODE_OPTIONS", "PYTHONPATH"} <= set(found["refused"])

    told = json.dumps(found).encode()
    argv = (*program, "shell", "--", sys.executable, "-I", "-c", PROBE)
    tried = subprocess.run(argv, cwd=project, env=environ, input=told, capture_output=True, check=True)
    said = json.loads(tried.stdout)
    assert set(said.pop("variables")) - OWN == set(found["passed"])
    known = [
        found["tmp"],
        *(place for key in ("writable", "lost", "shown", "protected", "hidden") for place in found[key]),
    ]
    strange = [entry for entry in said.pop("entries") if not any(f"{p}/".startswith(f"{entry}/") for p in known)]
    assert {Path(entry).name for entry in strange} <= {".gitconfig", "relay"}
    assert not any(said.values()), said


def test_what_is_shown_for_people(relay, project, environ):
    lay_out(project, environ)
    ran = relay("doctor", "--sandbox", env={**environ, "RELAY_NETWORK": "true"})
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "bwrap, workspace-write: resources of a command in `relay run`"
    assert f"  {project}/.env" in lines[lines.index("cannot read") :]
    network = lines[lines.index("network") + 1 : lines.index("variables passed on") - 1]
    assert " ".join(map(str.strip, network)) == (
        "commands reach this machine's whole network, the services on its loopback included (network)"
    )


def test_a_command_has_what_a_session_has(relay, project, environ):
    """Its streams are relay's and apart, its exit status is the command's; `.env` is not read."""
    lay_out(project, environ)
    ran = relay("shell", "--", "cat .env; echo made > made; echo out; echo err >&2; exit 7")
    assert (ran.code, ran.out) == (7, "out\n")
    assert ran.err.splitlines() == ["cat: .env: Permission denied", "err"]
    assert (project / "made").read_text() == "made\n"
    assert relay("shell", "--read-only", "--", "touch", "planned").code == 1
    assert not (project / "planned").exists()
    absent = relay("shell", "no-such-program", "--version")
    assert (absent.code, absent.err) == (127, "relay: no-such-program: command not found\n")


def test_a_killed_command_exits_with_its_signal(relay):
    assert relay("shell", "--", "kill -9 $$").code == 137


def talk(program, project, environ, lines):
    """Type lines at a terminal, each when the prompt is there, and return what was shown and the exit code."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(project)
        os.execve(program[0], [*program, "shell"], {**environ, "TERM": "dumb"})
    shown = b""
    waiting = list(lines)
    while True:
        ready, _, _ = select.select([fd], [], [], 60)
        try:
            chunk = os.read(fd, 65536) if ready else b""
        except OSError:  # EIO: nobody has the other end open any more
            chunk = b""
        if not chunk:
            break
        shown += chunk
        if waiting and shown.rstrip().endswith((b"$", b"#", b"waiting")):
            os.write(fd, waiting.pop(0))
            shown += b"\n"
    os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_shell_has_a_terminal_of_its_own(program, project, environ):
    """Ctrl-C ends what runs in it and not the shell; its exit status is relay's."""
    # Nothing that is typed ends in a prompt, wherever its echo is cut; and what says that it waits is what Ctrl-C hits.
    terminal, wait = b"test -t 0 && test -t 2 && echo term''inal-23\r", b"sh -c \"echo wait''ing; exec sleep 60\"\r"
    lines = (terminal, wait, b"\x03", b"exit 3\r")
    shown, code = talk(program, project, environ, lines)
    assert "a shell in a session's sandbox (bwrap, workspace-write)" in shown
    assert "terminal-23" in shown
    assert "^C" in shown
    assert code == 3, shown
