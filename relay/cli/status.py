"""`relay status`: phases, items, cost and the next step."""

import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence
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
from relay.git.command import GitError
from relay.git.notes import is_locked
from relay.plan.model import Phase
from relay.plan.text import find_ledger_path
from relay.session.usage import Spent
from relay.setup.place import find_source
from relay.store.plan_state import PhaseSummary, PlanSummary, ask, summarize_plan
from relay.store.refs import has_jobs
from relay.store.resume import ResumeCase
from relay.store.worktree_notes import FleetSight, LastRun, read_fleet_sight, read_last_run, read_words

if TYPE_CHECKING:
    from relay.cli.documents import CurrentWork, StatusDocument, StatusJob
    from relay.cli.views.job_lines import JobStanding
    from relay.cli.views.last_run import AtWork
    from relay.git.repository import Repo
    from relay.setup.context import PlanFiles

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
    """Whether the answer that the last session asked for waits for the next session, or the plan was edited since."""


@click.command("status")
@plan_option
@click.option("--why", is_flag=True, help="Also explain the next step, and the failures of the last run.")
@json_option
def command(plan: str | None, *, why: bool, as_json: bool) -> None:
    """Show phases, items, cost and the next step.

    relay reads them from the work tree, the branch's commits and refs/relay/; it asks no model.
    """
    place = note_place(plan)
    repo, summary = place.repo, summarize_plan(find_source(place), place.repo)
    near = Near()
    if not summary.plan.done:
        near = Near(fleet=read_fleet_sight(repo, summary.plan_name), last=_find_last_run(repo, summary))
    if has_jobs(repo):
        from relay.cli.sessions import find_left_questions
        from relay.cli.views.job_lines import find_job_standings
        from relay.setup.context import PlanFiles

        near = replace(near, jobs=find_job_standings(repo, summary.plan_name, summary.plan))
        files = PlanFiles(repo=repo, plan_path=place.plan_name, ledger_path=find_ledger_path(place.plan_name))
        if near.jobs:
            summary = _look_into_jobs(replace(summary, questions=find_left_questions(files)), files)
    if is_locked(repo) and not any(job.is_told for job in near.jobs):  # else the newest log is a job's
        from relay.cli.views.last_run import find_work

        near = replace(near, work=find_work(place.root))
        running = summary.plan_state.running or "a relay is at work here"
        summary = replace(summary, plan_state=replace(summary.plan_state, running=running))
    if near.last is not None and near.last.next_command.startswith("relay say "):
        near = replace(near, is_answered=bool(read_words(repo, _find_next(summary) or "")))
    if near.last is not None and near.last.ended:
        with contextlib.suppress(OSError):  # a loose plan may be gone
            near = replace(near, is_answered=near.is_answered or place.plan_file.stat().st_mtime > near.last.ended)
    if as_json:
        say_document(render_json(summary, place.caller, near, place.root))
        return
    lines: tuple[str, ...] = ()
    if near.fleet or near.jobs:
        from relay.cli.views.job_lines import tell_fleet, tell_jobs

        lines = (*(tell_fleet(near.fleet) if near.fleet else ()), *tell_jobs(place.root, near.jobs))
    show_summary(summary, place.caller, near, why=why, lines=(*lines, *_tell_other_branch(repo, summary)))


def _look_into_jobs(summary: PlanSummary, files: "PlanFiles") -> PlanSummary:
    """Return the state with where a run goes on in the work tree of the one phase that is open; else the same."""
    from relay.cli.sessions import find_open_jobs
    from relay.run.commit.plan_commit import make_source

    begun = find_open_jobs(files.repo, files.plan_path)
    if len(begun) != 1 or summary.plan_state.point is None:
        return summary
    try:
        own = ask(make_source(replace(files, repo=begun[0].repo)), begun[0].repo)
    except (GitError, OSError) as error:  # git stores what it compares, and the disk is full or read-only
        return replace(summary, plan_state=replace(summary.plan_state, point=None, obstacle=str(error)))
    point = own.point or replace(summary.plan_state.point, phase_id=begun[0].phase_id)
    return replace(summary, plan_state=replace(summary.plan_state, point=point, kept=own.kept))


def _find_last_run(repo: "Repo", summary: PlanSummary) -> "LastRun | None":
    """Return how the last run of this plan on this branch ended; None if a run is at work."""
    last = read_last_run(repo)
    if last is None or (last.plan_path, last.branch) != (summary.plan_name, summary.branch):
        return None
    return None if last.ended is None and is_locked(repo) else last


def _tell_other_branch(repo: "Repo", summary: PlanSummary) -> Iterator[str]:
    """Say where the run is, or the last one was, if the user has left its branch and the plan is open on this one."""
    last = None if summary.plan.done else read_last_run(repo)
    if last is None or last.plan_path != summary.plan_name or last.branch == summary.branch:
        return
    from relay.git.refs import find_ref

    if find_ref(repo, f"refs/heads/{last.branch}"):
        whose = "a run is at work" if last.ended is None and is_locked(repo) else "the last run was"
        yield f"beside {whose} on {last.branch}, where its commits are: git switch {shlex.quote(last.branch)}"


