"""`relay lab compare`: work through one plan in several ways, and say what the difference is."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from relay.base.errors import ConfigError, ExitCode, PlanError, RelayError, RepoError
from relay.base.interrupts import Interrupts
from relay.base.words import count, render_usd
from relay.cli.boundary import note_place
from relay.cli.check import measure_plan
from relay.cli.options import (
    AMOUNT,
    find_flags,
    json_option,
    network_option,
    offer_models,
    sandbox_option,
)
from relay.cli.pages import show_page
from relay.cli.screen import clean_line, complain, has_person, say, say_document
from relay.cli.views.shapes import PlainView
from relay.config import Settings
from relay.config.model import OWN_LOOP
from relay.lab.arms import parse_arm, parse_arms
from relay.lab.comparing import compare_arms
from relay.lab.experiment import Experiment, Trial, load_experiment
from relay.lab.experiment_page import make_experiment_page
from relay.lab.laboratory import read_results, work_on
from relay.lab.record import keep_logs, read_contexts, render_comparison, save_files
from relay.lab.trial import Bench, UnfinishedError
from relay.plan.parse import find_plan_in
from relay.runners.registry import get_kind, list_runners
from relay.sandbox.process import prepare_process
from relay.session.prices import cost_usd
from relay.session.records import LoggedEvent
from relay.session.usage import Usage, add_usd
from relay.setup.place import Place, find_settings, read_plan_text
from relay.setup.preconditions import require_approval
from relay.setup.session import find_price_now
from relay.store.history import find_text
from relay.store.loose import require_in_commits

_DEARER = {"none": 2.3, "compact": 1.2, "edit": 4.1}
"""Cost against fresh sessions, as measured on the rehearsal server (`benchmarks/results/context.md`)."""
_REVIEW_REQUESTS = 32
"""Two reviews of two sessions with about eight requests each."""
_MOST_REPEATS = 100


@click.command("compare")
@click.argument("plan", required=False, type=click.Path(), help="Plan file; default: that of the settings.")
@click.option("--arms", default="reset,none", show_default=True, metavar="LIST", help="What to compare; see above.")
@click.option(
    "--repeats", type=click.IntRange(1, _MOST_REPEATS), default=3, show_default=True, metavar="N", help="Runs per arm."
)
@click.option("--max-cost", type=AMOUNT, metavar="USD", help="Cap on the whole experiment.")
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Shuffles the order of the runs.")
@click.option("--hidden", multiple=True, metavar="CMD", help="A check of the result, of which no session knows.")
@click.option(
    "--hidden-dir",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Files for it, outside the repository: $RELAY_HIDDEN in CMD.",
)
@click.option("--no-review", is_flag=True, help="Leave out the blind reviews.")
@click.option("--model", metavar="ID", shell_complete=offer_models, help="Model of every arm that names none.")
@network_option
@sandbox_option
@click.option("--yes", is_flag=True, help="Do not ask before the first request.")
@click.option("--show", metavar="ID", help="Show an experiment, finished or not; send nothing.")
@click.option("--resume", metavar="ID", help="Go on with an experiment.")
@json_option
def command(plan: str | None, *, show: str | None, resume: str | None, as_json: bool, **options: Any) -> int:
    """Work through a plan several times, in each of several ways, and compare the results.

    An arm is a way: reset, none, compact or edit (what happens when the context is full), with a reset line as in
    none@60k; a line alone, as in 60k or 45%; model=ID, runner=NAME, effort=LEVEL, ablate=FEATURE; or several joined by
    +. The first arm is what the others are compared with.

    Each run begins at HEAD in a clone beside the repository, which has no other run in it; your branch, work tree and
    index stay as they are. The cap is for the whole experiment and divided among the runs beforehand. Type the same
    command again after an interruption: what is done is kept in git and is not done again.
    """
    if show is not None or resume is not None:
        place = note_place()
        experiment = load_experiment(place.repo, show or resume or "")
    else:
        place, experiment = _plan_experiment(plan, options)
    code = _work(place, experiment, options, quiet=as_json) if show is None else ExitCode.DONE
    from relay.insight.report.page import render_page

    root = place.repo.root
    results = keep_logs(root, experiment, read_results(place.repo, experiment))
    comparison = compare_arms(results, experiment.arms)
    page = make_experiment_page(experiment, comparison, read_contexts(root, experiment, results))
    document = render_comparison(experiment, comparison)
    kept = save_files(root, experiment, document, render_page(page, clean=clean_line))
    if as_json:
        say_document(document)
    else:
        show_page(page, root, "", None, as_text=True)
        say(f"\nwrote {kept / 'index.html'}")
    return code


def _plan_experiment(plan: str | None, options: Mapping[str, Any]) -> tuple[Place, Experiment]:
    """Return the experiment that the user typed.

    Raises:
        click.UsageError: A typed value is not allowed.
        RelayError: The plan, or the repository, cannot be used.
    """
    place = note_place(plan)
    try:
        arms = parse_arms(options["arms"])
    except ValueError as error:
        raise click.UsageError(f"--arms: {error}") from None
    if options["hidden_dir"] and not options["hidden"]:
        raise click.UsageError("--hidden-dir is for --hidden")
    if options["hidden_dir"] and Path(options["hidden_dir"]).is_relative_to(place.root):
        raise click.UsageError(
            f"--hidden-dir: {options['hidden_dir']} is in the repository, where sessions can read it"
        )
    base, branch = _find_base(place)
    settings = _find_settings(place, base, find_flags(options), os.environ)
    cap = options["max_cost"] if options["max_cost"] is not None else settings.max_cost_usd
    if cap is None:
        raise click.UsageError("an experiment needs a cap: --max-cost USD")
    words = [word for name in ("model", "sandbox") if options[name] for word in (f"--{name}", options[name])]
    if options["network"] is not None:
        words.append("--network" if options["network"] else "--no-network")
    return place, Experiment(
        plan_path=place.plan_name,
        base=base,
        branch=branch,
        arms=tuple(arm.name for arm in arms),
        repeats=options["repeats"],
        seed=options["seed"],
        cap_usd=cap,
        hidden=tuple(options["hidden"]),
        hidden_dir=options["hidden_dir"] or "",
        reviews=not options["no_review"],
        options=tuple(words),  # for every run
    )


def _find_base(place: Place) -> tuple[str, str]:
    """Return the commit to begin at, and the name of the branch in the clones.

    Raises:
        RepoError: There is no commit, or the plan in the work tree is not that of the commit.
        PlanError: The plan has nothing left to do.
    """
    head = place.repo.head()
    if head is None:
        raise RepoError("there is no commit to begin at", hint="commit the plan and the files that it is about")
    require_in_commits(place.repo, place.plan_name)
    text = find_text(place.repo, head, place.plan_name)
    if text is None or text != read_plan_text(place):
        words = f"{place.plan_name} is not as HEAD has it, and an experiment begins at a commit"
        raise RepoError(words, hint=f"git add {shlex.quote(place.plan_name)} && git commit")
    plan = find_plan_in(text)
    if plan is None or plan.done:
        words = "is done already" if plan else "is no plan"
        raise PlanError(f"the plan {words}", path=place.plan_name, hint=f"relay check {shlex.quote(place.plan_name)}")
    return head, place.repo.branch or "main"


def _work(place: Place, experiment: Experiment, options: Mapping[str, Any], *, quiet: bool) -> int:
    """Work on an experiment; return the exit code."""
    settings = _find_settings(place, experiment.base, find_flags(options), os.environ)
    require_approval(place.root, settings, os.environ)
    arms = _require_arms(place, experiment, options)
    total = len(experiment.arms) * experiment.repeats
    if len(tuple(read_results(place.repo, experiment))) < total:
        _ask(experiment, _estimate(place, experiment, arms, settings), yes=options["yes"], quiet=quiet)
    prepare_process()
    view = PlainView(sys.stdout, time.time)

    def tell(record: LoggedEvent, trial: Trial) -> None:
        if not quiet:
            view.tell(record, phase_id=f"{trial.number}/{total} {trial.arm}")

    with closing(Interrupts()) as interrupts, interrupts.installed(view.note_stop):
        bench = Bench(
            main=place.repo,
            experiment=experiment,
            settings=settings,
            flags=find_flags(options),
            environ=os.environ,
            interrupts=interrupts,
            tell=tell,
            say=(lambda _: None) if quiet else say,
        )
        try:
            work_on(bench)
        except UnfinishedError as error:
            complain(f"{error}\nnext: relay lab compare --resume {experiment.id}")
            return ExitCode.INTERRUPTED if interrupts.finish_turn else ExitCode.STOPPED
    return ExitCode.DONE


def _require_arms(place: Place, experiment: Experiment, options: Mapping[str, Any]) -> "tuple[Settings, ...]":
    """Return the settings of each arm, once they are known to be allowed and their runners to be there.

    Raises:
        RelayError: They are not.
    """
    found = []
    for arm in map(parse_arm, experiment.arms):
        typed = {option.removeprefix("--").replace("-", "_"): word for option, word in arm.options}
        flags, environ = {**find_flags(options), **typed}, {**os.environ, **arm.environ}
        settings = _find_settings(place, experiment.base, flags, environ)
        kind = get_kind(settings.runner, origin=f"--arms {arm.name}", known=list_runners(settings))
        kind.require(os.environ, settings)
        kind.get_key(os.environ)
        if settings.runner != OWN_LOOP and settings.strategy != "reset":
            raise ConfigError(
                f"--arms {arm.name}: {settings.runner} manages its context itself; only reset goes with it"
            )
        found.append(settings)
    return tuple(found)


def _find_settings(place: Place, base: str, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Return the settings with those of the plan as the commit has it."""
    plan = find_plan_in(find_text(place.repo, base, place.plan_name) or "")
    return find_settings(flags, environ, place.root, plan=plan, plan_name=place.plan_name)


