"""The state of a plan on its remote: phases that are done, claimed, queued, or able to begin."""

import time
from collections.abc import Callable, Iterator, Sequence

from relay.base.errors import RepoError
from relay.base.words import count, render_usd
from relay.fleet.claims import ClaimRegistry, Claims, ClaimState, PhaseClaim, describe_claim, is_at_work, name_plan
from relay.fleet.engine import Placed, Ticket
from relay.fleet.exchange import read_there
from relay.git import refs
from relay.git.objects import is_ancestor
from relay.git.remote import RefUpdate, Remote
from relay.plan.model import Phase, Plan
from relay.plan.waves import find_ready
from relay.store.history import find_last_move, find_text
from relay.store.plan_versions import parse_at
from relay.store.refs import get_branch

_LIVE = {"todo": "queued as {}", "doing": "a worker has it as {}", "aborting": "{} is being taken back"}
"""Words for a ticket that has not ended, by its status."""


_MOST_SHOWN = 3
AS_REMOTE = "relay work: as the remote is"
"""The reflog's reason where relay moved a branch to the remote's tip."""


def fetch_plan(remote: Remote, branch: str, plan_path: str, *others: str) -> tuple[str, Plan]:
    """Fetch a remote's branch and return its commit and its plan; no local branch moves.

    Args:
        others: Refspecs to fetch with it.

    Raises:
        RelayError: The remote cannot be reached, or has no such plan.
    """
    # Not below the refs that fetching claims prunes: another process of this clone may do so at any moment.
    ref = f"refs/relay/tip/{name_plan(branch, plan_path)}"
    remote.fetch(f"+refs/heads/{branch}:{ref}", *others)
    tip = refs.find_ref(remote.repo, ref)
    if tip is None:
        raise RepoError(f"{remote.name} has no {branch}", hint=f"git push {remote.name} {branch}")
    text = find_text(remote.repo, tip, plan_path)
    if text is None:
        raise RepoError(f"{remote.name} has no {plan_path} on {branch}", hint="commit and push the plan")
    return tip, parse_at(text, plan_path)


def _is_at_work(claim: PhaseClaim) -> bool:
    return is_at_work(claim, now=time.time())


def require_pushed(remote: Remote, branch: str, tip: str) -> str:
    """Return where a clone's branch is, all of which its remote has.

    Raises:
        RepoError: It has commits that no worker would see.
    """
    repo = remote.repo
    own = repo.head()
    if own is not None and is_ancestor(repo, own, tip):
        return own
    words, push = f"{branch} has commits that {remote.name} has not", f"git push {remote.name} {branch}"
    if own is None:
        raise RepoError(words, hint=push)
    if find_last_move(repo, branch, own).startswith((AS_REMOTE, "clone: from ")):
        words = f"somebody has rewritten {branch} on {remote.name}: {own[:10]}, which it had, is not in it any more"
        ways = f"git branch kept-{own[:10]} {own[:10]} && git reset --keep {tip[:10]}; that branch keeps your commits"
        raise RepoError(words, hint=ways)
    if is_ancestor(repo, tip, own):
        raise RepoError(words, hint=push)
    raise RepoError(f"{words}, and lacks others", hint=f"git pull --rebase {remote.name} {branch} && {push}")


def select_phases(
    plan: Plan, claims: Claims, *, but: str = "", worker: str = "", is_alive: Callable[[PhaseClaim], bool] = _is_at_work
) -> tuple[Phase, ...]:
    """Return the phases that can begin beside those of live workers; `but` and `worker`'s own claims do not count."""
    held = (claim for claim in claims.held if is_alive(claim))
    return find_ready(plan, {claim.phase_id for claim in held if claim.worker != worker and claim.phase_id != but})


def find_tickets(remote: Remote, plan_path: str) -> tuple[Ticket, ...]:
    """Return a ticket for each phase that can begin now, and that does not wait for a person.

    Raises:
        RelayError: The remote cannot be reached, or has no such plan.
    """
    branch = get_branch(remote.repo)
    registry = open_registry(remote, branch, plan_path)
    _, plan = fetch_plan(remote, branch, plan_path, registry.refspec)
    claims = registry.recall()
    waiting = {claim.phase_id for claim in claims.held if claim.state is ClaimState.WAITS}
    phases = (phase for phase in select_phases(plan, claims) if phase.id not in waiting)
    address = remote.find_address()
    return tuple(Ticket(remote=address, branch=branch, plan_path=plan_path, phase_id=phase.id) for phase in phases)


