"""Lengths of time as people write them: seconds, a timedelta, or a text such as "1h30m". Pure."""

from __future__ import annotations

import re
from datetime import timedelta

from accoda.errors import InvalidInput

Length = float | str | timedelta

LONGEST = 100 * 366 * 86_400.0
"""Seconds: nobody means more than a hundred years."""

_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TEXT = re.compile(r"\s*".join(rf"(?:([0-9]{{1,12}}(?:\.[0-9]{{1,6}})?){unit})?" for unit in _UNITS))
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
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
        found = _read(given.strip())
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        found = given
    if found is None or not 0 <= found <= LONGEST:
        raise InvalidInput(
            field, f'must be seconds, or a length such as "90s", "5m", "1h30m" or "1d", not {given!r:.60}'
        )
    return round(found * 1000) / 1000


def _read(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        return None
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return sum(float(number) * unit for number, unit in parts if number) / 1000


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
