"""`relay ledger`: claims of sessions and people about the project, whether they still hold, and why."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from relay.base.errors import ExitCode, LedgerError, RepoError, within
from relay.base.values import dataclass
from relay.base.words import count
from relay.cli.boundary import note_plan
from relay.cli.options import json_option, plan_option
from relay.cli.screen import say, say_document
from relay.plan.text import find_ledger_path

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.ledger.belief import Belief, Judgement
    from relay.ledger.model import Claim, Entry, Ledger, Source

KINDS = ("decision", "constraint", "observation", "dead end", "warning")
BUDGET_TOKENS = 1_500
MAX_BESIDE = 3
"""Most standing claims that are shown beside a new one."""
LOCK_WAIT_S = 3.0
"""Seconds to wait for another command that is writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The ledger in the work tree, judged."""

    repo: "Repo"
    path: str
    plan_path: str
    ledger: "Ledger"
    changed: "dict[Source, str]"
    """Sources that have changed, each with a description of its change."""
    judgement: "Judgement"

    def require(self, name: str) -> "Claim":
        """Return a claim.

        Raises:
            LedgerError: No claim has this id.
        """
        claim = self.ledger.claims.get(name)
        if claim is None:
            raise LedgerError(f"there is no claim {name!r}", path=self.path, hint="relay ledger list")
        return claim


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return plan_option(json_option(function))


_because = click.option("--because", required=True, metavar="TEXT", help="Your reason.")
_claim_id = click.argument("claim_id", metavar="ID", help="Claim id from `relay ledger list`.")


@click.group("ledger")
def command() -> None:
    """Show and change the ledger beside the plan: claims with reasons and sources, and whether they still hold.

    Changes go to the ledger's file; the next run commits it.
    """


@command.command("list", short_help="List all claims with their status.")
@_options
def list_claims(plan: str | None, *, as_json: bool) -> None:
    """List every claim with its kind, its status, and the reason if it is out or in doubt."""
    from relay.ledger.snapshot import describe_belief, describe_nogood

    found = _open(plan)
    claims = found.ledger.claims.values()
    if as_json:
        say_document({"claims": [_render(found, claim) for claim in claims], **_render_open(found)})
        return
    for nogood in found.judgement.contradictions:
        say(describe_nogood(nogood).removeprefix("- "), style="red")
    for claim in claims:
        belief = found.judgement[claim.id]
        say(describe_belief(claim, belief).removeprefix("- "), style=_style(belief))
    if not claims:
        say(f"{found.path}: no claims")


@command.command("show", short_help="Show a claim in full.")
@_claim_id
@_options
def show_claim(plan: str | None, claim_id: str, *, as_json: bool) -> None:
    """Show a claim with its text, reason and sources."""
    found = _open(plan)
    claim = found.require(claim_id)
    known = _render(found, claim)
    if as_json:
        say_document(known)
        return
    for key, value in known.items():
        words = "; ".join(map(_say_item, value)) if isinstance(value, list) else value
        if words:
            say(f"{key:<10} {words}")


@command.command("why", short_help="Explain why a claim holds or not.")
@_claim_id
@_options
def explain_claim(plan: str | None, claim_id: str, *, as_json: bool) -> None:
    """Explain why a claim holds or not: its premises, its replacement, its author, and its sources as they are now."""
    from relay.ledger.snapshot import render_why

    found = _open(plan)
    found.require(claim_id)
    text = render_why(found.ledger, found.judgement, found.changed, claim_id)
    if as_json:
        say_document({**_render(found, found.require(claim_id)), "explanation": text.split("\n")})
    else:
        say(text)


@command.command("check", short_help="List the claims that need another look.")
@_options
def check_ledger(plan: str | None, *, as_json: bool) -> int:
    """List claims that are stale, in doubt or contradictory, and ids that no entry has.

    The exit status is 1 if there are any.
    """
    found = _open(plan)
    remarks = list(_iter_remarks(found))
    if as_json:
        say_document({"remarks": remarks, **_render_open(found)})
    else:
        for words in remarks:
            say(words, style="yellow")
        say(f"{found.path}: {count(len(found.ledger.claims), 'claim')}, {len(remarks)} to look at")
    return ExitCode.USER if remarks else ExitCode.DONE


def _iter_remarks(found: Open) -> Iterable[str]:
    for name, belief in found.judgement.beliefs.items():
        if belief.status in {"stale", "in doubt"}:
            yield f"{name} is {belief.status}: {belief.because}"
    for nogood in found.judgement.contradictions:
        yield f"{nogood.id}: {', '.join(nogood.claims)} cannot all hold: {nogood.because}"
    known = found.ledger.claims
    for entry in found.ledger.entries:
        names = (getattr(entry, key, ()) for key in ("rests_on", "replaces", "claims"))
        for name in (getattr(entry, "of", ""), *(name for listed in names for name in listed)):
            if name and name not in known:
                yield f"{getattr(entry, 'id', 'an entry')} names {name}, which is not in the ledger"


@command.command("compact", short_help="Print the most important claims within a token budget.")
@click.option(
    "--budget",
    type=click.IntRange(min=0),
    default=BUDGET_TOKENS,
    metavar="TOKENS",
    show_default=True,
    help="Limit, in estimated tokens.",
)
@_options
def compact_ledger(plan: str | None, budget: int, *, as_json: bool) -> None:
    """Print the ledger as sessions see it, within a token budget."""
    from relay.ledger.snapshot import render_snapshot
    from relay.session.usage import estimate_tokens

    found = _open(plan)
    text = render_snapshot(found.ledger, found.judgement, budget)
    if as_json:
        say_document({"text": text, "tokens": estimate_tokens(text)})
    elif text:
        say(text.rstrip("\n"))


@command.command("add", short_help="Add a claim.")
@click.argument("text", help="Your claim, in a sentence.")
@_because
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="Kind of claim.")
@click.option("--source", "places", multiple=True, metavar="PATH[:10-20]", help="Source of the claim; repeatable.")
@click.option("--rests-on", multiple=True, metavar="ID", help="Claim that this one follows from; repeatable.")
@click.option("--replaces", multiple=True, metavar="ID", help="Claim that this one replaces; repeatable.")
@_options
def add_claim(plan: str | None, text: str, because: str, *, as_json: bool, **given: Any) -> None:
    """Add a claim of your own. Sessions see it before their own claims of the same kind."""
    from relay.ledger.model import Claim, Kind, Stamp

    def make(found: Open) -> "Claim":
        for name in (*given["rests_on"], *given["replaces"]):
            found.require(name)
        at = found.ledger.make_time(_now(), given["replaces"])
        return Claim(
            id=found.ledger.make_id("c", (at, text, because)),
            claim=text,
            because=because,
            kind=Kind(given["kind"]),
            rests_on=given["rests_on"],
            replaces=given["replaces"],
            sources=_cite(found, given["places"]),
            stamp=Stamp(at=at),
        )

    _write(plan, make, as_json=as_json)


@command.command("retract", short_help="Retract a claim, and with it claims that rest on it.")
@_claim_id
@_because
@_options
def retract_claim(plan: str | None, claim_id: str, because: str, *, as_json: bool) -> None:
    """Retract a claim. Claims that rest on it alone are out then too; `confirm` restores all of them."""
    from relay.ledger.model import Retraction, Stamp

    def make(found: Open) -> "Entry":
        found.require(claim_id)
        stamp = Stamp(at=found.ledger.make_time(_now(), [claim_id]))
        return Retraction(of=claim_id, because=because, stamp=stamp)

    _write(plan, make, as_json=as_json)


@command.command("confirm", short_help="Confirm a claim, with its sources as they are now.")
@_claim_id
@_because
@_options
def confirm_claim(plan: str | None, claim_id: str, because: str, *, as_json: bool) -> None:
    """Confirm that a claim holds: it is then neither stale nor retracted."""
    from relay.ledger.model import Confirmation, Stamp

    def make(found: Open) -> "Entry":
        there = [str(source) for source in found.require(claim_id).sources if not _find_fault(found.repo, source)]
        stamp = Stamp(at=found.ledger.make_time(_now(), [claim_id]))
        return Confirmation(of=claim_id, because=because, sources=_cite(found, there), stamp=stamp)

    _write(plan, make, as_json=as_json)


@command.command("nogood", short_help="Record that claims contradict each other.")
@click.argument("claim_ids", metavar="ID...", nargs=-1, required=True, help="Claim ids from `relay ledger list`.")
@_because
@_options
def note_nogood(plan: str | None, claim_ids: tuple[str, ...], because: str, *, as_json: bool) -> None:
    """Record that claims cannot all hold. The least entrenched premise counts as out until you retract one of them."""
    from relay.ledger.model import Nogood, Stamp

    def make(found: Open) -> "Entry":
        for name in claim_ids:
            found.require(name)
        stamp = Stamp(at=_now())
        name = found.ledger.make_id("n", (stamp.at, *claim_ids, because))
        return Nogood(id=name, claims=claim_ids, because=because, stamp=stamp)

    _write(plan, make, as_json=as_json)


def _open(plan: str | None) -> Open:
    """Read the ledger of a plan from the work tree, and judge it.

    Raises:
        LedgerError: The file is not a valid ledger.
    """
    place = note_plan(plan)
    return _read(place.repo, place.plan_name)


def _read(repo: "Repo", plan_path: str) -> Open:
    from relay.store.staleness import read_judged_ledger

    ledger, changed, judgement = read_judged_ledger(repo, plan_path)
    path = find_ledger_path(plan_path)
    return Open(repo=repo, path=path, plan_path=plan_path, ledger=ledger, changed=changed, judgement=judgement)


def _write(plan: str | None, make: "Callable[[Open], Entry]", *, as_json: bool) -> None:
    """Append an entry to the ledger's file, under the lock that sessions hold while they commit it."""
    from relay.base.tree import replace_file
    from relay.git.notes import lock_worktree
    from relay.git.trees import FILE
    from relay.ledger.model import append_entry
    from relay.plan.text import encode_text

    found = _open(plan)
    with lock_worktree(found.repo, wait_s=LOCK_WAIT_S), within(found.path):
        found = _read(found.repo, found.plan_path)  # the former holder of the lock may have changed it
        entry = make(found)
        replace_file(found.repo.root, found.path, encode_text(append_entry(found.ledger, entry).text), FILE)
    name = getattr(entry, "id", "") or getattr(entry, "of", "")
    if as_json:
        say_document({"id": name, "path": found.path})
    else:
        say(f"{name}: written to {found.path}; the next run commits it", style="green")
        _show_beside(found, entry)


