"""Line up the parts of two texts, where some parts of the first may have become anything."""

from collections.abc import Iterator, Sequence

from relay.base.values import dataclass

Key = tuple[str, ...]
"""What a part is recognised by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Parts that were free, and what stands there now."""

    before: range
    after: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Which part became which; indexes into the two sequences."""

    pairs: tuple[tuple[int, int], ...] = ()
    runs: tuple[Run, ...] = ()
    broken: tuple[int, int] | None = None
    """Where the two first differ when they cannot be lined up."""


def align(old: Sequence[Key], new: Sequence[Key], *, free: Sequence[bool]) -> Alignment:
    """Match every part that is not free with an equal one, in order and without gaps of its own.

    Like a file name pattern: the fixed parts are the letters, each run of free parts is a ``*``. Taking the leftmost
    match of each is enough to find one if there is any.
    """
    pairs: list[tuple[int, int]] = []
    runs: list[Run] = []
    at_old = at_new = 0
    for block in _find_fixed(free):
        found = _find_block(old, new, block, at_new, is_wild=block.start > at_old)
        if found is None:
            reaches_end = block.start > at_old and block.stop == len(old)
            likely = max(at_new, len(new) - len(block)) if reaches_end else at_new
            return Alignment(broken=_find_break(old, new, block, likely))
        if block.start > at_old:
            runs.append(Run(before=range(at_old, block.start), after=range(at_new, found)))
        pairs += zip(block, range(found, found + len(block)), strict=True)
        at_old, at_new = block.stop, found + len(block)
    if at_old < len(old):
        runs.append(Run(before=range(at_old, len(old)), after=range(at_new, len(new))))
    elif at_new < len(new):
        return Alignment(broken=(at_old, at_new))
    return Alignment(pairs=tuple(pairs), runs=tuple(runs))


def _find_fixed(free: Sequence[bool]) -> Iterator[range]:
    start = None
    for at, is_free in enumerate((*free, True)):
        if is_free and start is not None:
            yield range(start, at)
            start = None
        elif not is_free and start is None:
            start = at


def _find_block(old: Sequence[Key], new: Sequence[Key], block: range, at: int, *, is_wild: bool) -> int | None:
    wanted = list(old[block.start : block.stop])
    last = len(new) - len(block)
    if not is_wild:
        places = range(at, at + 1)
    elif block.stop == len(old):
        places = range(max(at, last), last + 1)
    else:
        places = range(at, last + 1)
    return next((place for place in places if list(new[place : place + len(block)]) == wanted), None)


def _find_break(old: Sequence[Key], new: Sequence[Key], block: range, at: int) -> tuple[int, int]:
    """Return where a block that was not found at `at` first differs from what stands there."""
    pairs = zip(block, range(at, at + len(block)), strict=True)
    return next((index, place) for index, place in pairs if place >= len(new) or new[place] != old[index])
