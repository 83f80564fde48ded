"""The CommonMark block parser, bounded. The only module that imports markdown_it, and never at start-up.

markdown-it-py against a hand-written reader: fences, comments, lazy lines, tabs and setext headings each have made a
checkbox reader of a peer loop or stall, and CommonMark has a specification and test suite for all of them. Only the
block stage runs: three times faster than the whole, and the inline stage is not needed to find boxes. Its task list
plugin is quadratic, and its default nesting limit silently drops what is deeper than ten lists *and all that follows*.
"""

from functools import cache

from markdown_it import MarkdownIt
from markdown_it.parser_block import ParserBlock
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from relay.base.errors import PlanError

MAX_NESTING = 100
"""Levels of containers; a list takes two (the list and its item), a quote one."""
_SCANS_PER_LINE = 10
_SPARE_SCANS = 50_000
_CONTAINERS = frozenset({"list_item_open", "blockquote_open"})


class _BoundedBlocks(ParserBlock):
    """Counts the lines that block quotes look ahead over, and stops at a bound.

    A quote scans on over lazy lines even where its content has ended (``> ``` `` and ``b`` in turn), so that hostile
    text makes the parser quadratic. Nothing else in it was found to be.
    """

    def tokenize(self, state: StateBlock, startLine: int, endLine: int) -> None:  # noqa: N803  # markdown_it's names
        if state.parentType == "blockquote":
            scans = state.env.setdefault("scans", 0) + endLine - startLine
            state.env["scans"] = scans
            if scans > _SPARE_SCANS + _SCANS_PER_LINE * len(state.bMarks):
                raise _TooTangledError(startLine)
        super().tokenize(state, startLine, endLine)


class _TooTangledError(Exception):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


def parse_blocks(text: str, *, line: int) -> list[Token]:
    """Return the block tokens of a text.

    Args:
        text: CommonMark without byte-order mark and front matter, any line endings.
        line: 0-based line of the file that the text starts at, for messages.

    Raises:
        PlanError: It is nested or quoted so that it cannot be read safely.
    """
    try:
        tokens = _parser().parse(text)
    except _TooTangledError as error:
        message = "block quotes are broken up so often that they cannot be read; put a blank line after each"
        raise PlanError(message, line=line + error.index + 1) from None
    except RecursionError:
        raise PlanError("lists and quotes are nested too deeply to be read", line=line + 1) from None
    deep = next((t for t in tokens if t.level >= MAX_NESTING - 1 and t.type in _CONTAINERS), None)
    if deep is not None:
        at = line + 1 + (deep.map[0] if deep.map else 0)
        allowed = f"at most {MAX_NESTING // 2 - 1} lists in one another are read"
        raise PlanError(f"lists and quotes are nested too deeply; {allowed}", line=at)
    return tokens


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING})
    blocks = _BoundedBlocks()
    blocks.ruler.enableOnly(parser.block.ruler.get_active_rules())
    parser.block = blocks
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
