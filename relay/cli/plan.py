"""`relay plan` writes, changes or splits a plan. `relay review` reviews a phase, a range of commits or the plan."""

import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any, TextIO

import click

from relay import __version__
from relay.base.errors import ExitCode, RelayError
from relay.base.words import render_output, shorten
from relay.cli.check import check_file, show_checked
from relay.cli.options import SectionedCommand, session_options
from relay.cli.screen import clean_line, has_person, say
from relay.cli.sessions import make_request, obey_parent, parent_option, run_sessions, show_end
from relay.insight.transcripts.library import Transcript, find_first_words, get_transcript, list_transcripts
from relay.run.planning.planner import PlanTask, plan_feature, read_existing, split_at_file
from relay.run.review import ReviewFinding, render_sarif
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunEnd
from relay.setup.place import Place, load_plan


@click.command("plan", cls=SectionedCommand)
@click.argument("feature", required=False, help="What to build, in one or more sentences; - reads it from a pipe.")
@click.option("--revise", metavar="TEXT", help="Change the existing plan as TEXT says; ticked items stay.")
@click.option("--split", metavar="N", help="Split the open phase N into smaller ones.")
@click.option(
    "--from-session",
    "from_session",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Plan the rest of a session of Claude Code, Codex or OpenCode: its transcript, or its id; default: ask which.",
)
@click.option("--critic", is_flag=True, help="Have two fresh sessions look for faults; the planner corrects them.")
@click.option("--force", is_flag=True, help="Replace an unfinished plan by a new one.")
@click.option("-e", "--edit", is_flag=True, help="Open the plan in your editor afterwards.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; answer each question by its default.")
@session_options
def command(  # one parameter for each option of its own
    feature: str | None,
    *,
    revise: str | None,
    split: str | None,
    from_session: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Write PLAN.md in a session that explores the repository and cannot change it.

    relay checks, writes and shows the plan, or its changes. It does not commit the plan: read it, edit it, then
    `relay run`. The planner asks you what only you can decide, and your answers become constraints of the plan. Without
    a terminal it takes the default answers and lists them under Assumptions.
    """
    is_piped = feature == "-"
    feature = read_task(sys.stdin) if is_piped else feature
    if options["critic"] and split is not None:
        raise click.UsageError("--critic is for a new or revised plan; --split keeps every item")
    task = make_task(feature, revise=revise, split=split, force=force, needs=from_session is None)
    request, place = make_request(SessionKind.PLAN, options, needs_plan=False)
    session = None if from_session is None else choose_session(place, from_session, yes=options["yes"], as_json=as_json)
    task = replace(task, is_piped=is_piped, is_criticized=options["critic"], session=session)
    request = replace(request, is_criticized=options["critic"])
    before = read_existing(place.repo, place.plan_name, task)
    if end := split_at_file(request.repo, place.plan_name, task):
        code = show_end(end, request, place.caller, as_json=as_json)
    else:
        code = run_sessions(
            request, place.caller, lambda ctx: plan_feature(ctx, task), as_json=as_json, asks=not options["yes"]
        )
    if code == ExitCode.DONE and options["edit"]:
        click.edit(filename=str(place.plan_file))
    if code == ExitCode.DONE and not as_json:
        show_plan(place, before.text if before else "")
    return code


MAX_TASK_BYTES = 256 * 1024
"""The longest issue of GitHub has a quarter of it."""


def read_task(stream: TextIO) -> str:
    """Return the task that somebody pipes into the command.

    Raises:
        click.UsageError: Nothing is piped in.
        RelayError: The text is too long, or no text.
    """
    if stream.isatty():
        raise click.UsageError("relay plan - reads the task from a pipe: gh issue view 12 | relay plan -")
    data = stream.buffer.read(MAX_TASK_BYTES + 1)
    if len(data) > MAX_TASK_BYTES:
        raise RelayError(
            f"the task has more than {MAX_TASK_BYTES:,} bytes", hint="put the rest into a file, and name it"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RelayError(f"the task is no UTF-8 text: byte {error.start:,} is wrong") from None
    text = render_output(text.encode()).strip()
    if not text:
        raise click.UsageError("relay plan - got no text from the pipe")
    return text


MOST_OFFERED = 9
_FIRST_CHARS = 60


def choose_session(place: Place, typed: str, *, yes: bool, as_json: bool) -> Transcript:
    """Return the session that the user means: a transcript, an id, or one of this directory's that is picked.

    With `yes` the newest of the directory is taken; with `as_json` nothing is printed, and nobody asked.

    Raises:
        RelayError: There is none, or several and nobody to ask.
    """
    if typed and Path(typed).exists():
        return get_transcript(Path(typed), "")
    known = list_transcripts(place.root, os.environ)
    found = [one for one in known if typed in (one.session or one.path.stem)]
    if typed and len(found) != 1:
        raise RelayError(
            f"{typed} is no transcript, and no id of one session about {place.root}",
            hint="relay lab inspect lists them",
        )
    if not found:
        raise RelayError(f"no session of Claude Code, Codex or OpenCode is about {place.root}", hint="name its FILE")
    shown, chosen = found[:MOST_OFFERED], 1
    if not typed and not yes:
        for number, one in enumerate(() if as_json else shown, 1):
            when = f"{datetime.fromtimestamp(one.updated, tz=UTC).astimezone():%Y-%m-%d %H:%M}"
            words = shorten(clean_line(one.title or find_first_words(one)), _FIRST_CHARS)
            say(f"{number}  {when}  {one.format.value:<11}  {words}")
        if as_json or not has_person():
            raise RelayError(
                "nobody is here to say which session", hint="--from-session FILE names it, and --yes takes the newest"
            )
        chosen = click.prompt("Which session is to become a relay?", default=1, type=click.IntRange(1, len(shown)))
    return shown[chosen - 1]


def make_task(
    feature: str | None, *, revise: str | None, split: str | None, force: bool, needs: bool = True
) -> PlanTask:
    """Return the task that the user typed; without `needs` a session's rest is the task, and a feature only adds to it.

    Raises:
        click.UsageError: The user typed no task, or several.
    """
    asked = [text for text in (feature, revise, split) if text is not None]
    is_bare = not needs and not asked
    if not is_bare and (len(asked) != 1 or not asked[0].strip() or (not needs and feature is None)):
        raise click.UsageError('choose one: relay plan "what you want", --revise TEXT, --split N or --from-session')
    if force and needs and feature is None:
        raise click.UsageError("--force is for a new plan only; --revise and --split never drop finished work")
    return PlanTask(feature=feature or "", revise=revise or "", split=split or "", force=force)


def show_plan(place: Place, before: str) -> None:
    """Print the new plan, or its difference from the text `before`, and then the check of the plan."""
    say()
    text = place.plan_file.read_text(encoding="utf-8", errors="surrogateescape")
    if before:
        styles = {"+": "green", "-": "red", "@": "cyan"}
        for line in unified_diff(before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=2):
            say(line, style=styles.get(line[:1], ""))
    else:
        say(text.rstrip("\n"))
    say()
    show_checked(check_file(place, os.environ))


@click.command("review", cls=SectionedCommand)
@click.argument(
    "what",
    metavar="[PHASE|RANGE]",
    required=False,
    help="What to review; default: the last phase that is done.",
)
@click.option("--whole-plan", is_flag=True, help="Compare the finished plan with the repository instead.")
@click.option("--sarif", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the findings as SARIF.")
@click.option("--post", is_flag=True, help="Also post the findings to the branch's request, as one comment.")
@session_options
@click.option("--turned", is_flag=True, hidden=True, help="Show the changed files in the opposite order.")
@parent_option
def review_command(what: str | None, sarif: str | None, *, whole_plan: bool, as_json: bool, **options: Any) -> int:
    """Review a phase, or a range of commits such as main..HEAD, in fresh sessions that can only read.

    The first session looks for faults in the current work tree; the second tries to refute each. Exit status: 4 if a
    fault is confirmed.

    With --whole-plan one session compares the finished plan with the repository. If work is missing, relay appends a
    phase to the plan and does not commit it: read it, then relay run. Otherwise the plan stays unchanged to the byte.
    """
    if whole_plan and (what is not None or sarif is not None or options["post"]):
        raise click.UsageError("--whole-plan takes no PHASE, RANGE, --sarif or --post")
    if whole_plan:
        task = PlanTask(converge=True)
        request, place = make_request(SessionKind.CONVERGE, options)
        before = read_existing(place.repo, place.plan_name, task)
        code = run_sessions(request, place.caller, lambda ctx: plan_feature(ctx, task), as_json=as_json)
        if code == ExitCode.DONE and not as_json and before and load_plan(place).text != before.text:
            show_plan(place, before.text)
        return code
    from relay.cli.pr import prepare_post
    from relay.run.commit.review import get_range, review_range

    request, place = make_request(SessionKind.REVIEW, options)
    target = None if sarif is None else Path(sarif)
    if target is not None:  # before anything is paid for
        known = target if target.exists() else target.absolute().parent
        if not (known.is_dir() or known == target) or not os.access(known, os.W_OK):
            raise RelayError(f"{sarif} cannot be written", hint=f"is {known} a directory that you may write to?")
    chosen = get_range(request.files, what or "")
    post = prepare_post(place, os.environ) if options["post"] else None
    found: tuple[ReviewFinding, ...] | None = None

    def act(ctx: RunContext) -> RunEnd:
        obey_parent(ctx.interrupts, options["job_of"])
        nonlocal found
        end, found = review_range(ctx, chosen, turned=options["turned"])
        if target and found is not None:
            text = json.dumps(render_sarif(found, version=__version__, name=chosen.name), indent=1)
            target.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        return end

    code = run_sessions(request, place.caller, act, as_json=as_json)
    done = [f"wrote {sarif}"] if target and target.exists() else []
    done += [post(chosen.name, found)] if post is not None and found is not None else []
    for words in () if as_json else done:
        say(words)
    return code
