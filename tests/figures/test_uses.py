"""Which claims were used again."""

from relay.ledger.belief import find_uses
from relay.ledger.model import Claim, Confirmation, Ledger, Retraction, Stamp


def claim(name: str, hour: int | None = 10, session: str = "s1", **given: tuple[str, ...]) -> Claim:
    return Claim(id=name, claim="x", because="y", stamp=at(hour, session), **given)  # type: ignore[arg-type]


def at(hour: int | None, session: str = "s1") -> Stamp:
    return Stamp(session=session, at="" if hour is None else f"2026-11-20T{hour:02}:00:00Z")


def test_a_claim_is_used_again_by_another_session_or_a_person() -> None:
    ledger = Ledger(
        entries=(
            claim("a"),
            claim("b", rests_on=("a",)),
            claim("c", session="s2", rests_on=("a", "b", "gone")),
            Confirmation(of="a", because="z", stamp=at(11, "s3")),
            Confirmation(of="a", because="z", stamp=at(11, "s3")),
            Confirmation(of="c", because="z", stamp=at(11, "s2")),
            Confirmation(of="b", because="z", stamp=at(11, "")),
            Retraction(of="a", because="z", stamp=at(11, "s4")),
        )
    )
    assert find_uses(ledger) == {"a": ("c", "s3"), "b": ("c", "")}
