"""Numbers in the words of pages. Pure. Lengths and moments are in those of `accoda.operations.words`."""

from __future__ import annotations

from datetime import UTC, datetime

from accoda.operations.words import length, listed


def count(n: float) -> str:
    """A number of things: exact up to 99,999, then short.

    >>> [count(n) for n in (0, 1234, 99_999, 123_456, 4_200_000, 7_100_000_000)]
    ['0', '1,234', '99,999', '123k', '4.2M', '7.1G']
    """
    if abs(n) < 100_000:
        return f"{n:,.0f}"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if abs(n) >= size:
            return f"{n / size:.1f}".removesuffix(".0") + unit
    return f"{n / 1000:.0f}k"


def duration(seconds: float | None) -> str:
    """A length of time, if there is one.

    >>> duration(75), duration(None)
    ('1 min 15 s', '–')
    """
    return "–" if seconds is None else length(seconds)


def sentence(text: str) -> str:
    """A message of ours as a sentence of its own.

    >>> sentence("there is no queue 'emails'")
    "There is no queue 'emails'"
    """
    return text[:1].upper() + text[1:]


def types_text(types: list[str | None], most: int = 8) -> str:
    """Types of jobs in a row.

    >>> types_text(["mail", None]), types_text([f"t{n}" for n in range(10)], 2)
    ('mail and others', 't0, t1 and 8 more')
    """
    named = [type for type in types if type is not None]
    if not named:
        return "any type"
    return listed(named, most) + (" and others" if None in types else "")


def rate(each_second: float | None) -> str:
    """Jobs a second, or a minute or hour if that would be a small fraction.

    >>> [rate(x) for x in (0, 120, 4.25, 0.25, 0.001, None)]
    ['0/s', '120/s', '4.2/s', '15/min', '3.6/h', '–']
    """
    if each_second is None:
        return "–"
    if each_second <= 0:
        return "0/s"
    for scale, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if each_second * scale >= 1 or unit == "h":
            scaled = each_second * scale
            text = f"{scaled:.1f}".removesuffix(".0") if scaled < 100 else count(scaled)
            return f"{text}/{unit}"
    return "0/s"


def share(fraction: float | None) -> str:
    """A share of a whole.

    >>> [share(x) for x in (0, 0.004, 0.5, 1, None)]
    ['0 %', '0.4 %', '50 %', '100 %', '–']
    """
    if fraction is None:
        return "–"
    percent = fraction * 100
    return f"{percent:.1f} %" if 0 < percent < 10 and percent != round(percent) else f"{percent:.0f} %"


def iso(moment: int) -> str:
    """A moment for machines, to the second: what is shown changes no more often.

    >>> iso(1893456000999)
    '2030-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(moment // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
