"""Numbers, lengths and moments in words, for the command line, `why` and the doctor. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

LAST = 253_402_300_799_000
"""The end of the year 9999, the last that `datetime` knows."""
LONGEST = 200
"""Characters of a user's text (an error, a note) that a line quotes."""

_UNITS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_SMALL = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


def length(seconds: float) -> str:
    """A length of time in at most two units. The rest is dropped, as in `rough`: the two never disagree.

    >>> [length(n) for n in (0, 0.0042, 0.25, 9.84, 40.7, 75, 179.9, 3600, 5300, 90_000)]
    ['0 s', '4.2 ms', '250 ms', '9.8 s', '40 s', '1 min 15 s', '2 min 59 s', '1 h', '1 h 28 min', '1 d 1 h']
    """
    if seconds <= 0:
        return "0 s"
    for below, scale, unit in _SMALL:
        if seconds < below:
            scaled = seconds * scale
            return f"{scaled:.1f}".removesuffix(".0") + f" {unit}" if scaled < 10 else f"{scaled:.0f} {unit}"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = int(seconds)
    for size, unit, next_size, next_unit in _UNITS:
        if whole >= size:
            big, rest = divmod(whole, size)
            small = rest // next_size
            return f"{big} {unit} {small} {next_unit}" if small else f"{big} {unit}"
    return f"{whole} s"


def rough(seconds: float) -> str:
    """A length in one unit, rounded down: it changes seldom. `accoda.js` rounds in the same way.

    >>> [rough(s) for s in (4.9, 61, 179.9, 7300, 200_000)]
    ['4 s', '1 min', '2 min', '2 h', '2 d']
    """
    for size, unit, _, _ in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def ago(at: int, now: int) -> str:
    """How far a moment is from now; both in milliseconds.

    >>> [ago(at, 100_000_000) for at in (99_999_800, 99_995_000, 99_000_000, 100_090_000, 1)]
    ['now', '5 s ago', '16 min ago', 'in 1 min', '1 d ago']
    """
    seconds = (now - at) / 1000
    if abs(seconds) < 1:
        return "now"
    return f"{rough(seconds)} ago" if seconds > 0 else f"in {rough(-seconds)}"


def clock(at: int, now: int) -> str:
    """A moment by the clock, and by the calendar where that is not today's.

    >>> clock(1_700_000_000_000, 1_700_000_400_000), clock(1_700_000_000_000, 1_800_000_000_000)
    ('22:13:20 UTC', '2023-11-14 22:13:20 UTC')
    """
    day, time = stamp(at).split(" ", 1)
    return time if stamp(now).startswith(day) else f"{day} {time}"


def stamp(at: int) -> str:
    """A moment by the calendar.

    >>> stamp(1_700_000_000_000)
    '2023-11-14 22:13:20 UTC'
    """
    return f"{datetime.fromtimestamp(min(max(at, 0), LAST) // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(at: int, now: int) -> str:
    """A moment, and how far it is from now.

    >>> moment(1_700_000_000_000, 1_699_999_400_000), moment(1_700_000_000_000, 1_700_000_007_000)
    ('22:13:20 UTC, in 10 min', '22:13:20 UTC, 7 s ago')
    """
    return f"{clock(at, now)}, {ago(at, now)}"


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


def state_word(state: str) -> str:
    """A job's state in the words for people: `taken` is what programs call it.

    >>> state_word("taken"), state_word("ready")
    ('running', 'ready')
    """
    return "running" if state == "taken" else state
