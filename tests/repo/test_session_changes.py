"""What sessions changed of what git ignores, told from what others did by the kernel's dates."""

import json

import pytest

from relay.store.environment import SessionChanges, end_span, read_spans, watch_sessions

NOTE = ".git/relay/spans"


@pytest.fixture
def look(box):
    """Say what is hidden from a gate and what it sees all the same, in what git ignores."""

    def go(*paths):
        repo = box.open()
        found = SessionChanges(root=str(repo.root), spans=read_spans(repo))
        for path in paths:
            found.look(path)
        return found.hidden, found.render()

    return go


def test_what_others_change_between_two_sessions_is_theirs(box, look):
    """A setup command, and the user between two runs; what a session of an earlier phase changed stays changed."""
    repo = box.open()
    box.write("build/first", "x")
    with watch_sessions(repo):
        box.write("build/session", "x")
        box.write(".venv/session", "x")
    box.write("build/user", "x")
    box.write(".venv/setup", "x")
    with watch_sessions(repo):
        box.write("build/later", "x")

    said = "the gate saw what sessions changed and no commit has: .venv (1 change: .venv/session)"
    hidden, shown = look("build", ".venv", "gone", ".relay")
    assert (sorted(hidden), shown) == (["build/later", "build/session"], said)

    (box.root / "build/session").unlink()
    box.write("build/session", "the user's now")
    assert look("build")[0] == ["build/later"]


def test_a_relay_that_was_killed_leaves_a_session_that_ends_with_the_next_run(box, look):
    repo = box.open()
    watch = watch_sessions(repo)
    watch.__enter__()
    box.write("a.log", "x")
    end_span(repo)
    box.write("b.log", "x")
    end_span(repo)
    assert look("a.log", "b.log")[0] == ["a.log"]
    with watch_sessions(repo):
        box.write("c.log", "x")
        assert look("b.log", "c.log")[0] == ["c.log"], "the gate runs while the session is watched"


@pytest.mark.parametrize("note", ["{", "3", "[[1]]", '[["a", 2]]', "[[1, 2, 3]]", "\xff"])
def test_a_note_that_is_not_relays_says_nothing(box, look, note):
    box.open().make_relay_dir()
    box.write("a.log", "x")
    (box.root / NOTE).write_text(note)
    assert look("a.log") == ([], "")


def test_a_clock_that_was_set_back_hides_nothing(box, look):
    """What is dated between the two readings counts."""
    repo = box.open()
    box.write("a.log", "x")
    date = (box.root / "a.log").stat().st_ctime_ns
    repo.make_relay_dir()
    for spans in (
        [[date - 5, date + 5]],
        [[date + 9, date - 9]],
        [[date - 9, date + 9], [date - 12, date - 5]],
    ):
        (box.root / NOTE).write_text(json.dumps(spans))
        assert look("a.log")[0] == ["a.log"], spans


def test_the_oldest_of_very_many_sessions_become_one(box):
    """The note stays small."""
    repo = box.open()
    repo.make_relay_dir()
    (box.root / NOTE).write_text(json.dumps([[number, number] for number in range(1, 2_001)]))
    with watch_sessions(repo):
        first, second, *_, last = read_spans(repo)
    assert (len(read_spans(repo)), first.start, first.end, second.start, last.end) == (2_000, 1, 2, 3, None)
