"""Lengths of time as people write them, a schedule in plain words, and its next ticks. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from accoda.errors import InvalidInput
from accoda.schedules.cron import NICKNAMES, cronsim
from accoda.times import read_length

Length = float | str | timedelta

LONGEST = 100 * 366 * 86_400.0
"""Seconds: a hundred years."""

_STEP = re.compile(r"\*/([1-9][0-9]?)")
_SIZES = (("second", 60), ("minute", 60), ("hour", 24))
_WORDS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def seconds_of(field: str, given: object) -> float:
    """Seconds, exact to the millisecond.

    >>> seconds_of("every", "1h30m"), seconds_of("every", timedelta(minutes=5)), seconds_of("every", 90)
    (5400.0, 300.0, 90.0)
    """
    found: float | None = None
    if isinstance(given, timedelta):
        found = given.total_seconds()
    elif isinstance(given, str):
        found = read_length(given)
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        found = given
    if found is None or not 0 <= found <= LONGEST:
        raise InvalidInput(
            field, f'must be seconds, or a length such as "90s", "5m", "1h30m" or "1d", not {given!r:.60}'
        )
    return round(found * 1000) / 1000


def length_in_words(seconds: float) -> str:
    """A length for people, exact.

    >>> [length_in_words(n) for n in (300, 5400, 86_400, 0.2, 1)]
    ['5 minutes', '1 hour 30 minutes', 'day', '0.2 seconds', 'second']
    """
    left = round(seconds * 1000)
    parts: list[str] = []
    for word, unit in _WORDS:
        count, rest = divmod(left, unit)
        if word == "second" and rest:
            parts.append(f"{left / 1000:g} seconds")
        elif count:
            parts.append(f"{count} {word}{'s' if count > 1 else ''}")
        left = rest
    return parts[0][2:] if len(parts) == 1 and parts[0].startswith("1 ") else " ".join(parts)


def cron_in_words(expression: str) -> str:
    """A valid cron expression in words.

    >>> cron_in_words("*/15 * * * *"), cron_in_words("30 2 1 * *"), cron_in_words("0 7 * * *")
    ('every 15 minutes', 'at 02:30 on the first day of every month', 'every day at 07:00')
    """
    expression = NICKNAMES.get(expression.strip().lower(), expression)
    fields = expression.split()
    plain = _steps(fields if len(fields) == 6 else ["0", *fields])
    if plain is not None:
        return plain
    try:
        text: str = cronsim().CronSim(expression, _ANY).explain()
    except Exception:  # the words are only for people: an expression that works must not fail because of them
        return f"cron {expression}"
    text = text[0].lower() + text[1:].replace(" through ", " to ")
    text = re.sub(r"^(at [0-9:, and]+) every day$", r"every day \1", text)
    return re.sub(rf" on ((?:{_DAYS})[a-zA-Z, ]*)$", r", \1", text)


def _steps(fields: Sequence[str]) -> str | None:
    """Every so many of one unit, if that is all it says. A step that does not divide the next unit is uneven."""
    for place, (unit, size) in enumerate(_SIZES):
        before, this, behind = fields[:place], fields[place], fields[place + 1 :]
        if all(field == "0" for field in before) and all(field == "*" for field in behind):
            if this == "*":
                return f"every {unit}"
            match = _STEP.fullmatch(this)
            if match and size % int(match[1]) == 0:
                return f"every {match[1]} {unit}s" if match[1] != "1" else f"every {unit}"
    return None


_ANY = datetime(2000, 1, 1)
_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