def _show_beside(found: Open, entry: "Entry") -> None:
    """Show the claims that a new one may rest on, replace or contradict."""
    from relay.ledger.belief import find_beside
    from relay.ledger.model import Claim
    from relay.ledger.snapshot import describe_belief

    beside = find_beside(found.ledger, found.judgement, entry) if isinstance(entry, Claim) else ()
    for other in beside[:MAX_BESIDE]:
        say(f"beside {describe_belief(other, found.judgement[other.id]).removeprefix('- ')}")
    if beside:
        say("If two cannot both hold: relay ledger nogood ID ID, or retract one of them.")


def _cite(found: Open, places: Iterable[str]) -> "tuple[Source, ...]":
    """Return sources with their present content.

    Raises:
        RepoError: A source is no file of the repository that may be shown.
    """
    from relay.ledger.citation import parse_place
    from relay.store.staleness import cite_sources

    sources = tuple(map(parse_place, places))
    for source in sources:
        if words := _find_fault(found.repo, source):
            raise RepoError(words)
    return cite_sources(found.repo, sources, (found.path, found.plan_path))


def _find_fault(repo: "Repo", source: "Source") -> str:
    """Return why a source cannot be cited; empty if it can."""
    from relay.base.tree import read_file
    from relay.ledger.citation import explain_missing

    data = None if repo.hidden.covers(source.path) else read_file(repo.root, source.path)
    if data is None:
        return f"{source}: no such file; a source is path, path:line or path:first-last, from the root"
    return explain_missing(source, data)


