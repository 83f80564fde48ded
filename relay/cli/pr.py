"""`relay pr`: a pull request from the plan, what was checked, and what it cost."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relay.cli.boundary import note_place
from relay.cli.options import plan_option
from relay.cli.screen import say
from relay.errors import RelayError, RepoError
from relay.git.message import disarm
from relay.hints import RUN
from relay.regexes import regex
from relay.setup.place import find_source
from relay.state.standing import PhaseStanding, Standing, gather_standing
from relay.store.trailers import AGENT, REVIEW
from relay.words import count, render_usd

if TYPE_CHECKING:
    from relay.git.repository import Repo
    from relay.plan.model import Phase
    from relay.store.history import RelayCommit

MAX_BODY_CHARS = 60_000
"""GitHub takes 65,536."""
_PROGRAMS = {
    "gh": ("pr", "create", "--draft", "--title", "{title}", "--body-file", "-", "--head", "{branch}"),
    "glab": (
        "mr",
        "create",
        "--draft",
        "--yes",
        "--title",
        "{title}",
        "--description",
        "{body}",
        "--source-branch",
        "{branch}",
    ),
}
"""What makes a draft from standard input, or from an argument where it takes no other."""
_MENTION = regex(r"(?<![\w`])@(?=\w)")
_MARKUP = regex(r"[\\`*_\[\]<>|]")


@click.command("pr", short_help="Make a draft pull request from the plan, or print its text.")
@plan_option
@click.option("--text", "only_text", is_flag=True, help="Print title and text; nothing is made.")
@click.option("--with", "program", type=click.Choice(list(_PROGRAMS)), help="The program; the first that is installed.")
@click.option("--push", is_flag=True, help="Push the branch first: this one only, and only forward.")
def command(plan: str | None, *, only_text: bool, program: str | None, push: bool) -> None:
    """Make a draft pull request with gh or glab: the plan, its ticks, what was checked and reviewed, what it cost.

    Both use their own login; no token passes through relay. --push brings the branch to its remote before,
    forward only; nothing is pushed else. Where neither is installed the text is printed.
    """
    place = note_place(plan)
    standing = gather_standing(find_source(place), place.repo)
    from relay.store.history import read_plan_commits

    commits = read_plan_commits(place.repo, place.plan_name)
    if not any(commit.status == "done" for commit in commits):
        raise RelayError("no phase of the plan is committed yet: there is nothing to ask for", hint=RUN)
    title, body = render_title(standing), render_body(standing, commits)
    found = program or next((name for name in _PROGRAMS if _find_program(place.repo, name)), None)
    if push and not only_text:
        _push(place.repo, os.environ)
    if only_text or found is None:
        say(title, style="bold")
        say()
        say(body)
        return
    _make(place.repo, found, title, body, pushed=push)


def _push(repo: "Repo", environ: Mapping[str, str]) -> None:
    """Bring the branch to its remote, forward only; nobody is asked for a password.

    Raises:
        RelayError: The remote cannot be reached, has something else there, or does not want it.
    """
    from relay.git.remote import PushEnd, RefUpdate, Remote

    branch = _get_branch(repo)
    remote = Remote(repo=repo, name=_find_remote(repo, branch) or "origin", environ=environ)
    ref = f"refs/heads/{branch}"
    old, new = remote.list_refs(ref).get(ref), repo.head()
    pushed = remote.push(RefUpdate(ref=ref, old=old, new=new)) if old != new else None
    if pushed is not None and pushed.end is not PushEnd.DONE:
        words = f": {pushed.words}" if pushed.words else ""
        raise RepoError(f"{remote.name} did not take {branch} ({pushed.end}){words}", hint=f"git fetch {remote.name}")
    say(f"{branch} is at {remote.name}")


def _get_branch(repo: "Repo") -> str:
    branch: str | None = repo.branch
    if branch is None:
        raise RepoError("HEAD is detached; a pull request is made from a branch", hint="git switch -c <name>")
    return branch


def _find_remote(repo: "Repo", branch: str) -> str:
    return os.fsdecode(repo.git.ask("config", "--get", f"branch.{branch}.remote") or b"")


def _find_program(repo: "Repo", name: str) -> str | None:
    """Return where PATH has a program; what a repository brings is not the user's."""
    entries = [entry for entry in os.environ.get("PATH", "").split(":") if entry.startswith("/")]
    return shutil.which(
        name, path=":".join(e for e in entries if not Path(e).resolve().is_relative_to(repo.root.resolve()))
    )


