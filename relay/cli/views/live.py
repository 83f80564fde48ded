"""The live view: facts scroll up and stay; below them a board shows the present state and is redrawn.

The run's thread only appends to a queue. The view's own thread takes the events, prints the lines that stay and redraws
the board at most eight times a second, and at least once a second, so that clocks run.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from relay.base.interrupts import Urgency
from relay.base.words import count
from relay.cli.views.base import View
from relay.cli.views.board import Board
from relay.cli.views.draw import draw
from relay.cli.views.narrate import Line, Narrator, Tone, render_line
from relay.session.records import LoggedEvent

FRAME_S = 0.125
"""Shortest time between two frames."""
IDLE_FRAME_S = 1.0
"""Longest time between two frames: clocks run by the second."""
_TALLEST = 30
_ECHO_CELLS = 2
"""Room for the ^C that a terminal prints after the last line: on a line of its own it would scroll the frame."""
_LINES_ABOVE = 3
"""Lines above the board that a small terminal keeps for past events."""
_LONGEST_LINE_CHARS = 400


class LiveView(View):
    """A view on a terminal.

    Args:
        keeps_board: Whether the last picture stays.
    """

    def __init__(
        self, stream: TextIO, *, colour: bool, clock: Callable[[], float] = time.time, keeps_board: bool = False
    ) -> None:
        super().__init__(clock)
        self._console = Console(
            file=stream, markup=False, emoji=False, highlight=False, no_color=not colour, force_terminal=True
        )
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._queue: deque[tuple[LoggedEvent, str]] = deque()
        self._narrators: dict[str, Narrator] = defaultdict(Narrator)
        self._keeps_board = keeps_board
        self._board = Board(started_at=clock())
        self._drawn_at = 0.0
        self._frame_cells: list[int] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, record: LoggedEvent, *, phase_id: str = "") -> None:
        """Show an event with the next frame."""
        self._queue.append((record, phase_id))

    def note_stop(self, urgency: Urgency) -> None:
        """Show the stop with the next frame."""
        self._board.stopping = urgency
        self._drawn_at = 0.0

    def note_loss(self) -> None:
        """Show the loss in the last picture."""
        self._board.lost = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Show all events, then leave the terminal to the body."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    def __enter__(self) -> Self:
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, name="relay-view", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._live:
                self._console.show_cursor()  # rich hides it, and a shell after Ctrl-Z would have none
                while not self._closing.wait(FRAME_S):
                    if self._queue or time.monotonic() - self._drawn_at >= IDLE_FRAME_S:
                        self._drawn_at = time.monotonic()
                        self._print_news()
                        self._live.update(Group(*self._draw()), refresh=True)
                self._print_news()
            if self._keeps_board:
                self._console.print(Group(*self._draw()))
        except (OSError, ValueError):
            self._queue.clear()  # the terminal is gone; the run goes on, and its log has everything

    def _print_news(self) -> None:
        """Apply the new events to the board and print their lines, once the rows of the last frame are erased.

        These are more than its lines where a terminal has become narrower and wraps them.
        """
        lines: list[Line] = []
        while self._queue:
            record, phase_id = self._queue.popleft()
            if phase_id:
                self._board.apply_job(phase_id, record.event, record.at)
            else:
                self._board.apply(record.event, record.at)
            lines.extend(line for line in self._narrators[phase_id].tell(record.event, phase_id) if not line.detail)
        width, height = self._console.size
        if self._keeps_board and len(lines) >= height:  # a run may have a long past when somebody begins to watch
            gone = len(lines) - max(1, height - 1)
            lines = [Line(text=f"… {count(gone, 'line')} before", tone=Tone.QUIET), *lines[gone:]]
        if rows := sum(max(0, (cells - 1) // width) for cells in self._frame_cells):
            codes = (ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)
            self._console.control(Control(ControlType.CARRIAGE_RETURN, codes[1], *codes * rows))
        self._frame_cells = []
        if lines:
            texts = (Text(render_line(one, _LONGEST_LINE_CHARS), one.tone, overflow="fold") for one in lines)
            self._console.print(Group(*texts))

    def _draw(self) -> list[Text]:
        width, height = self._console.size
        tall = min(_TALLEST, max(1, height - _LINES_ABOVE))
        frame = draw(self._board, now=self._clock(), width=max(1, width - _ECHO_CELLS), height=tall)
        self._frame_cells = [line.cell_len for line in frame]
        return frame
