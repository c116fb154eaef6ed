"""A schedule in plain words, and its next runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from accoda.schedules.cron import NICKNAMES, cronsim
from accoda.schedules.lengths import length_in_words
from accoda.schedules.model import Schedule
from accoda.schedules.ticks import following

_STEP = re.compile(r"\*/([1-9][0-9]?)")
_SIZES = (("second", 60), ("minute", 60), ("hour", 24))


def in_words(schedule: Schedule) -> str:
    """What it says.

    >>> in_words(Schedule(name="a", queue="a", every="5m"))
    'every 5 minutes'
    >>> in_words(Schedule(name="a", queue="a", cron="0 7 * * MON-FRI", tz="Europe/Rome"))
    'at 07:00, Monday to Friday, Europe/Rome'
    """
    if schedule.every is not None:
        return f"every {length_in_words(float(schedule.every))}"
    return f"{cron_in_words(schedule.cron or '')}, {schedule.tz}"


def cron_in_words(expression: str) -> str:
    """A cron expression that can be read, in words.

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
    except Exception:  # it is for people to read: an expression that runs is never refused for its words
        return f"cron {expression}"
    text = text[0].lower() + text[1:].replace(" through ", " to ")
    text = _NTH.sub(lambda match: f"every {_ORDINALS.get(match[1]) or match[1][:-2]} {match[2]}s", text)
    text = re.sub(r"^(at [0-9:, and]+) every day$", r"every day \1", text)
    return re.sub(rf" on ((?:{_DAYS})[a-zA-Z, ]*)$", r", \1", text)


def upcoming(schedule: Schedule, count: int, now: int) -> list[int]:
    """Its next ticks after a moment (milliseconds); of an interval without `starts_at`, counted from that moment."""
    return list(following(schedule.ticks(now), now, count))


def _steps(fields: Sequence[str]) -> str | None:
    """Every so many of one unit, if that is all it says: the step must divide the next unit, or it is uneven."""
    for place, (unit, size) in enumerate(_SIZES):
        before, this, behind = fields[:place], fields[place], fields[place + 1 :]
        if all(field == "0" for field in before) and all(field == "*" for field in behind):
            if this == "*":
                return f"every {unit}"
            match = _STEP.fullmatch(this)
            if match and size % int(match[1]) == 0:
                return f"every {match[1]} {unit}s" if match[1] != "1" else f"every {unit}"
    return None


_ORDINALS = {
    word: number
    for number, word in enumerate(
        ["second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"], 2
    )
}
_NTH = re.compile(rf"every ({'|'.join(_ORDINALS)}|[0-9]+(?:st|nd|rd|th)) (minute|second)\b")
_ANY = datetime(2000, 1, 1)
_DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
