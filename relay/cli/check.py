"""`relay check`: find mistakes in a plan and estimate each phase."""

import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path

import click
from msgspec import structs

from relay.base.errors import ConfigError, ExitCode, PlanError, RelayError, within
from relay.base.hints import Command
from relay.base.values import dataclass
from relay.base.words import count, list_some, render_tokens, render_usd, shorten
from relay.cli.boundary import note_place
from relay.cli.documents import CheckDocument, PlanPhase, PlanViolation, fill
from relay.cli.options import json_option
from relay.cli.screen import say, say_document
from relay.config import Settings
from relay.config.choices import check_models, require_models
from relay.config.model import MOST_JOBS
from relay.gate.needs import check_files, find_test_command
from relay.gate.places import check_folders, open_ground, settle_plan
from relay.gate.shell_line import check_gates, find_lines
from relay.git.names import list_paths
from relay.git.status import find_unwelcome
from relay.plan.check import check_plan
from relay.plan.edit import NO_HEADING
from relay.plan.model import Phase, Plan, Violation
from relay.plan.paths import split_place
from relay.plan.text import find_plan_folder
from relay.plan.waves import Waves, find_waves
from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example
from relay.run.planning.submission import (
    PhaseSize,
    describe_layers,
    describe_overkill,
    iter_sizes,
    measure_phases,
    suggest_parts,
)
from relay.session.gauge import open_gauge
from relay.session.prices import Price, cost_usd, find_limits, find_price
from relay.setup.place import Place, find_settings, load_plan
from relay.setup.preconditions import check_plan_file
from relay.setup.rules import MAX_BYTES

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
class PlanCheck:
    """A plan with the results of the check."""

    place: Place
    plan: Plan | None
    """None if the plan could not be parsed."""
    remarks: tuple[PlanViolation, ...]
    sizes: tuple[PhaseSize, ...] = ()
    """One size per phase; empty if the settings are invalid."""
    prices: tuple[Price | None, ...] = ()
    """The price of each phase's model; None if it is unknown."""
    settings: Settings | None = None
    """None if they are invalid."""
    waves: Waves | None = None
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
    try:
        plan = load_plan(place)
    except PlanError as error:
        if not place.plan_file.exists():
            raise
        return PlanCheck(place=place, plan=None, remarks=(_note(place, error),))
    if is_example(plan):
        remark = _note(place, PlanError(EXAMPLE, path=place.plan_name, hint=INSTEAD))
        return PlanCheck(place=place, plan=plan, remarks=(remark,))
    violations = sorted((*check_plan(plan), *check_gates(plan)), key=attrgetter("line"))
    remarks = tuple(_note(place, violation) for violation in violations)
    if place.found is not None:
        refused = check_plan_file(place.found, place.plan_name).error
        remarks = (*((structs.replace(_note(place, refused), path=place.plan_name),) if refused else ()), *remarks)
    lines, head = find_lines(plan), place.found.head() if place.found else None
    try:
        with within(place.plan_name):
            plan = settle_plan(open_ground(place.root, place.found, place.plan_name, head), plan)
        settings = find_settings({}, environ, place.root, plan=plan, plan_name=place.plan_name)
        require_models(settings)
    except (PlanError, ConfigError) as error:
        remark = _note(place, error)
        known = [one.message for one in remarks]
        return PlanCheck(place=place, plan=plan, remarks=remarks if remark.message in known else (remark, *remarks))
    none = "is none of your mcp_servers: a run stops there"
    warned = (
        *(
            Violation(line=line, message=f"Tools: {name} {none}", warning=True)
            for phase in plan.phases
            for name, line in phase.tool_lines
            if not phase.done and name not in settings.mcp_servers
        ),
        *_check_ignored(plan, place),
        *check_folders(plan, place.root),
        *check_files(plan, place.root, lines),
    )
    chosen = check_models([phase for phase in plan.phases if not phase.done], settings)
    more = [_note(place, one) for one in (*warned, *chosen)]
    if any(settings.runner_for(phase.runner) != "api" for phase in plan.phases):  # the default needs no import
        more.extend(_check_runners(place, plan, settings, environ))
    remarks = tuple(sorted((*remarks, *more), key=attrgetter("line")))
    sizes = measure_plan(place.root, plan, settings)
    models = [settings.model_for(phase.model) for phase in plan.phases]
    return PlanCheck(
        place=place,
        plan=plan,
        remarks=remarks,
        sizes=sizes,
        prices=tuple(find_price(model, overrides=settings.prices) for model in models),
        settings=settings,
        waves=find_waves(plan, {size.phase_id: size.turns for size in sizes}, jobs=MOST_JOBS),
    )


