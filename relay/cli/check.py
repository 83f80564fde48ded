"""`relay check`: find mistakes in a plan and estimate each phase."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import ConfigError, ExitCode, PlanError, RelayError, within
from relay.base.hints import Command
from relay.base.values import dataclass
from relay.base.words import count, list_some, render_tokens, render_usd, shorten
from relay.cli.boundary import note_place
from relay.cli.options import json_option
from relay.cli.screen import say, say_document, say_hanging
from relay.setup.place import Place, find_settings, load_plan

if TYPE_CHECKING:
    from relay.cli.documents import CheckDocument, Parallel, PlanItem, PlanPhase
    from relay.config import Settings
    from relay.plan.model import Phase, Plan, Violation
    from relay.plan.waves import Waves
    from relay.run.planning.submission import PhaseSize
    from relay.session.prices import Price

ASSUMED_WINDOW_TOKENS = 200_000
"""Window of a model that neither the settings nor relay's table know: the smallest window in the table."""
_TITLE_CHARS = 44
_NARROW = 60
"""Least width of the table of sizes, in columns."""
_FIGURE_CHARS = len("  10/10  about 100k, ~$100.00")
_SHOWN_CHARS = 260
_PATH_CHARS = 60
_SHOWN_SHARED = 8
_SIDE_BY_SIDE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRemark:
    """A mistake, and its place."""

    path: str
    """Empty if no file is at fault."""
    line: int
    """1-based; 0 for the whole file."""
    message: str
    warning: bool = False
    hint: str = ""
    """The remedy; may be empty."""

    @property
    def where(self) -> str:
        """``path:line: ``, without unknown parts."""
        path = f"{self.path}:{self.line}" if self.line else self.path
        return f"{path}: " if path else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCheck:
    """A plan with the results of the check."""

    place: Place
    plan: "Plan | None"
    """None if the plan could not be parsed."""
    remarks: tuple[CheckRemark, ...]
    sizes: "tuple[PhaseSize, ...]" = ()
    """One size per phase; empty if the settings are invalid."""
    prices: "tuple[Price | None, ...]" = ()
    """The price of each phase's model; None if it is unknown."""
    settings: "Settings | None" = None
    """None if they are invalid."""
    waves: "Waves | None" = None
    """The open phases that can run side by side, weighed by their sizes; None if the settings are invalid."""

    @property
    def exit_code(self) -> ExitCode:
        """1 if there is an error, not only warnings."""
        errors = any(not remark.warning for remark in self.remarks)
        return ExitCode.USER if errors else ExitCode.DONE


@click.command("check")
@click.argument("plan", required=False, help="Plan file; default: of the settings, or nearest PLAN.md.")
@json_option
def command(plan: str | None, *, as_json: bool) -> int:
    """Check a plan for mistakes, and estimate the size and cost of each phase.

    relay prints each mistake with its line (PLAN.md:12), what it found and what is allowed. Warnings do not fail the
    check. An estimate is rough: rules, plan, the files that a phase's items name, and 4,000 tokens for each open item.
    """
    place = note_place(plan, needs_repo=False)
    checked = check_file(place, os.environ)
    if as_json:
        say_document(render_json(checked))
    else:
        show_checked(checked)
    return checked.exit_code


