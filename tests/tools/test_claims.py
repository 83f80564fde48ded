"""What the model says about its work is noted, checked for form, and never believed."""

import pytest

from relay.ledger.model import Claim, Ledger, Nogood, Record, Source, Stamp
from relay.plan.edit import list_notes
from relay.plan.parse import parse_plan
from relay.tools.claims import HandOff


def list_texts(bench, phase_id="3"):
    return [item.text for item in bench.notes.plan.find_phase(phase_id).items]


def test_a_tick_is_a_claim(bench):
    """Ticking again changes nothing; the last one says what comes next; no file is written."""
    assert bench.ok("tick", item="2.2", evidence="3 passed") == "Claimed: 2.2 do 2.2\nStill open: 2.3."
    again = bench.ok("tick", item="2.2", evidence="second")
    assert again == "Already claimed: 2.2 do 2.2. Nothing changed.\nStill open: 2.3."
    known = bench.ok("tick", item="2.1", evidence="e")
    assert known == "Already ticked: 2.1 do 2.1. Nothing changed.\nStill open: 2.3."
    last = bench.ok("tick", item=" (2.3) ", evidence="e")
    assert "Nothing is open: end with a line `Commit: <what changed>`, and relay runs the checks." in last
    assert bench.notes.claims == {"2.2": "3 passed", "2.3": "e"}
    assert (bench.root / "PLAN.md").read_text() == "# Plan\n"


def test_ticks_that_cannot_be_are_refused(bench):
    for item, evidence, words in (
        ("9.9", "e", "There is no item '9.9'. Open items of phase 2: 2.2, 2.3."),
        ("3.1", "e", "3.1 belongs to phase 3, not to yours."),
        ("1.1", "e", "1.1 belongs to phase 1"),
        ("2.2", " \n", "evidence must not be empty"),
        ("2.2", "x" * 5_000, "4,000 are allowed"),
    ):
        assert words in bench.refused("tick", item=item, evidence=evidence)
    assert bench.notes.claims == {}


def test_records_keep_sources_that_exist(bench):
    bench.ok("record", claim="a returns 1", because="read it", sources=["./src/a.py:1-2", "src/a.py", "src/a.py:2"])
    bench.ok("record", claim="a returns 1", because="read it", sources=["./src/a.py:1-2", "src/a.py", "src/a.py:2"])
    bench.ok("record", claim="no source", because="asked", sources=[])
    sources = tuple(Source(path="src/a.py", lines=lines) for lines in ("1-2", "", "2"))
    assert bench.notes.records == [
        Record(claim="a returns 1", because="read it", sources=sources),
        Record(claim="no source", because="asked", sources=()),
    ]


def test_sources_that_are_not_there_or_not_shown_are_refused(bench):
    (bench.root / ".env").write_text("PASSWORD=x\n")
    for source in (
        "none.py",
        "src/a.py:9-3",
        "src/a.py:90",
        "src/a.py:1:4",
        "src/a.py::main",
        "",
        "../outside/secret.txt",
        ".env",  # its hash would tell what is in it
        ".git/config",
    ):
        bench.refused("record", claim="c", because="b", sources=[source])
    bench.refused("record", claim="c", because="b", sources=["/etc/passwd:1"])
    assert bench.notes.records == []


def claim(name, at="2026-11-20T10:00:00Z", session="ab12", **given):
    return Claim(id=name, claim=name, because="so", stamp=Stamp(at=at, session=session), **given)


@pytest.fixture
def known(bench):
    """A bench with a claim of a person, one with a source, and one that another has replaced; with contradictions."""
    cited = claim("c3", sources=(Source(path="src/a.py", lines="1"),), replaces=("c2",))
    clashes = (
        Nogood(id=f"n{n}", claims=("c1", "c3"), because="so", stamp=Stamp(at="2026-11-20T10:00:00Z", session=who))
        for n, who in enumerate(("ab12", ""))
    )
    bench.notes.ledger = Ledger(entries=(claim("c1", session=""), claim("c2"), cited, *clashes))
    return bench


