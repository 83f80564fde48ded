"""`relay ledger`: claims of sessions and people about the project, whether they still hold, and why."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from relay.base.errors import LedgerError, RepoError, within
from relay.base.tree import read_file
from relay.base.values import dataclass
from relay.cli.boundary import note_place
from relay.cli.documents import ClaimSource, LedgerClaim, LedgerDocument, fill
from relay.cli.options import json_option, plan_option
from relay.cli.screen import say, say_document
from relay.git.notes import lock_worktree
from relay.git.repository import Repo
from relay.ledger.belief import ClaimStatus, Judgement, find_beside
from relay.ledger.citation import explain_missing, parse_place
from relay.ledger.model import (
    Claim,
    Entry,
    Kind,
    Ledger,
    Record,
    Retraction,
    Source,
    Stamp,
    append_entry,
    make_entries,
    render_stamp_time,
)
from relay.ledger.snapshot import (
    count_claims,
    describe_belief,
    describe_nogood,
    explain_claim,
    list_work,
    render_snapshot,
)
from relay.plan.text import encode_text, find_ledger_path
from relay.setup.place import Place
from relay.store.loose import write_own
from relay.store.staleness import cite_sources, may_cite, read_judged_ledger

KINDS = ("decision", "constraint", "observation", "dead end", "warning")
_STYLES = {"out": "dim", "stale": "yellow", "in doubt": "yellow"}
BUDGET_TOKENS = 1_500
MAX_BESIDE = 3
"""Most standing claims that are shown beside a new one."""
LOCK_WAIT_S = 3.0
"""Seconds to wait for another command that is writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The ledger in the work tree, judged."""

    repo: Repo
    path: str
    plan_path: str
    ledger: Ledger
    changed: dict[Source, str]
    """Sources that have changed, each with a description of its change."""
    judgement: Judgement

    def require(self, *names: str, settles: bool = False) -> None:
        """Raise LedgerError if no claim, or with `settles` no claim and no contradiction, has one of these ids."""
        known = self.ledger.claims.keys() | (self.ledger.nogoods.keys() if settles else ())
        if unknown := [name for name in names if name not in known]:
            raise LedgerError(f"there is no claim {unknown[0]!r}", path=self.path, hint="relay ledger list")


def _link(name: str, words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, multiple=True, metavar="ID", help=f"{words}; repeatable.")


_because = click.option("--because", required=True, metavar="TEXT", help="Your reason.")


@click.group("ledger")
def command() -> None:
    """Show and change the ledger beside the plan: claims with reasons and sources, and whether they still hold.

    Changes go to the ledger's file; the next run commits it.
    """


@command.command("list", short_help="List all claims with their status, or explain one.")
@click.argument("claim_id", metavar="[CLAIM]", required=False, help="Claim id: show it in full, and why it stands so.")
@plan_option
@json_option
def list_claims(plan: str | None, claim_id: str | None, *, as_json: bool) -> None:
    """List every claim with its status, open contradictions first, and what is to be done.

    With a claim's id: its text, reason, author and sources as they are now, and the claims that it goes back to.
    """
    found = _read(note_place(plan))
    ledger, judgement = found.ledger, found.judgement
    nogoods = judgement.contradictions
    found.require(*([claim_id] if claim_id else ()), settles=True)
    asked = ledger.nogoods.get(claim_id or "")
    shown = dict.fromkeys(asked.claims if asked else [claim_id] if claim_id else ledger.claims)
    names = [name for name in shown if name in ledger.claims]
    stale = [name for name in ledger.claims if judgement[name].status is ClaimStatus.STALE]
    todo = list_work([nogood.id for nogood in nogoods], stale)
    why = {name: explain_claim(ledger, judgement, found.changed, name) for name in names} if claim_id else {}
    if as_json:
        claims = tuple(_render(found, ledger.claims[name], why.get(name, ())) for name in names)
        say_document(fill(LedgerDocument, None, claims=claims, contradictions=nogoods, to_do=todo))
        return
    for nogood in () if claim_id else nogoods:
        say(describe_nogood(nogood), style="red")
    if asked:
        say(describe_nogood(asked) + ("" if asked in nogoods else " (settled)"), style="red")
    for name in names:
        lines = why.get(name) or (describe_belief(ledger.claims[name], judgement[name]),)
        for line in lines:
            say(line, style=_STYLES.get(judgement[name].status, ""))
    for words in () if claim_id else todo:
        say(f"to do: {words}", style="yellow")
    if claim_id is None:
        say(f"{found.path}: {count_claims(judgement)}")


@command.command("compact", short_help="Print the most important claims within a token budget.")
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=BUDGET_TOKENS,
    metavar="TOKENS",
    show_default=True,
    help="Limit, in estimated tokens.",
)
@plan_option
def compact_ledger(plan: str | None, budget: int) -> None:
    """Print the ledger as sessions see it, within a token budget."""
    found = _read(note_place(plan))
    if text := render_snapshot(found.ledger, found.judgement, budget):
        say(text.rstrip("\n"))


@command.command("add", short_help="Add a claim, or confirm claims, or say that claims contradict each other.")
@click.argument("text", default="", help="Your claim, in a sentence. None: with --confirms, or --contradicts of two.")
@_because
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Kind of claim.")
@click.option("--source", "places", multiple=True, metavar="PATH[:10-20]", help="Source of the claim; repeatable.")
@_link("--rests-on", "Claim that this one follows from")
@_link("--replaces", "Claim that this one replaces for good, or contradiction that it settles")
@_link("--contradicts", "Claim that cannot hold together with this one")
@_link("--confirms", "Claim that you looked at again, and that holds")
@plan_option
def add_claim(plan: str | None, text: str, kind: str, places: tuple[str, ...], **given: Any) -> None:
    """Add a claim of your own. Sessions see it before their own claims of the same kind, and cannot replace it.

    A claim that you confirm is neither stale nor retracted; without --source its own sources are cited as they are now.
    """
    links = ("rests_on", "replaces", "contradicts", "confirms")
    bare = bool(given["confirms"]) or len(given["contradicts"]) > 1
    if not (text.strip() or bare) or (given["confirms"] and (text or any(given[name] for name in links[:-1]))):
        raise click.UsageError("say your claim; --confirms stands alone, and takes none", click.get_current_context())

    def make(found: Open, stamp: Stamp) -> tuple[Entry, ...]:
        for link in links:
            found.require(*given[link], settles=link == "replaces")
        record = Record(claim=text.strip(), kind=Kind(kind), sources=_cite(found, places), **given)
        if not record.confirms or places:
            return make_entries(found.ledger, record, stamp)
        records = []
        for name in record.confirms:  # its own sources that can be cited now
            there = [str(one) for one in found.ledger.claims[name].sources if not _find_fault(found.repo, one)]
            cited = _cite(found, there)
            records.append(Record(claim="", because=record.because, confirms=(name,), sources=cited))
        return tuple(entry for one in records for entry in make_entries(found.ledger, one, stamp))

    _write(plan, make)


@command.command("retract", short_help="Retract a claim, and with it claims that rest on it.")
@click.argument("claim_id", metavar="ID", help="Id of a claim or a contradiction from `relay ledger list`.")
@_because
@plan_option
def retract_claim(plan: str | None, claim_id: str, because: str) -> None:
    """Retract a claim. Claims that rest on it are out then too; `relay ledger add --confirms` brings all of them back.

    What the claim replaced stays out. A contradiction that you retract is settled: all of its claims hold.
    """

    def make(found: Open, stamp: Stamp) -> tuple[Entry, ...]:
        found.require(claim_id, settles=True)
        at = found.ledger.make_time(stamp.at, {claim_id})
        return (Retraction(of=claim_id, because=because, stamp=Stamp(at=at)),)

    _write(plan, make)


def _read(place: Place) -> Open:
    """Read the ledger of a plan from the work tree, and judge it.

    Raises:
        LedgerError: The file is not a valid ledger.
    """
    ledger, changed, judgement = read_judged_ledger(place.repo, place.plan_name)
    path, plan_path = find_ledger_path(place.plan_name), place.plan_name
    return Open(repo=place.repo, path=path, plan_path=plan_path, ledger=ledger, changed=changed, judgement=judgement)


def _write(plan: str | None, make: Callable[[Open, Stamp], tuple[Entry, ...]]) -> None:
    """Append entries to the ledger's file, under the lock that sessions hold while they commit it.

    Show the claims that a new one may rest on, replace or contradict.
    """
    place = note_place(plan)
    with lock_worktree(place.repo, wait_s=LOCK_WAIT_S), within(find_ledger_path(place.plan_name)):
        found = _read(place)
        entries = make(found, Stamp(at=render_stamp_time(datetime.now(UTC))))
        write_own(place.repo, place.plan_name, encode_text(append_entry(found.ledger, *entries).text), found.path)
    entry = entries[0]
    name = getattr(entry, "id", "") or getattr(entry, "of", "")
    say(f"{name}: written to {found.path}; the next run commits it", style="green")
    beside = find_beside(found.ledger, found.judgement, entry) if isinstance(entry, Claim) else ()
    for other in beside[:MAX_BESIDE]:
        say(f"beside {describe_belief(other, found.judgement[other.id])}")
    if beside:
        say("If two cannot both hold: relay ledger add --contradicts ID --contradicts ID, or retract one of them.")


def _cite(found: Open, places: Iterable[str]) -> tuple[Source, ...]:
    """Return sources with their present content.

    Raises:
        RepoError: A source is no file of the repository that may be shown.
    """
    sources = tuple(map(parse_place, places))
    for source in sources:
        if words := _find_fault(found.repo, source):
            raise RepoError(words)
    return cite_sources(found.repo, sources, (found.path, found.plan_path))


def _find_fault(repo: Repo, source: Source) -> str:
    """Return why a source cannot be cited; empty if it can."""
    data = read_file(repo.root, source.path) if may_cite(repo, source.path) else None
    if data is None:
        return f"{source}: no such file; a source is path, path:line or path:first-last, from the root"
    return explain_missing(source, data)


def _render(found: Open, claim: Claim, explanation: Sequence[str]) -> LedgerClaim:
    """Return a claim with its status as JSON."""
    belief, stamp = found.judgement[claim.id], claim.stamp
    sources = tuple(fill(ClaimSource, s, changed=found.changed.get(s, ""), place=str(s)) for s in claim.sources)
    given = {"status": belief.status, "why": belief.because, "explanation": tuple(explanation), "sources": sources}
    return fill(LedgerClaim, claim, **given, phase=stamp.phase, session=stamp.session, at=stamp.at)
