"""What a cloned repository can make relay do: nothing, before a person has read it."""

import json
import random
import string

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each, take_turns

NONE = [{"turns": [{"text": "Done."}], "repeat": True}]
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)
PHASE = "## Phase 1\nVerify: `test -d .`\n- [ ] a — b.py\n"

REFUSED = {
    "settings: no sandbox": ("relay.toml", 'sandbox = "off"\n'),
    "settings: network": ("relay.toml", "network = true\n"),
    "settings: hosts": ("relay.toml", 'network = { hosts = ["evil.example.net"] }\n'),
    "settings: a port of this machine": ("relay.toml", "network.localhost = [5432]\n"),
    "settings: a socket": ("relay.toml", 'network.sockets = ["docker"]\n'),
    "settings: setup commands": ("relay.toml", 'setup = ["touch set-up"]\n'),
    "settings: somebody to call": ("relay.toml", 'notify = [{ form = "command", command = ["touch", "up"] }]\n'),
    "settings: environment": ("relay.toml", 'env = ["ANTHROPIC_API_KEY"]\n'),
    "settings: writable directories": ("relay.toml", 'paths.write = ["/etc"]\n'),
    "settings: a plan outside": ("relay.toml", 'plan = "../outside/PLAN.md"\n'),
    "settings: no prices": ("relay.toml", "[models.x.price]\ninput = 0\noutput = 0\n"),
    "settings: everything hidden": ("relay.toml", 'paths.hide = ["src/.."]\n'),
    "settings: the repository hidden": ("relay.toml", 'paths.hide = ["/opt"]\n'),
    "settings: in pyproject.toml": ("pyproject.toml", '[tool.relay]\nsandbox = "off"\n'),
    "settings: nested deeply": ("relay.toml", "a = " + "[" * 5_000 + "]" * 5_000 + "\n"),
    "plan: no sandbox": ("PLAN.md", f"---\nrelay: {{sandbox: off}}\n---\n{PHASE}"),
    "plan: network": ("PLAN.md", f"---\nrelay: {{network: true}}\n---\n{PHASE}"),
    "plan: hosts": ("PLAN.md", f"---\nrelay: {{network: {{hosts: ['*']}}}}\n---\n{PHASE}"),
    "plan: a port of this machine": ("PLAN.md", f"---\nrelay: {{network: {{localhost: [5432]}}}}\n---\n{PHASE}"),
    "plan: a socket": ("PLAN.md", f"---\nrelay: {{network: {{sockets: [/run/docker.sock]}}}}\n---\n{PHASE}"),
    "plan: setup commands": ("PLAN.md", f"---\nrelay: {{setup: [touch set-up]}}\n---\n{PHASE}"),
    "plan: environment": ("PLAN.md", f"---\nrelay: {{env: [ANTHROPIC_API_KEY]}}\n---\n{PHASE}"),
    "plan: a tool server": ("PLAN.md", f"---\nrelay: {{mcp_servers: {{x: {{command: [touch, up]}}}}}}\n---\n{PHASE}"),
    "plan: a YAML bomb": ("PLAN.md", f"---\n{BOMB}relay: {{}}\n---\n{PHASE}"),
    "plan: YAML that makes objects": ("PLAN.md", f'---\nrelay: !!python/object/apply:os.system ["id"]\n---\n{PHASE}'),
    "plan: nested 5,000 deep": ("PLAN.md", "> " * 5_000 + "x\n"),
    "ledger: a YAML bomb": ("PLAN.ledger.yaml", BOMB),
    "ledger: nested deeply": ("PLAN.ledger.yaml", "[" * 5_000 + "]" * 5_000),
}
"""Files of a hostile repository for which relay must stop before anything is sent or run."""


def test_what_a_repository_asks_for_is_refused(arena):
    """Exit 1 with words that say where it stands; no session, no command, no bug report."""
    wrong = []
    for name in take_each(6, REFUSED):
        path, text = REFUSED[name]
        arena.write(path, text)
        arena.commit(name)
        played = arena.play(NONE, "run", warm=True)
        said = path.encode() in played.err or "ledger" in path
        if (played.code, said, played.got, played.systems) != (1, True, (), ()):
            wrong.append((name, played.tail))
        arena.git("reset", "-q", "--hard", "HEAD~1")
    assert wrong == []