def open_registry(remote: Remote, branch: str, plan_path: str, *, worker: str = "", lease_s: int = 0) -> ClaimRegistry:
    """Return the registry of claims on a plan's phases."""
    key = name_plan(branch, plan_path)
    return ClaimRegistry(remote=remote, plan_key=key, worker=worker, lease_s=lease_s, now=time.time)


def describe_fleet(remote: Remote, plan_path: str, placed: Sequence[Placed] | None, *, why: bool) -> Iterator[str]:
    """Yield a line for each phase and each reservation.

    Args:
        remote: The remote that has the plan.
        placed: The queue's tickets; None without a queue.
        why: Whether to say why nobody works on a phase.

    Raises:
        RelayError: The remote cannot be reached, or has no such plan.
    """
    branch = get_branch(remote.repo)
    registry = open_registry(remote, branch, plan_path)
    tip, plan = fetch_plan(remote, branch, plan_path, registry.refspec)
    claims = registry.recall()
    address, now = remote.find_address(), time.time()
    queued = {one.ticket: one for one in placed or () if one.status in _LIVE}
    ready = {phase.id for phase in select_phases(plan, claims)}
    done = sum(phase.done for phase in plan.phases)
    yield f"{plan_path} on {remote.name}/{branch} ({tip[:10]}): {done} of {len(plan.phases)} phases done"
    for phase in plan.phases:
        claim = claims.find(phase.id)
        job = queued.pop(Ticket(remote=address, branch=branch, plan_path=plan_path, phase_id=phase.id), None)
        words = [
            describe_claim(claim, now=now) if claim else _explain_open(plan, phase, is_ready=phase.id in ready, why=why)
        ]
        words += [] if job is None else [_describe_ticket(job)]
        if why and claim and claim.state is ClaimState.WAITS:
            words.append(f"relay work --phase {phase.id} takes it up")
        elif why and not claim and phase.id in ready and placed is not None and job is None:
            words.append("not queued: relay fleet submit")
        yield f"{phase.id:>4}  {phase.title}: {'done' if phase.done else '; '.join(words)}"
    if claims.reserved:
        yield f"reserved: {render_usd(claims.reserved_usd)}"
    for one in claims.find_lost(now):
        lost = f"{one.worker} may have spent it unseen on phase {one.phase_id} (attempt {one.attempt})"
        yield f"of it {render_usd(one.cost_usd)}: {lost}; relay fleet reap --lost USD books what it did, and frees it"
    for ticket, job in queued.items():
        whose = f"phase {ticket.phase_id} of {ticket.plan_path}, {ticket.branch} of {ticket.remote}"
        yield f"of another plan: {whose}: {_describe_ticket(job)}"


def _describe_ticket(job: Placed) -> str:
    tried = f", tried {count(job.attempts, 'time')}" if job.status == "todo" and job.attempts else ""
    return f"{_LIVE[job.status].format(job.number)}{tried}"


def _explain_open(plan: Plan, phase: Phase, *, is_ready: bool, why: bool) -> str:
    if is_ready:
        return "can begin"
    if not why:
        return "waits"
    if waits := plan.find_waits()[phase.id]:
        return f"waits for {', '.join(waits)}"
    return "waits for a path of a phase at work"


def explain_none(claims: Claims) -> str:
    """Return why no phase can be claimed, with the claims in the way."""
    now = time.time()
    held = (f"phase {claim.phase_id} is {describe_claim(claim, now=now)}" for claim in claims.held[:_MOST_SHOWN])
    return "; ".join(("no phase can begin: each open one waits for others, or for a path of a phase at work", *held))


def end_done_claims(registry: ClaimRegistry, plan: Plan, claims: Claims, name_branch: Callable[[str], str]) -> None:
    """End claims on phases that are done and remove their jobs' refs: a worker or a remote died while they landed.

    Raises:
        RemoteError: The remote cannot be reached, or does not want it.
    """
    for claim in claims.held:
        if (phase := plan.find_phase(claim.phase_id)) and phase.done:
            branch = name_branch(claim.phase_id)
            there = read_there(registry.remote, branch).get(branch, {})
            registry.give_back(claim, *(RefUpdate(ref=ref, old=commit, new=None) for ref, commit in there.items()))