def check_file(place: Place, environ: Mapping[str, str]) -> PlanCheck:
    """Parse, check and size a plan. A mistake in the plan or in the settings becomes a remark.

    Raises:
        PlanError: There is no such file.
    """
    from relay.config.choices import check_models, require_models
    from relay.gate.needs import check_files, check_folder
    from relay.gate.places import check_folders, open_ground, settle_plan
    from relay.gate.shell_line import check_gates, find_lines
    from relay.plan.check import check_plan
    from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example

    try:
        plan = load_plan(place)
    except PlanError as error:
        if not place.plan_file.exists():
            raise
        return PlanCheck(place=place, plan=None, remarks=(_from_error(error, place),))
    if is_example(plan):
        return PlanCheck(
            place=place,
            plan=plan,
            remarks=(_from_error(PlanError(EXAMPLE, path=place.plan_name, hint=INSTEAD), place),),
        )
    violations = sorted((*check_plan(plan), *check_gates(plan)), key=attrgetter("line"))
    remarks = (*_check_place(place), *(_from_violation(violation, place) for violation in violations))
    lines, head = find_lines(plan), place.found.head() if place.found else None
    try:
        with within(place.plan_name):
            plan = settle_plan(open_ground(place.root, place.found, place.plan_name, head), plan)
    except PlanError as error:
        remark = _from_error(error, place)
        known = [one.message for one in remarks]
        return PlanCheck(place=place, plan=plan, remarks=remarks if remark.message in known else (remark, *remarks))
    try:
        settings = find_settings({}, environ, place.root, plan=plan, plan_name=place.plan_name)
        require_models(settings)
    except ConfigError as error:
        remarks = (_from_error(error, place), *remarks)
        return PlanCheck(place=place, plan=plan, remarks=remarks)
    warned = (
        *_check_servers(plan, settings),
        *_check_ignored(plan, place),
        *check_folders(plan, place.root),
        *check_files(plan, place.root, lines),
        *(check_folder(plan, place.root, place.found.git.list_files) if place.found else ()),
    )
    chosen = check_models([phase for phase in plan.phases if not phase.done], settings)
    more = (_from_violation(one, place) for one in (*warned, *chosen))
    remarks = tuple(sorted((*remarks, *more), key=attrgetter("line")))
    if any(settings.runner_for(phase.runner) != "api" for phase in plan.phases):  # the default needs no import
        remarks = tuple(sorted((*remarks, *_check_runners(place, plan, settings, environ)), key=attrgetter("line")))
    return _size(place, plan, remarks, settings)


def _check_place(place: Place) -> Iterator[CheckRemark]:
    """Yield an error for a plan in the repository that a run refuses because of where it is."""
    if place.found is not None and not Path(place.plan_name).is_absolute():
        from relay.setup.preconditions import check_plan_file

        if error := check_plan_file(place.found, place.plan_name).error:
            yield replace(_from_error(error, place), path=place.plan_name)


def _check_runners(
    place: Place, plan: "Plan", settings: "Settings", environ: Mapping[str, str]
) -> Iterator[CheckRemark]:
    """Yield a remark for each phase whose runner is unknown, and a warning for each runner missing on this machine."""
    from relay.runners.registry import check_runners, list_runners

    known, wished = list_runners(settings), dict[str, int]()
    for phase in plan.phases:
        if not phase.done:
            wished.setdefault(settings.runner_for(phase.runner), phase.find_wish("runner")[1])
    for violation in check_runners(plan.phases, settings, known):
        yield _from_violation(violation, place)
    for name, line in wished.items():
        try:
            if name in known:
                known[name].require(environ, settings)
        except RelayError as error:
            yield replace(_from_error(error, place), path=place.plan_name, line=line, warning=True)


def _check_servers(plan: "Plan", settings: "Settings") -> Iterator["Violation"]:
    from relay.plan.model import Violation

    for phase in plan.phases:
        for name, line in phase.tool_lines:
            if not phase.done and name not in settings.mcp_servers:
                words = f"Tools: {name} is none of your mcp_servers: a run stops there"
                yield Violation(line=line, message=words, warning=True)


def _check_ignored(plan: "Plan", place: Place) -> Iterator["Violation"]:
    """Yield a warning for each phase that a run refuses because git ignores its files.

    A phase with an item about ``.gitignore`` may change that, and gets none.
    """
    from relay.git.names import list_paths
    from relay.git.status import find_unwelcome
    from relay.plan.model import Violation

    phases = [
        (phase, {path.rstrip("/"): item.line for item in phase.open_items for path in item.targets})
        for phase in plan.phases
        if not any(".gitignore" in item.text for item in phase.open_items)
    ]
    named = sorted({path for _, paths in phases for path in paths})
    ignored = find_unwelcome(place.found, named) if place.found else frozenset[str]()
    for _, paths in phases:
        if taken := [path for path in paths if path in ignored]:
            words = f"{list_paths(taken)}: git ignores this, so no commit would hold it, and a run refuses the phase"
            yield Violation(line=paths[taken[0]], message=words, warning=True)


