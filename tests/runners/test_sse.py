"""Server-sent events from bytes in arbitrary pieces."""

from hypothesis import given
from hypothesis import strategies as st

from relay.base.sse import ServerEvent, parse_events


def test_yields_named_events_with_joined_data_lines():
    """Two data lines are one datum with a newline in it; comments and unknown fields are ignored."""
    raw = b": hello\nevent: a\ndata: 1\ndata: 2\nid: 7\n\ndata:x\n\n"

    assert [ServerEvent(name="a", data="1\n2"), ServerEvent(name="message", data="x")] == list(parse_events([raw]))


def test_drops_an_unfinished_last_event():
    """An event that no blank line ends was cut off."""
    assert list(parse_events([b"event: a\ndata: 1\n"])) == []


def test_unicode_line_separators_are_data():
    """JSON may carry U+2028 unescaped; only CR and LF end a line."""
    assert [event.data for event in parse_events(["data: a\u2028b\x0bc\n\n".encode()])] == ["a\u2028b\x0bc"]


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_any_chunking_gives_the_same_events(texts, end, sizes):
    """How the network cuts the bytes never shows."""
    raw = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    chunks, at, n = [], 0, 0
    while at < len(raw):
        chunks.append(raw[at : at + sizes[n % len(sizes)]])
        at, n = at + sizes[n % len(sizes)], n + 1

    assert texts == [event.data for event in parse_events(chunks)]
