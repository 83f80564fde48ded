"""What `relay status` and ``--dry-run`` say before a run is what the run then does, whatever git holds."""

import json
from collections.abc import Callable

import pytest

from relay.base.errors import RelayError
from relay.base.hints import AT_ROOT
from relay.cli.screen import render_document
from relay.cli.status import Near, render_json
from relay.git.notes import lock_worktree
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.session.events import RunEnded, RunStarted, SessionStarted
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.plan_state import PlanSource, find_done, summarize_plan
from relay.store.resume import ResumeCase
from tests.conftest import PLAN
from tests.effort import take_each
from tests.resume.conftest import LUNCH
from tests.resume.test_operations import read_everything
from tests.resume.test_power import restart
from tests.scripts import HELLO

OTHER = "## Phase 1\nVerify: `test -d .`\n- [ ] Say something — other.txt\n"


@pytest.fixture
def build(stage, request) -> Callable[[str], None]:
    """Bring the repository into a state, by its name."""

    def do(name: str) -> None:
        request.getfixturevalue("cut_off")() if name.startswith("cut off") else None
        STATES[name](stage)
        stage.calm()

    return do


def leave(_stage):
    """Nothing more happens."""


def edit_phase_2(stage):
    stage.edit("Say world", "Say the world")


def open_and_edit(stage):
    open_untouched(stage)
    edit_phase_2(stage)


def tick_by_hand(stage):
    tick(stage, "Say hello")


def tick(stage, item):
    stage.edit(f"- [ ] {item}", f"- [x] {item}")


def uncommit_the_plan(stage):
    stage.git("rm", "-q", "--cached", "PLAN.md")
    stage.git("commit", "-q", "-m", "no plan")


def open_untouched(stage, plan="PLAN.md"):
    repo = open_repo(stage.root)
    with lock_worktree(repo):
        open_attempt(repo, AttemptStart(session_id="abcd1234", phase_id="1", plan_path=plan))


def lose_power(stage):
    restart(stage)
    stage.write("hello.txt", "")


def commit_something(stage):
    stage.write("user.txt", "two\n")
    stage.git("add", "user.txt")
    stage.git("commit", "-q", "-m", "the user's")


def finish_by_hand(stage):
    tick(stage, "Say hello")
    stage.commit("by hand")


def do_phase_1(stage):
    assert not stage.run(HELLO, all_=False).exit_code


def take_the_tick_back(stage):
    do_phase_1(stage)
    stage.write("PLAN.md", PLAN)


def take_a_tick_of_a_finished_plan_back(stage):
    finish_everything(stage)
    stage.write("PLAN.md", PLAN.replace("[ ] Say hello", "[x] Say hello"))


def insert_above(stage):
    zeta = "## Phase 1 — Zeta\nVerify: `test -d .`\n- [ ] Say z — z.txt"
    stage.edit("## Phase 1 — Hello", f"{zeta}\n\n## Phase 2 — Hello\nAfter: none")
    stage.edit("## Phase 2 — World", "## Phase 3 — World")


def replace_the_phase(stage):
    stage.git("add", "hello.txt", "notes")
    stage.git("commit", "-q", "-m", "what there was")
    stage.edit("## Phase 1 — Hello", "## Phase 1 — Zeta")
    stage.edit("- [ ] Say hello — hello.txt", "- [ ] Say z — z.txt")


def finish_everything(stage):
    stage.write("PLAN.md", PLAN.replace("[ ]", "[x]"))
    stage.commit("by hand")


def turn_the_phases_round(stage):
    stage.git("add", "hello.txt", "notes")
    stage.git("commit", "-q", "-m", "what there was")
    stage.edit("## Phase 1 — Hello\n", "## Phase 1 — Hello\nAfter: 2\n")
    stage.edit("## Phase 2 — World\n", "## Phase 2 — World\nAfter: none\n")


def open_another_plan(stage, *, work=""):
    stage.write("OTHER.md", OTHER)
    stage.commit("another plan")
    open_untouched(stage, "OTHER.md")
    if work:
        stage.write(work, "work\n")


def finish_beside_another(stage):
    finish_everything(stage)
    open_another_plan(stage, work="other.txt")