HOOKS = ("pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction", "post-checkout")
CONFIG = {
    "passed by": "core.fsmonitor core.pager pager.status pager.log alias.status alias.log core.alternateRefsCommand"
    " core.editor sequence.editor core.sshCommand core.askPass credential.helper core.gitProxy"
    " uploadpack.packObjectsHook diff.external diff.evil.textconv diff.evil.command merge.evil.driver"
    " trailer.relay.cmd trailer.relay.command",
    "hooks": "",
    "filters": "filter.evil.clean filter.evil.smudge filter.evil.process",
    "signing": "gpg.program gpg.ssh.program gpg.x509.program gpg.ssh.defaultKeyCommand",
}


def plant(arena, group):
    marker = arena.write("marker", f'#!/bin/sh\necho "$0 $*" >>{arena.outside}/executed\n', mode=0o755)
    arena.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil\n")
    arena.commit("attributes")
    for key in CONFIG[group].split():
        arena.git("config", key, f"!{marker}" if key.startswith("alias") else str(marker))
    if group == "passed by":
        arena.write("more.inc", f"[core]\n\tfsmonitor = {marker}\n")
        arena.git("config", "include.path", "../more.inc")
    if group == "signing":
        arena.git("config", "commit.gpgSign", "true")
        arena.git("config", "log.showSignature", "true")
    if group == "hooks":
        for folder in (".git/hooks", "hooks"):
            for hook in HOOKS:
                arena.write(f"{folder}/{hook}", f"#!/bin/sh\ntouch {arena.outside}/executed\nexit 0\n", mode=0o755)
        arena.git("-c", "core.hooksPath=/dev/null", "config", "core.hooksPath", "hooks")


