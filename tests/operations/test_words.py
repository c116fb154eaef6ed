"""Lengths and moments in words: one way to round."""

import pytest

from accoda.operations import words


@pytest.mark.parametrize("seconds", [0, 0.4, 1, 59.9, 60, 119.9, 150, 179.9, 3599, 3600, 5399, 86_399, 86_400, 9e6])
def test_short_and_long_forms_are_rounded_in_the_same_way(seconds: float) -> None:
    now = 2_000_000_000_000
    at = now - round(seconds * 1000)
    assert words.moment(at, now).endswith(words.ago(at, now))
    if seconds >= 10:  # the longer form begins with the shorter one
        assert words.length(seconds).startswith(words.rough(seconds))
