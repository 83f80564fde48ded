"""`relay pr`: a pull request with the plan, its checks and its cost."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import click

from relay.base.errors import RelayError, RepoError
from relay.base.hints import RUN, Command
from relay.base.words import count, count_questions, render_usd
from relay.cli.boundary import note_place
from relay.cli.options import plan_option
from relay.cli.screen import say
from relay.git.forge import PROGRAMS, Forge, ForgeError, find_forge
from relay.git.message import disarm
from relay.git.objects import is_ancestor
from relay.git.refs import find_ref
from relay.git.remote import PushEnd, RefUpdate, Remote, find_remote, is_default, list_remotes
from relay.git.repository import Repo
from relay.plan.model import Phase
from relay.plan.text import find_code_spans
from relay.session.events import Event, Noticed
from relay.setup.place import Place, find_settings, find_source, load_plan
from relay.store.history import RelayCommit, read_plan_commits
from relay.store.plan_state import PhaseSummary, summarize_plan
from relay.store.trailers import AGENT, REVIEW

if TYPE_CHECKING:
    from relay.run.review import ReviewFinding
    from relay.setup.context import RunContext, RunRequest

MAX_BODY_CHARS = 60_000
"""GitHub takes 65,536."""


_PRINTED = "relay pr --text prints the text"
_PUSHED = "relay pr --push pushes it, forward only"
_EVIDENCE = re.compile(r"^- \[x\] (\S+).*\n(?:  (?!evidence: ).*\n)*  evidence: (.*(?:\n  .*)*)", re.MULTILINE)
"""Id and evidence of an item in a commit's body; either may be wrapped."""
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_MARKUP = re.compile(r"[\\`*_\[\]<>|]")


@click.command("pr")
@plan_option
@click.option("--text", "only_text", is_flag=True, help="Print title and text; create nothing.")
@click.option("--with", "program", type=click.Choice(PROGRAMS), help="Program; default: the first installed.")
@click.option("--push", is_flag=True, help="Push this branch first, forward only.")
@click.option("--follow", "follows", is_flag=True, help="Make a phase of failed checks and review comments.")
@click.option("--base", metavar="BRANCH", help="Target branch; default: the forge's choice.")
def command(
    plan: str | None, *, only_text: bool, program: str | None, push: bool, follows: bool, base: str | None
) -> None:
    """Create a draft pull request with gh or glab: plan, ticks, checks, reviews, cost.

    If the branch has an open request, relay replaces its text. Both programs use their own login; relay sees no token.
    relay pushes nothing unless you type --push.

    With --follow the failed checks and unresolved review comments of the open request become one phase of the plan,
    which relay commits. It answers, approves and merges nothing.
    """
    if follows:
        if only_text or push or base:
            raise click.UsageError("--follow takes no --text, --push or --base")
        _follow(note_place(plan), program)
        return
    place = note_place(plan)
    commits = read_plan_commits(place.repo, place.plan_name)
    if not any(commit.status == "done" for commit in commits):
        raise RelayError("no phase of the plan is committed yet: a request would be empty", hint=RUN)
    title, body = render_request(place, commits)
    forge, branch = None, ""
    if not only_text:
        branch = _get_branch(place.repo)
        if words := bring(place.repo, branch, os.environ, push=push):
            say(words)
        forge = find_forge(place.repo, os.environ, program or "")
    if only_text or (forge is None and program is None):
        say(title, style="bold")
        say(f"\n{body}")
    if not only_text and (words := require_installed(forge, program).put_request(branch, title, body, base=base)):
        say(words)


