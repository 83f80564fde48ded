"""A plan's bytes are what they were, whatever they are."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.base.errors import PlanError
from relay.plan.text import MAX_PLAN_BYTES, decode_text, encode_text, require_utf8


@given(st.binary())
@example(b"\xef\xbb\xbf# P\r\n- [ ] a\r\xff\xed\xa0\x80")
def test_any_bytes_are_read_and_written_back(data):
    assert encode_text(decode_text(data)) == data


@pytest.mark.parametrize(
    ("data", "line", "hint"),
    [
        (b"\xff", 1, ""),
        (b"# P\r\n- [ ] a\nb\x80c\n", 3, ""),
        (b"\n" * (MAX_PLAN_BYTES + 1), 0, ""),
        ("\ufeff# Plan\n".encode("utf-16-le"), 1, "save it as UTF-8"),
        ("\ufeff# Plan\n".encode("utf-16-be"), 1, "save it as UTF-8"),
    ],
)
def test_a_plan_that_is_no_text_or_too_large_is_refused_by_line(data, line, hint):
    with pytest.raises(PlanError) as caught:
        require_utf8(data)
    assert (caught.value.line, hint in str(caught.value.hint)) == (line, True)
    assert require_utf8(b"\n" * MAX_PLAN_BYTES) == "\n" * MAX_PLAN_BYTES
