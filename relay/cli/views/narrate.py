"""Events as lines: one line per fact, in stable words.

The lines are the whole plain view, and the scrolling part of the live view. `render_line` cleans their text.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from relay.base.interrupts import Urgency
from relay.base.values import dataclass
from relay.base.words import count_plan, count_questions, list_some, name_item, render_duration, render_usd, shorten
from relay.cli.screen import clean_line
from relay.session import events
from relay.session.events import ShownPhase
from relay.session.gauge import find_band, render_band

STOPPING = {
    Urgency.FINISH_TURN: "finishing this step, then stopping; Ctrl-C again stops at once; nothing is lost",
    Urgency.NOW: "stopping at once; nothing is lost",
}
"""Words for a requested stop."""
LOST = "killed, or the power failed: the log has no end of the run"
"""Words for a run whose relay is gone."""
_QUIET_STOPS = frozenset({"end_turn", "tool_use"})
_SHORT_COMMIT_CHARS = 8
_SHORT_SESSION_CHARS = 12
_SHOWN_LINES = 12
"""Lines shown of a failed command's output."""


class Tone(StrEnum):
    """The meaning of a line; the value is its style on a terminal."""

    PLAIN = ""
    STRONG = "bold"
    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"
    QUIET = "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One fact."""

    text: str
    tone: Tone = Tone.PLAIN
    detail: bool = False
    """Whether the live view leaves the line out, because its board shows the present state of such things."""


LONGEST_LINE_CHARS = 2_000
"""Limit on a plain line; the event log has the full text."""


def render_line(line: Line, limit_chars: int = LONGEST_LINE_CHARS) -> str:
    """Clean a line and cut it to a limit."""
    return shorten(clean_line(shorten(line.text, 2 * limit_chars)), limit_chars)


class Narrator:
    """Turns events into lines. Remembers the boxes, so that only changes of them become lines."""

    def __init__(self) -> None:
        self._phases: tuple[ShownPhase, ...] = ()
        self._states: dict[str, str] | None = None
        self._summary = ""

    def tell(self, event: events.Event, phase_id: str = "") -> tuple[Line, ...]:
        """Return the lines of an event, often none or one; those of a job's begin with the id of its phase."""
        if phase_id and isinstance(event, events.RunStarted | events.RunEnded):
            return ()  # the parent reports the start and the end of its jobs
        lines = tuple(self._tell_plan(event) if isinstance(event, events.PlanShown) else _TELL[type(event)](event))
        if phase_id and isinstance(event, events.PlanShown):
            lines = tuple(line for line in lines if line.text.startswith("claimed"))
        if isinstance(event, events.RunEnded) and self._summary:
            lines = (Line(text=self._summary), *lines)
        return tuple(replace(line, text=f"[{phase_id}] {line.text}") for line in lines) if phase_id else lines

    def _tell_plan(self, event: events.PlanShown) -> Iterable[Line]:
        self._phases = event.complete(self._phases)
        items = [item for phase in self._phases for item in phase["items"]]
        before, self._states = self._states, {item["id"]: item["state"] for item in items}
        self._summary = f"plan: {count_plan([[item['state'] for item in phase['items']] for phase in self._phases])}"
        if before is None:
            yield Line(text=self._summary)
            return
        for item in items:
            if item["state"] == "claimed" and before.get(item["id"]) not in {"claimed", "done"}:
                yield Line(text=f"claimed {name_item(item['id'], item['text'])}", tone=Tone.QUIET)


def _tell_run(event: events.RunStarted) -> Iterable[Line]:
    cap = "no limit of cost" if event.cap_usd is None else f"costs at most {render_usd(event.cap_usd)}"
    where = f"{event.plan_path} on {event.branch}" if event.branch else event.plan_path
    how = f"model {event.model}, sandbox {event.sandbox}, {cap}"
    stop = "Ctrl-C finishes the turn and hands over, twice stops now"
    yield Line(text=f"relay {event.command}: {where}, {how} (run {event.run_id}); {stop}", tone=Tone.STRONG)
    if event.rehearsed:
        yield Line(text="rehearsed: a script plays the model", tone=Tone.WARNING)


