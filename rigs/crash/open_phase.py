"""An open phase that has handed over with a commit, a user who committed to its file, and `relay run` after that."""

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relay.base.errors import ExitCode
from rigs.crash.invariants import find_lost, find_ticked
from rigs.crash.landing import LINES, LandingRig, make_chain, try_row
from rigs.crash.tracer import Ended, Fault, Start, Starter, open_starter
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

GATE, MENDED = "test ! -e two.txt", "test -e two.txt"
PLAN = f"""\
# One phase

## Phase 1 — One
Verify: `{GATE}`
- [ ] Say one — both.txt, one/new.txt
- [ ] Say two — two.txt
"""
FILES = {
    "both.txt": ("100644", LINES.replace("first", "one").replace("last", "LAST")),
    "mine.txt": ("100644", "mine, edited\n"),
    "one/new.txt": ("100644", "1\n"),
    "two.txt": ("100644", "2\n"),
}
"""Mode and content of each tracked file in the end, but for relay's own."""


def _call(tool: str, **given: object) -> dict[str, object]:
    return {"name": tool, "input": given}


def _write_session(item: str, command: str, *more: dict[str, object]) -> dict[str, object]:
    tools = [_call("bash", command=command), _call("tick", item=item, evidence="seen"), *more]
    return {"name": item, "turns": [{"tools": tools}, {"text": "Commit: Say it"}]}


def make_scripts() -> tuple[str, str]:
    """Return a model that hands over and then meets a red gate, and one that ends the phase, however often."""
    work = "sed -i s/first/one/ both.txt; mkdir one; echo 1 > one/new.txt; rm gone.txt"
    hand_off = _call("hand_off", next_step="say two", learned=[], dead_ends=[])
    first = [_write_session("1.1", work, hand_off), _write_session("1.2", "echo 2 > two.txt")]
    last = {**_write_session("1.2", "cat both.txt"), "repeat": True}
    return json.dumps({"sessions": first}), json.dumps({"sessions": [last]})


@dataclass(slots=True)
class OpenPhaseRig(LandingRig):
    """What is copied for each trial: a repository whose phase is open, beside what its user did since."""

    phases: tuple[str, ...] = ("1",)
    variables: dict[str, str] = field(default_factory=lambda: {"RELAY_MAX_REPAIRS": "0"})
    """The gate's refusal ends the first run."""

    def _make(self, top: Path) -> None:
        self.start(top, PLAN)
        output = self.home / f"{top.name}.out"
        ended = self.starter.run(Start(root=top / "main", output=output, environ=self.environ, args=("run",)))
        assert ended.code == ExitCode.STOPPED, (ended, output.read_text(), self.server.errors)
        (top / "main/both.txt").write_text(LINES.replace("last", "LAST"))
        self.git(top, "commit", "-qm", "the user's", "both.txt")
        (top / "main/PLAN.md").write_text(PLAN.replace(GATE, MENDED))

    def run(self, top: Path, fault: Fault | None = None) -> Ended:
        """Go on with the phase, and land it."""
        return self.run_args(top, ("run",), fault)

    def check(self, top: Path, seen: dict[str, str]) -> list[str]:
        """Return in words what does not hold when the phase has landed."""
        wrong = self.check_files(top, FILES)
        if find_ticked(self.git(top, "show", "main:PLAN.md")) != find_ticked(PLAN.replace("[ ]", "[x]")):
            wrong.append("not all boxes are ticked")
        parents = self.git(top, "log", "-1", "--format=%P", "main").split()
        subject = self.git(top, "log", "-1", "--format=%s", parents[1]).strip() if parents[1:] else ""
        if subject != "relay: phase 1 — One":
            wrong.append(f"what was handed over is no parent: {subject!r}")
        wrong += [f"lost: {blob} {seen[blob]}" for blob in find_lost(top / "main", self.environ, seen)]
        return wrong + self.check_leftovers(top)


@contextlib.contextmanager
def open_phase_rig(*, starter: Starter | None = None) -> Iterator[OpenPhaseRig]:
    """Open a rig in directories of its own, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with contextlib.ExitStack() as stack:
        parent = memory if memory.is_dir() else None
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-open-", dir=parent))).resolve()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-open-home-"))).resolve()
        starter = starter or stack.enter_context(open_starter())
        first, last = (
            stack.enter_context(serve(parse_script(script), keeps_bodies=False)) for script in make_scripts()
        )
        rig = OpenPhaseRig(place, home, starter, first, lambda: None, on_disk=False)
        rig.server = last
        yield rig


def main() -> int:
    """Kill at every call, and print a table; exit status 1 when anything did not hold."""
    parser = argparse.ArgumentParser(prog="python -m rigs.crash.open_phase", description=__doc__)
    parser.add_argument("--share", type=int, default=1, help="make every n-th trial only")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial of a row after this time")
    asked = parser.parse_args()
    with open_phase_rig() as rig:
        calls = rig.count()
        kills = [(Fault(at=at, mode=mode),) for at, mode in itertools.product(range(1, calls + 1), "bat")]
        failed = try_row(rig, "killed as an open phase goes on", kills[:: asked.share], asked.seconds)
        chains = [make_chain(calls, n) for n in range(100)][:: asked.share]
        failed += try_row(rig, "2-3 kills in a row", chains, asked.seconds)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
