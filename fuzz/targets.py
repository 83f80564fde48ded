"""What is fuzzed, and what must hold for any input at all.

A target takes bytes and returns; an `AssertionError`, or any exception that its subject does not document, is a
finding. `fuzz/corpus/NAME/` holds each target's seeds and every input that once was a finding.
"""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from relay.base.errors import ConfigError, PlanError, RelayError
from relay.base.sse import parse_events
from relay.config.sources import load_settings
from relay.git.message import Message, make_line, parse_message, render_message
from relay.ledger.belief import judge
from relay.ledger.model import Claim, Source, append_entry, parse_ledger
from relay.ledger.snapshot import render_snapshot
from relay.plan.check import check_plan
from relay.plan.edit import append_items, append_note
from relay.plan.model import Plan
from relay.plan.operations import check_change
from relay.plan.parse import parse_plan
from relay.plan.text import Lines, encode_text, parse_front_matter
from relay.runners.messages.answers import Answer, AnswerBuilder, StreamBrokenError, make_sendable
from relay.session.events import Noticed
from relay.session.records import LoggedEvent, parse_record, render_record
from relay.store.trailers import ITEMS, PLAN, STATUS, parse_cost, parse_usage, render_cost, render_usage
from tests.logs import read_events
from tests.message_rules import check_messages

CORPUS = Path(__file__).resolve().parent / "corpus"
_YAML_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_SNAPSHOT_TOKENS = 500


def fuzz_plan(data: bytes) -> None:
    """Any text is a plan or is refused by line; every edit changes what it says and nothing else."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        plan = parse_plan(text)
    except PlanError as error:
        _check_refusal(error, lines=Lines.of(text).count)
        return
    assert not check_change(plan, plan, may_tick=())
    check_plan(plan)
    _check_spans(plan)
    _check_tick(plan)
    for phase in (plan.phases[0], plan.phases[-1]):
        with suppress(PlanError):
            noted = append_note(plan, phase.id, "fuzzed `[x]`")
            assert not check_change(plan, noted, may_tick=())
            assert _boxes(noted) == _boxes(plan)
    with suppress(PlanError):
        longer = append_items(plan, phase.id, ["fuzzed"])
        assert _boxes(longer) == [*_boxes(plan), False]


def _boxes(plan: Plan) -> list[bool]:
    return [item.done for item in plan.items]


def _check_spans(plan: Plan) -> None:
    done = 0
    for phase in plan.phases:
        assert done <= phase.start < phase.end <= len(plan.text)
        done = phase.end
        for item in phase.items:
            assert phase.start < item.mark < phase.end
            assert plan.text[item.mark - 1 : item.mark + 2] in {"[ ]", "[x]", "[X]", "[-]", "[~]", "[?]", "[>]"}
    ids = [item.id for item in plan.items]
    assert len(set(ids)) == len(ids)


def _check_tick(plan: Plan) -> None:
    """Tick the last open item: one byte of the file changes, one box of the plan."""
    item = next((item for phase in reversed(plan.phases) for item in reversed(phase.open_items)), None)
    if item is None:
        return
    ticked = plan.tick([item.id])
    assert ticked == parse_plan(ticked.text)
    before, after = encode_text(plan.text), encode_text(ticked.text)
    changed = [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    assert [after[at : at + 1] for at in changed] == [b"x"]


def _check_refusal(error: RelayError, *, lines: int) -> None:
    """An error names a line that the text has (0: the whole file; YAML counts its end as a line)."""
    assert error.message
    assert 0 <= error.line <= lines + 1, error


def fuzz_front_matter(data: bytes) -> None:
    """What stands between two rules becomes settings, or is refused by line; so do the settings by key."""
    text = f"---\n{data.decode('utf-8', 'surrogateescape')}\n---\n# P\n- [ ] a\n"
    lines = Lines.of(text)
    try:
        found = parse_front_matter(lines)
    except PlanError as error:
        _check_refusal(error, lines=lines.count)
        return
    assert 0 <= found.body <= lines.count
    assert all(isinstance(key, str) for key in found.settings)
    assert all(command and command == command.strip() for command in found.verify)
    try:
        load_settings(flags={}, environ={}, plan_settings=found.settings, repo_root=None, user_dir=None)
    except ConfigError as error:
        assert error.message.startswith("plan front matter: ")


def fuzz_ledger(data: bytes) -> None:
    """Any text is a ledger or is refused by line; a claim goes to its end and is read back as it was."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        ledger = parse_ledger(text)
    except RelayError as error:
        _check_refusal(error, lines=len(_YAML_LINE_END.split(text)))
        return
    budget_bytes = _SNAPSHOT_TOKENS * 4
    judgement = judge(ledger, dict.fromkeys(ledger.sources, "has changed"))
    assert len(render_snapshot(ledger, judgement, _SNAPSHOT_TOKENS).encode("utf-8", "replace")) <= budget_bytes
    words = text[-64:].encode("utf-8", "replace").decode()
    claim = Claim(
        id=ledger.make_id("c", (words,)),
        claim=f"x{words}",
        because=f"{words}y",
        rests_on=tuple(ledger.claims)[:2],
        sources=(Source(path=f"a{words}", lines="1-2"),),
    )
    with suppress(RelayError):  # a file that is a flow list, or ends in the middle of something, cannot be appended to
        after = append_entry(ledger, claim)
        assert after.text.startswith(text)
        assert parse_ledger(after.text).entries == (*ledger.entries, claim)