def test_a_record_names_claims_that_it_rests_on_replaces_contradicts_or_confirms(known):
    known.ok("record", claim="a", because="b", sources=[], rests_on="c1, (c3)", replaces="c2")
    known.ok("record", claim="", because="b", sources=[], contradicts="c1 c3")
    known.ok("record", claim="both hold", because="b", sources=[], replaces="n0")
    known.ok("record", claim="said again", because="b", sources=["src/a.py:2"], confirms="#c3")
    assert known.notes.records == [
        Record(claim="a", because="b", rests_on=("c1", "c3"), replaces=("c2",), sources=()),
        Record(claim="", because="b", contradicts=("c1", "c3"), sources=()),
        Record(claim="both hold", because="b", replaces=("n0",), sources=()),
        Record(claim="", because="b", confirms=("c3",), sources=(Source(path="src/a.py", lines="2"),)),
    ]


def test_links_that_cannot_be_are_refused_with_what_is_allowed(known):
    for given, words in (
        ({"rests_on": "c9"}, "rests_on: there is no claim 'c9' in the ledger. Allowed: c3, c1."),
        ({"rests_on": "c2"}, "rests_on: c2 is out (replaced by c3). Allowed: c3, c1."),
        ({"contradicts": "c2"}, "contradicts: c2 is out"),
        ({"confirms": "c3"}, "sources: say where c3 stands now, as path, path:line"),
        ({"confirms": "c1", "rests_on": "c3"}, "confirms stands alone"),
        ({"rests_on": "c3", "replaces": "c3"}, "c3 can stand in one of rests_on, replaces, contradicts, confirms"),
        ({"replaces": "c1"}, "a person recorded c1, and only a person takes it back"),
        ({"replaces": "n1"}, "a person recorded n1, and only a person takes it back"),
        ({"replaces": "n9"}, "replaces: there is no claim 'n9' in the ledger"),
        ({"contradicts": "n0"}, "contradicts: there is no claim 'n0' in the ledger"),
        ({"claim": "", "contradicts": "c1"}, "claim must not be empty"),
        ({"claim": "", "replaces": "c3"}, "claim must not be empty"),
    ):
        assert words in known.refused("record", **{"claim": "a", "because": "b", "sources": [], **given})
    known.notes.ledger = Ledger()
    words = "rests_on: there is no claim 'c1' in the ledger. Allowed: none, for no claim of the ledger holds."
    assert known.refused("record", claim="a", because="b", sources=[], rests_on="c1") == words
    assert known.notes.records == []


def test_an_amendment_with_boxes_is_new_items(bench):
    change = "- [ ] first  thing — a.py\n* [ ] second\n1. [ ] third"
    assert "3 new items for phase 3" in bench.ok("amend", phase="3", change=change, why="missing")
    assert list_texts(bench)[1:] == ["first thing — a.py", "second", "third"]
    assert list_notes(bench.notes.plan)["3"] == ("amended: added 3 item(s) (because missing)",)


def test_an_amendment_without_boxes_is_a_note(bench):
    assert "a note for phase 2" in bench.ok("amend", phase="2", change="Use the\nnew API.", why="old one is gone")
    assert list_notes(bench.notes.plan)["2"] == ("amended: Use the new API. (because old one is gone)",)


def test_an_amendment_or_a_question_that_the_plan_holds_is_not_added_again(bench):
    """A session that was cut off has added it; another reason, or a claim, makes no new item of the same text."""
    asked = {"question": "Which port?", "assumed": "8080 [it is free]"}
    bench.ok("amend", phase="2", change="- [ ] say it twice", why="missing")
    bench.ok("amend", phase="3", change="Use `new()`.", why="the old one is gone")
    bench.ok("defer", **asked)
    text = bench.notes.plan.text
    bench.notes.questions.clear()

    assert "already" in bench.ok("amend", phase="2", change="* [ ] say it  twice", why="it is missing")
    assert "already" in bench.ok("amend", phase="3", change="Use `new()`.", why="the old one is gone")
    assert "Already asked" in bench.ok("defer", **asked)
    assert bench.notes.plan.text == text
    assert bench.notes.questions == []
    assert "1 new item for phase 2" in bench.ok(
        "amend", phase="2", change="- [ ] say it twice\n- [ ] once", why="missing"
    )
    assert list_texts(bench, "2")[-2:] == ["say it twice", "once"]