def _follow(place: Place, program: str | None) -> None:
    from relay.base.redaction import find_secret_values, redact
    from relay.run.follow import follow
    from relay.session.values import SessionKind
    from relay.setup.context import RunRequest
    from relay.setup.open import hold_worktree

    repo, branch = place.repo, _get_branch(place.repo)
    forge = require_installed(find_forge(repo, os.environ, program or ""), program)
    remote = Remote(repo=repo, name=find_remote(repo, branch), environ=os.environ)
    there, head = remote.list_refs(ref := f"refs/heads/{branch}").get(ref), repo.head()
    if there and head and not (repo.find_commit(there) and is_ancestor(repo, there, head)):
        words = f"{remote.name} has commits of {branch} that are not here"  # the plan there may have more
        raise RepoError(words, hint=f"git pull --rebase {remote.name} {branch}")
    number = _get_open(forge, branch)
    remarks = forge.list_remarks(number)
    request = RunRequest(
        kind=SessionKind.REWIND,  # it writes without a session, too
        repo=repo,
        settings=find_settings({}, os.environ, place.root, plan=load_plan(place), plan_name=place.plan_name),
        plan_path=place.plan_name,
        environ=os.environ,
    )
    values = find_secret_values(os.environ)
    with hold_worktree(repo) as left:
        for words in left:
            say(words, style="yellow")
        done = follow(request, number, remarks, partial(redact, environ_values=values), _tell)
    say(done or f"nothing new on request {number}")
    if done:
        say(f"next   {place.caller.write(Command(words=('run', '--pr')))}")


def _tell(event: Event) -> None:
    if isinstance(event, Noticed):
        say(event.text, style="yellow" if event.warning else "")


def _get_open(forge: Forge, branch: str) -> str:
    """Return the number of a branch's open request.

    Raises:
        ForgeError: There is none.
    """
    number = forge.find_open_request(branch)
    if number is None:
        raise ForgeError(f"{forge.name} shows no open request of {branch}", hint="relay pr --push makes one")
    return number


def bring(repo: Repo, branch: str, environ: Mapping[str, str], *, push: bool) -> str:
    """Require that the remote has a branch's tip; with `push`, push it there, forward only. Return what was done.

    git asks nobody for a password.

    Raises:
        RelayError: The remote cannot be reached, has another tip, or refuses the push.
    """
    remote = Remote(repo=repo, name=find_remote(repo, branch), environ=environ)
    ref = f"refs/heads/{branch}"
    old, new = remote.list_refs(ref).get(ref), find_ref(repo, ref)
    if old != new and not push:
        words = f"is at another commit on {remote.name}" if old else f"is not on {remote.name}"
        raise RepoError(f"{branch} {words}: push it before you ask for it", hint=_PUSHED)
    pushed = remote.push(RefUpdate(ref=ref, old=old, new=new)) if old != new else None
    if pushed is not None and pushed.end is not PushEnd.DONE:
        words = f": {pushed.words}" if pushed.words else ""
        raise RepoError(f"{remote.name} refused {branch} ({pushed.end}){words}", hint=f"git fetch {remote.name}")
    return f"{remote.name} has {branch}" if push else ""


def _get_branch(repo: Repo) -> str:
    branch: str | None = repo.branch
    if branch is None:
        raise RepoError("HEAD is detached; a pull request needs a branch", hint="git switch -c NAME")
    return branch


def require_installed(forge: Forge | None, program: str | None) -> Forge:
    """Return the forge.

    Raises:
        ForgeError: Its program is not installed.
    """
    if forge is None:
        words = f"{program} is" if program else f"relay created no request: {' and '.join(PROGRAMS)} are"
        raise ForgeError(f"{words} not installed", hint=_PRINTED)
    return forge


def prepare_drafts(request: "RunRequest", place: Place, *, makes_branch: bool) -> "Callable[[RunContext], RunContext]":
    """Check, before a run sends anything, that the requests of its phases can be made; return how its context does so.

    Args:
        makes_branch: Whether the run makes its branch first.

    Raises:
        RelayError: The user typed --pr, and there is no program, no remote, or the branch is the remote's default.
    """
    repo = place.repo
    try:
        branch = None if makes_branch else _get_branch(repo)
        name = find_remote(repo, branch)
        if name not in list_remotes(repo):
            raise RepoError(f"{name} is no remote of this repository", hint="git remote add origin ADDRESS")
        if branch is not None and is_default(repo, name, branch):  # as far as this clone knows
            words = f"{branch} is the default branch of {name}: a request needs a branch of its own"
            raise RepoError(words, hint="relay run --branch makes one, or git switch -c NAME")
        forge = require_installed(find_forge(repo, request.environ), None)
    except RelayError as error:
        if request.settings.origins.get("pr", "").startswith("--"):
            raise
        return partial(_go_without, str(error))
    return partial(_keep_draft, place, forge)


