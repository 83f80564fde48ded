"""Why claims hold or not."""

from relay.ledger.belief import judge
from relay.ledger.model import Claim, Confirmation, Ledger, Nogood, Retraction, Source, Stamp
from relay.ledger.snapshot import MAX_LINES, explain_claim

CITED = Source(path="a.py", lines="3-9", blob="0123abc")
MADE = (
    Claim(
        id="c1",
        claim="ids are random",
        because="two services write",
        sources=(CITED, Source(path="b.py")),
        stamp=Stamp(phase="1", session="ab12", at="2026-11-20T10:00:00Z"),
    ),
    Claim(id="c2", claim='so "keys" [too]', because="ids", rests_on=("c1", "gone")),
    Claim(id="c3", claim="new", because="measured", replaces=("n1", "c2"), rests_on=("c1",)),
    Retraction(of="c2", because="wrong", stamp=Stamp(at="2026-11-20T10:00:00Z")),
    Confirmation(of="c2", because="not wrong", sources=(CITED,), stamp=Stamp(session="cd", at="2026-11-20T10:00:01Z")),
    Nogood(id="n1", claims=("c1", "gone"), because="both"),
)
CHANGED = {CITED: "a.py:3-9 has changed"}


def test_an_explanation_goes_down_to_the_sources() -> None:
    ledger = Ledger(entries=MADE)
    assert explain_claim(ledger, judge(ledger, CHANGED), CHANGED, "c2") == (
        'c2 decision, OUT (replaced by c3): so "keys" [too]',
        "  because ids",
        "  taken back by a person 2026-11-20T10:00:00Z: wrong",
        "  confirmed by session cd 2026-11-20T10:00:01Z: not wrong",
        "    source a.py:3-9 has changed, as git has it in 0123abc",
        "  rests on c1 decision, STALE (a.py:3-9 has changed): ids are random — two services write",
        "    said by session ab12 in phase 1 2026-11-20T10:00:00Z",
        "    source a.py:3-9 has changed, as git has it in 0123abc",
        "    source b.py",
        "    n1 CONTRADICTION of c1, gone: both (settled)",
        "  rests on gone, which is unknown",
        "  replaced by c3 decision, in doubt (rests on c1): new — measured",
        "    rests on c1 decision, STALE (a.py:3-9 has changed): ids are random — two services write (see above)",
        "    replaces n1",
        '    replaces c2 decision, OUT (replaced by c3): so "keys" [too] (see above)',
    )


def test_a_claim_is_explained_in_full_in_one_printable_line_for_each_fact() -> None:
    """However long its text is, and whatever a hostile ledger has for a phase or a session."""
    words, stamp = "word " * 200, Stamp(phase="1\x1b[2J", session="a\nb", at="2026-11-20T10:00:00Z")
    made = (Claim(id="c1", claim=words, because=words, stamp=stamp), Nogood(id="n1", claims=("c1",), because=words))
    ledger = Ledger(entries=made)
    lines = explain_claim(ledger, judge(ledger, {}), {}, "c1")
    assert lines[0].endswith(f": {words.strip()}")
    assert lines[1] == f"  because {words.strip()}"
    assert lines[2] == "  said by session a b in phase 1 [2J 2026-11-20T10:00:00Z"
    assert lines[3].startswith("  n1 CONTRADICTION of c1: word ")
    assert not lines[3].endswith("(settled)")
    assert all(line.isprintable() for line in lines)


def test_a_long_story_ends() -> None:
    made = [Claim(id=f"c{n}", claim="x", because="y", rests_on=(f"c{n + 1}",)) for n in range(MAX_LINES + 10)]
    ledger = Ledger(entries=tuple(made))
    assert len(explain_claim(ledger, judge(ledger, {}), {}, "c0")) == MAX_LINES
