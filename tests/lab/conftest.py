"""What all formats are tried with."""

from pathlib import Path

import pytest

from relay.insight.transcripts.library import OpenTranscript, get_transcript
from relay.session.events import ResponseReceived, SessionStarted, ToolFinished


class Seen:
    """The events of a transcript that was read to its end."""

    def __init__(self, path: Path, session: str = "") -> None:
        opened = OpenTranscript(transcript=get_transcript(path, session))
        self.records = list(opened)
        self.reading = opened.reading

    def of(self, kind):
        """Return the events of a kind."""
        return [record.event for record in self.records if isinstance(record.event, kind)]

    @property
    def prompts(self):
        """The prompt of each answer; None where it is unknown."""
        return [event.usage and event.usage.prompt_tokens for event in self.of(ResponseReceived)]

    @property
    def contexts(self):
        """What each context is, and where it began."""
        return [(event.phase_id, event.title, event.reason) for event in self.of(SessionStarted)]

    @property
    def tools(self):
        """The tool calls that were answered, by their names."""
        return {event.name: event for event in self.of(ToolFinished)}


@pytest.fixture
def read():
    """Read a transcript."""
    return Seen
