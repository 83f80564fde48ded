"""What speaks against boxes whose gate is green: nothing was changed, or an item names what is not there.

A phase may well only look at something, and a plan may name a file that got another name: such a commit is made and
says so. It is refused where nothing speaks for the work at all.
"""

from relay.git.names import render_path, with_parents
from relay.git.objects import find_names
from relay.git.repository import Repo
from relay.plan.model import Item
from relay.run.commit.candidate import Refused
from relay.run.commit.omissions import Delivery, clean_paths
from relay.values import dataclass

MAX_ABSENT = 20
"""Paths that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What speaks against the boxes of a commit."""

    is_idle: bool
    """It changes no file."""
    was_green: bool
    """Its gate passed before the phase too, or there is none."""
    absent: tuple[str, ...]
    """A sentence on each path that an item names and that is not there."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return one on each of them."""
        before = ", and the verify commands passed before too" if self.was_green else ""
        return (*((f"no file was changed{before}",) if self.is_idle else ()), *self.absent)


def find_doubts(repo: Repo, delivery: Delivery, *, was_green: bool) -> Doubts:
    """Return what speaks against a commit.

    Args:
        was_green: Whether its gate passed before the phase too, or there is none.
    """
    named = [f"{item.id} names {render_path(path)}, which no commit has" for item, path in _find_absent(repo, delivery)]
    is_idle = not delivery.owned and bool(delivery.items)
    return Doubts(is_idle=is_idle, was_green=was_green, absent=tuple(named[:MAX_ABSENT]))


def check_phantom(doubts: Doubts) -> Refused | None:
    """Refuse ticks for which nothing speaks: nothing changed, nothing was red, and what an item names is not there."""
    if not (doubts.is_idle and doubts.was_green and doubts.absent):
        return None
    words = "; ".join(doubts.sentences)
    return Refused(for_user=words, for_model=f"Nothing was committed: {words}. Do the work, or call block and say why.")


def _find_absent(repo: Repo, delivery: Delivery) -> tuple[tuple[Item, str], ...]:
    """Return what the ticked items name behind their `` — `` and neither the commit nor the one before it has.

    What a commit removes was in the one before. A name with ``*`` in it is no path.
    """
    inside, head = with_parents(delivery.owned), delivery.leg.base_head
    named = [(item, path) for item in delivery.items for path in sorted(clean_paths(item.targets)) if "*" not in path]
    outside = [path for _, path in named if path not in inside]
    there = find_names(repo, head, outside) if head and outside else frozenset()
    return tuple((item, path) for item, path in named if path not in inside and path not in there | {"."})
