"""Finished phases that land together: one check at their joint tip, one push; and what keeps each to itself."""

import contextlib
import re
from dataclasses import replace

import psycopg
import pytest

from relay.config import load_settings
from relay.fleet.queue import Queue
from relay.fleet.takes import TakeState
from relay.fleet.train import is_joint, leave, take_along
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.run.carry import carry_over
from relay.run.phases.landing import LandingCase, find_landing
from relay.run.phases.worktrees import bring_together
from relay.session.usage import Spent
from relay.setup.context import PlanFiles
from relay.store.attempts import read_attempt
from relay.store.spend import Whose, keep_spent
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.fleet.field import ROUND_USD, Field, count_answers, read_billed
from tests.fleet.plan_of_three import write_session
from tests.phases.test_landing import add_job, finish
from tests.repo.conftest import Box
from tests.waiting import wait_until

PHASES = ("one", "two", "three")
TRAIN = PHASES if NIGHTLY else PHASES[:2]
"""Those that land together: each is a worker's whole run."""
SCRIPT = "sessions:\n" + "".join(write_session(word, number) for number, word in enumerate(PHASES, 1))


def write_plan(words, **gates):
    return "# Field\n" + "".join(
        f"\n## Phase {n} — {word}\nAfter: none\nVerify: `test -s {word}.txt{gates.get(word, '')}`\n"
        f"- [ ] Write {word}.txt\n"
        for n, word in enumerate(words, 1)
    )


PLAN = write_plan(PHASES)
COUNTS = """
while read -r old new ref; do
    [ "$ref" = refs/heads/main ] || continue
    git rev-list --count --first-parent "$old..$new" >> {place}
    [ ! -e {place}.first ] && continue
    rm {place}.first
    unset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
    git config user.name x && git config user.email x@example.invalid
    git update-ref "$ref" "$(git commit-tree -p "$old" -m theirs "$old^{{tree}}")"
done
"""
"""Notes how many commits each push brings to the plan's branch; with `first`, somebody else is faster once."""


class Trains(Field):
    """Workers whose phases are done and wait for the turn to land."""

    def __init__(self, top, stage, url, **gates):
        super().__init__(top, stage, url, write_plan(TRAIN, **gates))
        self.phases = tuple(str(n) for n in range(1, len(TRAIN) + 1))
        self.pushes = top / "pushes"
        self.pushes.touch()
        self.hook(COUNTS.format(place=self.pushes))

    def ask(self, query, *args):
        with psycopg.connect(self.url, autocommit=True) as there:
            return there.execute(query, args)

    @contextlib.contextmanager
    def waiting(self, server):
        """Workers whose phases are done, and behind a commit by hand; at the end of the block they may land."""
        self.queue.list_plans()
        queue = Queue(self.url, stalled_s=9.0, beat_s=0.4)
        self.ask(
            "with job as (insert into procrastinate_jobs (queue_name, task_name, status) values ('x', 'x', 'doing')"
            " returning id) insert into relay_takes (nonce, plan, phase_id, job_id, worker, lands_until)"
            " select '0', %s, '9', id, 'somebody', 'infinity' from job",
            self.ticket().plan,
        )
        self.queue.submit([self.ticket(n) for n in self.phases])
        names = ("ann", "bob", "cy")[: len(TRAIN)]
        with contextlib.ExitStack() as stack:
            told = [stack.enter_context(self.working(name, server, queue=queue))[0] for name in names]
            waits = "select count(*) from relay_takes where along = 'waits'"
            wait_until(lambda: self.ask(waits).fetchone() == (len(TRAIN),))
            self.push_main({"README.md": "by hand"})
            yield told
            self.ask("delete from relay_takes where phase_id = '9'")
            wait_until(lambda: self.is_done(*self.phases))
            wait_until(lambda: not self.standing.held)

    def read_pushes(self):
        return [int(line) for line in self.pushes.read_text().split()]


@pytest.fixture
def trains(stage, tmp_path, url):
    return lambda **gates: Trains(tmp_path, stage, url, **gates)


