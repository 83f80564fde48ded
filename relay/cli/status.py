"""`relay status`: phases, items, cost and the next step."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.hints import RUN, WHY, Caller
from relay.base.values import dataclass
from relay.base.words import (
    BOXES,
    BoxState,
    count,
    count_boxes,
    count_plan,
    count_questions,
    name_item,
    render_moment,
    render_span,
    render_tokens,
    render_usd,
    shorten,
    sum_up,
)
from relay.cli.boundary import note_place
from relay.cli.options import json_option, plan_option
from relay.cli.screen import find_width, say, say_document
from relay.git.notes import is_locked
from relay.plan.model import Item, Phase
from relay.plan.text import find_ledger_path
from relay.session.usage import Spent
from relay.setup.place import find_source
from relay.store.plan_state import PhaseSummary, PlanSummary, summarize_plan
from relay.store.refs import has_jobs
from relay.store.resume import ResumeCase

if TYPE_CHECKING:
    from relay.cli.documents import (
        Spend,
        StatusDocument,
        StatusFleet,
        StatusItem,
        StatusJob,
        StatusPhase,
    )
    from relay.cli.views.job_lines import JobStanding
    from relay.cli.views.last_run import AtWork
    from relay.git.repository import Repo
    from relay.setup.context import PlanFiles
    from relay.store.worktree_notes import FleetSight, LastRun

_TITLE_CHARS = 56
_LEAST_TITLE_CHARS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """Facts beside the plan's own state: the last run, the run at work, jobs, a fleet."""

    last: "LastRun | None" = None
    work: "AtWork | None" = None
    jobs: "tuple[JobStanding, ...]" = ()
    fleet: "FleetSight | None" = None
    """What a fleet was at when a person last looked from here; None: nothing, or the plan is done."""
    is_answered: bool = False
    """Whether the answer that the last session asked for waits for the next session."""


@click.command("status")
@plan_option
@click.option("--why", is_flag=True, help="Also explain the next step, and the failures of the last run.")
@json_option
def command(plan: str | None, *, why: bool, as_json: bool) -> None:
    """Show phases, items, cost and the next step.

    relay reads them from the work tree, the branch's commits and refs/relay/; it asks no model.
    """
    place = note_place(plan)
    summary = summarize_plan(find_source(place), place.repo)
    jobs, fleet = _find_jobs(place.repo, summary)
    if jobs:
        from relay.cli.sessions import find_left_questions
        from relay.setup.context import PlanFiles

        files = PlanFiles(repo=place.repo, plan_path=place.plan_name, ledger_path=find_ledger_path(place.plan_name))
        summary = _look_into_jobs(replace(summary, questions=find_left_questions(files)), files)
    last, work = _find_last_run(place.repo, summary), None
    if is_locked(place.repo) and not any(job.is_told for job in jobs):  # else the newest log is a job's
        from relay.cli.views.last_run import find_work

        work = find_work(place.root)
        running = summary.plan_state.running or "a relay is at work here"
        summary = replace(summary, plan_state=replace(summary.plan_state, running=running))
    near = Near(last=last, work=work, jobs=jobs, fleet=fleet, is_answered=_is_answered(place.repo, summary, last))
    if as_json:
        say_document(render_json(summary, place.caller, near, place.root))
        return
    lines: tuple[str, ...] = ()
    if fleet or jobs:
        from relay.cli.views.job_lines import tell_fleet, tell_jobs

        lines = (*(tell_fleet(fleet) if fleet else ()), *tell_jobs(place.root, jobs))
    show_summary(summary, place.caller, near, why=why, lines=lines)


def _find_jobs(repo: "Repo", summary: PlanSummary) -> "tuple[tuple[JobStanding, ...], FleetSight | None]":
    """Return the plan's jobs here, and what a fleet is at if work is left."""
    from relay.store.worktree_notes import read_fleet_sight

    fleet = None if summary.plan.done else read_fleet_sight(repo, summary.plan_name)
    if not has_jobs(repo):
        return (), fleet
    from relay.cli.views.job_lines import find_job_standings, find_told

    return find_job_standings(repo, summary.plan_name, summary.plan, find_told(repo)), fleet


