"""`relay pr` and `init --ci` in a hostile repository: nothing of it becomes a command, no link leads them away."""

import os

import pytest

from tests.effort import take_each

MESSAGE = """\
Say world `touch @OUT@/executed` --body @team, fixes #7

- Say world — world.txt: $(touch @OUT@/executed) @team fixes #7

Relay-Plan: PLAN.md
Relay-Phase: 2
Relay-Status: done
Relay-Usage: input=1 output=1
Relay-Cost: 0.01 USD
"""
RUNS = "touch @OUT@/executed; false"
CONFIG = {
    "a hook before the push": ("core.hooksPath", "planted"),
    "a command for ssh": ("core.sshCommand", RUNS),
    "a helper for credentials": ("credential.helper", f"!{RUNS}"),
    "a program that asks": ("core.askPass", "planted/pre-push"),
    "a proxy of git's": ("core.gitProxy", "planted/pre-push"),
    "a program at the other end": ("remote.origin.receivepack", RUNS),
    "a program that looks at the other end": ("remote.origin.uploadpack", RUNS),
    "a remote that is a command": ("remote.origin.pushurl", f"ext::sh -c '{RUNS}'"),
    "an address that becomes a command": ("url.ext::sh -c 'touch% @OUT@/executed' .pushInsteadOf", "/"),
    "a helper of a remote's own": ("remote.origin.vcs", "../planted/pre-push"),
    "a signature of the push": ("gpg.program", "planted/pre-push"),
    "a monitor of files": ("core.fsmonitor", "planted/pre-push"),
    "an address without a key": ("remote.origin.url", "git://localhost.invalid/x"),
    "an address that is a command": ("remote.origin.url", "ext::touch @OUT@/executed"),
    "an address that is an option": ("remote.origin.url", "ssh://-oProxyCommand=touch% @OUT@/executed/x"),
}
"""Settings in the repository's git configuration that name a command."""


@pytest.fixture
def done(arena):
    """A phase is committed on a branch of its own, and there is somewhere to push it to."""
    arena.git("switch", "-q", "-c", "relay/greetings")
    arena.write("planted/pre-push", arena.fill(f"#!/bin/sh\n{RUNS}\n"), mode=0o755)
    arena.write("gh", arena.fill("#!/bin/sh\ntouch @OUT@/executed\n"), mode=0o755)
    arena.commit()
    arena.write("world.txt", "world\n")
    arena.write("PLAN.md", (arena.root / "PLAN.md").read_text().replace("[ ] Say world", "[x] Say world"))
    arena.commit(arena.fill(MESSAGE))
    arena.git("init", "-q", "--bare", str(arena.base / "origin.git"))
    arena.git("remote", "add", "origin", str(arena.base / "origin.git"))
    (arena.base / "bin").mkdir()
    (arena.base / "bin/gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > ../gh.words; cat > ../gh.body\n')
    (arena.base / "bin/gh").chmod(0o755)
    arena.give()
    return arena


def ask(arena, *args, path="@BASE@/bin"):
    return arena.play([], "pr", *args, warm=True, environ={"PATH": arena.fill(f"{path}:{os.environ['PATH']}")})


def test_a_push_runs_nothing_of_the_repositorys(done):
    """Whatever its configuration names; where the branch then arrives, nothing else does."""
    ran = []
    for name in take_each(4, CONFIG):
        key, value = CONFIG[name]
        done.git("config", "remote.origin.url", str(done.base / "origin.git"))
        done.git("config", done.fill(key), done.fill(value))
        ask(done, "--push", "--with", "gh")
        done.git("config", "--unset", done.fill(key))
        if (done.outside / "executed").exists():
            ran.append(name)
            (done.outside / "executed").unlink()

    assert ran == []
    refs = done.git("--git-dir", str(done.base / "origin.git"), "for-each-ref", "--format=%(refname)").split()
    assert refs in ([], ["refs/heads/relay/greetings"])


@pytest.mark.nightly
def test_the_program_is_the_users_and_is_given_words_not_commands(done):
    played = ask(done, "--push", "--with", "gh", path=".:@ROOT@:@BASE@/bin")

    assert played.code == 0, played.tail
    assert not (done.outside / "executed").exists()
    words = (done.base / "gh.words").read_text().splitlines()
    assert words == ["pr", "create", "--draft", "--title", "Greetings", "--body-file", "-", "--head", "relay/greetings"]
    body = (done.base / "gh.body").read_text()
    assert [text for text in (" @team", "fixes #7") if text in body] == []
    refs = done.git("--git-dir", str(done.base / "origin.git"), "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/relay/greetings"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_a_workflow_is_written_where_it_belongs_and_over_nothing(arena, name):
    """Links lead it nowhere, and what stands there stays."""
    place = {"github": ".github", "gitlab": ".gitlab-ci.yml"}[name]
    before = arena.state()
    (arena.root / place).symlink_to(arena.outside / ("" if name == "github" else "file"))
    played = arena.play([], "init", "--ci", name, warm=True)
    assert arena.state() == before, played.tail
