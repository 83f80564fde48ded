"""The state of a plan on its remote and in the queue: phases that are done, at work, queued, or able to begin."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from relay.base.errors import RepoError
from relay.base.words import render_span, render_usd
from relay.fleet.queue import Queue
from relay.fleet.takes import Placed, Standing, Take, Ticket, find_wait_s
from relay.git import refs
from relay.git.objects import is_ancestor
from relay.git.remote import Remote
from relay.plan.model import Phase, Plan
from relay.plan.waves import find_ready
from relay.store.history import find_text
from relay.store.plan_versions import parse_at

LIVE = frozenset({"todo", "doing", "aborting"})
"""Statuses of a ticket that has not ended."""


def fetch_plan(remote: Remote, branch: str, plan_path: str) -> tuple[str, Plan]:
    """Fetch a remote's branch and return its commit and its plan; no local branch moves.

    Raises:
        RelayError: The remote cannot be reached, or has no such plan.
    """
    remote.fetch(name_tip(branch, plan_path))
    return read_plan(remote, branch, plan_path)


def name_tip(branch: str, plan_path: str) -> str:
    """Return the refspec that brings a remote's branch, to a ref of its own for each plan.

    Another process of the same clone may fetch at any moment.
    """
    name = hashlib.sha256(f"{branch}\0{plan_path}".encode(errors="surrogateescape")).hexdigest()[:16]
    return f"+refs/heads/{branch}:refs/relay/tip/{name}"


def read_plan(remote: Remote, branch: str, plan_path: str) -> tuple[str, Plan]:
    """Return the commit of a remote's branch as it was last fetched, and its plan.

    Raises:
        RelayError: It has no such plan.
    """
    tip = refs.find_ref(remote.repo, name_tip(branch, plan_path).rpartition(":")[2])
    if tip is None:
        raise RepoError(f"{remote.name} has no {branch}", hint=f"git push {remote.name} {branch}")
    text = find_text(remote.repo, tip, plan_path)
    if text is None:
        raise RepoError(f"{remote.name} has no {plan_path} on {branch}", hint="commit and push the plan")
    return tip, parse_at(text, plan_path)


def require_pushed(remote: Remote, branch: str, tip: str) -> None:
    """Refuse a clone whose branch has commits that no worker would see.

    Raises:
        RepoError: It has.
    """
    own = remote.repo.head()
    if own is not None and is_ancestor(remote.repo, own, tip):
        return
    words, push = f"{branch} has commits that {remote.name} has not", f"git push {remote.name} {branch}"
    if own is None or is_ancestor(remote.repo, tip, own):
        raise RepoError(words, hint=push)
    raise RepoError(f"{words}, and lacks others", hint=f"git pull --rebase {remote.name} {branch} && {push}")


def find_tickets(queue: Queue, plan: Plan, own: Ticket) -> tuple[Ticket, ...]:
    """Return a ticket for each phase that can begin beside those at work, or is queued, and waits for no person.

    Args:
        plan: As the remote has it.
        own: Names the plan; with a phase, only that one, which may have waited for a person: he asks for it.

    Raises:
        RelayError: The database cannot be reached.
    """
    standing = queue.read(own.plan)
    placed = (one.ticket for one in queue.list_placed() if one.status in LIVE)
    queued = {one.phase_id for one in placed if one.plan == own.plan}  # it keeps its paths
    ready = {phase.id for phase in find_ready(plan, {*standing.held, *(queued - {own.phase_id})})}
    wanted = ready & {own.phase_id} if own.phase_id else (ready | queued) - {*standing.held, *standing.waits}
    return tuple(replace(own, phase_id=phase.id) for phase in plan.phases if phase.id in wanted and not phase.done)


def find_fleet_lines(
    plan: Plan, own: Ticket, standing: Standing, placed: Sequence[Placed], *, why: bool
) -> Iterator[tuple[Phase, str]]:
    """Yield each phase with its state in words.

    Args:
        own: Any ticket of the plan.
        why: Whether to say why nobody works on a phase.
    """
    queued = {one.ticket.phase_id: one for one in placed if one.status in LIVE and one.ticket.plan == own.plan}
    gone = {
        one.ticket.phase_id for one in placed if one.status in {"cancelled", "aborted"} and one.ticket.plan == own.plan
    }
    ready, waits, before = {phase.id for phase in find_ready(plan, standing.held)}, standing.waits, plan.find_waits()
    for phase in plan.phases:
        take, job = standing.held.get(phase.id), queued.get(phase.id)
        again = f"; relay fleet submit --phase {phase.id} queues it again" if why else ""
        if phase.done:
            words = "done"
        elif take:
            words = _describe_take(take, job)
        elif phase.id in waits:
            words = f"waiting for a person: {waits[phase.id]}{'' if job else again}"
        elif phase.id in ready:
            words = "can begin"
            if why and job is None:
                words += f"; taken back{again}" if phase.id in gone else "; not queued: relay fleet submit"
        elif why and before[phase.id]:
            words = f"waits for {', '.join(before[phase.id])}"
        else:
            words = "waits for a path of a phase at work" if why else "waits"
        if job and not take:
            later = f", in {render_span(wait_s)} at the earliest" if (wait_s := find_wait_s(job.at)) else ""
            words += (
                f"; queued as {job.number}{later}" if job.status == "todo" else f"; a worker begins with {job.number}"
            )
        yield phase, words


def _describe_take(take: Take, job: Placed | None) -> str:
    since = render_span(max(0.0, time.time() - take.taken_at.timestamp()))
    money = f", with {render_usd(take.reserved_usd)} set aside" if take.reserved_usd is not None else ""
    number = f" as {job.number}" if job else ""
    return f"at work{number} for {since}: {take.worker} (token {take.token}){money}"


def describe_fleet(
    remote: Remote, own: Ticket, standing: Standing | None, placed: Sequence[Placed], *, why: bool
) -> Iterator[str]:
    """Yield a line for each phase and each reservation of a dead worker.

    Args:
        remote: The remote that has the plan.
        own: Any ticket of the plan.
        standing: The plan's takes; None where the database does not answer.

    Raises:
        RelayError: The remote cannot be reached, or has no such plan.
    """
    tip, plan = fetch_plan(remote, own.branch, own.plan_path)
    done = sum(phase.done for phase in plan.phases)
    yield f"{own.plan_path} on {remote.name}/{own.branch} ({tip[:10]}): {done} of {len(plan.phases)} phases done"
    for phase, words in find_fleet_lines(plan, own, standing or Standing(), placed, why=why and standing is not None):
        yield f"{phase.id:>4}  {phase.title}: {words}"
    if standing and standing.reserved_usd:
        yield f"reserved: {render_usd(standing.reserved_usd)}"
    for take in standing.lost if standing else ():
        lost = f"{take.worker} may have spent it unseen on phase {take.phase_id} (token {take.token})"
        way = "relay fleet cancel --lost USD books what it did, and frees it"
        yield f"of it {render_usd(take.reserved_usd)}: {lost}; {way}"
    for one in placed:
        if one.status in LIVE and one.ticket.plan != own.plan:
            whose = f"phase {one.ticket.phase_id} of {one.ticket.plan_path}, {one.ticket.branch} of {one.ticket.remote}"
            yield f"of another plan: {whose}: {'queued' if one.status == 'todo' else 'at work'} as {one.number}"
