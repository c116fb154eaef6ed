"""Moments as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda import InvalidInput
from accoda.operations.moments import read, rfc3339


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_shown_can_be_read(moment: int) -> None:
    text = rfc3339(moment)
    assert text is not None and read("at", text) == moment


def test_the_end_of_time_is_the_end_of_the_calendar() -> None:
    assert rfc3339(2**53) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("text", ["", "tomorrow", "2030-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2030-01-01"])
def test_what_is_no_moment_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="must be a moment"):
        read("scheduledAt", text)


def test_a_time_without_an_offset_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="needs an offset from UTC"):
        read("scheduledAt", "2030-01-01T09:00:00")
