"""Why claims hold or not."""

from relay.ledger.belief import judge
from relay.ledger.model import Claim, Confirmation, Ledger, Nogood, Retraction, Source, Stamp
from relay.ledger.snapshot import explain_claim

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


def test_an_explanation_has_every_fact_and_link() -> None:
    ledger = Ledger(entries=MADE)
    judgement = judge(ledger, CHANGED)
    assert explain_claim(ledger, judgement, CHANGED, "c1")[-1] == "  n1 CONTRADICTION of c1, gone: both (settled)"
    assert "  replaces n1" in explain_claim(ledger, judgement, CHANGED, "c3")
    assert explain_claim(ledger, judgement, CHANGED, "c2") == (
        'c2 decision, OUT (replaced by c3): so "keys" [too]',
        "  because ids",
        "  taken back by a person 2026-11-20T10:00:00Z: wrong",
        "  confirmed by session cd 2026-11-20T10:00:01Z: not wrong",
        "    source a.py:3-9 has changed, as git has it in 0123abc",
        "  rests on c1 decision, STALE (a.py:3-9 has changed): ids are random — two services write",
        "  rests on gone, which is unknown",
        "  replaced by c3 decision, in doubt (rests on c1): new — measured",
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
