"""`relay pr`: a pull request with the plan, its checks and its cost."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.base.errors import RelayError, RepoError
from relay.base.hints import RUN
from relay.base.values import dataclass
from relay.base.words import count, count_questions, render_usd
from relay.cli.boundary import note_place
from relay.cli.options import plan_option
from relay.cli.screen import say
from relay.git.message import disarm
from relay.plan.text import find_code_spans
from relay.setup.place import find_source
from relay.store.plan_state import PhaseSummary, PlanSummary, summarize_plan
from relay.store.trailers import AGENT, REVIEW

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.plan.model import Phase
    from relay.store.history import RelayCommit

MAX_BODY_CHARS = 60_000
"""GitHub takes 65,536."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The arguments of a forge's own program, with ``{title}``, ``{body}``, ``{branch}`` and ``{number}`` to fill in.

    The program reads the text from standard input, or from an argument if it reads no other.
    """

    make: tuple[str, ...]
    find: tuple[str, ...]
    """Prints the branch's present request as JSON."""
    branch_key: str
    number_key: str
    update: tuple[str, ...]
    base: str
    """The option for the target branch."""


_PROGRAMS = {
    "gh": _Program(
        make=("pr", "create", "--draft", "--title", "{title}", "--body-file", "-", "--head", "{branch}"),
        find=("pr", "view", "{branch}", "--json", "number,state,headRefName"),
        branch_key="headRefName",
        number_key="number",
        update=("pr", "edit", "{number}", "--body-file", "-"),
        base="--base",
    ),
    "glab": _Program(
        make=(
            *("mr", "create", "--draft", "--yes", "--title", "{title}"),
            *("--description", "{body}", "--source-branch", "{branch}"),
        ),
        find=("mr", "view", "{branch}", "--output", "json"),
        branch_key="source_branch",
        number_key="iid",
        update=("mr", "update", "{number}", "--description", "{body}"),
        base="--target-branch",
    ),
}
_PRINTED = "relay pr --text prints the text"
_PUSHED = "relay pr --push pushes it, forward only"
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_MARKUP = re.compile(r"[\\`*_\[\]<>|]")


@click.command("pr", short_help="Create a draft pull request from the plan.")
@plan_option
@click.option("--text", "only_text", is_flag=True, help="Print title and text; create nothing.")
@click.option("--with", "program", type=click.Choice(list(_PROGRAMS)), help="Program; default: the first installed.")
@click.option("--push", is_flag=True, help="Push this branch first, forward only.")
@click.option("--base", metavar="BRANCH", help="Target branch; default: the forge's choice.")
def command(plan: str | None, *, only_text: bool, program: str | None, push: bool, base: str | None) -> None:
    """Create a draft pull request with gh or glab: plan, ticks, checks, reviews, cost.

    If the branch has an open request, relay replaces its text. Both programs use their own login; relay sees no token.
    relay pushes nothing unless you type --push.
    """
    place = note_place(plan)
    summary = summarize_plan(find_source(place), place.repo)
    from relay.store.history import read_plan_commits

    commits = read_plan_commits(place.repo, place.plan_name)
    if not any(commit.status == "done" for commit in commits):
        raise RelayError("no phase of the plan is committed yet: a request would be empty", hint=RUN)
    title, body = render_title(summary), render_body(summary, commits)
    if only_text:
        _print(title, body)
        return
    found = program or next((name for name in _PROGRAMS if _find_program(place.repo, name)), None)
    _bring(place.repo, os.environ, push=push)
    if found is None:
        _print(title, body)
        raise RelayError(f"relay created no request: {' and '.join(_PROGRAMS)} are not installed", hint=_PRINTED)
    _ask(place.repo, found, title, body, base=base)


def _print(title: str, body: str) -> None:
    say(title, style="bold")
    say()
    say(body)


def _bring(repo: "Repo", environ: Mapping[str, str], *, push: bool) -> None:
    """Require that the remote has this branch's tip; with `push`, push it there, forward only.

    git asks nobody for a password.

    Raises:
        RelayError: The remote cannot be reached, has another tip, or refuses the push.
    """
    from relay.git.remote import PushEnd, RefUpdate, Remote

    branch = _get_branch(repo)
    remote = Remote(repo=repo, name=_find_remote(repo, branch) or "origin", environ=environ)
    ref = f"refs/heads/{branch}"
    old, new = remote.list_refs(ref).get(ref), repo.head()
    if old != new and not push:
        words = f"is at another commit on {remote.name}" if old else f"is not on {remote.name}"
        raise RepoError(f"{branch} {words}: push it before you ask for it", hint=_PUSHED)
    pushed = remote.push(RefUpdate(ref=ref, old=old, new=new)) if old != new else None
    if pushed is not None and pushed.end is not PushEnd.DONE:
        words = f": {pushed.words}" if pushed.words else ""
        raise RepoError(f"{remote.name} refused {branch} ({pushed.end}){words}", hint=f"git fetch {remote.name}")
    if push:
        say(f"{remote.name} has {branch}")


def _get_branch(repo: "Repo") -> str:
    branch: str | None = repo.branch
    if branch is None:
        raise RepoError("HEAD is detached; a pull request needs a branch", hint="git switch -c <name>")
    return branch


def _find_remote(repo: "Repo", branch: str) -> str:
    return os.fsdecode(repo.git.ask("config", "--get", f"branch.{branch}.remote") or b"")


def _find_program(repo: "Repo", name: str) -> str | None:
    """Return the path of a program on PATH; a program inside the repository is not the user's and does not count."""
    entries = [entry for entry in os.environ.get("PATH", "").split(":") if entry.startswith("/")]
    return shutil.which(
        name, path=":".join(e for e in entries if not Path(e).resolve().is_relative_to(repo.root.resolve()))
    )


