"""Open legs that HEAD's branch does not lead to: another one was made, renamed or deleted while a phase was open."""

from shlex import quote

from relay.git.names import parse_ref_part, render_ref_part
from relay.git.repository import Repo

_LEG = "refs/relay/leg/"
_BRANCHES = "refs/heads/"


def describe_orphans(repo: Repo, here: str | None) -> tuple[str, ...]:
    """Say of each open leg that a run takes along, or that no branch leads to any more, and how to give that up.

    Args:
        here: HEAD's branch; None when HEAD is detached.
    """
    legs = {parse_ref_part(ref.removeprefix(_LEG)): ref for ref in repo.list_refs(_LEG)}
    if not legs:
        return ()
    from relay.store.own_branch import find_along

    branches = {ref.removeprefix(_BRANCHES) for ref in repo.list_refs(_BRANCHES)}
    along = {leg.branch: leg.phase_id for leg in find_along(repo)}
    gone = [(branch, ref) for branch, ref in legs.items() if branch not in {*branches, *along, here}]
    then = f"where its work is in the files here, relay run takes it along to {here}"
    return (
        *(f"phase {phase_id} is open on {branch}, at this commit: {then}" for branch, phase_id in along.items()),
        *(_describe(branch, ref, here, is_free=here not in legs) for branch, ref in gone),
    )


def _describe(branch: str, ref: str, here: str | None, *, is_free: bool) -> str:
    words = f"a phase is open on {branch}, a branch that does not exist any more"
    give_up = f"git update-ref -d {quote(ref)}"
    if here is None or not is_free:
        return f"{words}. To give it up: {give_up}"
    take = f"git update-ref {quote(_LEG + render_ref_part(here))} {quote(ref)} && {give_up}"
    return f"{words}. If that is {here} now: {take}. To give it up: {give_up}"
