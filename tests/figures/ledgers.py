"""Ledgers for property tests."""

from hypothesis import strategies as st

from relay.ledger.model import Claim, Confirmation, Entry, Kind, Nogood, Retraction, Source, Stamp

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip)
PATHS = TEXTS.filter(lambda text: "\0" not in text)
HASHES = st.sampled_from(("", "0123abc", "f" * 64))
LINES = st.sampled_from(("", "3", "10-24"))
SOURCES = st.builds(Source, path=PATHS, blob=HASHES, text=HASHES, lines=LINES)
STAMPS = st.builds(
    Stamp,
    phase=st.sampled_from(("", "2")),
    session=st.sampled_from(("", "ab12")),
    at=st.sampled_from(("", "2026-11-20T10:00:00Z", "2026-11-20T10:00:01Z")),
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, ...]:
    """Entries as sessions, people and merges may leave them: what they name may stand behind them, or nowhere."""
    names = tuple(f"c{number}" for number in range(draw(st.integers(0, 8))))
    some = st.lists(st.sampled_from((*names, "gone")), max_size=3).map(tuple)
    made: list[Entry] = [
        Claim(
            id=name,
            claim=draw(TEXTS),
            because=draw(TEXTS),
            kind=draw(st.sampled_from(Kind)),
            rests_on=draw(some),
            replaces=draw(some),
            sources=tuple(draw(st.lists(SOURCES, max_size=2))),
            stamp=draw(STAMPS),
        )
        for name in names
    ]
    for number in range(draw(st.integers(0, 3))):
        because, stamp, of = draw(TEXTS), draw(STAMPS), draw(st.sampled_from((*names, "gone")))
        looked = tuple(draw(st.lists(SOURCES, max_size=1)))
        later: tuple[Entry, ...] = (
            Retraction(of=of, because=because, stamp=stamp),
            Confirmation(of=of, because=because, sources=looked, stamp=stamp),
            Nogood(id=f"n{number}", claims=draw(some), because=because, stamp=stamp),
        )
        made.append(later[draw(st.integers(0, 2))])
    return tuple(dict.fromkeys(draw(st.permutations(made))))
