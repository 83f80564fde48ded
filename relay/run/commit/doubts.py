"""What speaks against boxes that are to be ticked: no change, a command that stays red, a file that is not there.

A phase may well only look at something, a plan may name a file that got another name, and a command may have been red
for long: such a commit is made and says so. It is refused where nothing speaks for the work at all.
"""

from relay.base.values import dataclass
from relay.gate.model import GateResult, has_turned_green
from relay.git.names import render_path, with_parents
from relay.git.objects import find_names
from relay.git.repository import Repo
from relay.plan.model import Item
from relay.run.commit.candidate import Refused
from relay.run.commit.gates import GateRun
from relay.run.commit.omissions import Delivery, clean_paths

MAX_ABSENT = 20
"""Paths that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What speaks against the boxes of a commit."""

    idle: str = ""
    """That it changes no file, and what the gate showed; empty where it changes one."""
    is_phantom: bool = False
    """Nothing speaks for it: no file was changed, and no command went from red to green."""
    others: tuple[str, ...] = ()
    """A sentence on each command that is red as before, and on each path that an item names and that is not there."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return one on each of them."""
        return (*((self.idle,) if self.idle else ()), *self.others)


def find_doubts(repo: Repo, delivery: Delivery, run: GateRun, baseline: GateResult | None) -> Doubts:
    """Return what speaks against a commit.

    Args:
        run: Its gate.
        baseline: The gate before the phase; None when that is not known.
    """
    named = [f"{item.id} names {render_path(path)}, which no commit has" for item, path in _find_absent(repo, delivery)]
    others = (*run.verdict.excused, *named[:MAX_ABSENT])
    if delivery.owned or not delivery.items:
        return Doubts(others=others)
    if run.result.commands and has_turned_green(baseline, run.result):
        return Doubts(idle="no file was changed", others=others)
    shown = "the verify commands passed before too" if run.result.passed else "no verify command went from red to green"
    idle = f"no file was changed, and {shown if run.result.commands else 'nothing was checked'}"
    # A phase that names nothing to be changed may only look at something, and a gate that is green is what it saw.
    only_looks = run.result.passed and not any(item.targets for item in delivery.items)
    return Doubts(idle=idle, is_phantom=not only_looks, others=others)


def check_phantom(doubts: Doubts) -> Refused | None:
    """Refuse ticks for which nothing speaks; what was done before the phase, only a person ticks."""
    if not doubts.is_phantom:
        return None
    words = "; ".join(doubts.sentences)
    return Refused(
        for_user=f"nothing speaks for its ticks: {words}",
        for_model=f"Nothing was committed: {words}. Do the work; if it was done before this phase, or there is none to "
        "do, call block and say so.",
        ways="where it was done before, tick the boxes yourself and commit that",
        once=True,
    )


def _find_absent(repo: Repo, delivery: Delivery) -> tuple[tuple[Item, str], ...]:
    """Return what the ticked items name behind their `` — `` and neither the commit nor the one before it has.

    What a commit removes was in the one before. A name with ``*`` in it is no path.
    """
    inside, head = with_parents(delivery.owned), delivery.leg.base_head
    named = [(item, path) for item in delivery.items for path in sorted(clean_paths(item.targets)) if "*" not in path]
    outside = [path for _, path in named if path not in inside]
    there = find_names(repo, head, outside) if head and outside else frozenset()
    return tuple((item, path) for item, path in named if path not in inside and path not in there | {"."})
