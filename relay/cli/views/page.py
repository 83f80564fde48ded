"""The board as a page: the same lines that a terminal has, as escaped HTML. Pure."""

import io
from collections.abc import Iterable, Sequence
from html import escape

from rich.console import Console
from rich.style import Style
from rich.text import Text

from relay.cli.views.board import Board
from relay.cli.views.draw import draw_run
from relay.cli.views.narrate import Line
from relay.cli.views.shapes import render_line

LEAST_CELLS, MOST_CELLS = 20, 200
_LINES = 44
_LONGEST_LINE_CHARS = 400

STYLE = """\
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --dim: #5c5c5c; --cyan: #0b6478; --green: #1b6b2a;
  --yellow: #7a5600; --red: #b3221b }
@media (prefers-color-scheme: dark) { :root { --back: #14161a; --text: #e6e6e6; --dim: #9b9b9b; --cyan: #5cc8dc;
  --green: #6fce80; --yellow: #e2b84a; --red: #ff8a80 } }
body { margin: 1rem; background: var(--back); color: var(--text) }
pre { font: 14px/1.35 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; margin: 0; overflow-x: auto }
#said { margin-top: 1rem; white-space: pre-wrap; overflow-wrap: anywhere }
.gone #board { opacity: .5 }
.bold, .strong { font-weight: bold } .italic { font-style: italic } .dim, .quiet { color: var(--dim) }
.cyan { color: var(--cyan) } .green, .good { color: var(--green) } .yellow, .warning { color: var(--yellow) }
.red, .bad { color: var(--red) }
"""
SCRIPT = """\
const probe = document.createElement("span");
let source;
function listen() {
  const board = document.getElementById("board");
  probe.textContent = "0".repeat(100);
  board.append(probe);
  const cells = Math.floor(board.clientWidth / (probe.getBoundingClientRect().width / 100)) - 1;
  probe.remove();
  if (source) source.close();
  source = new EventSource("events?cells=" + cells);
  source.onopen = () => document.body.classList.remove("gone");
  source.onerror = () => document.body.classList.add("gone");
  source.onmessage = (told) => { document.getElementById("live").innerHTML = JSON.parse(told.data); };
}
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(listen, 300); });
listen();
"""


def render_live(board: Board, lines: Sequence[Line], *, now: float, cells: int) -> str:
    """Write the part of the page that changes.

    Args:
        lines: What happened last, oldest first.
        cells: Width of the board.
    """
    width = min(MOST_CELLS, max(LEAST_CELLS, cells))
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, emoji=False, highlight=False)
    frame = "\n".join(_render_text(text, console) for text in draw_run(board, now=now, width=width, height=_LINES))
    said = "\n".join(
        f'<span class="{line.tone}">{escape(render_line(line, _LONGEST_LINE_CHARS))}</span>' for line in lines
    )
    return f'<pre id="board">{frame}</pre><pre id="said">{said}</pre>'


def render_live_page(live: str) -> str:
    """Write the whole page: readable as it stands, drawn anew by its script, or every two seconds where that is off."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relay watch</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="board.css"><noscript><meta http-equiv="refresh" content="2"></noscript></head>'
        f'<body><main id="live">{live}</main><script src="board.js"></script></body></html>'
    )


def _render_text(text: Text, console: Console) -> str:
    base = console.get_style(text.style)  # where nothing else is said of a part, rich leaves it to whoever prints
    pieces = ((segment.text.rstrip("\n"), base + segment.style) for segment in text.render(console))
    return "".join(_render_piece(words, _name_classes(style)) for words, style in pieces if words)


def _render_piece(words: str, classes: Iterable[str]) -> str:
    names = " ".join(classes)
    return f'<span class="{names}">{escape(words)}</span>' if names else escape(words)


def _name_classes(style: Style | None) -> Iterable[str]:
    if style is None:
        return
    for name in ("bold", "dim", "italic"):
        if getattr(style, name):
            yield name
    if style.color is not None:
        yield style.color.name
