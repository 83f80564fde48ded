"""A leg that only brings a finished phase onto what others have landed meanwhile (`relay.fleet.landing` opens it).

It is a leg like any other: the merged tree is its work, the phase's items are its claims, and what it proposes goes
through the commit step. What differs stands here.
"""

from relay.config import Settings
from relay.git.merging import find_base, find_fork, list_marks
from relay.git.message import CommitText, read_text, read_texts
from relay.git.names import find_plan_branch, list_paths
from relay.git.repository import Repo
from relay.plan.lineage import find_lineage
from relay.plan.model import Phase, Plan
from relay.run.commit.candidate import Refused
from relay.run.commit.readiness import get_commands
from relay.store import trailers
from relay.store.history import find_added
from relay.store.legs import OpenLeg
from relay.store.plan_edit import parse_at
from relay.store.texts import find_text


def find_merged(repo: Repo, leg: OpenLeg) -> CommitText | None:
    """Return the phase's own commit; None for a leg that does work."""
    return read_text(repo, leg.merges) if leg.merges else None


def is_untouched(leg: OpenLeg) -> bool:
    """Return whether a landing leg is as it was made: no session has worked in it."""
    return bool(leg.merges) and trailers.ATTEMPT not in dict(leg.trailers)


def find_note(repo: Repo, leg: OpenLeg) -> str:
    """Return what each session of a landing leg has to know of the merge; empty for a leg that does work.

    The leg's first snapshots, from before any session, have it as their body, and the last of these what the gate said
    besides. A later snapshot has a session's baton there instead, so the history is asked for the first ones.
    """
    if not leg.merges or leg.last_wip is None:
        return ""
    args = ("--first-parent", "--basic-regexp", "--grep=^relay: snapshot of phase ", leg.last_wip.commit)
    texts = tuple(read_texts(repo.git, *args, *((f"^{leg.base_head}",) if leg.base_head else ()), "--"))
    first = (text for text in texts if text.get(trailers.SESSION) == texts[-1].get(trailers.SESSION))
    return next((text.message.body.strip() for text in first), "")


def render_merge(merged: CommitText, digest: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer that says what was merged, and how both gates went."""
    own = next(iter(merged.get(trailers.GATE).split()[1:2]), "none")
    return ((trailers.MERGE, f"{merged.commit} {own} {digest}"),)


def find_common(repo: Repo, plan_path: str, tip: str, own: str) -> str:
    """Return the commit from which a phase, done at `own`, went apart from the plan's branch, which is at `tip`.

    Where somebody rewrote that branch, it is the newest that was there; where its log does not say so, and the plan
    came with what was rewritten, the one that brought the plan. Empty where there is none.
    """
    base = find_fork(repo, find_plan_branch(repo.branch or ""), own) or find_base(repo, tip, own)
    if find_text(repo, base, plan_path) is not None:
        return base or ""
    return find_added(repo, plan_path, rev=own) or base or ""


def list_landed(repo: Repo, leg: OpenLeg, plan: Plan) -> tuple[Phase, ...]:
    """Return the phases that others have finished since the leg's began, as the plan calls them now."""
    base = find_common(repo, leg.plan_path, leg.base_head or "", leg.merges) if leg.merges else None
    text = find_text(repo, base, leg.plan_path)
    if text is None:
        return ()
    before = parse_at(text, leg.plan_path)
    now = find_lineage(before, plan).phases
    was_done = {now.get(phase.id) for phase in before.phases if phase.done}
    return tuple(phase for phase in plan.phases if phase.done and phase.id not in was_done)


def list_commands(repo: Repo, settings: Settings, leg: OpenLeg, plan: Plan, phase: Phase) -> tuple[str, ...]:
    """Return a phase's gate; behind it, where it is landed, those of the phases that it is put on.

    Args:
        settings: They have commands too.
        plan: As HEAD has it.
    """
    landed = [other for other in list_landed(repo, leg, plan) if other.id != phase.id]
    found = (command for one in (phase, *landed) for command in get_commands(settings, one))
    return tuple(dict.fromkeys(found))


def check_marks(repo: Repo, leg: OpenLeg, tree: str) -> Refused | None:
    """Refuse to commit a file in which the marks of the merge are left, whatever the gate says of it."""
    left = list_marks(repo, tree, leg.base_head, leg.merges) if leg.merges and leg.base_head else ()
    if not left:
        return None
    words = f"marks of the merge are left in {list_paths(left)}"
    return Refused(for_user=words, for_model=f"Nothing was committed: {words}. Decide what belongs there.")
