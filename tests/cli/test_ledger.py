"""What texts on beliefs of agents ask of a ledger, as a person sees it: one story, a point of theirs a line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran

FILE = "one\ntwo\nthree\nfour\n"
OLD = """\
- {event: "claim", id: "c1", kind: "decision", claim: "keys are hex", because: "two services read them", \
sources: [{path: "db.py", lines: "2", blob: "f384549cbeb4", text: "64c5e5885a4b"}], at: "2026-11-28T21:17:48Z"}
- {event: "claim", id: "c2", kind: "decision", claim: "so they are 32 long", because: "hex of md5", \
rests_on: ["c1"], phase: "1", session: "ab12", at: "2026-11-28T21:17:52Z"}
- {event: "claim", id: "c3", kind: "observation", claim: "columns are char(32)", because: "follows", \
rests_on: ["c2"], phase: "1", session: "ab12", at: "2026-11-28T21:17:53Z"}
- {event: "claim", id: "c4", kind: "constraint", claim: "never log keys", because: "audit", at: "2026-11-28T21:17:54Z"}
- {event: "claim", id: "c5", kind: "dead end", claim: "md5 was tried in C", because: "slow", phase: "1", \
session: "ab12", at: "2026-11-28T21:17:55Z"}
- {event: "claim", id: "c6", kind: "decision", claim: "keys are upper case", because: "seen", phase: "2", \
session: "cd34", at: "2026-11-28T21:17:56Z"}
- {event: "claim", id: "c7", kind: "decision", claim: "keys are base64", because: "shorter", replaces: ["c6"], \
phase: "2", session: "cd34", at: "2026-11-28T21:18:04Z"}
- {event: "retract", of: "c7", because: "no", at: "2026-11-28T21:18:08Z"}
- {event: "confirm", of: "c3", because: "read it", sources: [{path: "db.py", lines: "4", blob: "f384549cbeb4", \
text: "f0a1b0f3c5d1"}], phase: "2", session: "cd34", at: "2026-11-28T21:18:09Z"}
- {event: "nogood", id: "n1", because: "measured", claims: ["c2", "c5"], at: "2026-11-28T21:18:10Z"}
"""
"""A ledger as relay wrote it, with all that can stand in one."""


@pytest.mark.nightly
def test_what_texts_on_beliefs_ask_for(relay: Callable[..., Ran], project: Path, commit: Callable[[], None]) -> None:
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — A\nVerify: `true`\n- [ ] x — db.py\n")
    (project / "db.py").write_text(FILE)
    commit()
    missed: list[str] = []

    def see(points: str, words: str, *shown: str, lacks: tuple[str, ...] = ()) -> str:
        ran = relay("ledger", *words.split("~"))
        missed.extend(f"{points}: {words}: {one!r} in {ran}" for one in shown if one not in ran.out)
        missed.extend(f"{points}: {words}: no {one!r} in {ran}" for one in lacks if one in ran.out)
        return ran.out.split(":")[0]

    def add(text: str, *words: str) -> str:
        return see("58 59", "~".join(("add", text, "--because", "so", *words)), "the next run commits it")

    one = add("keys are hex", "--source", "db.py:2")
    two = add("so they are 32 long", "--rests-on", one)
    three = add("columns are char(32)", "--rests-on", two)
    rule = add("never log keys", "--kind", "constraint")
    assert "because" in (project / "PLAN.ledger.yaml").read_text()
    see("57 62 63", "list", f"{one} decision: keys are hex — so (db.py:2)", "4 claims: 4 IN")
    see("60 71 80", f"list~{three}", "because so", "said by a person", f"rests on {two} ", f"  rests on {one} ",
        "source db.py:2, as git has it in f384549cbeb4")  # fmt: skip
    refused = relay("ledger", "add", "x", "--because", "y", "--rests-on", "c9")
    assert (refused.code, "there is no claim 'c9'" in refused.err) == (1, True)

    (project / "db.py").write_text(FILE.replace("four", "4"))
    commit()
    see("65", "list", lacks=("STALE",))
    (project / "db.py").write_text(FILE.replace("two", "2"))
    commit()
    stale = f"{one} decision, STALE (db.py:2 has changed (by "
    see("64 66", "list", stale, f"{three} decision, in doubt (rests on {two})", "1 IN, 2 in doubt, 1 STALE",
        f"to do: look at {one} again")  # fmt: skip
    see(
        "74 75 76",
        "compact",
        f"- {rule} constraint: never log keys — so\n- {stale}",
        f"To do: look at {one} again: say that it holds (`confirms`) or what `replaces` it.\n(4 claims: 1 IN, ",
    )
    see("72 73", "compact~--budget~60", "2 shown)", lacks=("keys are hex",))
    see("70", f"add~--confirms~{one}~--because~read it", one)
    see("70", f"list~{one}", "confirmed by a person", "source db.py:2, as git has it in ea14", lacks=("STALE",))
    see("66 70", "list", "4 claims: 4 IN", lacks=("to do",))

    other = add("keys are numbers", "--replaces", one)
    see("61 66", "list", f"{one} decision, OUT (replaced by {other})", f"{three} decision, OUT (rests on {two})")
    see("61", f"retract~{other}~--because~they sort badly", other)
    see("61", f"list~{other}", f"{other} decision, OUT (taken back: they sort badly)", "taken back by a person")
    see("61", "list", f"{one} decision, OUT (replaced by {other})", "4 OUT")

    near = see("68", "add~always log keys, never names~--because~so", f"beside {rule} constraint: never log keys")
    clash = see("67", f"add~--contradicts~{rule}~--contradicts~{near}~--because~measured", "written")
    see("67 75", "compact", f"- {clash} CONTRADICTION of {rule}, {near}: measured\n- {rule} constraint, in doubt (",
        f"To do: settle {clash}: ")  # fmt: skip
    see(
        "67",
        f"list~{clash}",
        f"{clash} CONTRADICTION",
        f"{rule} constraint, in doubt (cannot hold together with {near}",
    )
    see("67", f"retract~{near}~--because~said already", near)
    see("67", "list", f"{rule} constraint: never log keys", lacks=("CONTRADICTION", "in doubt"))
    assert missed == []


def test_a_ledger_as_relay_wrote_it_is_read(
    relay: Callable[..., Ran], project: Path, commit: Callable[[], None]
) -> None:
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — A\nVerify: `true`\n- [ ] x — db.py\n")
    (project / "db.py").write_text(FILE)
    (project / "PLAN.ledger.yaml").write_text(OLD)
    commit()
    assert (
        relay("ledger", "list").out
        == """\