def _from_error(error: RelayError, place: Place) -> CheckRemark:
    hint = place.caller.write(error.hint) if error.hint else ""
    return CheckRemark(path=error.path, line=error.line, message=error.message, hint=hint)


def _from_violation(violation: "Violation", place: Place) -> CheckRemark:
    hint = place.caller.write(violation.hint) if violation.hint else ""
    path, line = place.plan_name, violation.line
    return CheckRemark(path=path, line=line, message=violation.message, warning=violation.warning, hint=hint)


def _size(place: Place, plan: "Plan", remarks: tuple[CheckRemark, ...], settings: "Settings") -> PlanCheck:
    from relay.config.model import MOST_JOBS
    from relay.plan.waves import find_waves
    from relay.session.prices import find_price

    sizes = measure_plan(place.root, plan, settings)
    today, models = datetime.now(UTC).date(), [settings.model_for(phase.model) for phase in plan.phases]
    prices = tuple(find_price(model, at=today, overrides=settings.prices) for model in models)
    waves = find_waves(plan, {size.phase_id: size.turns for size in sizes}, jobs=MOST_JOBS)
    return PlanCheck(
        place=place, plan=plan, remarks=remarks, sizes=sizes, prices=prices, settings=settings, waves=waves
    )


def measure_plan(root: Path, plan: "Plan", settings: "Settings") -> "tuple[PhaseSize, ...]":
    """Estimate each phase, without asking an endpoint."""
    from relay.run.planning.submission import measure_phases

    find_line = cache(partial(find_line_tokens, settings))
    return measure_phases(
        root,
        plan,
        find_line=lambda phase: find_line(settings.model_for(phase.model)),
        rules_bytes=_count_rules(root, settings),
    )


def find_line_tokens(settings: "Settings", model: str) -> int:
    """Return the reset line of a model, without asking an endpoint."""
    from relay.session.gauge import open_gauge
    from relay.session.prices import find_limits

    limits = find_limits(model)
    known = limits.window_tokens if limits else ASSUMED_WINDOW_TOKENS
    window = settings.find_model(model).window_tokens or known
    return open_gauge(window_tokens=window, reset_at=settings.reset_at_for(model)).soft_tokens


def _count_rules(root: Path, settings: "Settings") -> int:
    """Return the size of the root's rules file, within the budget; rules of folders are left out of the guess."""
    from relay.run.planning.submission import iter_sizes
    from relay.setup.rules import MAX_BYTES

    sizes = (size for name in ("AGENTS.md", *settings.rules_fallback_names) for size in iter_sizes(root, (name,)))
    return min(MAX_BYTES, next(sizes, 0))


def render_json(checked: PlanCheck) -> "CheckDocument":
    """Return the plan and its violations as JSON."""
    from relay.run.planning.submission import describe_overkill

    phases = checked.plan.phases if checked.plan else ()
    return {
        "phases": [_render_phase(phase) for phase in phases],
        "violations": [
            {"path": one.path, "line": one.line, "message": one.message, "warning": one.warning, "hint": one.hint}
            for one in checked.remarks
        ],
        "parallel": None if checked.waves is None else _render_waves(checked.waves),
        "overkill": bool(describe_overkill(checked.sizes)),
    }


def _render_waves(waves: "Waves") -> "Parallel":
    """Return the waves as JSON; ``time`` is that of ``jobs`` side by side, relative to one after the other."""
    return {
        "waves": [list(wave) for wave in waves.waves],
        "shared": [{"path": shared.path, "phases": list(shared.phase_ids)} for shared in waves.shared],
        "jobs": waves.jobs,
        "time": round(waves.parallel / waves.serial, 3) if waves.serial else None,
    }


