"""How branch, open attempt and work tree relate, as a run asks before it does anything."""

from dataclasses import replace

from relay.plan.parse import parse_plan
from relay.session.usage import Spent
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.branches import find_projected, read_facts, read_kept
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.history import read_plan_commits
from relay.store.plan_versions import EditKind, PlanEdit
from relay.store.ref_notes import Carried, ReviewNote
from tests.repo.test_history import record

START = AttemptStart(session_id="s1", phase_id="1", plan_path="PLAN.md")
MADE = "Relay-Session: s1\n"


def read(box):
    """Return what a run of ``PLAN.md`` learns of the open attempt."""
    repo = box.open()
    edit = PlanEdit(kind=EditKind.NONE, plan=parse_plan((box.root / "PLAN.md").read_text()))
    facts = read_facts(repo, edit, read_kept(repo, "PLAN.md"), "PLAN.md").attempt
    assert facts is not None
    return facts


def test_an_attempt_is_touched_by_what_it_ever_did(box):
    """Claims count, and what a checkpoint has and the work tree has no more; not what relay itself writes."""

    def look():
        return (facts := read(box)).touched, facts.saved

    repo, nothing = box.open(), WipRecord(spend=Spent())
    attempt = open_attempt(repo, START)
    assert not read(box).elsewhere
    box.write("PLAN.md", (box.root / "PLAN.md").read_text().replace("[ ]", "[x]"))
    box.write("PLAN.ledger.yaml", "claims: []\n")
    assert look() == (False, True)
    attempt = save_wip(repo, attempt, WipRecord(spend=Spent(), items=("1.1",)))
    assert look() == (True, True)
    attempt = save_wip(repo, attempt, nothing)
    assert look() == (False, True)
    box.write("src/app.py", "edited\n")
    assert look() == (True, False)
    save_wip(repo, attempt, nothing)
    assert look() == (True, True)
    box.git("checkout", "-q", "src/app.py")
    assert look() == (True, False)


def test_the_work_of_an_attempt_that_begins_at_another_commit_is_not_here(box):
    onto = box.text("commit-tree", "-p", "HEAD", "-m", "what others did", "HEAD^{tree}")
    attempt = open_attempt(box.open(), replace(START, onto=onto))
    assert (attempt.base_head, read(box).elsewhere) == (onto, True)


def test_of_several_reviews_the_newest_says_what_is_wrong(box):
    tree = box.text("rev-parse", "HEAD^{tree}")
    reviews = (ReviewNote(number=1, tree=tree, confirmed=2), ReviewNote(number=2, tree=tree, confirmed=1))
    open_attempt(box.open(), replace(START, carried=Carried(reviews=reviews)))
    assert read(box).faults == 1


def test_an_attempt_of_another_plan_is_foreign_until_it_is_committed(box):
    """A plan that is gone was renamed."""
    repo = box.open()
    open_attempt(repo, replace(START, plan_path="OLD.md"))
    assert read_kept(repo, "PLAN.md").foreign is None
    box.write("OLD.md", (box.root / "PLAN.md").read_text())
    assert read_kept(repo, "PLAN.md").foreign is not None
    record(box, plan="OLD.md", status="amended", extra=MADE)
    assert read_kept(repo, "PLAN.md").foreign is not None
    made = record(box, plan="OLD.md", extra=MADE)
    kept = read_kept(repo, "PLAN.md")
    assert kept.foreign is None
    assert kept.attempt_commit is not None
    assert kept.attempt_commit.commit == made


def test_a_commit_is_unfinished_until_somebody_changes_a_file_of_it(box):
    repo = box.open()
    open_attempt(repo, START)
    box.write("src/app.py", "done\n")
    box.git("add", "-A")
    made = record(box, extra=MADE)
    box.write("mine.txt")
    box.commit("a person's")
    unfinished = read_kept(repo, "PLAN.md").unfinished
    assert unfinished is not None
    assert unfinished.commit == made
    box.write("src/app.py", "more\n")
    box.commit("a person's")
    assert read_kept(repo, "PLAN.md").unfinished is None


def test_a_plan_is_brought_up_to_a_commit_only_where_nobody_edited_it(box):
    file = box.root / "PLAN.md"
    before = file.read_text()
    box.write("PLAN.md", before.replace("[ ]", "[x]"))
    box.git("add", "-A")
    record(box, extra=MADE)
    repo = box.open()
    commit = read_plan_commits(repo, "PLAN.md")[0]
    assert find_projected(repo, "PLAN.md", commit, parse_plan(before)) == file.read_text()
    assert find_projected(repo, "PLAN.md", commit, parse_plan(before + "- [ ] And this\n")) is None