def _tell_session(event: events.SessionStarted) -> Iterable[Line]:
    session = event.session_id[:_SHORT_SESSION_CHARS]
    phase = f"phase {event.phase_id} session {event.number}" if event.phase_id else f"session {event.number}"
    phase += f", try {event.tries}" if event.tries > event.number else ""
    effort = f"effort {event.effort}" if event.effort else ""
    said = filter(None, ("" if event.runner == "api" else event.runner, event.model, effort))
    by = "".join(f", {words}" for words in said)
    yield Line(text=f"{phase} — {event.title} (session {session}{by})", tone=Tone.STRONG)
    if event.reason and event.reason != f"Phase {event.phase_id} is next.":  # the line above says that
        yield Line(text=f"why: {event.reason}", tone=Tone.QUIET)


def _tell_nothing(_event: events.Event) -> Iterable[Line]:
    return ()


def _tell_response(event: events.ResponseReceived) -> Iterable[Line]:
    fill = "context unknown"
    if event.fill_tokens is not None:
        share = event.fill_tokens * 100 // max(1, event.soft_tokens)
        band = render_band(find_band(event.fill_tokens, event.soft_tokens))
        fill = f"context {event.fill_tokens:,} of {event.soft_tokens:,} tokens ({share}%, {band})"
    usage = "usage unknown, " if event.usage is None or event.estimated else ""
    stop = "" if event.stop_reason in _QUIET_STOPS else f", stopped by {event.stop_reason}"
    figures = f"{usage}{_render_cost(event)}, {render_duration(event.duration_s)}"
    what = "request outside of the conversation"
    if event.turn or event.query:
        what = f"{event.query or f'turn {event.turn}'}: {fill}"
    yield Line(text=f"{what}, {figures}{stop}", detail=True, tone=Tone.QUIET)


def _tell_text(event: events.TextShown) -> Iterable[Line]:
    who = "thinking" if event.thinking else "model"
    for line in event.text.splitlines():
        if line.strip():
            yield Line(text=f"{who}: {line}", detail=True, tone=Tone.QUIET if event.thinking else Tone.PLAIN)


def _tell_tool_start(event: events.ToolStarted) -> Iterable[Line]:
    yield Line(text=f"{event.name} {event.summary}".rstrip(), detail=True)


def _tell_tool_end(event: events.ToolFinished) -> Iterable[Line]:
    took = render_duration(event.duration_s)
    if event.is_error:
        why = f": {event.problem}" if event.problem else ""
        yield Line(text=f"{event.name} failed after {took}{why}", detail=True, tone=Tone.WARNING)
    elif event.changed_paths:
        yield Line(text=f"{event.name} changed {list_some(event.changed_paths, 5)} in {took}", detail=True)
    else:
        yield Line(text=f"{event.name} finished in {took}", detail=True, tone=Tone.QUIET)


def _tell_crossing(event: events.GaugeCrossed) -> Iterable[Line]:
    then, tone = {
        "soft": ("relay asks the session to hand over", Tone.WARNING),
        "consolidate": ("relay asks the session to finish and record what is done", Tone.QUIET),
    }.get(event.line, ("the session stops here", Tone.WARNING))
    yield Line(
        text=f"{event.line} line crossed: {event.fill_tokens:,} of {event.line_tokens:,} tokens; {then}", tone=tone
    )


def _tell_retry(event: events.RetryScheduled) -> Iterable[Line]:
    wait = render_duration(event.wait_s)
    what = f"retry {event.attempt}{f' in {wait}' if event.wait_s else ''}" if event.attempt else f"waits for {wait}"
    yield Line(
        text=f"{what} — {event.reason}",
        detail=bool(event.attempt),
        tone=Tone.WARNING if event.attempt else Tone.PLAIN,
    )


def _tell_cache(event: events.CacheBroken) -> Iterable[Line]:
    yield Line(
        text=f"cache miss ({event.changed} changed): {event.read_tokens:,} of {event.expected_tokens:,} tokens read",
        tone=Tone.WARNING,
    )


def _tell_host(event: events.HostAsked) -> Iterable[Line]:
    if event.refused:
        yield Line(text=f"sandbox refused {event.host} to a command: {event.refused}", tone=Tone.WARNING)
    else:
        yield Line(text=f"a command reached {event.host}", detail=True, tone=Tone.QUIET)


