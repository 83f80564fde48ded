"""What a tool's text goes through before the model sees it: made printable, counted, cut in the middle, kept in full.

Order: the tool's own limit, the raw buffer of a command, the token cap here. Nothing is summarised.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

from relay.base.values import dataclass
from relay.base.walk import open_ignored
from relay.sandbox.output import keep_output
from relay.session.tokens import estimate_size_tokens, estimate_tokens
from relay.session.values import Shown, ToolResult
from relay.tools.workspace import OUTPUT_CAP_TOKENS, Workspace

_MARK_TOKENS = 40
"""Room for the line that says what was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What a tool says, before the cap."""

    text: str
    is_error: bool = False
    ends_session: bool = False
    changed_paths: tuple[str, ...] | None = ()
    """As in `ToolResult`."""
    shown: Shown | None = None
    """As in `ToolResult`."""
    waited_s: float = 0.0
    """As in `ToolResult`."""
    spool: Path | None = None
    """Where the full output is, if it was too much for memory; removed when the model gets all of it anyway."""
    output: bytes = b""
    """The full output where it is not there; else what is kept is `text`."""
    lost_bytes: int = 0
    """What the raw buffer did not keep and only the spool has."""


def finish(workspace: Workspace, answer: ToolAnswer, call_id: str) -> ToolResult:
    """Turn an answer into a result of at most `OUTPUT_CAP_TOKENS` tokens."""
    text = answer.text.encode("utf-8", "replace").decode("utf-8")
    if answer.lost_bytes == 0 and estimate_tokens(text) <= OUTPUT_CAP_TOKENS:
        if answer.spool is not None:
            answer.spool.unlink(missing_ok=True)
    else:
        spool, name = answer.spool, "full output"
        if spool is None or not spool.exists():
            name = "what is kept of the output" if answer.lost_bytes else name
            spool = _spill(workspace, answer.output or text.encode(), call_id)
        where = f"{name}: {workspace.render_handle(spool)} (use read)" if spool else "the rest could not be kept"
        text = cut_middle(text, where, lost_tokens=estimate_size_tokens(answer.lost_bytes))
    return ToolResult(
        text=text,
        is_error=answer.is_error,
        ends_session=answer.ends_session,
        changed_paths=answer.changed_paths,
        shown=answer.shown,
        waited_s=answer.waited_s,
    )


def cut_middle(text: str, where: str, *, lost_tokens: int = 0, cap_tokens: int = OUTPUT_CAP_TOKENS) -> str:
    """Keep the first and the last half of what fits, at line ends where there are any, else between characters."""
    data = text.encode("utf-8")
    half = max(cap_tokens - _MARK_TOKENS - estimate_tokens(where), 2) * 2
    if len(data) <= 2 * half:
        head, tail = _split_lines(data)
    else:
        head, tail = _end_at_line(data[:half]), _start_at_line(data[-half:])
    cut = estimate_size_tokens(len(data) - len(head) - len(tail)) + lost_tokens
    mark = f"\n… {cut:,} tokens cut; {where} …\n"
    return head.decode("utf-8", "ignore") + mark + tail.decode("utf-8", "ignore")


def _split_lines(data: bytes) -> tuple[bytes, bytes]:
    at = data.find(b"\n", len(data) // 2)
    return (data, b"") if at < 0 else (data[:at], data[at + 1 :])


def _end_at_line(data: bytes) -> bytes:
    at = data.rfind(b"\n", len(data) // 2)
    return data if at < 0 else data[:at]


def _start_at_line(data: bytes) -> bytes:
    at = data.find(b"\n", 0, len(data) // 2)
    return data if at < 0 else data[at + 1 :]


@contextmanager
def open_outputs(workspace: Workspace) -> Iterator[int | None]:
    """Make `outputs_dir`, ignored by git, and give a descriptor of it.

    None when it cannot be made or is a link: a repository that ships one gets nothing written through it.
    """
    with ExitStack() as stack:
        try:
            names = workspace.outputs_dir.relative_to(workspace.root).parts
            fd = stack.enter_context(open_ignored(workspace.root, names))
        except (OSError, ValueError):
            fd = None
        yield fd


def reserve_output(workspace: Workspace, call_id: str) -> Path | None:
    """Return a path in `outputs_dir` where nothing stands yet; None when the directory cannot be trusted or made."""
    if not workspace.spills:
        return None
    with open_outputs(workspace) as fd:
        if fd is None:
            return None
    stem = sha256(call_id.encode("utf-8", "replace")).hexdigest()[:10]
    names = (f"{stem}{suffix}.txt" for suffix in ["", *(f"-{number}" for number in range(2, 1000))])
    paths = (workspace.outputs_dir / name for name in names)
    return next((path for path in paths if not os.path.lexists(path)), None)


def _spill(workspace: Workspace, output: bytes, call_id: str) -> Path | None:
    path = reserve_output(workspace, call_id)
    return path if path is not None and keep_output(path, output) else None
