"""What others pushed for a phase, or somebody committed by hand, lands only behind the checks of this clone."""

import subprocess

import pytest

from relay.config import Settings
from relay.fleet.takes import TakeState
from relay.gate.model import CommandCheck, GateResult, Outcome, render_baseline
from relay.git.repository import open_repo
from relay.run.phases.landing import LandingCase, find_landing
from relay.run.phases.worktrees import ensure_job, look_at_trees
from relay.session.events import GateFinished
from relay.session.usage import Spent
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.ref_notes import Course
from tests.effort import take_each, take_turns
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import RED, Field
from tests.fleet.plan_of_three import PLAN, SCRIPT, write_session

TICKED = PLAN.replace("[ ] Write one.txt", "[x] Write one.txt")
JOB = "relay-jobs/main/1"
NO_EVIL = "test ! -e evil"


class Mallory:
    """Somebody who may push what is relay's, and not the plan's branch."""

    def __init__(self, field: Field) -> None:
        self.root, self._field = field.clone("mallory"), field
        self.git("switch", "-q", "-c", JOB)

    def git(self, *args):
        return self._field.stage.git("-C", str(self.root), *args).strip()

    def push(self, files):
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-qm", "x")
        self.git("push", "-q", "origin", f"HEAD:refs/heads/{JOB}")


def test_a_phase_that_somebody_pushed_as_done_is_checked_before_it_lands(field):
    """Its gate runs here, what only a person writes stays as the plan's branch has it, what runs by itself is named."""
    rules = field.git("show", "main:AGENTS.md")
    Mallory(field).push(
        {"PLAN.md": TICKED, "one.txt": "1", "AGENTS.md": "Obey.\n", ".github/workflows/x.yml": "on: push"}
    )
    tip = field.git("rev-parse", "main")
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server)
        assert field.is_done("1"), told
        assert not any(request.body for request in server.requests)
    assert [event.passed for event in told.events if isinstance(event, GateFinished)] == [False, True]
    assert told.has("CI starts it")
    assert field.git("rev-parse", "main^1") == tip
    assert field.git("show", "main:AGENTS.md") == rules
    assert "Relay-Gate: pass\n" in field.git("log", "-1", "--format=%B", "main")


@pytest.mark.parametrize("files", take_each(3, [
    {"PLAN.md": TICKED.replace("test -s one.txt", "true")},  # with another gate
    {"PLAN.md": TICKED},  # without its file
    {"PLAN.md": TICKED, "one.txt": "1", "key.txt": "ghp_" + "x7Kq2M9vRt4Lw8Zb3Nc6Yd1Hs5Jf0Pg7Aa2B"},  # with a secret
]))  # fmt: skip
def test_what_does_not_pass_here_does_not_land(field, files):
    Mallory(field).push(files)
    tip = field.git("rev-parse", "main")
    with serve(parse_script(RED)) as server:
        told = field.go("ann", server)
    assert field.standing.latest["1"].state is TakeState.STOPPED, told
    assert field.git("rev-parse", "main") == tip


@pytest.mark.parametrize("is_committed", take_each(2, [False, True]))
def test_what_was_handed_over_is_checked_with_the_rest(field, is_committed):
    """A hand-off's commits, and checkpoints; what somebody says was red before excuses nothing."""
    text = PLAN.replace("# Field", f"---\nrelay: {{verify: ['{NO_EVIL}']}}\n---\n# Field")
    field.stage.write("PLAN.md", text)
    field.stage.commit("a gate for all")
    field.stage.git("push", "-q", str(field.away), "main")
    tip, mallory = field.git("rev-parse", "main"), Mallory(field)
    repo = open_repo(mallory.root)
    red = CommandCheck(command=NO_EVIL, status=Outcome.FAILED, exit_code=1, duration_s=0.0, output_tail="")
    if is_committed:
        mallory.push({"evil": "x"})
    said = Course(baseline=render_baseline(GateResult(commands=(red,))))
    attempt = open_attempt(repo, AttemptStart(session_id="00000001", phase_id="1", plan_path="PLAN.md", course=said))
    if not is_committed:
        (mallory.root / "evil").touch()
        save_wip(repo, attempt, WipRecord(spend=Spent()))
    mallory.git("push", "-q", "origin", f"HEAD:refs/heads/{JOB}", "+refs/relay/*:refs/relay/*")
    with serve(parse_script("sessions:\n" + write_session("one", 1) + RED.removeprefix("sessions:\n"))) as server:
        told = field.go("ann", server)
        assert server.requests
    assert field.standing.latest["1"].state is TakeState.STOPPED, told
    assert field.git("rev-parse", "main") == tip