def _render_phase(phase: "Phase") -> "PlanPhase":
    items: list[PlanItem] = [
        {"id": item.id, "text": item.text, "done": item.done, "line": item.line, "paths": list(item.paths)}
        for item in phase.items
    ]
    return {
        "id": phase.id,
        "title": phase.title,
        "line": phase.line,
        "verify": list(phase.verify),
        "after": list(phase.after),
        "runner": phase.runner or None,
        "model": phase.model or None,
        "effort": phase.effort or None,
        "items": items,
    }


def show_checked(checked: PlanCheck) -> None:
    """Print mistakes, sizes and the verdict."""
    for words in checked.place.tell_choice("check"):
        say(words, style="yellow")
    for found in checked.remarks:
        word = "warning: " if found.warning else ""
        say(f"{found.where}{word}{found.message}", style="yellow" if found.warning else "red")
        if found.hint:
            say(f"  {found.hint}", style="dim")
    _propose(checked)
    if checked.plan and checked.sizes:
        if checked.remarks:
            say()
        _show_sizes(checked, checked.plan)
        say()
    if checked.waves:
        _show_waves(checked.waves, checked.plan)
    say(_render_verdict(checked), style="green" if checked.exit_code is ExitCode.DONE else "red")


def _propose(checked: PlanCheck) -> None:
    """Propose the repository's own test command if an open phase has no gate."""
    if checked.plan is None or all(phase.done or phase.verify for phase in checked.plan.phases):
        return
    from relay.gate.needs import find_test_command

    if found := find_test_command(checked.place.root, checked.place.plan_name):
        say(f"proposed: Verify: `{found.command}` ({found.source}); relay gate tries it", style="dim")


def _show_sizes(checked: PlanCheck, plan: "Plan") -> None:
    import shutil

    from relay.plan.text import find_plan_folder
    from relay.run.planning.submission import describe_layers, describe_overkill

    titles = [f"{phase.id}  {phase.title}" for phase in plan.phases]
    runs = [_name_choices(phase, checked.settings) for phase in plan.phases]
    room = max(_NARROW, shutil.get_terminal_size().columns) - _FIGURE_CHARS - max(map(len, runs))
    width = min(_TITLE_CHARS, room, max(map(len, titles)))
    say(f"{'phase':<{width}}  {'open':>5}  context, cost: rough", style="dim")
    for phase, size, price, title, by in zip(plan.phases, checked.sizes, checked.prices, titles, runs, strict=True):
        figures = f"{len(phase.open_items):>2}/{len(phase.items):<2}  {_render_size(size, price)}"
        say(f"{shorten(title, width):<{width}}  {figures}{by}")
        if size.too_big:
            say(f"   too big for one session: {_advise_split(checked, phase, size)}", style="yellow")
    lines = dict.fromkeys(map(render_tokens, sorted({size.line_tokens for size in checked.sizes})))
    say(f"context: at a phase's end; a session hands over at {' or '.join(lines)}", style="dim")
    if words := describe_overkill(checked.sizes):
        say(words, style="dim")
    _show_places(plan, is_below=find_plan_folder(checked.place.plan_name) != "")
    for words in (*describe_layers(checked.sizes), _describe_note(checked)):
        if words:
            say(words, style="yellow")


def _show_places(plan: "Plan", *, is_below: bool) -> None:
    """Print where each command of the open phases runs, unless all run at the root as everybody expects."""
    from relay.plan.paths import split_place

    commands = dict.fromkeys(command for phase in plan.phases if not phase.done for command in phase.verify)
    placed = [(folder or ".", rest) for folder, rest in map(split_place, commands)]
    said = any(phase.folder or phase.find_wish("in")[0] for phase in plan.phases)
    for folder, rest in placed if is_below or said else ():
        say_hanging(
            f"runs in {'the root' if folder == '.' else folder}  ", shorten(" ".join(rest.split()), _SHOWN_CHARS)
        )