def _ask(repo: "Repo", name: str, title: str, body: str, *, base: str | None) -> None:
    """Create a draft, or replace the text of the open request, by the user's own program and login.

    Raises:
        RelayError: The program is not installed, or failed.
    """
    program, branch = _PROGRAMS[name], _get_branch(repo)
    place = _find_program(repo, name)
    if place is None:
        raise RelayError(f"{name} is not installed", hint=_PRINTED)
    given = {"title": title, "branch": branch, "body": body}

    def start(words: tuple[str, ...], *, heard: bool = False) -> "subprocess.CompletedProcess[str]":
        filled = [word.format_map(given) if word.startswith("{") else word for word in words]
        try:
            return subprocess.run(
                (place, *filled), cwd=repo.root, input=body, text=True, check=False, capture_output=heard
            )
        except OSError as error:  # the program cannot start, or the text is too long for an argument
            raise RelayError(f"{name} could not be started: {error.strerror}", hint=_PRINTED) from None

    there = start(program.find, heard=True)
    given["number"] = "" if there.returncode else _read_number(program, there.stdout, branch)
    words = program.update if given["number"] else program.make
    done = start((*words, *((program.base, base) if base else ())))
    if done.returncode:
        raise RelayError(f"{name} ended with {done.returncode}", hint=_PRINTED)
    if given["number"]:
        say(f"replaced the text of {given['number']}")


def _read_number(program: _Program, text: str, branch: str) -> str:
    """Return the number of the branch's open request; empty if there is none. A branch may be called 42."""
    try:
        found = json.loads(text)
        is_open = found[program.branch_key] == branch and str(found["state"]).casefold() in {"open", "opened"}
        return str(int(found[program.number_key])) if is_open else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def render_title(summary: PlanSummary) -> str:
    """Return the plan's title as one line."""
    return " ".join((summary.plan.title or f"Work through {summary.plan_name}").split())[:200]


def render_body(summary: PlanSummary, commits: "tuple[RelayCommit, ...]") -> str:
    """Return the text as Markdown. It mentions nobody, and closes no issue that the plan does not name."""
    plan = summary.plan
    by_id = {commit.commit: commit for commit in commits}
    heading, _, rest = plan.preamble.strip().partition("\n")
    own = rest if heading.removeprefix("# ") == plan.title else plan.preamble
    parts = ["\n".join(_map_words(line, _name_nobody) for line in own.strip().splitlines())]
    if summary.questions:
        asked = "\n".join(f"- {_clean(question)}" for question in summary.questions)
        parts += [f"## Assumptions to check\n\n{count_questions(summary.questions)}:\n\n{asked}"]
    parts.append("## What was done")
    parts += [
        _render_phase(phase, known, [by_id[one] for one in known.commits if one in by_id])
        for phase, known in zip(plan.phases, summary.phases, strict=True)
    ]
    done = sum(phase.done for phase in plan.phases)
    cost = render_usd(summary.spent.cost_usd, estimated=summary.spent.estimated)
    parts.append(f"{done} of {count(len(plan.phases), 'phase')} done. The sessions have cost {cost}.")
    text = disarm("\n\n".join(filter(None, parts)), given=plan.text)
    return text if len(text) <= MAX_BODY_CHARS else f"{text[:MAX_BODY_CHARS]}\n\n… (cut; the plan has the rest)"


def _render_phase(phase: "Phase", known: PhaseSummary, commits: "list[RelayCommit]") -> str:
    lines = [f"### Phase {phase.id} — {_clean(phase.title)}"]
    evidence = {item: words for commit in commits for item, words in find_evidence(commit.body).items()}
    for item in phase.items:
        lines.append(f"- [{'x' if item.done else ' '}] {_clean(item.text)}")
        lines += [f"  evidence: {_clean(evidence[item.id])}"] if evidence.get(item.id) else []
    for commit in commits:
        facts = [f"gate {commit.gate.split()[0]}"] if commit.gate else []
        found = dict(commit.found)
        facts += [f"review {found[REVIEW]}"] if REVIEW in found else []
        facts += [f"by {found[AGENT]}"] if AGENT in found else []
        lines.append(f"\n{commit.commit[:10]} {_clean(commit.subject)} ({_clean('; '.join(facts) or commit.status)})")
    lines += [f"\n**Doubt:** {_clean(words)}" for words in known.doubts]
    return "\n".join(lines)


def find_evidence(body: str) -> dict[str, str]:
    """Return the evidence in a commit's body by item id."""
    found: dict[str, str] = {}
    item = ""
    for line in body.splitlines():
        if line.startswith("- [x] "):
            item = line.removeprefix("- [x] ").split(" ")[0]
        elif line.startswith("  evidence: "):
            found[item] = line.removeprefix("  evidence: ")
        elif line.startswith("  ") and item in found:
            found[item] += f" {line.strip()}"  # a wrapped line
        else:
            item = item if line.startswith("  ") else ""
    return found


def _clean(text: str) -> str:
    """Escape a text for Markdown; code spans stay code."""
    return _map_words(" ".join(text.split()), _escape)


def _map_words(line: str, change: Callable[[str], str]) -> str:
    """Change the parts of a line outside of code spans."""
    parts, done = [], 0
    for span in find_code_spans(line):
        parts += [change(line[done : span.start]), line[span.start : span.end]]
        done = span.end
    return "".join((*parts, change(line[done:])))


def _escape(text: str) -> str:
    return _name_nobody(_MARKUP.sub(lambda found: f"\\{found[0]}", text))


def _name_nobody(text: str) -> str:
    return _MENTION.sub("@<!-- -->", text)