@cache
def _log_path() -> Path:
    """Return a place for the log that is read, one for each process."""
    return Path(tempfile.mkdtemp(prefix="relay-fuzz-")) / "log.jsonl"


def fuzz_events(data: bytes) -> None:
    """Any file is a log: lines are events or are counted; what was read is written as it was read."""
    path = _log_path()
    path.write_bytes(data)
    log = read_events(path)
    assert log is not None
    lines = [line for line in data.split(b"\n") if line.strip()]
    assert len(log.records) + log.skipped_lines == len(lines)
    for record in log.records:
        again = parse_record(render_record(record))
        assert again is not None
        assert repr(again.event) == repr(record.event)  # by text: NaN is not equal to itself
    said = data.decode("utf-8", "replace")
    noticed = LoggedEvent(at=1.0, event=Noticed(text=said))
    assert parse_record(render_record(noticed)) == noticed


def fuzz_stream(data: bytes) -> None:
    """A stream is a whole answer that may be sent back, or is broken; how the network cut it makes no difference."""
    whole = _read_stream([data])
    size = 1 + len(data) % 7
    assert repr(_read_stream([data[at : at + size] for at in range(0, len(data), size)])) == repr(whole)
    if whole is None:
        return
    sent = make_sendable(whole, taken={"t1"})
    assert make_sendable(sent, taken={"t1"}) == sent or repr(make_sendable(sent, taken=())) == repr(sent)
    if not sent.content:
        return
    calls = [block["id"] for block in sent.content if block["type"] == "tool_use"]
    assert set(sent.broken_calls) <= set(calls)
    results = [{"type": "tool_result", "tool_use_id": call, "content": "done"} for call in calls]
    answer = {"role": "assistant", "content": list(sent.content)}
    asked = {"role": "user", "content": "begin"}
    faults = check_messages([asked, answer, {"role": "user", "content": results or "go on"}])
    # A signature is the endpoint's to give.
    assert [fault for fault in faults if "signature" not in fault] == []


def _read_stream(chunks: list[bytes]) -> Answer | None:
    """Read a stream as `MessagesApi` does; None for one that is not a well-formed answer."""
    builder = AnswerBuilder()
    try:
        for event in parse_events(chunks):
            body = json.loads(event.data)
            if not isinstance(body, dict):
                return None
            builder.feed(body)
            if builder.complete:
                break
        return builder.build()
    except (StreamBrokenError, ValueError, RecursionError):
        return None
    finally:
        usage = builder.usage
        assert usage is None or usage.context_tokens >= usage.output_tokens >= 0


def fuzz_trailers(data: bytes) -> None:
    """Any commit message is read; whatever a session says, the trailers of relay's commits are relay's."""
    text = data.decode("utf-8", "surrogateescape")
    message = parse_message(text)
    for _, value in message.trailers:
        usage, cost = parse_usage(value), parse_cost(value)
        assert usage is None or parse_usage(render_usage(usage)) == usage
        assert cost is None or parse_cost(render_cost(cost)) is not None
    subject, _, rest = text.partition("\0")
    body, _, value = rest.partition("\0")
    own = ((PLAN, value), (STATUS, "done"), (ITEMS, value[::-1]))
    kept = tuple((key, make_line(said)) for key, said in own if make_line(said))
    written = render_message(Message(subject=subject, body=body, trailers=own))
    again = parse_message(written.decode())
    assert again.trailers == kept
    assert again.subject == (make_line(subject) or "relay")
    assert render_message(Message(subject=again.subject, body=again.body, trailers=again.trailers)) == written


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "plan": fuzz_plan,
    "front_matter": fuzz_front_matter,
    "ledger": fuzz_ledger,
    "events": fuzz_events,
    "stream": fuzz_stream,
    "trailers": fuzz_trailers,
}