def _look_into_jobs(summary: PlanSummary, files: "PlanFiles") -> PlanSummary:
    """Return the state with where a run goes on in the work tree of the one phase that is open; else the same."""
    from relay.fleet.worktrees import find_jobs
    from relay.run.commit.plan_commit import make_source
    from relay.store.attempts import read_attempt
    from relay.store.plan_state import ask

    jobs = find_jobs(files.repo, files.plan_path)
    begun = [job for job in jobs if read_attempt(job.repo) is not None]
    if len(begun) != 1 or summary.plan_state.point is None:
        return summary
    (job,) = begun
    own = ask(make_source(replace(files, repo=job.repo)), job.repo)
    point = own.point or replace(summary.plan_state.point, phase_id=job.phase_id)
    return replace(summary, plan_state=replace(summary.plan_state, point=point, kept=own.kept))


def _render_jobs(root: Path, near: Near) -> "tuple[list[StatusJob], StatusFleet | None]":
    if not (near.jobs or near.fleet):
        return [], None
    from relay.cli.views.job_lines import render_fleet, render_jobs

    return render_jobs(root, near.jobs), render_fleet(near.fleet) if near.fleet else None


def _is_answered(repo: "Repo", summary: PlanSummary, last: "LastRun | None") -> bool:
    if last is None or not last.next_command.startswith("relay say "):
        return False
    from relay.store.worktree_notes import read_words

    return bool(read_words(repo, _find_next(summary) or ""))


def _find_last_run(repo: "Repo", summary: PlanSummary) -> "LastRun | None":
    """Return how the last run of this plan on this branch ended; None if no work is left, or a run is at work."""
    from relay.store.worktree_notes import read_last_run

    last = None if summary.plan.done else read_last_run(repo)
    if last is None or (last.plan_path, last.branch) != (summary.plan_name, summary.branch):
        return None
    return None if last.ended is None and is_locked(repo) else last


def show_summary(summary: PlanSummary, caller: Caller, near: Near, *, why: bool, lines: Sequence[str] = ()) -> None:
    """Print where the plan stands; `lines` are about phases in work trees of their own."""
    where = f"{summary.plan_name} on {summary.branch}" if summary.branch else f"{summary.plan_name}, HEAD detached"
    states = [[find_state(item, known) for item in phase.items] for phase, known in _pair(summary)]
    say(f"{where}: {count_plan(states)}", style="bold")
    _show_questions(summary)
    for item in summary.plan.left_to_person:
        say(f"you    {name_item(item.id, item.text)}: tick it in {summary.plan_name} when it is done", style="yellow")
    say()
    _show_phases(summary)
    say()
    say(f"spent  {_render_cost(summary.spent)}")
    _show_limit(summary)
    if summary.rewound != Spent():
        say(f"       {_render_usd(summary.rewound)} of it on rewound work")
    for words in summary.orphans:
        say(f"note   {words}", style="yellow")
    if near.last is not None:
        from relay.cli.views.last_run import say_lines, tell_last_run

        say_lines(tell_last_run(near.last, now=time.time(), why=why))
    for line in lines:
        say(line)
    if near.work is not None:
        from relay.cli.views.last_run import tell_work

        first, *rest = tell_work(near.work, now=time.time())
        say(f"now    {first}", style="bold")
        for line in rest:
            say(f"       {line}")
        say("next   relay watch shows it live", style="bold")
    elif any(job.at_work or job.waits for job in near.jobs):
        at_work = sum(job.at_work for job in near.jobs)
        who = count(at_work, "phase") if at_work else "a run is"
        say(f"now    {who} at work; relay watch shows it live", style="bold")
    else:
        said = find_other_way(summary, caller, near)
        _show_next(summary, caller, why=why, left=[job.phase_id for job in near.jobs if job.is_open], said=said)


