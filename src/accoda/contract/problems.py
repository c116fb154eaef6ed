"""What is wrong with a contract, and where."""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Struct


class Place(Struct, frozen=True, order=True):
    """A place in the file, counted from 1."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    """One mistake: `file:line:column: what is wrong; what to write instead`."""

    file: str
    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.place.line}:{self.place.column}: {self.text}"


class Problems:
    """Collects the mistakes of one file, so that all of them are told at once."""

    MOST = 100
    """A file that is wrong everywhere is told about so often at most."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.found: list[Problem] = []

    def add(self, place: Place, text: str) -> None:
        if len(self.found) < self.MOST:
            self.found.append(Problem(self._file, place, text))

    def sorted(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.found, key=lambda problem: problem.place))


def shown(text: object) -> str:
    """A value from outside, short enough to be read and without characters that would disturb a terminal.

    >>> shown("a" * 100), shown("a\\nb")
    ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'", "'a\\\\nb'")
    """
    word = str(text)
    word = ascii(word if len(word) <= 40 else word[:37] + "…")
    return word.replace("\\u2026", "…")


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """What to write instead of an unknown word.

    >>> nearest("feilds", ["id", "name", "fields"])
    "did you mean 'fields'?"
    """
    close = get_close_matches(word[:60], known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"write one of {', '.join(known)}"