n1 CONTRADICTION of c2, c5: measured
c1 decision: keys are hex — two services read them (db.py:2)
c2 decision, in doubt (cannot hold together with c5: measured): so they are 32 long — hex of md5 (rests on c1)
c3 observation: columns are char(32) — follows (rests on c2)
c4 constraint: never log keys — audit
c5 dead end, in doubt (cannot hold together with c2: measured): md5 was tried in C — slow
c6 decision, OUT (replaced by c7): keys are upper case
c7 decision, OUT (taken back: no): keys are base64
to do: settle n1: say what `replaces` one of its claims, or n1 itself if all of them hold
PLAN.ledger.yaml: 7 claims: 3 IN, 2 in doubt, 2 OUT
"""
    )
    assert relay("ledger", "add", "one more", "--because", "so").code == 0
    assert (project / "PLAN.ledger.yaml").read_text().startswith(OLD)


def test_a_hostile_ledger_is_shown_in_printable_lines_and_reads_nothing_outside(
    relay: Callable[..., Ran], project: Path, commit: Callable[[], None], tmp_path: Path
) -> None:
    """Whether a file outside has some content cannot be asked by the id of a source; circles end."""
    (tmp_path / "secret").write_text("outside\n")
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — A\nVerify: `true`\n- [ ] x — db.py\n")
    (project / "link").symlink_to(tmp_path / "secret")
    (project / "folder").symlink_to(tmp_path, target_is_directory=True)
    outside = (str(tmp_path / "secret"), "../secret", "folder/secret", "link", "a/../../secret", ".git/config")
    sources = ", ".join(f'{{path: "{path}", blob: "0123abc"}}' for path in outside)
    text = r'"\e[2J\e]0;x\a [red]a\n- {event: x}\u202e"'
    (project / "PLAN.ledger.yaml").write_text(
        f"- {{event: claim, id: c1, claim: {text}, because: {text}, rests_on: [c2, gone], phase: {text}, "
        f"session: {text}, sources: [{sources}]}}\n"
        f"- {{event: claim, id: c2, claim: a, because: b, rests_on: [c1], replaces: [c3, c2]}}\n"
        f"- {{event: claim, id: c3, claim: a, because: b, replaces: [c2]}}\n"
        f"- {{event: confirm, of: c1, because: {text}, sources: [{sources}]}}\n"
        f"- {{event: nogood, id: n1, because: {text}, claims: [c1, n1, c1]}}\n"
    )
    commit()
    for words in (("list",), ("list", "c1"), ("list", "n1"), ("list", "c3"), ("compact",)):
        ran = relay("ledger", *words)
        assert (ran.code, ran.err) == (0, ""), words
        assert all(line.isprintable() for line in ran.out.splitlines()), ran.out
        assert "passwd has changed" not in ran.out, words
        assert "secret has changed" not in ran.out, words
    for place in set(outside) - {"link"}:  # git keeps the place that a link names, and so does its citation
        refused = relay("ledger", "add", "x", "--because", "y", "--source", place)
        assert refused.code != 0, place
        assert "outside" not in refused.err