def _tell_setup_start(event: events.SetupStarted) -> Iterable[Line]:
    yield Line(text=f"setup runs: {event.command} (network: {event.network})")


def _tell_setup_end(event: events.SetupFinished) -> Iterable[Line]:
    passed = event.exit_code == 0
    end = "passed" if passed else "was killed" if event.exit_code is None else f"failed with exit {event.exit_code}"
    took = render_duration(event.duration_s)
    yield Line(text=f"setup `{event.command}` {end} after {took}", tone=Tone.GOOD if passed else Tone.BAD)


def _name_gate(phase_id: str, *, baseline: bool) -> str:
    kind = "baseline gate" if baseline else "gate"
    return f"{kind} of phase {phase_id}" if phase_id else kind


def _tell_gate_start(event: events.GateStarted) -> Iterable[Line]:
    gate = _name_gate(event.phase_id, baseline=event.baseline)
    if event.commands:  # else all commands have just passed, as the gate's end says
        yield Line(text=f"{gate} runs: {'; '.join(event.commands)}", detail=True)


def _tell_gate_end(event: events.GateFinished) -> Iterable[Line]:
    gate = _name_gate(event.phase_id, baseline=event.baseline)
    if event.passed:
        verdict, tone = "passed", Tone.GOOD
    else:
        verdict, tone = "is red", Tone.QUIET if event.expected or event.baseline else Tone.BAD
    first, *rest = event.summary.splitlines() or [""]
    summary = f" — {first}" + (f" {'; '.join(rest)}" if rest else "") if first else ""
    why = f", {event.expected}" if event.expected else ""
    yield Line(text=f"{gate} {verdict} after {render_duration(event.duration_s)}{why}{summary}", tone=tone)
    if event.evidence:
        told = [one["name"] + (f" (not kept: {lost})" if (lost := one.get("why")) else "") for one in event.evidence]
        names = list_some(told, _SHOWN_LINES)
        yield Line(text=f"left in $RELAY_EVIDENCE: {names}", detail=True)
    for check in () if event.passed else event.checks:
        if check["status"] != "passed":
            lines = [line for line in check["output"].splitlines() if line.strip()]
            yield from tell_output(lines[-_SHOWN_LINES:] if not event.expected else (), check.get("causes", ()))


def tell_output(lines: Iterable[str], causes: Iterable[str], indent: str = "") -> Iterable[Line]:
    """Show the end of a command's output, and what the sandbox blocked."""
    for line in lines:
        yield Line(text=f"{indent}| {line}", tone=Tone.QUIET)
    for cause in causes:
        yield Line(text=f"{indent}sandbox: {cause}", tone=Tone.WARNING)


def _tell_restored(event: events.PlanRestored) -> Iterable[Line]:
    yield Line(text=f"plan put back after {event.tool} changed it — {event.summary}", tone=Tone.WARNING)


def _tell_commit(event: events.Committed) -> Iterable[Line]:
    items = f" (items {' '.join(event.items)})" if event.items else ""
    yield Line(
        text=f"commit {event.commit[:_SHORT_COMMIT_CHARS]} {event.status} — {event.subject}{items}", tone=Tone.GOOD
    )


def _tell_session_end(event: events.SessionEnded) -> Iterable[Line]:
    what = f"phase {event.phase_id} session" if event.phase_id else "session"
    detail = f" — {event.detail}" if event.detail else ""
    used = f"{event.usage.prompt_tokens:,} tokens in, {event.usage.output_tokens:,} out, {_render_cost(event)}"
    yield Line(
        text=f"{what} ended: {event.result}{detail} ({used if event.usage.context_tokens else 'it spent nothing'})",
        tone=Tone.PLAIN if event.result in {"done", "handoff", "review"} else Tone.WARNING,
    )


def _tell_notice(event: events.Noticed) -> Iterable[Line]:
    word, tone = ("warning", Tone.WARNING) if event.warning else ("note", Tone.QUIET)
    yield Line(text=f"{word}: {event.text}", tone=tone)