def show_summary(summary: PlanSummary, caller: Caller, near: Near, *, why: bool, lines: Sequence[str] = ()) -> None:
    """Print where the plan stands; `lines` are about phases in work trees of their own."""
    where = f"{summary.plan_name} on {summary.branch}" if summary.branch else f"{summary.plan_name}, HEAD detached"
    say(f"{where}: {count_plan([_list_states(phase, known) for phase, known in _pair(summary)])}", style="bold")
    if summary.questions:
        words = f"{count_questions(summary.questions)}; the plan's notes keep them until you remove them"
        say(f"check  {words}", style="bold yellow")
    for question in summary.questions:
        say(f"       {question}", style="yellow")
    for item in summary.plan.left_to_person:
        say(f"you    {name_item(item.id, item.text)}: tick it in {summary.plan_name} when it is done", style="yellow")
    say()
    _show_phases(summary)
    say()
    say(f"spent  {_render_cost(summary.spent)}")
    now = time.time()
    if limit := _find_limit(summary, now):
        until, model = limit
        words = f"the usage limit of {model} resets at {render_moment(until, now=now)}, in {render_span(until - now)}"
        say(f"limit  {words}", style="yellow")
    if summary.rewound != Spent():
        say(f"       {_render_usd(summary.rewound)} of it on rewound work")
    if near.last is not None:
        from relay.cli.views.last_run import say_lines, tell_last_run

        say_lines(tell_last_run(near.last, now=now, why=why))
    for line in lines:
        say(line)
    if near.work is not None:
        from relay.cli.views.last_run import tell_work

        first, *rest = tell_work(near.work, now=now)
        say(f"now    {first}", style="bold")
        for line in rest:
            say(f"       {line}")
        say("next   relay watch shows it live", style="bold")
    elif any(job.at_work or (job.waits and job.is_told) for job in near.jobs):
        at_work = sum(job.at_work for job in near.jobs)
        who = count(at_work, "phase") if at_work else "a run is"
        say(f"now    {who} at work; relay watch shows it live", style="bold")
    else:
        _show_next(summary, caller, near, why=why)


def find_other_way(summary: PlanSummary, caller: Caller, near: Near) -> str:
    """Return the command that the last run recommended, if another run would stop for the same reason; else ""."""
    point, last, shown = summary.plan_state.point, near.last, {caller.write(RUN), caller.write(WHY)}
    if last is None or point is None or not last.next_command.startswith("relay ") or last.next_command in shown:
        return ""
    cases = {ResumeCase.NOTHING_OPEN, ResumeCase.UNTOUCHED, ResumeCase.MID_ATTEMPT}
    meets_it = last.exit_code and point.case in cases and not near.is_answered
    return last.next_command if last.waits_for or meets_it else ""


def _show_next(summary: PlanSummary, caller: Caller, near: Near, *, why: bool) -> None:
    point, left = summary.plan_state.point, [job.phase_id for job in near.jobs if job.is_open]
    if point is not None and (left[1:] or (left and point.case is ResumeCase.NOTHING_OPEN)):
        phases = f"phase{'s' if left[1:] else ''} {', '.join(left)}"
        say(f"next   {caller.write(RUN)} goes on with {phases}", style="bold")
    elif summary.obstacle:
        say(f"now    {caller.write(summary.obstacle)}", style="bold")
        say(f"next   {caller.write(RUN)}, after that", style="bold")
    elif summary.plan_state.running or point is None:
        say(f"now    {summary.plan_state.running}", style="bold")
    else:
        if why:
            say(f"found  {point.why}")
        nothing_left = summary.plan.done and point.case is ResumeCase.NOTHING_OPEN
        then = "nothing is left" if nothing_left else f"{caller.write(RUN)} {point.then}"
        said = find_other_way(summary, caller, near)
        say(f"next   {said or then}", style="bold")
        if said:
            say(f"       without that, {then}", style="dim")


def _find_limit(summary: PlanSummary, now: float) -> tuple[float, str] | None:
    """Return when the usage limit that stopped the open session resets, and its model; None without a limit to come."""
    attempt = summary.plan_state.kept.attempt
    if attempt is None or attempt.ending.wait_until <= now:
        return None
    return attempt.ending.wait_until, attempt.ending.limited


def _find_next(summary: PlanSummary) -> str | None:
    """Return the id of the present or next phase; None if there is none."""
    if summary.plan_state.point is not None:
        return summary.plan_state.point.phase_id or None
    return next((known.phase_id for known in summary.phases if known.is_open), None)


