"""What was found, in a form that is kept as JSON: a section for each storage, an entry for each peer in a setting."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

NAMES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite", "tarantool": "Tarantool", "memory": "Memory"}


@dataclass(frozen=True)
class Measured:
    """One measure of one entry: its values by round, None where a round has none. `none`: there is no such thing."""

    rounds: Sequence[dict[str, Any] | None] = ()
    none: bool = False
    failed: str = ""

    def values(self, what: str) -> list[float | None]:
        """One number of each round."""
        return [None if each is None else each.get(what) for each in self.rounds]

    def known(self, what: str) -> list[float]:
        return [value for value in self.values(what) if value is not None]

    def late(self) -> list[float]:
        """Seconds, of all rounds together."""
        return sorted(value for each in self.rounds if each is not None for value in each.get("late", ()))

    @property
    def absent(self) -> str:
        """What stands where there is no number."""
        return f"failed: {self.failed}" if self.failed else "none" if self.none else "not measured"


NOTHING = Measured()


@dataclass(frozen=True)
class Entry:
    """A peer in a setting."""

    name: str
    title: str
    version: str
    setting: str
    ours: bool = False
    ceiling: bool = False
    python: bool = True
    durable: bool = True
    safe: bool = True
    loses: str = ""
    measures: dict[str, Measured] = field(default_factory=dict)

    def label(self, parts: int = 1) -> str:
        """The title and the first parts of the setting, which begins with what tells it from others."""
        return self.title if self.ceiling else ", ".join([self.title, *self.setting.split(", ")[:parts]])

    @property
    def is_peer(self) -> bool:
        return not self.ours and not self.ceiling

    def has(self, *measures: str) -> bool:
        """Whether one of these was measured of it, with whatever result."""
        return any(measure in self.measures for measure in measures)

    def of(self, measure: str) -> Measured:
        return self.measures.get(measure, NOTHING)

    def rate(self, measure: str) -> float | None:
        return self.middle(measure, "rate")

    def middle(self, measure: str, what: str) -> float | None:
        known = self.of(measure).known(what)
        return median(known) if known else None

    def late(self, measure: str, share: float) -> float | None:
        """A percentile of the lateness, in seconds."""
        known = self.of(measure).late()
        return percentile(known, share) if known else None


@dataclass(frozen=True)
class Section:
    """All that was measured on one storage, in one run."""

    storage: str
    about: str
    machine: str
    date: str
    entries: Sequence[Entry]

    @property
    def title(self) -> str:
        return NAMES[self.storage]

    def label(self, entry: Entry) -> str:
        """As short as it can be and still the only one of its kind here."""
        others = [other for other in self.entries if other is not entry]
        most = entry.setting.count(", ") + 1
        return next(
            (
                label
                for parts in range(1, most + 1)
                if (label := entry.label(parts)) not in {other.label(parts) for other in others}
            ),
            entry.label(most),
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of them: a value that was measured, never one in between."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ratio(mine: Measured, other: Measured, what: str = "rate") -> float | None:
    """How many times as much: the median of the rounds' own ratios, since what the machine gives varies with time."""
    pairs = zip(mine.values(what), other.values(what), strict=False)
    found = [one / two for one, two in pairs if one is not None and two]
    return median(found) if found else None


def best(
    entries: Sequence[Entry], value: Callable[[Entry], float | None], *, lowest: bool = False
) -> Entry | None:  # fmt: skip
    """The entry with the highest value (or the lowest) of those that have one."""
    known = [(found, entry) for entry in entries if (found := value(entry)) is not None]
    if not known:
        return None
    return (min if lowest else max)(known, key=lambda pair: pair[0])[1]


# ---- as JSON


def load(path: Path) -> dict[str, Section]:
    """The sections that were kept, in the order of the report; none where there is no file, or one of another form."""
    facts = json.loads(path.read_text()) if path.exists() else {}
    found = facts.get("sections", {})
    return {storage: _section(found[storage]) for storage in NAMES if storage in found}


def keep(path: Path, sections: dict[str, Section]) -> None:
    facts = {"sections": {storage: asdict(sections[storage]) for storage in NAMES if storage in sections}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n")


def _section(facts: dict[str, Any]) -> Section:
    entries = [
        Entry(**{**each, "measures": {name: Measured(**values) for name, values in each["measures"].items()}})
        for each in facts["entries"]
    ]
    return Section(**{**facts, "entries": entries})
