"""What is wrong with a contract, and where."""

from __future__ import annotations

from msgspec import Struct

from accoda.settings.yaml_tree import MappingNode, Node, Position, Scalar


class Problem(Struct, frozen=True):
    """One mistake: `file:line:column: what is wrong; what to write instead`."""

    file: str
    position: Position
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.position.line}:{self.position.column}: {self.text}"


class Problems:
    """Collects the mistakes of one file, so that all of them are reported at once."""

    MOST = 100
    """The most mistakes that are reported."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.found: list[Problem] = []

    def add(self, position: Position, text: str) -> None:
        if len(self.found) < self.MOST:
            self.found.append(Problem(self._file, position, text))

    def sorted(self) -> tuple[Problem, ...]:
        return tuple(sorted(self.found, key=lambda problem: problem.position))


def shown(text: object) -> str:
    """A value from outside, short, and without characters that would disturb a terminal.

    >>> shown("a" * 100), shown("a\\nb")
    ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'", "'a\\\\nb'")
    """
    word = str(text)
    word = ascii(word if len(word) <= 40 else word[:37] + "…")
    return word.replace("\\u2026", "…")


def described(node: Node) -> str:
    """What is written at a place, for an error."""
    if isinstance(node, Scalar):
        return "nothing" if node.value is None and not node.text else shown(node.text)
    return "a mapping" if isinstance(node, MappingNode) else "a list"
