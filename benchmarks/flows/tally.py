"""What the notes of members and joins say of each flow. All of it pure.

The order of the notes is the order in which things happened: each is one append to one file. A member notes itself when
its work is done and before its queue may know, a join when it begins. So a join is *early* if a member of its flow has
no note before the join's first one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Note(NamedTuple):
    """A line. `which` is the number of a member, or tells one firing of a join from another."""

    what: str
    flow: int
    which: str
    at: float

    @classmethod
    def read(cls, line: str) -> Note:
        what, flow, which, at = line.split()
        return cls(what, int(flow), which, float(at))


@dataclass
class FlowNotes:
    """What was noted of one flow, so far."""

    started_at: float | None = None
    ended: dict[str, int] = field(default_factory=dict)  # how often each member ended
    firings: list[str] = field(default_factory=list)
    joined_at: float | None = None
    members_before_join: int = 0


class Tally:
    """Counts notes as they come. Flow 0 warms up, and does not count."""

    def __init__(self) -> None:
        self.flows: dict[int, FlowNotes] = {}
        self.warmed = False
        self.joined = 0
        """Flows whose join has run."""
        self.ended = 0
        """Members that have ended, each once."""
        self.first_at: float | None = None
        """When the first member ended."""
        self.last_at = 0.0
        """When a join ran for the first time, the last of them."""

    def add(self, notes: Iterable[Note]) -> None:
        for note in notes:
            if note.flow:
                self._add(note, self.flows.setdefault(note.flow, FlowNotes()))
            elif note.what == "join":
                self.warmed = True

    def _add(self, note: Note, flow: FlowNotes) -> None:
        if note.what == "start":
            flow.started_at = note.at
        elif note.what == "member":
            self.first_at = note.at if self.first_at is None else self.first_at
            self.ended += note.which not in flow.ended
            flow.ended[note.which] = flow.ended.get(note.which, 0) + 1
        else:
            if not flow.firings:
                flow.joined_at, flow.members_before_join = note.at, len(flow.ended)
                self.joined, self.last_at = self.joined + 1, note.at
            flow.firings.append(note.which)

    def verdict(self, flows: int, members: int) -> dict[str, int]:
        """How many joins fired, and how many of them wrongly; of these flows with so many members each.

        `again`: those of `twice` that are one firing whose job was run again, as far as the queue can tell.
        """
        found = list(self.flows.values())
        twice = [flow for flow in found if len(flow.firings) > 1]
        return {
            "flows": flows,
            "joined": self.joined,
            "early": sum(bool(flow.firings) and flow.members_before_join < members for flow in found),
            "twice": len(twice),
            "again": sum(len(set(flow.firings)) == 1 and flow.firings[0] != "-" for flow in twice),
            "never": flows - self.joined,
            "missing": flows * members - self.ended,
            "repeated": sum(count > 1 for flow in found for count in flow.ended.values()),
        }
