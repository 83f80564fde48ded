"""relay as a library: a repository's plan as values, and a run as events. `docs/reference/api.md` is its page.

Everything here reads git and the plan's file, as `relay status`, `stats` and `ledger` do, and returns the values of
which those make their ``--json``. `Project.run` starts ``relay run`` as a process of its own: threads, signals and
memory of your program stay yours, and the run hands over when your program is gone. `VERSION` grows when a name here
goes or changes its meaning.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from relay.base.errors import RelayError, RepoError
from relay.base.hints import AT_ROOT
from relay.base.interrupts import Interrupts, Urgency
from relay.base.places import find_place
from relay.base.values import dataclass
from relay.ledger.belief import Belief
from relay.ledger.model import Claim
from relay.plan.model import Plan
from relay.run.phases.jobs import JobRun
from relay.session.events import Event, RunEnded
from relay.setup.place import Place, find_source, get_place, load_plan
from relay.store.outcomes import PhaseOutcome, read_outcomes
from relay.store.plan_state import PlanSummary, summarize_plan
from relay.store.staleness import read_judged_ledger

__all__ = ["VERSION", "JudgedClaim", "Project", "RelayError", "open_project"]

VERSION = 1
_LOOK_S = 0.5


@contextmanager
def _writing_hints() -> Iterator[None]:
    """Give an error's hint as the text that a person reads."""
    try:
        yield
    except RelayError as error:
        error.hint = AT_ROOT.write(error.hint)
        raise


class WorkTree(Protocol):
    """GitPython's ``git.Repo``; relay does not import it."""

    @property
    def working_tree_dir(self) -> str | os.PathLike[str] | None:
        """The top of the work tree; None for a bare repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """A claim of the plan's ledger, and whether it holds now."""

    claim: Claim
    belief: Belief


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A plan in a repository. Each method reads anew."""

    root: Path
    """The top of the work tree."""
    plan_name: str
    """The plan's path from there; outside of the repository, as from ``~/`` on."""
    environ: Mapping[str, str] = field(repr=False)
    """The environment for settings and runs; it may hold a key."""

    @_writing_hints()
    def read_plan(self) -> Plan:
        """Return the plan as the work tree has it.

        Raises:
            RelayError: There is none, or it is not valid.
        """
        return load_plan(self._find())

    @_writing_hints()
    def summarize(self) -> PlanSummary:
        """Return where the plan stands: phases, commits, cost in USD and tokens, open questions, the next step.

        Raises:
            RelayError: There is no plan, or it is not valid.
        """
        place = self._find()
        return summarize_plan(find_source(place), place.repo)

    @_writing_hints()
    def list_outcomes(self, rev: str = "HEAD") -> tuple[PhaseOutcome, ...]:
        """Return the phases of all plans that were done in the history of a commit, oldest first.

        Raises:
            RelayError: There is no such commit.
        """
        return read_outcomes(self._find().repo, rev)

    @_writing_hints()
    def list_claims(self) -> tuple[JudgedClaim, ...]:
        """Return what sessions recorded beside this plan, in the order of the ledger.

        Raises:
            RelayError: The ledger's file is not valid.
        """
        ledger, _, judgement = read_judged_ledger(self._find().repo, self.plan_name)
        return tuple(JudgedClaim(claim=one, belief=judgement[one.id]) for one in ledger.claims.values())

    def run(self, phase: str = "all", *options: str, observe: Callable[[Event], Any] = lambda _: None) -> RunEnded:
        """Work on the plan as ``relay run --phase PHASE`` does, and return how the run ended.

        Args:
            phase: ``all``, ``next`` or a phase's id.
            options: Further options as typed: ``"--max-cost", "5"``.
            observe: Gets each event in the order in which it happens. If it raises, the run hands over and stops, and
                the exception goes on; so does a KeyboardInterrupt.

        Raises:
            RelayError: The run could not begin; the message says why.
        """
        words = ("run", "--plan", str(find_place(self.root, self.plan_name)), "--phase", phase, *options)
        child, interrupts, ended = JobRun(self.root, words, self.environ), Interrupts(), None
        try:
            for record in chain.from_iterable(child.follow(interrupts, _LOOK_S)):
                ended = record.event if isinstance(record.event, RunEnded) else ended
                observe(record.event)
        except BaseException:
            interrupts.request(Urgency.FINISH_TURN)
            for _ in child.follow(interrupts, _LOOK_S):
                continue  # it hands over
            raise
        finally:
            end = child.close()
            interrupts.close()
        if ended is None:
            raise RelayError(end.reason, hint=end.hint)
        return ended

    def _find(self) -> Place:
        return get_place(plan=str(find_place(self.root, self.plan_name)), environ=self.environ, cwd=self.root)


@_writing_hints()
def open_project(
    where: str | os.PathLike[str] | WorkTree = ".", *, plan: str | None = None, environ: Mapping[str, str] | None = None
) -> Project:
    """Open the plan of a repository.

    Args:
        where: A directory inside of the repository, or GitPython's value for it.
        plan: The plan's path from `where`; None takes it from the settings, else PLAN.md.
        environ: Takes the place of this process's environment.

    Raises:
        RelayError: There is no usable repository, or a setting is not allowed.
    """
    found = where if isinstance(where, str | os.PathLike) else where.working_tree_dir
    if found is None:
        raise RepoError("a bare repository has no work tree", hint="git worktree add DIR BRANCH")
    if not Path(found).is_dir():
        raise RepoError(f"{os.fspath(found)} is no directory")
    environ = os.environ if environ is None else environ
    place = get_place(plan=plan, environ=environ, cwd=Path(found).resolve())
    return Project(root=place.root, plan_name=place.plan_name, environ=environ)