def test_phases_that_wait_for_their_turn_land_together_with_one_check_and_one_push(trains):
    """Where somebody takes up a phase that landed along, as its worker was killed, its refs on the remote go."""
    field = trains()
    given_up = [f"refs/relay/spent/relay-jobs%2Fmain%2F{n}/000001" for n in field.phases]
    for ref in given_up:
        repo, name = open_repo(field.stage.root), ref.rpartition("F")[2]
        own = Whose(plan_path="PLAN.md", phase_id=name[0], session_id=f"5e55{name[0]}", base=repo.head())
        keep_spent(repo, ref, own, Spent(cost_usd=0.5))
        field.stage.git("push", "-q", str(field.away), f"{ref}:{ref}")
    with serve(parse_script(SCRIPT)) as server:
        with field.waiting(server):
            pass
        assert count_answers(server) == 3 * len(TRAIN)
        assert field.read_told() == pytest.approx(0.5 * len(TRAIN) + read_billed(server), abs=ROUND_USD)
        assert field.read_pushes() == [1, len(TRAIN)]  # by hand, and the train
        assert {take.state for take in field.standing.takes} == {TakeState.DONE}
        spent = ["refs/relay/spent/main"] * len(TRAIN)
        assert [ref.partition("/booked-")[0] for ref in field.refs()] == ["refs/heads/main", *spent]
        subjects = field.git("log", "--first-parent", "--format=%(trailers:key=Relay-Phase,valueonly)", "main").split()
        assert sorted(subjects) == [*field.phases]
        for ref in ("refs/heads/relay-jobs/main/1", "refs/relay/fence/relay-jobs%2Fmain%2F1"):
            field.git("update-ref", ref, "main")
        assert field.go("ann", server).has("phase 1 is done")
    assert not [ref for ref in field.refs() if "relay-jobs" in ref]


REPAIRS = (
    "sessions:\n- {when: {first_message_contains: 'Others landed meanwhile'}, turns: ["
    "{tools: [{name: write, input: {path: both.txt, content: both}}]}, {text: 'x'}]}\n"
) + SCRIPT.removeprefix("sessions:\n")


@pytest.mark.nightly
def test_a_red_train_lands_each_phase_alone_and_asks_a_session_of_the_guilty_one_only(trains):
    field = trains(**{TRAIN[-1]: " && { test ! -e one.txt || test -e both.txt; }"})
    with serve(parse_script(REPAIRS)) as server:
        with field.waiting(server) as told:
            pass
        assert count_answers(server) == 3 * len(TRAIN) + 2
        assert field.read_told() == pytest.approx(read_billed(server), abs=ROUND_USD)
    assert field.read_pushes() == [1] * (1 + len(TRAIN))
    assert sum(text.endswith("lands alone") or "lands alone: " in text for one in told for text in one) == 1
    assert {take.state for take in field.standing.takes} == {TakeState.DONE}
    assert field.refs() == ["refs/heads/main"]


@pytest.mark.nightly
def test_a_train_that_comes_too_late_lands_each_phase_alone(trains):
    """Nobody's work is on the branch twice, and no box is left open."""
    field = trains()
    with serve(parse_script(SCRIPT)) as server:
        with field.waiting(server):
            field.pushes.with_suffix(".first").touch()
        assert count_answers(server) == 3 * len(TRAIN)
    assert field.read_pushes() == [1, len(TRAIN), *[1] * len(TRAIN)]
    assert field.refs() == ["refs/heads/main"]
    assert field.git("log", "--format=%(trailers:key=Relay-Phase,valueonly)", "main").split().count("1") == 2


PASSED = f"pass {'0' * 64}"
SECRET = "sk-ant-api03-" + "a1B2c3D4" * 11 + "AA"


@pytest.fixture
def settings(box):
    return load_settings(flags={}, environ={}, plan_settings={}, repo_root=box.root, user_dir=None)


@pytest.fixture
def planned(box):
    box.write("PLAN.md", PLAN)
    box.write("shared.txt", "old\n")
    box.commit("plan")
    return box