def _make(repo: "Repo", program: str, title: str, body: str, *, pushed: bool) -> None:
    found = _find_program(repo, program)
    if found is None:
        raise RelayError(f"{program} is not installed", hint="relay pr --text prints what it would say")
    branch = _get_branch(repo)
    if not pushed and not _find_remote(repo, branch):
        raise RepoError(f"{branch} has not been pushed", hint="relay pr --push pushes it")
    given = {"title": title, "branch": branch, "body": body}
    words = [word.format_map(given) if word.startswith("{") else word for word in _PROGRAMS[program]]
    # The user's own program, with the user's own login.
    try:
        done = subprocess.run((found, *words), cwd=repo.root, input=body, text=True, check=False)
    except OSError as error:  # it cannot be started, or the text is too long for an argument
        reason = f"{program} could not be started: {error.strerror}"
        raise RelayError(reason, hint="relay pr --text prints what it would say") from None
    if done.returncode:
        raise RelayError(f"{program} ended with {done.returncode}", hint="relay pr --text prints what it would say")


def render_title(standing: Standing) -> str:
    """Return the plan's title as one line."""
    return " ".join((standing.plan.title or f"Work through {standing.plan_name}").split())[:200]


def render_body(standing: Standing, commits: "tuple[RelayCommit, ...]") -> str:
    """Return the text as Markdown; nobody is mentioned and no issue is closed that the plan does not name."""
    plan = standing.plan
    by_id = {commit.commit: commit for commit in commits}
    heading, _, rest = plan.preamble.strip().partition("\n")
    parts = [rest.strip() if heading.removeprefix("# ") == plan.title else plan.preamble.strip(), "## What was done"]
    parts += [
        _render_phase(phase, known, [by_id[one] for one in known.commits if one in by_id])
        for phase, known in zip(plan.phases, standing.phases, strict=True)
    ]
    done = sum(phase.done for phase in plan.phases)
    cost = render_usd(standing.spent.cost_usd, estimated=standing.spent.estimated)
    parts.append(f"{done} of {count(len(plan.phases), 'phase')} done. The sessions have cost {cost}.")
    text = disarm("\n\n".join(filter(None, parts)), given=plan.text)
    text = _MENTION.sub("@\u2060", text)
    return text if len(text) <= MAX_BODY_CHARS else f"{text[:MAX_BODY_CHARS]}\n\n… (cut; the plan has the rest)"


def _render_phase(phase: "Phase", known: PhaseStanding, commits: "list[RelayCommit]") -> str:
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
        lines.append(f"\n{commit.commit[:10]} {_clean(commit.subject)} ({'; '.join(facts) or commit.status})")
    lines += [f"\n**Doubt:** {_clean(words)}" for words in known.doubts]
    return "\n".join(lines)


def find_evidence(body: str) -> dict[str, str]:
    """Return what a commit's body gives as evidence for its items, by their ids."""
    found: dict[str, str] = {}
    item = ""
    for line in body.splitlines():
        if line.startswith("- [x] "):
            item = line.removeprefix("- [x] ").split(" ")[0]
        elif line.startswith("  evidence: "):
            found[item] = line.removeprefix("  evidence: ")
        elif line.startswith("  ") and item in found:
            found[item] += f" {line.strip()}"  # it was wrapped
        else:
            item = item if line.startswith("  ") else ""
    return found


def _clean(text: str) -> str:
    """Return a text that is shown as it is written."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))
