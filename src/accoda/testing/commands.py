"""What the machine draws: commands that do not yet know the present moment, nor which ids and leases there are.

Few names, ranks and lengths of time, so that they meet: what is interesting happens where two things fall together.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hypothesis import strategies as st

from accoda.model import REPORTS, RESULT_IN_REPORT, Lanes, NewJob, OnDuplicate

QUEUES = ("a", "b", "a.deliver", REPORTS)
KEYS = ("k", "l")
LANES = ("c", "d/é")
SHARED = "a"
SHARING = ("a", "a.deliver")
"""Queues that may share limits: on a Redis Cluster only those of one family can."""
NAMES = ("x", "x/1", "x/%", "x_1", "y", "é/1")

Trick = Literal["none", "old", "older", "newer", "elsewhere", "another moment", "unknown"]


class DraftJob(NamedTuple):
    """A `NewJob` whose start moment is relative to the present."""

    queue: str
    data: bytes
    rank: float
    start: tuple[str, int]
    cost: int
    key: str | None
    on_duplicate: OnDuplicate
    waiter: bytes | None
    keep_for: float
    reports_to: str | None
    lane: str | None

    def at(self, now: int) -> NewJob:
        kind, length = self.start
        return NewJob(
            self.queue,
            self.data,
            rank=self.rank,
            delay=length / 1000 if kind == "delay" else None,
            start_at=now + length if kind == "at" else now - length if kind == "past" else None,
            cost=self.cost,
            key=self.key,
            on_duplicate=self.on_duplicate if self.key else "keep",
            waiter=self.waiter if self.key else None,
            keep_for=self.keep_for,
            reports_to=self.reports_to if self.key else None,
            lane=self.lane,
        )


class DraftLease(NamedTuple):
    """One of the leases that are held, or "old": of all that were ever given; and what is wrong with it."""

    pick: int
    trick: Trick


class DraftOutcome(NamedTuple):
    kind: str
    lease: DraftLease
    then: list[DraftJob]
    result: bytes | int | None
    seen: int | None
    start: tuple[str, int]
    reason: str
    rank: float | None
    counts: bool


class DraftChange(NamedTuple):
    """A change of a job: `queue` says whether it names the job's queue, `seen` how many waiters more than there are."""

    kind: Literal["remove", "revive", "start now", "not crashed", "rerank"]
    pick: int
    queue: Literal["none", "right", "other"]
    seen: int | None
    rank: float


lengths = st.sampled_from((0, 1, 499, 500, 1000, 1001, 5000))
leases_for = st.sampled_from((60_000, 60_000, 5000, 1000, 500, 1))
queues = st.sampled_from(("a", "a", "a", "b", "a.deliver", REPORTS))  # mostly one, so that jobs meet
orders = st.sampled_from(("line", "line", "id"))
picks = st.integers(0, 12)
ranks = st.sampled_from((0, 0.0, -0.0, 1.0, -1.5, 2, 1e300, -1e300))
limits = st.sampled_from((None, None, 0, 1, 2, 5))
starts = st.tuples(st.sampled_from(("none", "none", "none", "none", "delay", "at", "past")), lengths)
reasons = st.sampled_from(("", "broken", 'it\'s "odd"\n', "nul\0 and \ud800", "größer 🎺"))
rules = st.none() | st.builds(
    Lanes,
    limit=st.sampled_from((None, 1, 1, 2)),
    limits=st.sampled_from(({}, {"c": 0}, {"c": 1, "d/é": None})),
    fair=st.sampled_from((True, True, False)),
    weights=st.sampled_from(({}, {}, {"c": 3}, {"d/é": 0.7})),
    by_cost=st.booleans(),
    total=st.sampled_from((None, None, None, 0, 1, 2)),
    shared=st.sampled_from((None, None, SHARED)),
)
payloads = st.sampled_from((b"", b"1", b"\x00\xff"))
results = st.sampled_from((None, None, b"", b"1\n", b"\x00\xff", RESULT_IN_REPORT, RESULT_IN_REPORT + 1))  # or lengths
befores = st.sampled_from(("run", "run", "crash", "bury"))
ages = st.sampled_from((None, None, 0, 1, 500, 1000))  # how long ago

jobs = st.builds(
    DraftJob,
    queue=queues,
    data=payloads,
    rank=ranks,
    start=starts,
    cost=st.integers(0, 3),
    key=st.sampled_from((None, "k", *KEYS)),
    on_duplicate=st.sampled_from(("keep", "rerank", "replace", "attach")),
    waiter=st.sampled_from((None, b"w", b"", b"\x00")),
    keep_for=st.sampled_from((0.0, 0.0, 0.5, 2)),
    reports_to=st.sampled_from((None, None, *KEYS)),  # flows are called as keys are: jobs are enqueued beside reports
    lane=st.sampled_from((None, *LANES)),
)
tricks = st.sampled_from((*["none"] * 4, "old", "older", "newer", "elsewhere", "another moment", "unknown"))
lease_drafts = st.builds(DraftLease, st.integers(0, 3), tricks)
outcomes = st.builds(
    DraftOutcome,
    kind=st.sampled_from(("done", "done", "retry", "bury")),
    lease=lease_drafts,
    then=st.lists(jobs, max_size=2),
    result=results,
    seen=st.sampled_from((None, 0, 1, 5)),
    start=starts,
    reason=reasons,
    rank=st.none() | ranks,
    counts=st.sampled_from((True, True, False)),
)
changes = st.builds(
    DraftChange,
    kind=st.sampled_from(("remove", "revive", "start now", "not crashed", "rerank", "rerank")),
    pick=picks,
    queue=st.sampled_from(("none", "right", "right", "other")),
    seen=st.sampled_from((None, None, -1, 0, 0, 1)),
    rank=ranks,
)
