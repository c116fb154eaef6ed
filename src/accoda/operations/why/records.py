"""What an explanation is made of. On the wire names are camelCase, and moments are RFC 3339 text."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from accoda.model import State

Verdict = Literal["open", "shut", "note"]
Name = Literal[  # in order
    "delayed",
    "paused",
    "lane",
    "total",
    "key",
    "budget",
    "workers",
    "line",
    "taken",
    "tries",
    "dead",
    "done",
    "cancelled",
]
Fact = int | float | str


class Gate(Struct, frozen=True):
    """One thing that may keep a job from running: `shut` if it does, `open` if not, a `note` if it is good to know.
    Which `facts` there are depends on the gate; moments among them are RFC 3339 text."""

    name: Name
    verdict: Verdict
    text: str
    facts: dict[str, Fact] = {}


class Estimate(Struct, frozen=True):
    """Seconds from now to the start of the job: `likely`, and hardly outside `low` to `high`."""

    low: float
    likely: float
    high: float


class Start(Struct, rename="camel", frozen=True, kw_only=True):
    """When the job is likely to start, and hardly outside which range: in words, in seconds from now, as moments."""

    text: str
    low: float
    likely: float
    high: float
    low_at: str
    likely_at: str
    high_at: str


class Explanation(Struct, rename="camel", frozen=True, kw_only=True):
    """The answer `at` a moment: one sentence (`line`), the gates in their order, its `position` (1: the next; null: it
    is not in line), its `start` (null: it runs, is held, has ended, or cannot start as things are), and what would
    make it start `sooner`. `ahead_is_more`: more than 10,000 jobs are ahead, so `position` and `start` are the least.
    `flow` and `node` say where it is in its flow, if it is in one."""

    id: int
    queue: str
    state: State
    at: str
    line: str
    gates: tuple[Gate, ...]
    position: int | None = None
    ahead_is_more: bool = False
    start: Start | None = None
    sooner: tuple[str, ...] = ()
    flow: str | None = None
    node: str | None = None


def is_moment(fact: str) -> bool:
    """Whether a fact of this name is a moment.

    >>> [is_moment(name) for name in ("until", "since", "ended_at", "ahead", "lease_until", "age")]
    [True, True, True, False, True, False]
    """
    return fact in ("until", "since", "at") or fact.endswith(("_at", "_until", "_since"))