def _show_questions(summary: PlanSummary) -> None:
    if summary.questions:
        say(
            f"check  {count_questions(summary.questions)}; the plan's notes keep them until you remove them",
            style="bold yellow",
        )
    for question in summary.questions:
        say(f"       {question}", style="yellow")


def find_other_way(summary: PlanSummary, caller: Caller, near: Near) -> str:
    """Return the command that the last run recommended, if another run would stop for the same reason; else ""."""
    point, last, shown = summary.plan_state.point, near.last, {caller.write(RUN), caller.write(WHY)}
    if last is None or point is None or not last.next_command.startswith("relay ") or last.next_command in shown:
        return ""
    cases = {ResumeCase.NOTHING_OPEN, ResumeCase.UNTOUCHED, ResumeCase.MID_ATTEMPT}
    meets_it = last.exit_code and point.case in cases and not near.is_answered
    return last.next_command if last.waits_for or meets_it else ""


def _show_next(summary: PlanSummary, caller: Caller, *, why: bool, left: Sequence[str], said: str) -> None:
    point = summary.plan_state.point
    if point is not None and (left[1:] or (left and point.case is ResumeCase.NOTHING_OPEN)):
        phases = f"phase{'s' if left[1:] else ''} {', '.join(left)}"
        say(f"next   {caller.write(RUN)} goes on with {phases}", style="bold")
        return
    if summary.obstacle:
        say(f"now    {caller.write(summary.obstacle)}", style="bold")
        say(f"next   {caller.write(RUN)}, after that", style="bold")
        return
    if summary.plan_state.running or summary.plan_state.point is None:
        say(f"now    {summary.plan_state.running}", style="bold")
        return
    if why:
        say(f"found  {summary.plan_state.point.why}")
    nothing_left = summary.plan.done and summary.plan_state.point.case is ResumeCase.NOTHING_OPEN
    then = "nothing is left" if nothing_left else f"{caller.write(RUN)} {summary.plan_state.point.then}"
    say(f"next   {said or then}", style="bold")
    if said:
        say(f"       without that, {then}", style="dim")


def _find_limit(summary: PlanSummary, now: float) -> tuple[float, str] | None:
    """Return when the usage limit that stopped the open session resets, and its model; None without a limit to come."""
    if summary.plan_state.kept.attempt is None:
        return None
    from relay.store.attempts import find_wait_until

    found = find_wait_until(summary.plan_state.kept.attempt)
    return found if found is not None and found[0] > now else None


def _show_limit(summary: PlanSummary) -> None:
    now = time.time()
    if found := _find_limit(summary, now):
        until, model = found
        words = f"the usage limit of {model} resets at {render_moment(until, now=now)}, in {render_span(until - now)}"
        say(f"limit  {words}", style="yellow")


def _find_next(summary: PlanSummary) -> str | None:
    """Return the id of the present or next phase; None if there is none."""
    if summary.plan_state.point is not None:
        return summary.plan_state.point.phase_id or None
    return next((known.phase_id for known in summary.phases if known.is_open), None)


def _pair(summary: PlanSummary) -> "list[tuple[Phase, PhaseSummary]]":
    return list(zip(summary.plan.phases, summary.phases, strict=True))


def find_state(item: Item, known: PhaseSummary) -> BoxState:
    """Return the state of an item's box; a claim counts until it is committed."""
    return "claimed" if item.id in known.claimed and not item.done else item.state


def _show_phases(summary: PlanSummary) -> None:
    """Print a line for each phase, cut to the terminal's width, and the items of the next phase."""
    next_id, pairs = _find_next(summary), _pair(summary)
    facts = ["  ".join(_list_facts(phase, known)) for phase, known in pairs]
    digits, room = max(len(phase.id) for phase, _ in pairs), _TITLE_CHARS
    if width := find_width():
        room = max(_LEAST_TITLE_CHARS, min(room, width - len("▸ [x]   ") - max(map(len, facts))))
    said = set[str]()
    for (phase, known), told in zip(pairs, facts, strict=True):
        states = [find_state(item, known) for item in phase.items]
        state, is_next = sum_up(states), phase.id == next_id
        title = shorten(f"{phase.id:<{digits}}  {phase.title}", room)
        style = "bold" if is_next else "dim" if state == "done" else ""
        say(f"{'▸' if is_next else ' '} {BOXES[state]} {title:<{room}}  {told}", style=style)
        for words in known.doubts:
            if words not in said:
                say(f"        doubtful: {words}", style="yellow")
        said.update(known.doubts)
        for item, box in zip(phase.items, states, strict=True) if is_next else ():
            say(f"        {BOXES[box]} {name_item(item.id, item.text)}", style="dim" if box == "done" else "")


