"""A commit of one file that only relay commits, by itself: the plan's or the ledger's."""

from collections.abc import Callable

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.base.words import shorten
from relay.config import Settings
from relay.git.message import Message
from relay.git.names import list_paths, render_path
from relay.run.commit.gates import open_hooks
from relay.run.commit.hook_refusal import explain_hook
from relay.session.events import Committed, Noticed
from relay.session.usage import Spent
from relay.setup.context import RunContext
from relay.store import trailers
from relay.store.commit import CommitRequest, commit_paths
from relay.store.legs import get_branch

SUBJECT_CHARS = 72
"""Longest subject taken from a session. Source: git's own convention, a log stays below 80 columns."""
_USUAL = "chore: {subject}"
"""Conventional Commits, the form that most hooks of this kind ask for. Source: conventionalcommits.org, 1.0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommit:
    """The file as it is committed."""

    title: str
    """What a person calls it: plan, ledger."""
    path: str
    disk: bytes
    """What the work tree has; when it has something else by then, nothing is committed."""
    data: bytes
    """What is committed, and put into the work tree."""
    status: str
    """Of the trailer."""
    words: str
    """The subject, before the settings give it a form."""
    is_same: Callable[[bytes], bool]
    """Says whether other bytes mean the same: then a hook's form of the file is committed."""
    session_id: str = ""
    """Of who wrote it; empty for a person."""
    spent: Spent = Spent()
    """What writing it has cost."""


def commit_file(ctx: RunContext, file: FileCommit, *, on_commit: Callable[[], None] = lambda: None) -> bytes:
    """Commit a file with the user's hooks, which may format it, and return it as it was committed.

    Args:
        on_commit: Called as soon as the commit is there.

    Raises:
        RepoError: The commit could not be made.
    """
    message = Message(
        subject=render_subject(file.words, ctx.settings),
        trailers=(
            (trailers.PLAN, render_path(ctx.plan_path)),
            (trailers.STATUS, file.status),
            *(((trailers.SESSION, file.session_id),) if file.session_id else ()),
            (trailers.SANDBOX, ctx.workspace.sandbox.mechanism),
            *trailers.render_hooks(ctx.settings.hooks),
            *trailers.render_spent(file.spent),
        ),
    )
    request = CommitRequest(
        branch=get_branch(ctx.repo),
        head=ctx.repo.head(),
        message=message,
        other_subjects=list_other_subjects(file.words, ctx.settings),
        replace={file.path: file.data},
        based_on={file.path: file.disk},
        adopt=lambda _, data: file.is_same(data),
        take_in=False,
    )
    with open_hooks(ctx.repo, ctx.settings, ctx.workspace) as hooks:
        outcome = commit_paths(ctx.repo, request, hooks=hooks)
    if outcome.commit is None:
        hint = explain_hook(outcome).ways if outcome.hook else ""
        raise RepoError(f"the {file.title} could not be committed ({outcome.end}): {outcome.output}", hint=hint)
    on_commit()
    ctx.memory.knows_hooks |= hooks is not None
    ctx.observe(Committed(commit=outcome.commit, subject=outcome.subject, status=file.status, phase_id="", items=()))
    for sentence in outcome.left:
        ctx.observe(Noticed(text=sentence, warning=True))
    if outcome.replaced[file.path] != file.data:
        ctx.observe(Noticed(text=f"a commit hook formatted the {file.title}, which is committed as it left it"))
    if file.path in outcome.not_taken:
        words = f"a commit hook changed the words of the {file.title}, which is committed without that: only you may"
        ctx.observe(Noticed(text=words, warning=True))
    if others := [path for path in outcome.not_taken if path != file.path]:
        told = f"a commit hook rewrote files, which are not committed with the {file.title}: {list_paths(others)}"
        ctx.observe(Noticed(text=told, warning=True))
    return outcome.replaced[file.path]


def render_subject(words: str, settings: Settings) -> str:
    """Return a subject of relay's own in the form that the settings give it."""
    return _fill(settings.commit_subject, words)


def list_other_subjects(words: str, settings: Settings) -> tuple[str, ...]:
    """Return what is tried, in this order, where a hook refuses the words as they are."""
    forms = [settings.commit_subject]
    if settings.origins.get("commit_subject", "default") == "default":
        forms.append(_USUAL)
    # Such hooks want no capital behind the colon either.
    lowered = words[:1].lower() + words[1:] if words[1:2].islower() else words
    return tuple(dict.fromkeys(_fill(form, text) for text in (words, lowered) for form in forms))


def _fill(form: str, words: str) -> str:
    return shorten(form.replace("{subject}", words), SUBJECT_CHARS)
