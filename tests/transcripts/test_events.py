"""What the real agents wrote, read as relay's own events: `events.txt` has each context, answer and call in a line."""

from collections.abc import Iterator
from pathlib import Path

from relay.insight.transcripts.library import OpenTranscript, get_transcript
from relay.session.events import ResponseReceived, RunStarted, SessionStarted, ToolFinished
from relay.session.records import LoggedEvent
from tests.transcripts.samples import AGENTS, HERE, place_sample


def describe(records: Iterator[LoggedEvent]) -> Iterator[str]:
    """Yield a line for each run, context, answer and call."""
    for event in (record.event for record in records):
        match event:
            case RunStarted():
                yield f"{event.command} {event.run_id} {event.branch}".strip()
            case SessionStarted():
                sizes = " ".join(f"{part['source']}={part['bytes']}" for part in event.prompt)
                yield f"{event.phase_id}, {event.title}: {event.reason} {sizes}".rstrip(" :")
            case ResponseReceived():
                used = event.usage
                assert used
                kinds = (used.input_tokens, used.cache_read_tokens, used.cache_write_5m_tokens, used.output_tokens)
                cost = "" if event.cost_usd is None else f" ${event.cost_usd:.5f}"
                yield f"  {event.turn} {event.model} {kinds}{cost} of {event.window_tokens}"
            case ToolFinished():
                part = f" {event.shown.path}:{event.shown.first_line}-{event.shown.last_line}" if event.shown else ""
                changed = (
                    "" if event.changed_paths is None else f" changed {' '.join(event.changed_paths) or 'nothing'}"
                )
                yield f"    {event.name} {event.result_bytes} B{part}{changed}{' failed' * event.is_error}"
            case _:
                pass


def describe_all(folder: Path) -> str:
    """Return the lines of all samples; what nobody knows of a format would stand there as well."""
    lines: list[str] = []
    for agent in AGENTS:
        opened = OpenTranscript(transcript=get_transcript(place_sample(folder, agent), ""))
        lines += [*describe(iter(opened)), *map(str, opened.reading.unknown), *opened.reading.notes]
    return "".join(f"{line}\n" for line in lines)


def test_each_agent_s_contexts_answers_and_calls_are_read_as_it_counted_them(tmp_path: Path) -> None:
    assert describe_all(tmp_path) == (HERE / "events.txt").read_text()