def _pair(summary: PlanSummary) -> "list[tuple[Phase, PhaseSummary]]":
    return list(zip(summary.plan.phases, summary.phases, strict=True))


def _list_states(phase: Phase, known: PhaseSummary) -> list[BoxState]:
    """Return the states of the items' boxes; a claim counts until it is committed."""
    return ["claimed" if item.id in known.claimed and not item.done else item.state for item in phase.items]


def _show_phases(summary: PlanSummary) -> None:
    """Print a line for each phase, cut to the terminal's width, and the items of the next phase."""
    next_id, pairs = _find_next(summary), _pair(summary)
    told = ["  ".join(_list_facts(phase, known)) for phase, known in pairs]
    digits, room = max(len(phase.id) for phase, _ in pairs), _TITLE_CHARS
    if width := find_width():
        room = max(_LEAST_TITLE_CHARS, min(room, width - len("▸ [x]   ") - max(map(len, told))))
    said = set[str]()
    for (phase, known), facts in zip(pairs, told, strict=True):
        states = _list_states(phase, known)
        state, is_next = sum_up(states), phase.id == next_id
        title = shorten(f"{phase.id:<{digits}}  {phase.title}", room)
        style = "bold" if is_next else "dim" if state == "done" else ""
        say(f"{'▸' if is_next else ' '} {BOXES[state]} {title:<{room}}  {facts}", style=style)
        for words in known.doubts:
            if words not in said:
                say(f"        doubtful: {words}", style="yellow")
        said.update(known.doubts)
        for item, box in zip(phase.items, states, strict=True) if is_next else ():
            say(f"        {BOXES[box]} {name_item(item.id, item.text)}", style="dim" if box == "done" else "")


def _list_facts(phase: Phase, known: PhaseSummary) -> list[str]:
    states = _list_states(phase, known)
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


def render_json(summary: PlanSummary, caller: Caller, near: Near, root: Path) -> "StatusDocument":
    """Return the plan's state as JSON.

    Args:
        root: The work tree that has the jobs' logs.
    """
    from relay.cli import documents
    from relay.cli.documents import fill, fill_spend

    point, limit = summary.plan_state.point, _find_limit(summary, time.time())
    phases = []
    for phase, known in _pair(summary):
        pairs = zip(phase.items, _list_states(phase, known), strict=True)
        items = tuple(fill(documents.StatusItem, item, state=state) for item, state in pairs)
        given = {"commits": known.commits, "doubts": known.doubts, "runner": phase.runner or None}
        phases.append(fill(documents.StatusPhase, phase, items=items, spent=fill_spend(known.spent), **given))
    last = near.last and fill(
        documents.LastRun,
        near.last,
        next=near.last.next_command,
        gate=near.last.gate and fill(documents.RedGate, near.last.gate, phase=near.last.gate.phase_id),
    )
    return fill(
        documents.StatusDocument,
        summary,
        plan=summary.plan_name,
        done=summary.plan.done,
        phases=tuple(phases),
        spent=fill_spend(summary.spent),
        rewound=fill_spend(summary.rewound),
        running=summary.plan_state.running or None,
        at_work=_render_work(near.work),
        jobs=_render_jobs(near.jobs, root) if near.jobs else (),
        fleet=near.fleet,
        limit=documents.UsageLimit(model=limit[1], resets_at=limit[0]) if limit else None,
        last_run=last,
        obstacle=caller.write(summary.obstacle) or None,
        next=point and fill(documents.StatusNext, point, phase=point.phase_id or None, row=point.case),
        said=find_other_way(summary, caller, near) or None,
    )


def _render_work(work: "AtWork | None") -> "CurrentWork | None":
    """Return a run at work as JSON; times are in seconds since the epoch."""
    from relay.cli.documents import CurrentWork, fill

    if work is None:
        return None
    board = work.board
    given = {name: getattr(board.response, name, None) for name in ("fill_tokens", "soft_tokens", "hard_tokens")}
    session, number = getattr(board.session, "session_id", None), getattr(board.session, "number", None)
    phase = work.phase_id or None
    return fill(CurrentWork, board, run=work.run_id, phase=phase, session=session, number=number, **given)


def _render_jobs(jobs: "tuple[JobStanding, ...]", root: Path) -> "tuple[StatusJob, ...]":
    from relay.cli.documents import StatusJob, fill
    from relay.cli.views.last_run import find_job_works

    works = find_job_works(root, [job.phase_id for job in jobs if job.at_work])
    return tuple(
        fill(
            StatusJob,
            job,
            phase=job.phase_id,
            worktree=str(job.place) if job.place else None,
            state=job.case.value if job.place else "lost" if job.is_open else "waiting",
            at_work=_render_work(works.get(job.phase_id)) if job.at_work else None,
            stopped=None if job.at_work or job.waits else job.stopped or None,
            waits=None if job.at_work else job.waits or None,
        )
        for job in jobs
    )
