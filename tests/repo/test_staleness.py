"""What has changed since a phase was planned, read from files or told by git."""

import pytest

from relay.ledger.citation import parse_place
from relay.ledger.model import Claim, Ledger, Stamp
from relay.plan.parse import parse_plan
from relay.store.staleness import cite_sources, find_changed_sources, find_stale, has_moved
from tests.effort import take_each

PLAN = "# Plan\n\n## Phase 1 — One\nVerify: `true`\n- [ ] Do it — src/app.py\n"
DONE = "a phase\n\nRelay-Plan: PLAN.md\nRelay-Status: done"


@pytest.mark.parametrize("branch", take_each(2, [True, False]))
def test_it_is_the_same_loose_and_packed(box, branch):
    """Counted from the commit that wrote the plan, below relay's own that ticked it and the user's on other files."""
    box.write("PLAN.md", PLAN)
    box.commit("the plan")
    box.write("src/app.py", "print(2)\n")
    changed = box.commit("by hand")
    box.write("PLAN.md", f"{PLAN}\n## Phase 2 — Two\nVerify: `true`\n- [x] Done\n")
    box.commit(DONE)
    if branch:
        box.git("switch", "-q", "-c", "side", "HEAD~1")
        box.write("side.txt")
        box.commit("beside")
        box.git("switch", "-q", "main")
        box.git("merge", "-q", "--no-edit", "side")
    box.write("other.txt")
    box.commit("other")
    (phase,) = parse_plan(PLAN).phases

    loose = find_stale(box.open(), "PLAN.md", phase)
    assert loose == (f"src/app.py has changed: {changed[:8]} by hand",)

    box.git("gc", "-q", "--prune=now")
    assert find_stale(box.open(), "PLAN.md", phase) == loose


def test_what_relay_has_done_since_the_first_commit_is_not_stale(new_box):
    box = new_box()
    box.write("PLAN.md", PLAN)
    box.commit("the plan")
    (phase,) = parse_plan(PLAN).phases
    assert find_stale(box.open(), "PLAN.md", phase) == ()

    box.write("src/app.py", "print(1)\n")
    box.commit(DONE)
    assert find_stale(box.open(), "PLAN.md", phase) == ()

    for change, words in (
        (lambda: box.write("src/app.py", "print(2)\n"), "has changed"),
        ((box.root / "src/app.py").unlink, "is gone"),
        (lambda: box.write("src/app.py", "print(3)\n"), "is new"),
    ):
        change()
        changed = box.commit("by hand")
        box.commit(DONE)
        assert find_stale(box.open(), "PLAN.md", phase) == (f"src/app.py {words}: {changed[:8]} by hand",)
    for number, message in enumerate(("its author has looked", DONE.replace("done", "amended"))):
        box.write("src/app.py", f"print({number})\n")
        box.commit("by hand")
        assert find_stale(box.open(), "PLAN.md", phase)
        box.write("PLAN.md", f"{PLAN}\n# {number}\n")
        box.commit(message)
        assert find_stale(box.open(), "PLAN.md", phase) == ()


def commit_at(box, seconds, message, *parents):
    box.git("add", "-A")
    head = [f"tree {box.text('write-tree')}", *(f"parent {parent}" for parent in parents)]
    who = f"A U Thor <a@example.org> {1_700_000_000 + seconds} +0000"
    body = "\n".join((*head, f"author {who}", f"committer {who}", "", message, ""))
    made = box.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=body.encode()).decode().strip()
    box.git("update-ref", "HEAD", made)
    return made


def test_at_a_merge_the_plan_is_as_old_as_its_last_change(new_box):
    """The change on the merged branch is older: a file that changed before the newest one has not moved since."""
    box = new_box()
    box.write("PLAN.md", PLAN)
    begun = commit_at(box, 0, "the plan")
    box.write("PLAN.md", f"{PLAN}on the branch\n")
    side = commit_at(box, 60, "the plan, on a branch", begun)
    box.write("PLAN.md", PLAN)
    box.write("src/app.py", "print(2)\n")
    changed = commit_at(box, 120, "by hand", begun)
    box.write("PLAN.md", f"on main\n{PLAN}")
    planned = commit_at(box, 180, "the plan, on main", changed)
    box.write("PLAN.md", f"on main\n{PLAN}on the branch\n")
    commit_at(box, 240, DONE, planned, side)
    (phase,) = parse_plan(PLAN).phases

    assert not has_moved(box.open(), "PLAN.md", phase)

    box.write("src/app.py", "print(3)\n")
    commit_at(box, 300, "by hand, later", box.text("rev-parse", "HEAD"))
    assert has_moved(box.open(), "PLAN.md", phase)


def cite(box, place):
    """A ledger whose only claim cites a place as it is now."""
    sources = cite_sources(box.open(), [parse_place(place)], ())
    return Ledger(entries=(Claim(id="c1", claim="x", because="y", sources=sources, stamp=Stamp()),))


def look(box, ledger):
    return "; ".join(find_changed_sources(box.open(), ledger.sources).values())


TEXT = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def cited(new_box):
    """A repository with a claim on the second line of a file, and a commit since that changed another line of it."""
    box = new_box()
    box.write("db.py", TEXT)
    box.commit("the file")
    ledger = cite(box, "db.py:2")
    box.write("db.py", TEXT.replace("five", "5"))
    box.commit("another line")
    return box, ledger


def test_what_no_longer_says_what_is_cited_is_stale(cited):
    """Not the rest of its file, and not what says it again."""
    box, ledger = cited
    assert look(box, ledger) == ""
    for text, words in (
        (TEXT.replace("two", "2"), "db.py:2 has changed"),
        (TEXT.replace("four", "4"), ""),
        (None, "db.py:2 is gone"),
        (TEXT, ""),
    ):
        box.write("db.py", text or "")
        if text is None:
            (box.root / "db.py").unlink()
        assert look(box, ledger) == words
        box.commit("the change")
        assert look(box, ledger) == words


@pytest.mark.parametrize("place", ["db.py:2", "db.py"])
def test_a_renamed_file_says_what_it_said(new_box, place):
    box = new_box()
    box.write("db.py", TEXT * 9)
    box.commit("the file")
    ledger = cite(box, place)
    (box.root / "db.py").rename(box.root / "keys.py")
    assert look(box, ledger) == ""
    (box.root / "keys.py").rename(box.root / "db.py")
    box.git("mv", "db.py", "keys.py")
    assert look(box, ledger) == ""
    box.commit("another name")
    assert look(box, ledger) == ""
    box.git("mv", "keys.py", "ids.py")
    box.commit("yet another")
    assert look(box, ledger) == ""


def test_a_renamed_file_that_says_something_else_is_named(cited):
    box, ledger = cited
    box.git("mv", "db.py", "keys.py")
    box.commit("another name")
    box.write("keys.py", TEXT.replace("two", "2"))
    assert look(box, ledger) == "db.py:2, now keys.py, has changed"


def test_a_new_file_beside_one_that_is_gone_is_another_one(cited):
    box, ledger = cited
    (box.root / "db.py").unlink()
    box.write("new.py", "quite\nsomething\nelse\n")
    assert look(box, ledger) == "db.py:2 is gone"
    box.commit("a new one")
    assert look(box, ledger) == "db.py:2 is gone"