def test_a_branch_that_somebody_made_by_hand_is_checked_by_a_run_with_jobs(stage):
    stage.write("PLAN.md", PLAN)
    stage.commit("plan")
    main = open_repo(stage.root)
    stage.git("switch", "-q", "-c", JOB)
    stage.write("PLAN.md", TICKED)
    stage.commit("by hand")
    stage.git("switch", "-q", "main")
    made = ensure_job(look_at_trees(main, "PLAN.md", repair=True), "1", settings=Settings(), busy=())
    assert made is not None
    assert find_landing(main, made).case is LandingCase.APART
    own = ensure_job(look_at_trees(main, "PLAN.md", repair=True), "2", settings=Settings(), busy=())
    assert own is not None
    (own.repo.root / "PLAN.md").write_text(PLAN.replace("[ ] Write two.txt", "[x] Write two.txt"))
    subprocess.run(["git", "commit", "-qam", "by hand in the work tree"], cwd=own.repo.root, check=True)
    assert find_landing(main, own).case is LandingCase.APART


def store_tree(root, *entries):
    """Store a tree that git itself would not make, of mode, name and id."""
    data = b"".join(b"%s %s\0" % (mode, name) + bytes.fromhex(found) for mode, name, found in entries)
    words = ["git", "-C", root, "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
    return subprocess.run(words, input=data, capture_output=True, check=True).stdout.decode().strip()


@pytest.mark.nightly
@pytest.mark.parametrize(("odd", "is_checkpoint"), take_turns(["..", ".git", "twice"], [True, False]))
def test_a_tree_that_git_would_not_make_is_refused_with_its_ref(field, odd, is_checkpoint):
    mallory = Mallory(field)
    blob = mallory.git("rev-parse", "HEAD:PLAN.md")
    inner = store_tree(mallory.root, (b"100644", b"x", blob))
    below = {
        "..": [(b"40000", b"..", inner)],
        ".git": [(b"40000", b".git", inner)],
        "twice": [(b"120000", b"a", blob), (b"40000", b"a", inner)],
    }[odd]
    rows = [
        (b"40000", b"AA", store_tree(mallory.root, *below)),
        *((b"100644", name.encode(), mallory.git("rev-parse", f"HEAD:{name}")) for name in ("AGENTS.md", "PLAN.md")),
    ]
    tree = store_tree(mallory.root, *sorted(rows, key=lambda row: row[1]))
    commit = mallory.git("commit-tree", "-m", "x", "-p", "HEAD", tree)
    ref = f"refs/relay/wip/{JOB.replace('/', '%2F')}/1" if is_checkpoint else f"refs/heads/{JOB}"
    mallory.git("push", "-q", "origin", f"{commit}:{ref}")
    with serve(parse_script(RED)) as server:
        for _ in range(2):  # at each try
            assert field.go("ann", server).has(f"{ref} of {field.away} holds 'AA/")
        assert not any(request.body for request in server.requests)
    mallory.git("push", "-q", "origin", "--delete", ref)
    with serve(parse_script(SCRIPT)) as server:
        told = field.go("ann", server)
    assert field.is_done("1"), told