def _list_facts(phase: Phase, known: PhaseSummary) -> list[str]:
    states = [find_state(item, known) for item in phase.items]
    facts = [count_boxes(states)]
    if known.commits or known.claimed or known.spent != Spent():
        facts.append(_render_usd(known.spent))
    facts.extend(commit[:8] for commit in known.commits[-1:])
    facts.extend([f"by {phase.runner}"] if phase.runner and sum_up(states) != "done" else [])
    return facts


def _render_usd(spent: Spent) -> str:
    return render_usd(spent.cost_usd, estimated=spent.estimated)


def _render_cost(spent: Spent) -> str:
    """Write money and tokens; an unknown cost is called unknown, beside the known tokens."""
    usage = spent.usage
    tokens = f"{render_tokens(usage.prompt_tokens)} tokens in, {render_tokens(usage.output_tokens)} out"
    if not usage.prompt_tokens:
        return _render_usd(spent)
    share = usage.cache_read_tokens / usage.prompt_tokens
    return f"{_render_usd(spent)}  ({tokens}, {share:.0%} of the input from the cache)"


def render_json(
    summary: PlanSummary, caller: Caller, near: Near | None = None, root: Path = Path()
) -> "StatusDocument":
    """Return the plan's state as JSON.

    Args:
        root: The work tree that has the jobs' logs.
    """
    from relay.cli.views.last_run import render_last_run, render_work

    near, point = near or Near(), summary.plan_state.point
    limit = _find_limit(summary, time.time())
    jobs, fleet = _render_jobs(root, near)
    return {
        "plan": summary.plan_name,
        "branch": summary.branch,
        "done": summary.plan.done,
        "phases": [_render_phase(phase, known) for phase, known in _pair(summary)],
        "questions": list(summary.questions),
        "spent": _render_spent(summary.spent),
        "rewound": _render_spent(summary.rewound),
        "running": summary.plan_state.running or None,
        "at_work": render_work(near.work),
        "jobs": jobs,
        "fleet": fleet,
        "limit": {"model": limit[1], "resets_at": limit[0]} if limit else None,
        "last_run": render_last_run(near.last),
        "obstacle": caller.write(summary.obstacle) or None,
        "next": {"phase": point.phase_id or None, "row": point.case, "why": point.why, "then": point.then}
        if point
        else None,
        "said": find_other_way(summary, caller, near) or None,
    }


def _render_phase(phase: Phase, known: PhaseSummary) -> "StatusPhase":
    items: list[StatusItem] = [
        {"id": item.id, "text": item.text, "state": find_state(item, known)} for item in phase.items
    ]
    return {
        "id": phase.id,
        "title": phase.title,
        "done": phase.done,
        "items": items,
        "commits": list(known.commits),
        "doubts": list(known.doubts),
        "runner": phase.runner or None,
        "spent": _render_spent(known.spent),
    }


def _render_spent(spent: Spent) -> "Spend":
    used = spent.usage
    return {
        "usd": spent.cost_usd,
        "estimated": spent.estimated,
        "input_tokens": used.input_tokens,
        "cache_read_tokens": used.cache_read_tokens,
        "cache_write_5m_tokens": used.cache_write_5m_tokens,
        "cache_write_1h_tokens": used.cache_write_1h_tokens,
        "output_tokens": used.output_tokens,
        "thinking_tokens": used.thinking_tokens,
    }
