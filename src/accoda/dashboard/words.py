"""Numbers, lengths and moments in words. Pure; `accoda.js` shows moments in the same words."""

from __future__ import annotations

from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3600, 86400
_UNITS = ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s"))
_SMALL = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


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
    """A length of time in at most two units.

    >>> [duration(s) for s in (0, 0.0042, 0.25, 9.84, 75, 3600, 90_000, 1_000_000, None)]
    ['0 s', '4.2 ms', '250 ms', '9.8 s', '1 min 15 s', '1 h', '1 d 1 h', '11 d 13 h', '–']
    """
    if seconds is None:
        return "–"
    if seconds <= 0:
        return "0 s"
    for below, scale, unit in _SMALL:
        if seconds < below:
            scaled = seconds * scale
            return f"{scaled:.1f}".removesuffix(".0") + f" {unit}" if scaled < 10 else f"{scaled:.0f} {unit}"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for size, unit, next_size, next_unit in _UNITS:
        if whole >= size:
            big, rest = divmod(whole, size)
            small = rest // next_size
            return f"{big} {unit} {small} {next_unit}" if small else f"{big} {unit}"
    return f"{whole} s"


def sentence(text: str) -> str:
    """A message of ours as a sentence of its own.

    >>> sentence("there is no queue 'emails'")
    "There is no queue 'emails'"
    """
    return text[:1].upper() + text[1:]


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


def ago(then: int, now: int) -> str:
    """How far a moment (milliseconds) is from another.

    >>> [ago(then, 100_000_000) for then in (99_999_800, 99_995_000, 99_000_000, 100_090_000, 1)]
    ['now', '5 s ago', '16 min ago', 'in 1 min', '1 d ago']
    """
    seconds = (now - then) / 1000
    if abs(seconds) < 1:
        return "now"
    length = rough(abs(seconds))
    return f"{length} ago" if seconds > 0 else f"in {length}"


def rough(seconds: float) -> str:
    """A length in one unit, rounded down: it changes seldom.

    >>> [rough(s) for s in (4.9, 61, 7300, 200_000)]
    ['4 s', '1 min', '2 h', '2 d']
    """
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"


def exact(moment: int) -> str:
    """A moment in full, in UTC.

    >>> exact(1893456000000)
    '2030-01-01 00:00:00 UTC'
    """
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(moment: int) -> str:
    """A moment for machines, to the second: what is shown changes no more often.

    >>> iso(1893456000999)
    '2030-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(moment // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