def _tell_review(event: events.ReviewFinished) -> Iterable[Line]:
    found = len(event.findings)
    phase = f" of phase {event.phase_id}" if event.phase_id else ""
    tone = Tone.WARNING if event.confirmed else Tone.GOOD
    yield Line(text=f"review {event.round}{phase}: {found} found, {event.confirmed} confirmed", tone=tone)
    for finding in event.findings:
        place = f"{finding['file']}:{finding['line']}" if finding["line"] else finding["file"]
        is_detail = finding["verdict"] != "confirmed"
        yield Line(text=f"{finding['verdict']}: {place}: {finding['summary']}", detail=is_detail)
        yield Line(text=f"- what goes wrong: {finding['failure_scenario']}", detail=is_detail)
        if finding["reason"]:
            yield Line(text=f"- {finding['verdict']} because: {finding['reason']}", detail=is_detail)


def _tell_question(event: events.QuestionAsked) -> Iterable[Line]:
    if not event.waits:  # else the question is on the screen, with its options
        yield Line(text=f"question: {event.question} — assumed: {event.assumed}", tone=Tone.WARNING)


def _tell_words(event: events.WordsHeard) -> Iterable[Line]:
    for line in event.text.splitlines():
        yield Line(text=f"you: {line}", tone=Tone.STRONG)


def _tell_cap(event: events.CapMoved) -> Iterable[Line]:
    cap = "has no cap" if event.cap_usd is None else f"costs at most {render_usd(event.cap_usd)}"
    yield Line(text=f"you: the plan {cap} from now on", tone=Tone.STRONG)


def _tell_job(event: events.JobMoved) -> Iterable[Line]:
    if event.state == "held":  # the plan shows that
        return
    tones = {"landed": Tone.GOOD, "waiting": Tone.WARNING, "stopped": Tone.WARNING}
    yield Line(text=f"phase {event.phase_id} {event.state}: {event.detail}", tone=tones.get(event.state, Tone.PLAIN))


def _tell_run_end(event: events.RunEnded) -> Iterable[Line]:
    tone = Tone.GOOD if event.exit_code == 0 else Tone.WARNING
    word = "done" if event.exit_code == 0 else "stopped"
    spent = render_usd(event.spent_usd, estimated=event.estimated)
    yield Line(text=f"{word}: {event.reason} (spent {spent})", tone=tone)
    if event.waits_for:
        yield Line(text=f"{event.waits_for} waits for a yes", tone=Tone.WARNING)
    if event.questions:
        yield Line(text=count_questions(event.questions), tone=Tone.WARNING)
        for question in event.questions:
            yield Line(text=f"- {question}", tone=Tone.WARNING)
    if event.next_command:
        yield Line(text=f"next: {event.next_command}", tone=Tone.STRONG)


def _render_cost(event: events.ResponseReceived | events.SessionEnded) -> str:
    return "cost unknown" if event.cost_usd is None else render_usd(event.cost_usd, estimated=event.estimated)


_TELL: Mapping[type[Any], Callable[[Any], Iterable[Line]]] = {
    events.RunStarted: _tell_run,
    events.SessionStarted: _tell_session,
    events.RequestStarted: _tell_nothing,
    events.ResponseReceived: _tell_response,
    events.RelaySpoke: _tell_nothing,
    events.TextShown: _tell_text,
    events.ToolStarted: _tell_tool_start,
    events.ToolFinished: _tell_tool_end,
    events.OutputShown: _tell_nothing,
    events.TransferShown: _tell_nothing,
    events.GaugeCrossed: _tell_crossing,
    events.RetryScheduled: _tell_retry,
    events.CacheBroken: _tell_cache,
    events.HostAsked: _tell_host,
    events.SetupStarted: _tell_setup_start,
    events.SetupFinished: _tell_setup_end,
    events.GateStarted: _tell_gate_start,
    events.GateFinished: _tell_gate_end,
    events.PlanRestored: _tell_restored,
    events.Committed: _tell_commit,
    events.SessionEnded: _tell_session_end,
    events.Noticed: _tell_notice,
    events.ReviewFinished: _tell_review,
    events.QuestionAsked: _tell_question,
    events.WordsHeard: _tell_words,
    events.CapMoved: _tell_cap,
    events.JobMoved: _tell_job,
    events.RunEnded: _tell_run_end,
}
