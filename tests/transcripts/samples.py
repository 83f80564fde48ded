"""What the real agents wrote: `python -m rigs.agents.transcripts` makes it anew (29 November 2026)."""

import sqlite3
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"
"""What the user pasted; the kept files have a mark in its place."""
AGENTS = {"claude": "claude.jsonl", "codex": "codex.jsonl", "opencode": "opencode.sql"}


def place_sample(folder: Path, agent: str) -> Path:
    """Write an agent's transcript as it was on its disk; return its path."""
    text = (HERE / AGENTS[agent]).read_text().replace("@TOKEN@", TOKEN)
    if agent != "opencode":
        path = folder / AGENTS[agent]
        path.write_text(text)
        return path
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as base:
        base.executescript(text)
    return path
