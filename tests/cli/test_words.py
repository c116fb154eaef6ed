"""Moments and lengths, as people say and type them."""

import doctest

import pytest

from accoda import InvalidInput
from accoda.cli import codes, common, draw, groups, jobs, words


@pytest.mark.parametrize("module", [codes, common, draw, groups, jobs, words])
def test_the_examples_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "in 1 s"),
        (59.9, "in 59 s"),
        (60, "in 1 min"),
        (3599, "in 59 min"),
        (3600, "in 1 h"),
        (47 * 3600, "in 1 d"),
        (400 * 86_400, "in 400 d"),
    ],
)
def test_a_moment_seen_from_now(seconds: float, said: str) -> None:
    assert words.ago(round(seconds * 1000), 0) == said


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1.5h", 5400), ("2d", 172_800), ("250ms", 0.25), ("1w", 604_800), (" 5 min ", 300)]
)
def test_a_length_is_read(text: str, seconds: float) -> None:
    assert words.read_length("delay", text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 x", "1e9", "5m!", "٣", "inf"])
def test_what_is_no_length_is_said_to_be_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="delay: must be a length of time such as 90, 5m, 1h30m or 2d"):
        words.read_length("delay", text)


@pytest.mark.parametrize("text", ["", "tomorrow", "2030-13-01", "99999-01-01"])
def test_what_is_no_moment_is_said_to_be_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="at: must be a moment such as 2030-01-31T09:00:00Z"):
        words.read_moment("at", text)
