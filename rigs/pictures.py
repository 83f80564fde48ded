"""Draw the pictures of README and docs/ from a demo that is played for them: `make pictures`.

The live view is relay's own, drawn from the log of the demo's run at a moment in the middle and saved as SVG by rich.
The report is relay's own page, photographed in headless Chromium (`apt install chromium`), in light and in dark.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console, Group
from rich.text import Text

from relay.cli.screen import clean_line
from relay.cli.views.board import Board
from relay.cli.views.draw import draw
from relay.cli.views.narrate import Narrator
from relay.session.records import LoggedEvent
from tests.logs import read_events
from tests.report.browser import find_chromium

PLACE = Path(__file__).parents[1] / "docs/pictures"
WIDTH, HEIGHT = 96, 22
LINES_ABOVE = 6
MOMENT_TOKENS = 60_000
"""The picture is of the first of these tools that runs when the session's context holds so much."""
PAGE = {"width": 1080, "height": 1690}
TOOLS = {"bash", "search"}
COLOURS = 192
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def play_demo(root: Path) -> None:
    """Play the demo in a new directory."""
    environ = os.environ | {"COLUMNS": str(WIDTH)}
    subprocess.run([sys.executable, "-m", "relay", "demo", "--keep", str(root)], env=environ, check=True)


def find_run(root: Path) -> tuple[LoggedEvent, ...]:
    """Return the log of the run with the most events."""
    logs = (read_events(path) for path in (root / ".relay/sessions").glob("*.jsonl"))
    return max((log.records for log in logs if log), key=len)


def draw_live(records: Iterable[LoggedEvent]) -> str:
    """Return the live view of a run at the moment, as SVG that loads nothing."""
    board, narrator = Board(started_at=0.0), Narrator()
    above: deque[Text] = deque(maxlen=LINES_ABOVE)
    at = 0.0
    for record in records:
        at = record.at
        board.apply(record.event, at)
        lines = narrator.tell(record.event)
        above += [Text(clean_line(line.text), line.tone) for line in lines if not line.detail]
        used = board.response.usage if board.response else None
        if used and used.prompt_tokens >= MOMENT_TOKENS and board.activity and board.activity.name in TOOLS:
            break
    for line in above:
        line.truncate(WIDTH, overflow="ellipsis")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Group(*above, *draw(board, now=at, width=WIDTH, height=HEIGHT)))
    return _FONTS.sub("", console.export_svg(title="relay run", unique_id="live"))


def photograph(page: Path, scheme: str, to: Path) -> None:
    """Save a page as it is seen in a colour scheme, in few colours."""
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser: Any = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        tab = browser.new_context(viewport=PAGE, color_scheme=scheme).new_page()
        tab.goto(page.as_uri())
        data = tab.screenshot()
        browser.close()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(to, optimize=True)


def main() -> int:
    """Draw all pictures anew."""
    if find_chromium() is None:
        sys.stdout.write("There is no Chromium here: apt install chromium, or name one: CHROMIUM=/path\n")
        return 1
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="relay-pictures-") as place:
        root = Path(place) / "project"
        play_demo(root)
        (PLACE / "live.svg").write_text(draw_live(find_run(root)))
        page = root / "report.html"
        report = [sys.executable, "-m", "relay", "report", "PLAN.md", "--output", str(page)]
        subprocess.run(report, cwd=root, check=True)
        for scheme in ("light", "dark"):
            photograph(page, scheme, PLACE / f"report-{scheme}.png")
    for path in sorted(PLACE.iterdir()):
        sys.stdout.write(f"{path.relative_to(PLACE.parents[1])}: {path.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
