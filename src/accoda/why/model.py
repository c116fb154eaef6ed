"""What an answer is made of. Moments among the facts are integer milliseconds; their names say so (`is_moment`)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from accoda.model import State

Verdict = Literal["open", "shut", "note"]
Name = Literal[
    "delayed", "paused", "key", "budget", "workers", "line", "taken", "attempts", "dead", "done"
]  # in this order
Fact = int | float | str


class Gate(Struct, frozen=True):
    """One thing that may keep a job from running: `shut` if it does, `open` if not, a `note` if it is good to know."""

    name: Name
    verdict: Verdict
    text: str
    facts: dict[str, Fact] = {}


class Estimate(Struct, frozen=True):
    """Seconds from now to the start of the job: it is likely to start then, and hardly outside `low` to `high`."""

    low: float
    likely: float
    high: float


class Why(Struct, frozen=True):
    """The answer. `line` is one sentence; `position` is 1 for the next of its queue, None for a job that is not in
    line; `start` is None where it runs, has ended, or cannot start as things are. `sooner` says what would help."""

    id: int
    queue: str
    state: State
    line: str
    gates: tuple[Gate, ...]
    position: int | None = None
    start: Estimate | None = None
    sooner: tuple[str, ...] = ()


def is_moment(fact: str) -> bool:
    """Whether a fact of this name is a moment.

    >>> [is_moment(name) for name in ("until", "since", "ended_at", "ahead", "lease_until", "age")]
    [True, True, True, False, True, False]
    """
    return fact in ("until", "since", "at") or fact.endswith(("_at", "_until", "_since"))