WORK = [
    {
        "turns": [
            {"tools": [{"name": "bash", "input": {"command": "git status; git diff; echo world > world.txt"}}]},
            {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": "grep"}}]},
            {"text": "Commit: Say world"},
        ],
        "then": "next",
    },
    *NONE,
]  # fmt: skip


@pytest.mark.parametrize("group", take_each(4, CONFIG))
def test_git_config_executes_nothing_while_relay_plans_and_runs(arena, group):
    """Whatever the repository's config names, no part of relay runs it outside of the sandbox."""
    plant(arena, group)

    arena.play(NONE, "plan", "feature", "--force", warm=True)
    played = arena.play(WORK, "run", "--phase", "2", warm=True)
    arena.play(NONE, "status", warm=True)

    assert played.code in {0, 1, 4}, played.tail
    assert played.code == 0 or group != "passed by", played.tail
    assert not (arena.outside / "executed").exists()


def test_hooks_of_a_repository_open_no_other_directory(arena):
    """Neither for reading nor for a look at everything in it; a user's own configuration may."""
    hidden = arena.home / ".config"
    hidden.mkdir()
    (hidden / "secret").write_text("aside-secret\n")
    (arena.root / ".git/hooks").rmdir()
    (arena.root / ".git/hooks").symlink_to(hidden)
    arena.give()
    commands = [("run",), ("plan", "feature", "--force"), ("gate", "--hooks")]
    for place, command in take_turns(["", "/proc", "@HOME@/.config"], commands):
        if place:
            arena.git("config", "core.hooksPath", arena.fill(place))

        played = arena.call([("bash", {"command": "cat @HOME@/.config/*"})], *command, warm=True)

        assert (played.code, played.got) == (1, ()), (place, command, played.tail)
        assert b"the hooks of this repository are in" in played.out + played.err


@pytest.mark.nightly
def test_control_a_plain_git_executes_it(arena):
    plant(arena, "passed by")
    arena.git("status")
    assert (arena.outside / "executed").exists()


EVIL = "\x1b]0;OWNED\x07\x1b]52;c;T1dORUQ=\x07\x1b[999;999H\x1bP+q\x1b\\\u009b31m\u202e[bold red]loud[/] [link=http://evil]x[/link]"


def test_nothing_hostile_reaches_the_terminal(arena):
    """Escape sequences in titles, model text, commands, output and file names are shown, never sent; markup is text.

    Nor by a dry run with jobs, by what --approve shows of the next phase, by a status, or by the text of `relay pr`.
    """
    hostile = f"## Phase 2 — {EVIL} @all\nAfter: none\nVerify: `test -d .`\n- [ ] a {EVIL} — b.py\n"
    arena.write("PLAN.md", f"# T {EVIL}\n## Phase 1 — One\nVerify: `test -d .`\n- [ ] Say {EVIL} — a.txt\n{hostile}")
    arena.write("f\x1b]0;OWNED\x07.txt", "x\n")
    arena.commit()
    turns = [
        {"text": EVIL, "tools": [{"name": "bash", "input": {"command": f"echo '{EVIL}'; printf '\\033]0;O'; ls"}}]},
        {"tools": [{"name": "write", "input": {"path": f"b{EVIL}.py".replace("/", ""), "content": EVIL}}]},
        {"tools": [{"name": "write", "input": {"path": "a.txt", "content": "a\n"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": EVIL}}]},
        {"text": f"Commit: {EVIL}"},
    ]  # fmt: skip
    waves = arena.play(NONE, "run", "--dry-run", "--jobs", "2", terminal=True, warm=True)
    played = arena.play([{"turns": turns}], "run", "--approve", terminal=True, answers=["n\n"], warm=True)
    status = arena.play(NONE, "status", "--why", terminal=True, warm=True)
    asked = arena.play(NONE, "pr", "--text", terminal=True, warm=True)

    assert (played.code, asked.code) == (ExitCode.DONE, 0), played.tail + asked.tail
    assert b"@all" not in asked.out
    assert all(b"[bold red]loud" in text for text in (played.out, asked.out))
    for shown in (waves.out, played.out, status.out, asked.out):
        for raw in (b"\x1b]", b"\x1bP", b"\x1b[999", "\u009b".encode(), "\u202e".encode(), b"\x07"):
            assert raw not in shown, shown[max(0, shown.find(raw) - 80) :][:200]


def token() -> str:
    """A token that no scanner of this file's text finds."""
    return "gh" + "p_" + "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=36))


def test_a_secret_is_neither_committed_nor_written_down(arena, leaks):
    """The commit stops with file and line, the session repairs it, and no log, note or message holds the secret."""
    secret, key = token(), leaks[-1]
    turns = [
        {"text": f"The token is {secret} and the key {key}", "tools": [
            {"name": "write", "input": {"path": "world.txt", "content": f"world\n\nuse {secret}\nand {key}\n"}}]},
        {"tools": [{"name": "record", "input": {"claim": f"the key is {key}", "because": "x", "sources": []}}]},
        {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": f"curl -H {secret}"}}]},
        {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": "grep"}}]},
        {"text": f"Commit: Use {secret}"},
        {"expect": {"last_message_contains": ["world.txt:3 looks like a GitHub token", "world.txt:4 looks like"]},
         "tools": [{"name": "write", "input": {"path": "world.txt", "content": "world\n"}}]},
        {"text": f"Commit: Use {secret}"},
    ]  # fmt: skip

    played = arena.play([{"turns": turns}], "run", "--phase", "2", warm=True)

    assert played.code == 0, played.tail
    assert played.errors == ()
    assert [got.is_error for got in played.got] == [False, True, True, False, False]
    history = arena.git("log", "-p", "HEAD")
    logs = "".join(path.read_text() for path in (arena.root / ".relay/sessions").iterdir())
    assert json.loads(logs.splitlines()[0])["event"] == "RunStarted"
    messages = arena.git("log", "--all", "--format=%B")
    for text in (history, logs, messages, (arena.root / "PLAN.md").read_text()):
        assert secret not in text
        assert key not in text
