"""`relay ledger`: a person's claims beside those of sessions, from outside."""

from collections.abc import Callable
from pathlib import Path

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


def test_claims_of_a_person_are_kept_judged_settled_and_taken_back(
    relay: Callable[..., Ran], project: Path, commit: Callable[[], None]
) -> None:
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — A\nVerify: `true`\n- [ ] x — db.py\n")
    (project / "db.py").write_text(FILE)
    commit()

    def tell(words: str, *shown: str) -> str:
        ran = relay("ledger", *words.split("~"))
        assert [one for one in shown if one not in ran.out] == [], ran
        return ran.out.split(":")[0]

    def add(text: str, *words: str) -> str:
        return tell("~".join(("add", text, "--because", "so", *words)), "the next run commits it")

    one = add("keys are hex", "--source", "db.py:2")
    two = add("so they are 32 long", "--rests-on", one)
    rule = add("never log keys", "--kind", "constraint")
    tell("list", f"{one} decision: keys are hex — so (db.py:2)", "3 claims: 3 IN")
    tell(f"list~{two}", "said by a person", f"rests on {one} ")
    tell(f"list~{one}", "source db.py:2, as git has it in f384549cbeb4")
    refused = relay("ledger", "add", "x", "--because", "y", "--rests-on", "c9")
    assert (refused.code, "there is no claim 'c9'" in refused.err) == (1, True)

    (project / "db.py").write_text(FILE.replace("two", "2"))
    commit()
    stale = f"{one} decision, STALE (db.py:2 has changed"
    tell("list", stale, f"{two} decision, in doubt (rests on {one})", f"to do: look at {one} again")
    tell("compact", f"- {rule} constraint: never log keys — so\n- {stale}")
    tell("compact~--budget~60", "2 shown)")
    tell(f"add~--confirms~{one}~--because~read it", one)
    tell("list", "3 claims: 3 IN")

    other = add("keys are numbers", "--replaces", one)
    tell("list", f"{one} decision, OUT (replaced by {other})", f"{two} decision, OUT (rests on {one})")
    tell(f"retract~{other}~--because~they sort badly", other)
    near = tell("add~always log keys, never names~--because~so", f"beside {rule} constraint: never log keys")
    clash = tell(f"add~--contradicts~{rule}~--contradicts~{near}~--because~measured", "written")
    tell(f"list~{clash}", f"{clash} CONTRADICTION", f"{rule} constraint, in doubt (cannot hold together with {near}")
    tell(f"retract~{near}~--because~said already", near)
    tell("list", f"{rule} constraint: never log keys")


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