def _keep_draft(place: Place, forge: Forge, ctx: "RunContext") -> "RunContext":
    """Push the run's branch after each phase, forward only, and update its request. A failure is a warning."""
    branch = _get_branch(ctx.repo)

    def update() -> None:
        try:
            bring(place.repo, branch, forge.environ, push=True)
            title, body = render_request(place, read_plan_commits(place.repo, place.plan_name))
            done = forge.put_request(branch, title, body)
            told = Noticed(text=f"the request of {branch} is up to date: {done}")
        except RelayError as error:
            again = "relay pr --push tries again"
            told = Noticed(text=f"the request of {branch} is not up to date: {error}; {again}", warning=True)
        ctx.observe(told)

    return replace(ctx, after_phase=update)


def _go_without(reason: str, ctx: "RunContext") -> "RunContext":
    ctx.observe(Noticed(text=f"no request is made (pr): {reason}", warning=True))
    return ctx


def render_request(place: Place, commits: tuple[RelayCommit, ...]) -> tuple[str, str]:
    """Return the title of a request, which is the plan's, and its text as Markdown.

    It mentions nobody, and closes no issue that the plan does not name.
    """
    summary = summarize_plan(find_source(place), place.repo)
    plan = summary.plan
    title = " ".join((plan.title or f"Work through {summary.plan_name}").split())[:200]
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
    return title, text if len(text) <= MAX_BODY_CHARS else f"{text[:MAX_BODY_CHARS]}\n\n… (cut; the plan has the rest)"


def _render_phase(phase: Phase, known: PhaseSummary, commits: list[RelayCommit]) -> str:
    lines = [f"### Phase {phase.id} — {_clean(phase.title)}"]
    evidence = dict(found for commit in commits for found in _EVIDENCE.findall(commit.body))
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


def prepare_post(place: Place, environ: Mapping[str, str]) -> "Callable[[str, Sequence[ReviewFinding]], str]":
    """Return a function that posts a review, given its name and its findings, and says what it did.

    Raises:
        RelayError: No program is installed, or the branch has no open request.
    """
    from relay.base.redaction import redact_for_strangers
    from relay.run.review import ReviewVerdict

    forge = require_installed(find_forge(place.repo, environ), None)
    number = _get_open(forge, _get_branch(place.repo))

    def post(name: str, findings: "Sequence[ReviewFinding]") -> str:
        """Put a review as Markdown, without what was refuted. It mentions nobody and closes nothing."""
        shown = [finding for finding in findings if finding.verdict is not ReviewVerdict.REFUTED]
        lines = [f"**relay review** of {_clean(name)}: {count(len(shown), 'finding')}", ""]
        for one in shown:
            place = f"{one.file}:{one.line}" if one.line else one.file
            lines.append(f"- **{_clean(place)}** ({one.verdict.value}, {one.category.value}): {_clean(one.summary)}")
            lines.append(f"  - what goes wrong: {_clean(one.failure_scenario)}")
            lines += [f"  - confirmed because: {_clean(one.reason)}"] if one.reason else []
        mark = f"<!-- relay review {sha256(name.encode(errors='replace')).hexdigest()[:12]} -->"
        text = redact_for_strangers(disarm("\n".join(lines), given="")[:MAX_BODY_CHARS], forge.environ)
        return forge.put_comment(number, f"{mark}\n{text}", mark=mark)

    return post


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
