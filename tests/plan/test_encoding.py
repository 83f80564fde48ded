"""A plan's bytes are what they were, whatever they are."""

from hypothesis import example, given
from hypothesis import strategies as st

from relay.plan.encoding import decode_text, encode_text


@given(st.binary())
@example(b"\xef\xbb\xbf# P\r\n- [ ] a\r\xff\xed\xa0\x80")
def test_any_bytes_are_read_and_written_back(data):
    assert encode_text(decode_text(data)) == data