def _describe_note(checked: PlanCheck) -> str:
    """Return what to do about the handoff note for the next session if it is too large; else the empty text."""
    from relay.session.layers import describe_note
    from relay.store.attempts import read_attempt
    from relay.store.history import read_plan_commits

    repo, name = checked.place.found, checked.place.plan_name
    if repo is None:
        return ""
    session = read_attempt(repo)
    phase_id, note = (session.phase_id, session.handoff_note) if session and session.plan_path == name else ("", "")
    if not note:
        last = next((commit for commit in read_plan_commits(repo, name) if commit.status != "amended"), None)
        phase_id, note = (last.phase, last.handoff_note) if last else ("", "")
    size = next((size for size in checked.sizes if size.phase_id == phase_id), None)
    return describe_note(phase_id, note, size.line_tokens) if size else ""


def _show_waves(waves: "Waves", plan: "Plan | None") -> None:
    """Print which phases can run side by side; nothing if each phase waits for the one before it."""
    if waves.widest < _SIDE_BY_SIDE and not waves.shared:
        return
    if waves.widest >= _SIDE_BY_SIDE:
        say_hanging("side by side  ", shorten(" │ ".join(" ".join(wave) for wave in waves.waves), _SHOWN_CHARS))
        share = round(100 * waves.parallel / waves.serial)
        say_hanging(" " * 14, f"relay run --jobs {waves.jobs} takes about {share} % of the time")
    for shared in waves.shared[:_SHOWN_SHARED]:
        ids = list_some(shared.phase_ids, _SHOWN_SHARED)
        say_hanging("one by one    ", f"{ids}: they name {shorten(shared.path, _PATH_CHARS)}")
    if left := waves.shared[_SHOWN_SHARED:]:
        say(f"              and for {count(len(left), 'more path')}")
    there = {phase_id for wave in waves.waves for phase_id in wave}
    if missing := [phase.id for phase in plan.phases if not phase.done and phase.id not in there] if plan else []:
        say_hanging("in no wave    ", f"{list_some(missing)}: what they wait for is never done")
    say()


def _name_choices(phase: "Phase", settings: "Settings | None") -> str:
    """Return who works on a phase with which model, where that is not what all other phases have."""
    if phase.done or settings is None:
        return ""
    runner, model = settings.runner_for(phase.runner), settings.model_for(phase.model)
    effort = settings.effort_for(phase.effort)
    parts = [f"by {runner}"] if runner != "api" else []
    parts += [f"on {model}"] if model != settings.model else []
    parts += [f"effort {effort}"] if effort != settings.effort else []
    return f"  {', '.join(parts)}" if parts else ""


def _render_size(size: "PhaseSize", price: "Price | None") -> str:
    from relay.session.prices import cost_usd

    if not size.turns:
        return "done"
    usd = render_usd(None if price is None else size.turns * cost_usd(size.turn, price))
    return f"about {render_tokens(size.context_tokens)}, {usd}"


def _advise_split(checked: PlanCheck, phase: "Phase", size: "PhaseSize") -> str:
    from relay.run.planning.submission import suggest_parts

    if phase.in_list:
        from relay.plan.edit import NO_HEADING

        return f"it {NO_HEADING}"

    parts = suggest_parts(size)
    split = checked.place.caller.write(Command(words=("plan", "--split", size.phase_id)))
    return f"{split}{f' (into {parts})' if parts > 1 else ''}"


def _render_verdict(checked: PlanCheck) -> str:
    warnings = sum(found.warning for found in checked.remarks)
    errors = len(checked.remarks) - warnings
    tail = f", {count(warnings, 'warning')}" if warnings else ""
    if errors:
        return f"{checked.place.plan_name}: {count(errors, 'error')}{tail}"
    phases = checked.plan.phases if checked.plan else ()
    items = sum(len(phase.items) for phase in phases)
    return f"{checked.place.plan_name} is valid: {count(len(phases), 'phase')}, {count(items, 'item')}{tail}"