STATES = {
    "nothing open": leave,
    "a plan that is not committed": uncommit_the_plan,
    "an edit of the plan": edit_phase_2,
    "a tick that was taken back": take_the_tick_back,
    "a tick that was taken back in a finished plan": take_a_tick_of_a_finished_plan_back,
    "cut off and a phase above": insert_above,
    "cut off and another phase in its place": replace_the_phase,
    "a tick by hand": tick_by_hand,
    "all done": finish_everything,
    "untouched": open_untouched,
    "untouched and an edit": open_and_edit,
    "cut off": leave,
    "cut off and an edit of the plan": edit_phase_2,
    "cut off and a tick by hand": tick_by_hand,
    "cut off and a power loss": lose_power,
    "cut off and a commit": commit_something,
    "cut off and finished by hand": finish_by_hand,
    "cut off and the phase waits now": turn_the_phases_round,
    "another plan's attempt, unused": open_another_plan,
    "another plan's attempt with work, and all done": finish_beside_another,
    "another plan's attempt with work": lambda stage: open_another_plan(stage, work="other.txt"),
}
CASES = {
    "nothing open": ResumeCase.NOTHING_OPEN,
    "a plan that is not committed": ResumeCase.NOTHING_OPEN,
    "an edit of the plan": ResumeCase.NOTHING_OPEN,
    "all done": ResumeCase.NOTHING_OPEN,
    "untouched": ResumeCase.UNTOUCHED,
    "untouched and an edit": ResumeCase.MOVED_ON,
    "cut off": ResumeCase.MID_ATTEMPT,
    "cut off and an edit of the plan": ResumeCase.MOVED_ON,
    "cut off and a phase above": ResumeCase.MOVED_ON,
    "cut off and another phase in its place": ResumeCase.MOVED_ON,
    "cut off and a power loss": ResumeCase.POWER_LOSS,
    "cut off and a commit": ResumeCase.MOVED_ON,
    "cut off and finished by hand": ResumeCase.MOVED_ON,
    "cut off and the phase waits now": ResumeCase.MOVED_ON,
    "another plan's attempt, unused": ResumeCase.NOTHING_OPEN,
    "another plan's attempt with work, and all done": ResumeCase.NOTHING_OPEN,
}
"""The others are refused."""


def make_source(stage):
    return PlanSource(plan_name="PLAN.md", load=lambda: parse_plan((stage.root / "PLAN.md").read_text()))


def ask_status(stage):
    """Ask as `relay status --json` does."""
    summary = summarize_plan(make_source(stage), open_repo(stage.root))
    return json.loads(render_document(render_json(summary, AT_ROOT, Near(), stage.root)))


def is_done(stage):
    """Ask as a run does behind its last phase."""
    repo = open_repo(stage.root)
    with lock_worktree(repo):
        return find_done(make_source(stage), repo) is not None


def ask_dry_run(stage):
    return stage.relay("run", "--phase", "next", "--dry-run", environ={"ANTHROPIC_API_KEY": "k"})


def run(stage):
    """Run one phase; the model says at once that it cannot go on."""
    return stage.run(LUNCH, all_=False)


@pytest.mark.parametrize("name", take_each(9, STATES))
def test_what_is_said_is_done(stage, build, name):
    """The same case, phase and reason from both; neither changes a byte, and what is refused is refused thrice."""
    build(name)
    before = read_everything(stage)
    said, dry = ask_status(stage), ask_dry_run(stage)
    nothing_left = said["done"] and CASES.get(name) is ResumeCase.NOTHING_OPEN
    assert is_done(stage) == nothing_left
    assert read_everything(stage) == before

    if name not in CASES:
        assert said["next"] is None
        with pytest.raises(RelayError) as refused:
            run(stage)
        assert dry.returncode == 1
        assert " ".join(refused.value.message.split()) in " ".join(dry.stderr.split())
        assert said["obstacle"].startswith(refused.value.message)
        return
    asked = said["next"]
    assert (asked["row"], said["obstacle"]) == (CASES[name], None)
    assert " ".join(f"found {asked['why']}".split()) in " ".join(dry.stdout.split())
    ended = run(stage)
    started = [(session.phase_id, session.reason) for session in stage.seen(SessionStarted)]
    assert started == ([(asked["phase"], started[0][1])] if asked["phase"] else [])
    assert all(asked["why"].endswith(reason) for _, reason in started)
    assert isinstance(ended, RunEnded)


def test_what_is_said_after_the_commit_point_is_done(stage, landed):
    """The plan that is shown is the commit's before the file is; a run begins the phase that was named.

    The attempt's snapshots say what its commit says: neither the cap nor `relay status` counts both.
    """
    assert landed.exit_code == 0
    before = read_everything(stage)
    said = ask_status(stage)
    assert (said["next"]["row"], said["next"]["phase"]) == (ResumeCase.AFTER_COMMIT, "2")
    assert said["phases"][0]["done"]
    assert said["spent"]["usd"] == said["phases"][0]["spent"]["usd"] == pytest.approx(landed.spent_usd, abs=1e-6)
    assert read_everything(stage) == before

    run(stage)

    assert stage.seen(RunStarted)[0].spent_usd == pytest.approx(landed.spent_usd, abs=1e-6)
    assert [session.phase_id for session in stage.seen(SessionStarted)] == ["2"]
    assert "- [x] Say hello" in (stage.root / "PLAN.md").read_text()
    assert stage.git("status", "--porcelain") == ""
    assert said["next"]["why"].endswith(stage.seen(SessionStarted)[0].reason)