def _check_runners(place: Place, plan: Plan, settings: Settings, environ: Mapping[str, str]) -> Iterator[PlanViolation]:
    """Yield a remark for each phase whose runner is unknown, and a warning for each runner missing on this machine."""
    from relay.runners.registry import check_runners, list_runners

    known, wished = list_runners(settings), dict[str, int]()
    for phase in plan.phases:
        if not phase.done:
            wished.setdefault(settings.runner_for(phase.runner), phase.find_wish("runner")[1])
    for violation in check_runners(plan.phases, settings, known):
        yield _note(place, violation)
    for name, line in wished.items():
        try:
            if name in known:
                known[name].require(environ, settings)
        except RelayError as error:
            yield structs.replace(_note(place, error), path=place.plan_name, line=line, warning=True)


def _check_ignored(plan: Plan, place: Place) -> Iterator[Violation]:
    """Yield a warning for each phase that a run refuses because git ignores its files.

    A phase with an item about ``.gitignore`` may change that, and gets none.
    """
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


def _note(place: Place, found: RelayError | Violation) -> PlanViolation:
    """Return a remark about the plan, or about the file that an error names."""
    hint = place.caller.write(found.hint) if found.hint else ""
    path = found.path if isinstance(found, RelayError) else place.plan_name
    warning = not isinstance(found, RelayError) and found.warning
    return PlanViolation(path=path, line=found.line, message=found.message, warning=warning, hint=hint)


def measure_plan(root: Path, plan: Plan, settings: Settings) -> tuple[PhaseSize, ...]:
    """Estimate each phase, without asking an endpoint. Rules of folders are left out of the guess."""

    @cache
    def find_line(model: str) -> int:
        limits = find_limits(model)
        known = limits.window_tokens if limits else ASSUMED_WINDOW_TOKENS
        window = settings.find_model(model).window_tokens or known
        return open_gauge(window_tokens=window, reset_at=settings.reset_at_for(model)).soft_tokens

    rules = (size for name in ("AGENTS.md", *settings.rules_fallback_names) for size in iter_sizes(root, (name,)))
    return measure_phases(
        root,
        plan,
        find_line=lambda phase: find_line(settings.model_for(phase.model)),
        rules_bytes=min(MAX_BYTES, next(rules, 0)),
    )


def render_json(checked: PlanCheck) -> CheckDocument:
    """Return the plan and its violations as JSON."""
    phases = [
        fill(PlanPhase, one, runner=one.runner or None, model=one.model or None, effort=one.effort or None)
        for one in (checked.plan.phases if checked.plan else ())
    ]
    overkill = bool(describe_overkill(checked.sizes))
    return fill(
        CheckDocument, None, phases=phases, violations=checked.remarks, parallel=checked.waves, overkill=overkill
    )


def show_checked(checked: PlanCheck) -> None:
    """Print mistakes, sizes and the verdict."""
    for words in checked.place.tell_choice("check"):
        say(words, style="yellow")
    for found in checked.remarks:
        place = f"{found.path}:{found.line}: " if found.line else f"{found.path}: " if found.path else ""
        word = "warning: " if found.warning else ""
        say(f"{place}{word}{found.message}", style="yellow" if found.warning else "red")
        if found.hint:
            say(f"  {found.hint}", style="dim")
    plan = checked.plan
    is_bare = plan is not None and any(not (phase.done or phase.verify) for phase in plan.phases)
    if is_bare and (test := find_test_command(checked.place.root, checked.place.plan_name)):
        say(f"proposed: Verify: `{test.command}` ({test.source}); relay gate tries it", style="dim")
    if plan and checked.sizes:
        if checked.remarks:
            say()
        _show_sizes(checked, plan)
        say()
    if plan and checked.waves:
        _show_waves(checked.waves)
    warnings = sum(found.warning for found in checked.remarks)
    errors = len(checked.remarks) - warnings
    items = sum(len(phase.items) for phase in plan.phases) if plan else 0
    words = f" is valid: {count(len(plan.phases) if plan else 0, 'phase')}, {count(items, 'item')}"
    verdict = f": {count(errors, 'error')}" if errors else words
    tail = f", {count(warnings, 'warning')}" if warnings else ""
    say(f"{checked.place.plan_name}{verdict}{tail}", style="red" if errors else "green")