def _now() -> str:
    from relay.ledger.model import render_stamp_time

    return render_stamp_time(datetime.now(UTC))


def _render(found: Open, claim: "Claim") -> dict[str, Any]:
    """Return a claim with its status as JSON."""
    belief = found.judgement[claim.id]
    sources = [
        {
            "path": s.path,
            "lines": s.lines,
            "blob": s.blob,
            "changed": found.changed.get(s, ""),
            "place": str(s),
        }
        for s in claim.sources
    ]
    return {
        "id": claim.id,
        "kind": str(claim.kind),
        "status": str(belief.status),
        "why": belief.because,
        "claim": claim.claim,
        "because": claim.because,
        "rests_on": list(claim.rests_on),
        "replaces": list(claim.replaces),
        "sources": sources,
        "phase": claim.stamp.phase,
        "session": claim.stamp.session,
        "at": claim.stamp.at,
    }


def _render_open(found: Open) -> dict[str, Any]:
    nogoods = found.judgement.contradictions
    return {"contradictions": [{"id": n.id, "claims": list(n.claims), "because": n.because} for n in nogoods]}


def _say_item(item: Any) -> str:
    if isinstance(item, str):
        return item
    return str(item["changed"] or item["place"])


def _style(belief: "Belief") -> str:
    return {"out": "dim", "stale": "yellow", "in doubt": "yellow"}.get(belief.status, "")
