"""What the branch's commits say about a plan."""

import pytest

from relay.session.usage import Spent, Usage
from relay.store import history
from relay.store.history import add_spent, read_plan_commits, read_relay_commits
from tests.effort import take_each


def record(box, plan="PLAN.md", phase="1", status="done", extra="Relay-Items: 1.1 1.2\nRelay-Gate: pass abc\n"):
    body = f"phase {phase}\n\ntext\n\nRelay-Plan: {plan}\nRelay-Phase: {phase}\nRelay-Status: {status}\n{extra}"
    box.git("commit", "-q", "--allow-empty", "-F", "-", stdin=body.encode())
    return box.text("rev-parse", "HEAD")


def test_commits_of_the_plan_come_newest_first(box):
    one = record(
        box,
        phase="1",
        status="handoff",
        extra="Relay-Usage: input=5 output=7 cache_read=0 cache_write=0\nRelay-Cost: 0.50 USD\n",
    )
    box.commit("a person's, between")
    record(box, plan="other/PLAN.md")
    two = record(box, phase="2")
    found = read_relay_commits(box.open(), "PLAN.md")
    assert [(c.commit, c.phase, c.status) for c in found] == [(two, "2", "done"), (one, "1", "handoff")]
    assert (found[0].items, found[0].gate, found[0].body) == (("1.1", "1.2"), "pass abc", "text")
    assert (found[0].usage, found[0].cost_usd, found[0].spent) == (None, None, Spent())
    assert (found[1].usage, found[1].cost_usd) == (Usage(input_tokens=5, output_tokens=7), 0.5)
    assert [c.commit for c in read_relay_commits(box.open(), "PLAN.md", newer_than=one)] == [two]


def test_a_long_plan_path_which_is_folded_is_found_behind_many_commits(box):
    plan = f"specs/001-{'long-' * 10}name/tasks.md"
    one = record(box, plan=f"\n  {plan}")
    for _ in range(history._MOST_NEW + 1):
        box.git("commit", "-q", "--allow-empty", "-m", "many")
    history._known.clear()
    assert [commit.commit for commit in read_relay_commits(box.open(), plan)] == [one]


def test_the_words_of_a_session_revert_nothing(box):
    """Its evidence is in the body of relay's commit; a commit of `git revert` names no plan."""
    one = record(box)
    record(box, phase="2", extra=f"\n\nThis reverts commit {one}.\n\nRelay-Plan: PLAN.md\nRelay-Status: done\n")
    box.git("commit", "-q", "--allow-empty", "-m", f"evidence\n\nSaid: This reverts commit {one}.")
    commits = read_plan_commits(box.open(), "PLAN.md")
    assert history.read_undone(box.open(), commits) == frozenset()
    box.git("commit", "-q", "--allow-empty", "-m", f'Revert "phase 1"\n\nThis reverts commit {one}.')
    assert history.read_undone(box.open(), commits) == {one}


def test_a_branch_that_grows_is_read_on_and_any_other_anew(box):
    repo = box.open()

    def read():
        found = read_relay_commits(repo, "PLAN.md")
        history._known.clear()
        assert found == read_relay_commits(repo, "PLAN.md")
        assert found == tuple(commit for commit in history._ask_for_all(repo, repo.head()) if commit.plan == "PLAN.md")
        return [commit.commit for commit in found]

    one = record(box)
    assert read() == [one]
    box.git("switch", "-q", "-c", "side")
    box.commit("a person's")
    two = record(box)
    record(box, plan="other/PLAN.md")
    assert read() == [two, one]
    for _ in range(history._MOST_NEW + 1):
        box.git("commit", "-q", "--allow-empty", "-m", "many")
    assert read() == [two, one]
    box.git("switch", "-q", "main")
    assert read() == [one]
    three = record(box)
    box.git("merge", "-q", "--no-ff", "-m", "joined", "side")
    assert set(read()) == {one, two, three}
    four = record(box)
    box.git("gc", "-q")
    assert read()[0] == four
    box.git("replace", "--graft", "HEAD")
    assert read() == [four]
    box.git("replace", "-d", "HEAD")
    assert read()[0] == four
    assert set(read()) == {one, two, three, four}


TWO = "# Two\n\n## Phase 1 — Alpha\n- [{}] Do alpha — a.txt\n\n## Phase 2 — Beta\n- [ ] Do beta — b.txt\n"
OTHER = "# Other\n\n## Phase 1 — Gamma\n- [ ] Do gamma — c.txt\n"


def write_plan(box, text):
    box.write("PLAN.md", text)
    return box.commit("by hand")


def do_phase(box, text):
    box.write("PLAN.md", text)
    box.git("add", "PLAN.md")
    return record(box)


def remove_plan(box):
    box.git("rm", "-q", "PLAN.md")
    box.commit("no plan")


def rename_plan(box):
    box.git("mv", "PLAN.md", "GOALS.md")
    box.commit("another name")
    return "GOALS.md"


@pytest.mark.parametrize(
    ("changes", "counts"),
    take_each(
        2,
        [
            ([lambda box: write_plan(box, TWO.format("x").replace("Do beta", "Do it"))], True),
            ([remove_plan, lambda box: write_plan(box, OTHER)], False),
            ([lambda box: write_plan(box, OTHER)], False),
            ([lambda box: write_plan(box, TWO.format(" "))], True),
            ([remove_plan, lambda box: write_plan(box, TWO.format("x"))], True),
            ([remove_plan, lambda box: write_plan(box, TWO.format(" "))], False),
            ([rename_plan], True),
            ([lambda box: box.text("revert", "--no-edit", "HEAD")], True),
        ],
    ),
)
def test_what_was_done_for_a_plan_counts_as_long_as_something_of_it_is_there(box, changes, counts, monkeypatch):
    """Whether its history is short, or so long that nothing is read from before it; with work on top too."""
    old = do_phase(box, OTHER)
    remove_plan(box)
    write_plan(box, TWO.format(" "))
    one = do_phase(box, TWO.format("x"))
    path = "PLAN.md"
    for change in changes:
        path = found if (found := change(box)) == "GOALS.md" else path
    expected = [one] if counts else []

    def read():
        history._known.clear()
        return [commit.commit for commit in read_plan_commits(box.open(), path)]

    assert read() == expected
    monkeypatch.setattr(history, "_LONG_BYTES", 0)
    box.git("gc", "-q")
    assert read() == expected
    two = record(box, plan=path, phase="2")
    assert read() == [two, *expected]
    assert old not in read()


def test_a_session_counts_once_in_however_many_commits_it_stands(box):
    cost = "Relay-Session: aa\nRelay-Usage: input=5 output=7 cache_read=0 cache_write=0\nRelay-Cost: 0.50 USD\n"
    write_plan(box, TWO.format(" "))
    record(box, extra=cost)
    box.git("branch", "old")
    box.git(
        "commit", "-q", "--amend", "--allow-empty", "-m", box.text("log", "-1", "--format=%B").replace("text", "words")
    )
    box.git("merge", "-q", "-s", "ours", "-m", "both", "old")
    record(box, phase="2", extra=cost.replace("aa", "bb"))
    record(box, phase="2", extra=cost.replace("Session: aa\n", "Gate: none\n"))
    found = read_plan_commits(box.open(), "PLAN.md")
    assert [commit.phase for commit in found] == ["2", "2", "1", "1"]
    assert add_spent(found).cost_usd == pytest.approx(1.5)
