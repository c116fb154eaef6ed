"""The moments of a cron expression in a time zone. Pure; `cronsim` reads the expression and walks the calendar.

cronsim only sees the naive calendar, forwards and backwards. What happens when clocks change is decided here, by the
rule of Debian's cron, for five fields as for six:

- An expression for fixed times (neither minute nor hour begins with `*`) fires each of its times once a day. A time
  that the clocks skip fires when the jump ends; of a time that they show twice, the first counts.
- Any other expression follows the clocks: nothing in an hour that does not exist, and both passes of one that comes
  twice.

Moments are whole seconds since the epoch; a "wall" is what the clocks show, counted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from accoda.errors import InvalidInput

if TYPE_CHECKING:
    from types import ModuleType

LENGTH = 200
"""Characters of an expression."""
WEEK = 7 * 86_400
"""Seconds. No zone changes its clocks and changes them back within a week."""
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FORM = (
    'write five fields (minute hour day month weekday), such as "0 7 * * MON-FRI", or six with the seconds first, or '
    + ", ".join(name for name in NICKNAMES if name not in ("@midnight", "@annually"))
)

_EPOCH = datetime(1970, 1, 1)


class Cron:
    """An expression in a zone. `after` and `last` are exact inverses over one set of moments."""

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self.text = NICKNAMES.get(expression.strip().lower(), expression)
        fields = self.text.split()
        minute, hour = fields[-5:-3] if len(fields) in (5, 6) else ("", "")
        self._fixed = not minute.startswith("*") and not hour.startswith("*")
        self._sim = cronsim().CronSim
        self._zone = zone_of(zone)
        self._sim(self.text, _EPOCH)  # raises if it is invalid

    def after(self, moment: int) -> int | None:
        """The first tick later than a moment; None if there is none for fifty years."""
        return self._fixed_after(moment) if self._fixed else self._shown_after(moment)

    def last(self, moment: int) -> int | None:
        """The last tick at or before a moment."""
        return self._fixed_last(moment) if self._fixed else self._shown_last(moment)

    # -- fixed times: each wall has one moment, and later walls have no earlier moments

    def _fixed_after(self, moment: int) -> int | None:
        found = (self._moment(wall) for wall in self._walls(moment + self._offset(moment)))
        return next((tick for tick in found if tick > moment), None)

    def _fixed_last(self, moment: int) -> int | None:
        # In the second pass of an hour, walls that will be shown again had their moment in the first pass.
        shown = datetime.fromtimestamp(moment, self._zone).replace(fold=0)
        walls = self._walls(moment + _seconds(shown.utcoffset()) + 1, back=True)
        return next((tick for tick in map(self._moment, walls) if tick <= moment), None)

    def _moment(self, wall: int) -> int:
        shown = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        before, behind = _seconds(shown.utcoffset()), _seconds(shown.replace(fold=1).utcoffset())
        if behind > before:  # the clocks skip it
            return self._first_change(wall - behind, wall - before) or wall - before
        return wall - before

    # -- what the clocks show: between two changes of the clocks, a moment is a wall less the offset

    def _shown_after(self, moment: int) -> int | None:
        offset = self._offset(moment)
        shown = moment + offset
        wall = next(self._walls(shown), None)
        while wall is not None:
            change = self._first_change(moment, wall - offset)
            if change is None:
                return wall - offset
            moment, offset = change, self._offset(change)
            before, shown = shown, change + offset - 1  # less one: a tick at the very change counts
            if not before <= shown < wall:  # else the next wall is still the same
                wall = next(self._walls(shown), None)
        return None

    def _shown_last(self, moment: int) -> int | None:
        offset = self._offset(moment)
        wall = next(self._walls(moment + offset + 1, back=True), None)
        while wall is not None:
            change = self._last_change(wall - offset, moment)
            if change is None:
                return wall - offset
            before = moment + offset
            moment, offset = change - 1, self._offset(change - 1)
            if not wall <= moment + offset <= before:
                wall = next(self._walls(moment + offset + 1, back=True), None)
        return None

    # -- the calendar and the zone

    def _walls(self, wall: int, back: bool = False) -> Iterator[int]:
        """The walls of the expression after a wall, or before it."""
        try:
            for shown in self._sim(self.text, _EPOCH + timedelta(seconds=wall), reverse=back):
                yield round((shown - _EPOCH).total_seconds())
        except OverflowError:  # Python's calendar ends with the year 9999
            return

    def _offset(self, moment: int) -> int:
        return _seconds(datetime.fromtimestamp(moment, self._zone).utcoffset())

    def _first_change(self, start: int, end: int) -> int | None:
        """The first moment after `start`, up to `end`, at which the offset differs from that of `start`."""
        if self._zone is _UTC:
            return None
        offset = self._offset(start)
        while start < end:
            ahead = min(start + WEEK, end)
            if self._offset(ahead) != offset:
                return self._change_between(start, ahead)
            start = ahead
        return None

    def _last_change(self, start: int, end: int) -> int | None:
        """The last moment after `start`, up to `end`, at which the offset became that of `end`."""
        if self._zone is _UTC:
            return None
        offset = self._offset(end)
        while start < end:
            back = max(end - WEEK, start)
            if self._offset(back) != offset:
                return self._change_between(back, end)
            end = back
        return None

    def _change_between(self, low: int, high: int) -> int:
        """The moment of the only change after `low`, up to `high`."""
        offset = self._offset(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._offset(middle) == offset else (middle, high)
        return high


@lru_cache(maxsize=256)
def read_cron(expression: str, zone: str) -> Cron:
    """A checked expression; one that is invalid or never fires is refused."""
    if type(expression) is not str or not 0 < len(expression) <= LENGTH:
        raise InvalidInput("cron", f"must be 1 to {LENGTH} characters of text; {FORM}")
    zone_of(zone)
    sim = cronsim()
    try:
        cron = Cron(expression, zone)
        never = cron.after(round(datetime.now(UTC).timestamp())) is None
    except sim.CronSimError as error:
        if _fits_another_month(expression):
            raise InvalidInput("cron", f"{expression!r:.60} {_NEVER}") from error
        raise InvalidInput("cron", f"{expression!r:.60}: {str(error).lower()}; {FORM}") from error
    except (AssertionError, ValueError, ArithmeticError, LookupError, TypeError) as error:  # also from cronsim
        raise InvalidInput("cron", f"{expression!r:.60} cannot be read; {FORM}") from error
    if never:
        raise InvalidInput("cron", f"{expression!r:.60} {_NEVER}")
    return cron


def _fits_another_month(expression: str) -> bool:
    """Whether an expression that cronsim refuses is valid except for days that its months do not have."""
    fields = expression.split()
    try:
        Cron(" ".join((*fields[:-2], "*", *fields[-1:])))
    except Exception:  # anything else that is wrong with it
        return False
    return len(fields) in (5, 6)


def zone_of(name: object) -> Any:
    """A time zone by its name in the IANA database."""
    if name == "UTC":
        return _UTC
    try:
        if type(name) is not str or len(name) > 64:
            raise ValueError("not a zone's name")
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):  # unknown, a path, a folder
        raise InvalidInput(
            "tz",
            f'must be a zone such as "Europe/Rome" or "UTC", not {name!r:.60} (a system without zones needs tzdata)',
        ) from None


def cronsim() -> ModuleType:
    """The library, imported with the first expression: most processes have none."""
    import cronsim as library

    return library


def _seconds(offset: timedelta | None) -> int:
    return 0 if offset is None else round(offset.total_seconds())


_UTC = UTC
_NEVER = "never fires: none of its months has such a day; choose another day or month"
