"""What a user does to git and to relay's folders while a plan is open: it ends done, or a command is named that helps.

For one run and for runs side by side; while they are at work, and when they were stopped.
"""

import json
import re
import shlex
import shutil

import pytest

from relay.base.errors import ExitCode
from tests.copied import FSCK
from tests.effort import NIGHTLY, take_turns
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.bench import WORDS, Bench, write_session
from tests.waiting import wait_until

WAYS = {"run": ("run",), "jobs": ("run", "--jobs", "2")}
_MOST_COMMANDS = 6
_NAMED = re.compile(
    r"^ *(?:Hint|next|then): +(?:in (?P<place>/\S+): )?(?:commit it yourself \([^)]*\), or put it aside \(|type )?`?"
    r"(?P<typed>(?:relay|git) [^`;)]*)",
    re.MULTILINE | re.IGNORECASE,
)


def write_own(number, *, is_held):
    """Write its file; where it is held, wait until that is gone, or there is another one."""
    name, word = f"{number}.txt", WORDS[number - 1]
    write, waits = f"echo {word} > {name}", f"while [ -e {name} ] && [ ! -e go ]; do sleep 0.02; done; rm -f go"
    if is_held:
        return write_session(number, write, waits, write, name=f"{word}, held")
    return write_session(number, write, repeat=True)


class Acted(Bench):
    """One run, or runs side by side, to which a user does something."""

    def __init__(self, stage, way):
        super().__init__(stage)
        self.way = way

    def stop(self, server, child):
        """Return what it said: at once, as two Ctrl-C."""
        stop = self.start(server, "stop", "--now")
        out = stop.communicate()[0]
        assert stop.returncode == 0, out
        return child.communicate()[0]

    def list_places(self):
        """Where sessions are at work."""
        return list(self.places.glob("[0-9]*"))

    def is_held(self, phases):
        """Whether the sessions of phases wait, and all others are done."""
        before = [phase for phase in self.read_plan().phases if phase.id not in phases and "1" not in phases]
        if any(not phase.done for phase in before):
            return False
        began = {phase for phase in phases for place in self.list_places() if (place / f"{phase}.txt").exists()}
        return len(began) == len(phases)

    def let_go(self):
        for place in self.list_places():
            if any((place / f"{phase}.txt").exists() for phase in (1, 2)):
                (place / "go").touch()

    def finish(self, server):
        """Type the command until the plan is done, or what it names; return what was said."""
        said, words = "", WAYS[self.way]
        for _ in range(_MOST_COMMANDS):
            child = self.start(server, *words)
            out = child.communicate()[0]
            said += f"$ relay {shlex.join(words)}\n{out}"
            if self.read_plan().done and child.returncode == ExitCode.DONE:
                return said
            named = list(_NAMED.finditer(out))
            assert named, said
            words = WAYS[self.way]
            for command in named[-1]["typed"].split(" && "):
                program, *given = shlex.split(command)
                if program == "git":
                    self.git(*given, root=named[-1]["place"])
                else:
                    words = tuple(given)
        raise AssertionError(said)


def amend(bench):
    bench.git("commit", "-q", "--amend", "--allow-empty", "-m", "reworded by hand")


def rebase(bench):
    """All but the first commit: with ``--root`` git itself leaves a commit without its tree."""
    bench.git("rebase", "-q", "--force-rebase", bench.git("rev-list", "--max-parents=0", "HEAD").strip())


def remove(*names):
    def act(bench):
        for name in names:
            for place in bench.root.parent.glob(name.format(repo=bench.root.name)):
                aside = place.rename(place.with_name("removed"))  # at once, whatever is written there meanwhile
                shutil.rmtree(aside, ignore_errors=True)

    act.__name__ = f"rm -rf {' '.join(names)}"
    return act


def prune(bench):
    bench.git("worktree", "prune")


def collect(bench):
    bench.git("reflog", "expire", "--expire=now", "--all")
    bench.git("gc", "-q", "--prune=now", check=False)  # beside a git of relay's it may give up


def remove_trees(bench):
    for place in bench.places.glob("[0-9]*"):
        bench.git("worktree", "remove", "--force", str(place), check=False)


def drop_branches(bench):
    remove_trees(bench)
    for ref in bench.git("for-each-ref", "--format=%(refname)", "refs/heads/relay-jobs/").split():
        bench.git("branch", "-q", "-D", ref.removeprefix("refs/heads/"), check=False)


def drop_refs(bench):
    """All that relay notes in git, of which work trees have theirs."""
    for ref in bench.git("for-each-ref", "--format=%(refname)", "refs/relay/").split():
        bench.git("update-ref", "-d", ref, check=False)


ACTS = (
    amend,
    remove("{repo}.relay/1"),
    rebase,
    remove("{repo}.relay"),
    prune,
    remove("{repo}/.git/worktrees/1"),
    collect,
    remove("{repo}/.git/worktrees"),
    drop_branches,
    remove("{repo}/.git/relay", "{repo}/.git/worktrees/*/relay"),
    remove_trees,
    drop_refs,
    remove("{repo}/.relay", "{repo}.relay/*/.relay"),
)
WHEN, HELD = ("stopped", "stopped", "at work"), (("2",), ("1", "2"))
TWO_AT_ONCE = ((amend, remove("{repo}/.git/worktrees")), "run", "stopped", ("2",))
CASES = [
    TWO_AT_ONCE,
    *([(one[:1], *one[1:]) for one in take_turns(ACTS, WAYS, WHEN, HELD)] if NIGHTLY else []),
]


@pytest.mark.parametrize(
    ("acts", "way", "when", "held"),
    dict.fromkeys(CASES),
    ids=lambda value: (
        "+".join(getattr(one, "__name__", str(one)) for one in value) if isinstance(value, tuple) else None
    ),
)
def test_what_a_user_does_ends_done_or_a_command_is_named_that_helps(stage, acts, way, when, held):
    bench = Acted(stage, way)
    held = held if way == "jobs" else held[:1]  # the second one is begun by nobody then
    sessions = [write_own(int(phase), is_held=True) for phase in held]
    sessions += [write_own(number, is_held=False) for number in (1, 2)]
    with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
        first = bench.start(server, *WAYS[way])
        wait_until(lambda: bench.is_held(held), by=first)
        out = bench.stop(server, first) if when == "stopped" else ""
        for act in acts:
            act(bench)
        if when != "stopped":
            wait_until(lambda: bench.let_go() or first.poll() is not None)
            out = first.communicate()[0]
        said = out + bench.finish(server)
    assert bench.git("show", "main:1.txt", "main:2.txt") == "one\ntwo\n", said
    bench.git(*FSCK)