def test_amendments_that_cannot_be_are_refused(bench):
    text = bench.notes.plan.text
    for phase, change, words in (
        ("1", "x", "Phase 1 is done and cannot change. Open phases: 2, 3."),
        ("7", "x", "There is no phase '7'."),
        ("2", "- [x] already done", "begin unticked"),
        ("2", " ", "change must not be empty"),
    ):
        assert words in bench.refused("amend", phase=phase, change=change, why="w")
    assert bench.notes.plan.text == text


def test_a_phase_that_is_at_work_elsewhere_is_not_amended(bench):
    """Its session would not see it; a session's own phase is its own wherever it is."""
    bench.notes.find_beside = lambda: {"2", "3"}
    assert "Phase 3 is at work beside yours" in bench.refused("amend", phase="3", change="a note", why="w")
    bench.ok("amend", phase="2", change="a note", why="w")
    assert list_notes(bench.notes.plan)["2"] == ("amended: a note (because w)",)


def test_an_amendment_the_plan_could_not_take_is_refused_at_once(bench):
    notes = bench.notes
    notes.plan = parse_plan(f"{notes.plan.text}```\nan open fence")
    text = notes.plan.text
    bench.refused("amend", phase="3", change="a note", why="w")
    assert notes.plan.text == text


def test_a_hand_off_and_a_block_end_the_session(bench):
    result = bench.call("hand_off", next_step="write tests", learned=["a", " "], dead_ends=[])
    assert result.ends_session
    assert bench.notes.hand_off == HandOff(next_step="write tests", learned=("a",), dead_ends=())
    result = bench.call("block", reason="no password\x1b[31m")
    assert result.ends_session
    assert not result.is_error
    assert bench.notes.blocked == "no password"
    assert "must not be empty" in bench.refused("block", reason="")


def test_calls_and_failures_are_counted(bench):
    bench.ok("read", path="src/a.py")
    bench.refused("read", path="none")
    bench.refused("bash", command="exit 1")
    assert bench.notes.counts == {"read": 2, "bash": 1}
    assert bench.notes.last_errors["read"].startswith("No such file: none.")
    bench.ok("read", path="src/a.py")
    assert list(bench.notes.last_errors) == ["bash"]  # what was overcome is no dead end


KIRO = """\
# Plan
## Phase 1: All
- [ ] 1. Set up
  - [ ] 1.1 Create a
  - [ ] 1.2 Create b
- [ ] 2. Finish
- [ ] T005 [P] Document
- [ ] **Step 7**: tell
- [ ] **Step 70**: tell all
"""


def test_the_number_that_an_item_prints_ticks_that_item_and_no_other_words_do(bench):
    notes = bench.notes
    notes.plan = parse_plan(KIRO)
    notes.phase = notes.plan.phases[0]
    for asked in ("T00", "T", "Step", "1.4x", "", "*"):
        assert "There is no item" in bench.refused("tick", item=asked, evidence="e"), asked
    for asked, item_id, text in (
        ("1.1", "1.1", "1.1 Create a"),
        ("1", "1", "1. Set up"),
        ("2.", "2", "2. Finish"),
        ("T005", "1.5", "1.5 T005 [P] Document"),
        ("step 7", "1.6", "1.6 **Step 7**: tell"),
    ):
        assert bench.ok("tick", item=asked, evidence="e").startswith(f"Claimed: {text}\n")
        assert list(notes.claims)[-1] == item_id