def _show_sizes(checked: PlanCheck, plan: Plan) -> None:

    titles = [f"{phase.id}  {phase.title}" for phase in plan.phases]
    runs = [_name_choices(phase, checked.settings) for phase in plan.phases]
    room = max(_NARROW, shutil.get_terminal_size().columns) - _FIGURE_CHARS - max(map(len, runs))
    width = min(_TITLE_CHARS, room, max(map(len, titles)))
    say(f"{'phase':<{width}}  {'open':>5}  context, cost: rough", style="dim")
    for phase, size, price, title, by in zip(plan.phases, checked.sizes, checked.prices, titles, runs, strict=True):
        usd = render_usd(None if price is None else size.turns * cost_usd(size.turn, price))
        rough = f"about {render_tokens(size.context_tokens)}, {usd}" if size.turns else "done"
        say(f"{shorten(title, width):<{width}}  {len(phase.open_items):>2}/{len(phase.items):<2}  {rough}{by}")
        if size.too_big:
            parts = suggest_parts(size)
            split = checked.place.caller.write(Command(words=("plan", "--split", size.phase_id)))
            way = f"it {NO_HEADING}" if phase.in_list else f"{split}{f' (into {parts})' if parts > 1 else ''}"
            say(f"   too big for one session: {way}", style="yellow")
    lines = dict.fromkeys(map(render_tokens, sorted({size.line_tokens for size in checked.sizes})))
    say(f"context: at a phase's end; a session hands over at {' or '.join(lines)}", style="dim")
    if words := describe_overkill(checked.sizes):
        say(words, style="dim")
    _show_places(plan, is_below=find_plan_folder(checked.place.plan_name) != "")
    for words in describe_layers(checked.sizes):
        say(words, style="yellow")


def _show_places(plan: Plan, *, is_below: bool) -> None:
    """Print where each command of the open phases runs, unless all run at the root as everybody expects."""
    commands = dict.fromkeys(command for phase in plan.phases if not phase.done for command in phase.verify)
    placed = [(folder or ".", rest) for folder, rest in map(split_place, commands)]
    said = any(phase.folder or phase.find_wish("in")[0] for phase in plan.phases)
    for folder, rest in placed if is_below or said else ():
        where = "the root" if folder == "." else folder
        say(f"runs in {where}  {shorten(' '.join(rest.split()), _SHOWN_CHARS)}")


def _show_waves(waves: Waves) -> None:
    """Print which phases can run side by side; nothing if each phase waits for the one before it."""
    if waves.widest < _SIDE_BY_SIDE and not waves.shared:
        return
    if waves.widest >= _SIDE_BY_SIDE:
        say(f"side by side  {shorten(' │ '.join(' '.join(wave) for wave in waves.waves), _SHOWN_CHARS)}")
        share = round(100 * waves.parallel / waves.serial)
        say(f"  relay run --jobs {waves.jobs} takes about {share} % of the time")
    for shared in waves.shared[:_SHOWN_SHARED]:
        ids = list_some(shared.phase_ids, _SHOWN_SHARED)
        say(f"one by one    {ids}: they name {shorten(shared.path, _PATH_CHARS)}")
    if left := waves.shared[_SHOWN_SHARED:]:
        say(f"              and for {count(len(left), 'more path')}")
    say()


def _name_choices(phase: Phase, settings: Settings | None) -> str:
    """Return who works on a phase with which model, where that is not what all other phases have."""
    if phase.done or settings is None:
        return ""
    runner, model = settings.runner_for(phase.runner), settings.model_for(phase.model)
    effort = settings.effort_for(phase.effort)
    parts = [f"by {runner}"] if runner != "api" else []
    parts += [f"on {model}"] if model != settings.model else []
    parts += [f"effort {effort}"] if effort != settings.effort else []
    return f"  {', '.join(parts)}" if parts else ""