ALONE = {
    "its gate was not green": Box.open,
    "a phase without a gate": lambda at: at.write(
        "PLAN.md", re.sub("Verify: .*two.*\\n", "", (at.root / "PLAN.md").read_text())
    ),
    "its box is open": lambda at: at.write("PLAN.md", PLAN),
    "it conflicts": lambda at: at.write("shared.txt", "two\n"),
    "a gate of the plan": lambda at: at.write(
        "PLAN.md", (at.root / "PLAN.md").read_text().replace("test -s", "test ! -e")
    ),
    "another phase's box": lambda at: at.write("PLAN.md", (at.root / "PLAN.md").read_text().replace("[ ]", "[x]")),
    "settings": lambda at: at.write("relay.toml", "verify = []\n"),
    "rules of agents": lambda at: at.write("sub/AGENTS.md", "Obey.\n"),
    "relay's own folder": lambda at: at.write(".relay/x", "x"),
    "what CI starts": lambda at: at.write(".github/workflows/x.yml", "on: push\n"),
    "a secret": lambda at: at.write("key.txt", f"{SECRET}\n"),
    "a secret of the environment": lambda at: at.write("key.txt", "the password is hunter2-hunter2\n"),
}


def test_what_a_session_or_a_person_has_to_look_at_is_not_taken_along(planned, settings):
    """Whoever may push a phase's branch may have written it."""
    tip = planned.text("rev-parse", "main")
    (one, first), (two, _) = add_job(planned, "1"), add_job(planned, "2")
    one.write("shared.txt", "one\n")
    finish(one, "1")
    at, taken = take_along(first, tip, {"1": one.commit(f"x\n\nRelay-Gate: {PASSED}")}, settings, ())
    assert taken == ("1",)
    start, wrong = planned.text("rev-parse", "relay-jobs/main/2"), []
    for name, change in {"nothing": Box.open, **ALONE}.items():
        two.git("reset", "-q", "--hard", start)
        finish(two, "2")
        change(two)
        two.git("add", "-Af")
        own = two.commit(f"x\n\nRelay-Gate: {'none' if name == 'its gate was not green' else PASSED}")
        commit, taken = take_along(first, at, {"2": own, "7": own, "3": "0" * 40}, settings, ("hunter2-hunter2",))
        if (taken, commit != at) != ((("2",), True) if name == "nothing" else ((), False)):
            wrong.append(name)
        if name == "nothing":
            assert take_along(first, at, {"2": own}, replace(settings, review="phase"), ()) == (at, ())
            hook = planned.write(".git/hooks/commit-msg", "#!/bin/sh")
            hook.chmod(0o755)
            assert take_along(first, at, {"2": own}, settings, ()) == (at, ())
            hook.unlink()
    assert not wrong


def test_a_phase_leaves_the_others_for_its_own_commit_from_wherever_it_was_killed(planned, settings):
    main = planned.open()
    (one, first), (two, _) = add_job(planned, "1"), add_job(planned, "2")
    finish(two, "2")
    other, own = two.commit(f"x\n\nRelay-Gate: {PASSED}"), finish(one, "1")
    one.write("left.txt", "the user's")
    planned.write("README.md")
    tip = planned.commit("by hand")
    at, _ = take_along(first, tip, {"2": other}, settings, ())

    def has_left():
        landing = find_landing(main, first)
        return (landing.case, landing.own, is_joint(main, first, landing)) == (LandingCase.APART, own, False)

    bring_together(first, replace(find_landing(main, first), tip=at))
    assert is_joint(main, first, find_landing(main, first))
    for begun in range(3):
        if begun:  # as the run's start does
            attempt = read_attempt(first.repo)
            assert attempt is not None
            files = PlanFiles(repo=first.repo, plan_path="PLAN.md", ledger_path="PLAN.ledger.yaml")
            carry_over(files, parse_plan(one.text("show", f"{at}:PLAN.md")), attempt, lambda _: None)
        if begun == 2:
            one.write("1.txt", one.text("show", f"{own}:1.txt"))
        leave(first)
        assert has_left()
        assert one.text("status", "--porcelain") == "?? left.txt"
        bring_together(first, replace(find_landing(main, first), tip=at))
    leave(first)
    commit = one.text("commit-tree", f"{own}^{{tree}}", "-p", at, "-p", own, "-m", "both")
    one.git("reset", "-q", "--soft", commit)
    assert is_joint(main, first, find_landing(main, first))
    leave(first)
    assert has_left()
    planned.git("merge", "-q", "--no-edit", at)
    assert not is_joint(main, first, find_landing(main, first))
