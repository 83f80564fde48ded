"""Streams of runs for pages: every figure has something to show, and every text is the caller's to choose."""

from collections.abc import Iterator

from relay.session.events import Event, GaugeCrossed, LeftFile, Noticed, ReviewFinished, ShownFinding
from tests.figures.streams import call, commit, end, gate, over, parts, plan, start, turn
from tests.figures.streams import session as begin


def play(
    phases: int = 2,
    sessions: int = 2,
    turns: int = 4,
    text: str = "plain",
    run_id: str = "r",
    left: tuple[LeftFile, ...] = (),
) -> Iterator[Event]:
    """Play a run: each phase takes some sessions, the first of which hand over; the first gate of odd phases is red.

    Args:
        phases: How many.
        sessions: Sessions of each.
        turns: Of each session.
        run_id: Of the run.
        left: By each gate.
        text: Put wherever a model, a command or a file may have put theirs.
    """
    yield start(run_id, model=text, branch=text, plan_path=text, sandbox=text, context=text, cap_usd=20.0)
    yield plan(**{f"p{n}": {f"{n}.1": f"open {n}.py"} for n in range(1, phases + 1)})
    yield Noticed(text=text, warning=True)
    for phase in map(str, range(1, phases + 1)):
        for number in range(1, sessions + 1):
            last = number == sessions
            session = f"{phase}-{number}"
            prompt = parts(system=900, tools=1_200, plan=700, rules=60, handoff_note=100)
            yield begin(
                session,
                phase,
                title=text,
                number=number,
                reason=text,
                prompt=prompt,
                handoff_note=f"next: {text}" if number > 1 else "",
            )
            yield from _work(turns, text)
            if last:
                yield gate(phase, passed=phase in "2468", evidence=left)
                yield _review(phase, text)
                yield commit(phase, (f"{phase}.1",), subject=text, files=_change(text))
            yield over(session, phase, result="done" if last else "handoff")
    yield end(exit_code=4, reason=text, next_command=text)


def _work(turns: int, text: str) -> Iterator[Event]:
    fill = 3_000
    for number in range(1, turns + 1):
        read = 0 if number == 1 else fill - 1_000
        yield from turn(number, fill, 200, read=read, write=fill - read, soft_tokens=20_000, hard_tokens=22_000)
        yield from call("read", text, 400, lines=(1, 9))
        yield from call(text, text, 300, is_error=number == 2)
        fill += 20_000 // turns
    yield GaugeCrossed(line="soft", fill_tokens=fill, line_tokens=20_000)


def _review(phase: str, text: str) -> ReviewFinished:
    found = ShownFinding(
        file=text, line=7, summary=text, failure_scenario=text, category="tests", severity="important",
        verdict="confirmed", reason=text,
    )  # fmt: skip
    return ReviewFinished(phase_id=phase, round=1, findings=(found,), confirmed=1)


def _change(text: str) -> tuple[dict[str, object], ...]:
    return ({"path": text, "added": 3, "deleted": 1}, {"path": f"{text}.png", "added": None, "deleted": None})
