"""Numbers, lengths and moments in words, for the command line, `why` and the doctor. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

LAST = 253_402_300_799_000
"""The end of the year 9999, the last that `datetime` knows."""
LONGEST = 200
"""Characters of a user's text (an error, a note) that a line quotes."""

# From so many seconds on: the unit, and its name for one and for many.
_STEPS = (
    (90 * 86_400.0, 30 * 86_400.0, "month", "months"),
    (36 * 3600.0, 86_400.0, "day", "days"),
    (90 * 60.0, 3600.0, "hour", "hours"),
    (90.0, 60.0, "min", "min"),
)


def length(seconds: float) -> str:
    """A length of time in a word.

    >>> [length(n) for n in (0.004, 0.34, 7.46, 40, 91, 150, 5300, 7300, 200_000)]
    ['0 s', '0.3 s', '7.5 s', '40 s', '2 min', '2 min', '88 min', '2 hours', '2 days']
    """
    for start, unit, one, more in _STEPS:
        if seconds >= start:
            count = round(seconds / unit)
            return f"{count:,} {one if count == 1 else more}"
    text = f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
    return f"{text.removesuffix('.0')} s"


def clock(at: int, now: int) -> str:
    """A moment by the clock, and by the calendar where that is not today's.

    >>> clock(1_700_000_000_000, 1_700_000_400_000), clock(1_700_000_000_000, 1_800_000_000_000)
    ('22:13:20 UTC', '2023-11-14 22:13:20 UTC')
    """
    moment = datetime.fromtimestamp(min(max(at, 0), LAST) // 1000, UTC)
    same_day = moment.date() == datetime.fromtimestamp(min(now, LAST) // 1000, UTC).date()
    return f"{moment:%H:%M:%S} UTC" if same_day else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def moment(at: int, now: int) -> str:
    """A moment, and how far it is from now.

    >>> moment(1_700_000_000_000, 1_699_999_400_000), moment(1_700_000_000_000, 1_700_000_007_000)
    ('22:13:20 UTC, in 10 min', '22:13:20 UTC, 7 s ago')
    """
    away = (at - now) / 1000
    if abs(away) < 0.05:
        return f"{clock(at, now)}, now"
    return f"{clock(at, now)}, in {length(away)}" if away > 0 else f"{clock(at, now)}, {length(-away)} ago"


def many(count: int, one: str, more: str | None = None) -> str:
    """
    >>> many(1, "job"), many(1200, "job"), many(2, "is", "are")
    ('1 job', '1,200 jobs', '2 are')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def amount(tokens: float) -> str:
    """
    >>> amount(5.0), amount(2.25)
    ('5', '2.2')
    """
    return f"{tokens:,.1f}".removesuffix(".0")


def quoted(text: str) -> str:
    """A user's text in one short line.

    >>> quoted("a\\nb   c")
    'a b c'
    """
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def listed(items: list[str], most: int = 4) -> str:
    """
    >>> listed(["a", "b"]), listed(list("abcdef"))
    ('a, b', 'a, b, c, d and 2 more')
    """
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most:,} more"