def _estimate(
    place: Place, experiment: Experiment, arms: "Sequence[Settings]", settings: Settings
) -> tuple[float | None, ...]:
    """Return what one run of each arm will roughly cost, with its reviews; None where a price is unknown."""
    plan = find_plan_in(find_text(place.repo, experiment.base, experiment.plan_path) or "")
    sizes = measure_plan(place.root, plan, settings) if plan else ()
    reviewer = find_price_now(settings, settings.roles.review or settings.model)
    reading = Usage(cache_read_tokens=20_000, cache_write_5m_tokens=2_000, output_tokens=500)
    reviews: float | None = 0.0
    if experiment.reviews:
        reviews = _REVIEW_REQUESTS * cost_usd(reading, reviewer) if reviewer else None
    found = []
    for arm in arms:
        price = find_price_now(arm, arm.model)
        run = sum(size.turns * cost_usd(size.turn, price) for size in sizes) if price else None
        found.append(add_usd(run and run * _DEARER.get(arm.strategy, 1.0), reviews))
    return tuple(found)


def _ask(experiment: Experiment, costs: Sequence[float | None], *, yes: bool, quiet: bool) -> None:
    """Show the estimated cost, and ask whether to begin.

    Raises:
        RelayError: Nobody can be asked.
        click.Abort: The answer is no.
    """
    total = len(experiment.arms) * experiment.repeats
    if not quiet:
        say(f"experiment {experiment.id}: {count(total, 'run')}, seed {experiment.seed}", style="bold")
        for arm, cost in zip(experiment.arms, costs, strict=True):
            words = "its model's price is unknown" if cost is None else f"roughly {render_usd(cost)} a run"
            say(f"  {arm}: {count(experiment.repeats, 'run')}, {words}")
        share = render_usd(experiment.share_usd)
        say(f"  together never more than {render_usd(experiment.cap_usd)}: {share} a run")
    if yes:
        return
    if quiet or not has_person():
        raise RelayError("an experiment costs money, and nobody can be asked here", hint="--yes begins without asking")
    click.confirm("Begin?", abort=True)
