"""The figures of a phase, updated by the events of its sessions, gates and commits."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from relay.insight.figures.evidence import CheckEvidence, PhaseWork
from relay.insight.figures.tallies import Sum
from relay.insight.figures.values import PhaseFigures
from relay.session.events import Committed, GateFinished, ShownPhase

MOST_PATHS = 20_000
"""Files of a phase that are remembered."""
RULES_FILES = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md"})
_LEAST_STEM = 3
"""A declared file with a shorter name has no recognisable tests."""


class PhaseTally:
    """Growing figures of one phase. Mutable."""

    def __init__(self, phase_id: str) -> None:
        self.phase_id = phase_id
        self.title = ""
        self.items: dict[str, str] = {}
        """Text by id, as the plan was shown last."""
        self.open_items: tuple[str, ...] = ()
        self.sum = Sum()
        self.legs = 0
        self.hand_offs = 0
        self.checks: tuple[CheckEvidence, ...] = ()
        """Of the last gate."""
        self._declared: tuple[str, ...] = ()
        self._ticked: dict[str, None] = {}
        self._touched: dict[str, None] = {}
        self._commits: list[str] = []
        self._gates = self._red_gates = self._repairs = 0
        self._first_gate_red: bool | None = None
        self._given_back = False
        self.is_done = False

    def show(self, phase: ShownPhase) -> None:
        """Update the phase from the plan."""
        self.title, items = phase["title"] or self.title, phase["items"]
        self.items = {item["id"]: item["text"] for item in items}
        self.open_items = tuple(item["id"] for item in items if item["state"] in {"open", "claimed"})
        paths = (path for item in items for path in item.get("paths", ()))
        self._declared = tuple(dict.fromkeys(paths))

    def touch(self, paths: Iterable[str], own: frozenset[str]) -> None:
        """Note changed files; those of the plan itself do not count."""
        for path in paths:
            if len(self._touched) < MOST_PATHS and PurePosixPath(path).name not in own:
                self._touched[path] = None

    def end_gate(self, event: GateFinished) -> None:
        """Add a finished gate or baseline."""
        self.sum.count("gates_s", event.duration_s)
        if event.baseline:
            return
        self.checks = tuple(
            CheckEvidence(
                command=check["command"],
                status=check["status"],
                exit_code=check["exit_code"],
                duration_s=check["duration_s"],
                output_sha256=check.get("output_sha256", ""),
            )
            for check in event.checks
        )
        red = not event.passed and not event.expected
        self._gates += 1
        self._red_gates += red
        self._given_back = red
        if self._first_gate_red is None:
            self._first_gate_red = red

    def go_on(self) -> None:
        """Note a request: if the gate was red before it, the session is repairing."""
        self._repairs += self._given_back
        self._given_back = False

    def end_leg(self) -> None:
        """Note the end of a session."""
        self._given_back = False

    def commit(self, event: Committed) -> None:
        """Add a commit of the phase."""
        self._ticked.update(dict.fromkeys(event.items))
        self._commits.append(event.commit)
        self.is_done = self.is_done or event.status == "done"

    @property
    def figures(self) -> PhaseFigures:
        """The figures so far."""
        touched = tuple(sorted(self._touched))
        return PhaseFigures(
            phase_id=self.phase_id,
            title=self.title,
            totals=self.sum.totals,
            legs=self.legs,
            work=PhaseWork(
                items=tuple(self.items),
                ticked=tuple(self._ticked),
                is_done=self.is_done,
                gates=self._gates,
                red_gates=self._red_gates,
                first_gate_red=self._first_gate_red,
                repairs=self._repairs,
                hand_offs=self.hand_offs,
                declared=self._declared,
                touched=touched,
                strayed=find_strayed(touched, self._declared),
                commits=tuple(self._commits),
            ),
        )


def find_strayed(touched: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the touched files that no declared path covers, in order.

    A declared path covers itself, the paths below it, its matches as a pattern, and tests that carry its name.
    Rules files never stray.
    """
    paths = tuple({str(PurePosixPath(path)) for path in declared})
    stems = {PurePosixPath(path).stem.lower() for path in paths}
    stems = {stem for stem in stems if len(stem) >= _LEAST_STEM}
    return tuple(path for path in touched if not _is_covered(path, paths, stems))


def _is_covered(path: str, declared: tuple[str, ...], stems: set[str]) -> bool:
    name = PurePosixPath(path).name
    if name in RULES_FILES:
        return True
    if "test" in path.lower() and any(stem in name.lower() for stem in stems):
        return True
    return any(
        known in {path, "."} or path.startswith(f"{known}/") or ("*" in known and fnmatchcase(path, known))
        for known in declared
    )
