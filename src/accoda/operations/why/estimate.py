"""When a job is likely to start: how many are before it, and how fast its queue is handed out. Pure.

    start = the later of (its start time, the end of a pause) and the time for the jobs ahead
    takes a second = processors of the queue / seconds of a take, or the rate of late, or a mean of both

A job starts when it is taken: it waits for the takes before its own, and for the slot that is free next. A take has
one job, for the slot that became free; of a handler of batches it has a batch.
"""

from __future__ import annotations

from math import exp, inf, isfinite, log, sqrt

from msgspec import Struct

from accoda.names import is_system
from accoda.operations.why.fleet import Fleet, fleet_of, job_seconds
from accoda.operations.why.records import Estimate
from accoda.operations.why.shortage import seconds_to_pay
from accoda.operations.why.snapshot import Snapshot

UNKNOWN = 1.0
"""Seconds that a job is assumed to need before one has run, as in the manager."""
LONGEST = 366 * 86_400.0
"""Seconds: no estimate goes beyond a year."""
PATIENCE = 20.0
"""Seconds added to a job's age to compute how often others overtake it: a burst that came with it says little about
what is to come."""
TRUST, LONG, FARTHEST = 0.7, 120.0, 4.0
"""The observed rate has at most this weight, if it was measured for so many seconds; it is never taken to be more than
so many times slower than what workers report."""
LEVELS = {0.0: 0.0, 1.0: 0.1, 2.0: 0.25, 3.0: 0.75}
"""The assumed share of jobs that are more urgent than one of this rank: most come before a LOW."""
FEW = 10
"""How many observed jobs weigh as much as that assumption."""
MOST_OVERTAKING = 0.7
"""The largest share of a queue's throughput that may go to jobs that overtake; with more there would be no estimate."""
BETWEEN = 1.1
"""A processor also settles and takes between two runs: so many times a run's own time."""
MOST_TOGETHER = 20
"""Delayed jobs that may become ready at the same moment."""
SOON = 0.05
"""Seconds from ready to taken where a slot is free."""


class Pace(Struct, frozen=True):
    """How fast a queue is handed out: a take of `batch` jobs every `interval` seconds. `spread`: the share by which
    that may be wrong. `first`: seconds to the next take."""

    batch: int
    interval: float
    first: float
    spread: float


def start_of(snapshot: Snapshot) -> Estimate | None:
    """Seconds from now; None: it runs, has ended, or cannot start before something is done."""
    s = snapshot
    if s.job.state not in ("ready", "delayed") or (s.stats.paused and s.stats.paused_until is None):
        return None  # when a place in its lane will be free, nobody knows: it is told of no held job
    if s.would_be_held or (s.lanes is not None and s.lanes.rules.total == 0):
        return None
    opens = max(0.0, (s.job.start_time - s.now) / 1000) if s.job.state == "delayed" else 0.0
    if s.stats.paused and s.stats.paused_until is not None:
        opens = max(opens, (s.stats.paused_until - s.now) / 1000)
    pace = pace_of(s, fleet_of(s))
    paid = seconds_to_pay(s)
    if pace is None or not isfinite(paid):
        return None
    line = _line(s, pace)
    # While it may not start, jobs ahead of it run, unless the whole queue is paused.
    if s.stats.paused:
        spans = [opens + span for span in (line.low, line.likely, line.high)]
    else:
        spans = [max(opens + min(pace.first, span), span) for span in (line.low, line.likely, line.high)]
    low, likely, high = spans
    if s.job.state == "delayed":  # others may become ready at the same moment, and go before it
        high += pace.interval * min(s.stats.delayed, MOST_TOGETHER) / pace.batch
    if paid > likely:  # the refill is known; what jobs ahead cost is not
        low, likely, high = max(low, 0.7 * paid), paid, max(high, 1.3 * paid + pace.interval)
    return Estimate(min(LONGEST, low), min(LONGEST, likely), min(LONGEST, high))


def pace_of(s: Snapshot, fleet: Fleet) -> Pace | None:
    """None: no worker serves the queue."""
    if is_system(s.job.queue):
        return Pace(100, SOON, SOON, 0.5)
    seen = s.rate
    if not fleet.serving:
        if s.stats.taken and seen is not None and seen.jobs_a_second > 0:  # workers of another kind
            return Pace(1, 1 / seen.jobs_a_second, 0.5 / seen.jobs_a_second, 0.4)
        return None
    batch = _batch(s, fleet)
    seconds, measured = _seconds(s, fleet, batch)
    interval = max(0.001, seconds * BETWEEN / max(fleet.share, 0.01))
    spread = 0.3 if measured else 0.7
    if seen is not None and seen.jobs_a_second > 0:
        interval, spread = _with_seen(s, interval, batch, spread)
    first = SOON if fleet.room.free else _first(s, fleet, interval)
    ends = _ends_every(s, seconds * _together(fleet)) * batch
    return Pace(batch, max(interval, ends), max(first, ends / 2), spread)


def _ends_every(s: Snapshot, seconds: float) -> float:
    """Seconds from the end of one job to that of the next, where the queue runs as many at once as its `total` says:
    free slots do not help then. 0: it may run more. A job runs for `seconds`, unless that was measured."""
    most = None if s.lanes is None else s.lanes.rules.total
    if not most or s.stats.taken < most:
        return 0.0
    ran = s.rate.ran if s.rate is not None and s.rate.ran > 0 else seconds
    return ran * BETWEEN / most


def _with_seen(s: Snapshot, interval: float, batch: int, spread: float) -> tuple[float, float]:
    """The observed rate counts as far as the queue had work all that time: an idle queue finishes little.

    It counts more the longer it was measured: a burst at the end of a slot makes the slot look slow.
    """
    seen = s.rate
    assert seen is not None
    observed = batch / seen.jobs_a_second
    weight = TRUST * min(1.0, s.stats.oldest_age / max(1.0, seen.over)) * min(1.0, seen.over / LONG)
    if observed < interval:  # it was faster than computed although it may have had idle moments
        weight = max(weight, 0.5)
    observed = min(observed, interval * FARTHEST)
    mixed = exp((1 - weight) * log(interval) + weight * log(observed))
    return mixed, max(spread * (1 - weight / 2), 0.15)


def _batch(s: Snapshot, fleet: Fleet) -> int:
    """Jobs of one take: a batch, never more than there are; or one, for a slot that became free."""
    if not fleet.whole:
        return 1
    told = max(beat.batches[s.job.queue] for beat in fleet.serving)
    return max(1, min(told, max(s.stats.ready, 1)))


def _seconds(s: Snapshot, fleet: Fleet, batch: int) -> tuple[float, bool]:
    """Seconds of a processor for one take, and whether that was measured."""
    measured = job_seconds(s.workers, s.job.queue)
    if measured is not None:
        return measured * batch, True
    together = _together(fleet)
    if s.rate is not None and s.rate.ran > 0:
        return s.rate.ran / together, True
    plan = None if s.assignment is None else s.assignment.plans.get(s.job.queue)
    return (plan.service * batch, False) if plan is not None and plan.service > 0 else (UNKNOWN / together, False)


def _together(fleet: Fleet) -> float:
    """Jobs that a processor runs at once."""
    processors = sum(beat.max_processors for beat in fleet.serving)
    return 1.0 if fleet.whole else max(1.0, fleet.room.most / max(1, processors))  # a document may say 0


def _first(s: Snapshot, fleet: Fleet, interval: float) -> float:
    """Seconds to the next take: half an interval or, where long jobs run, what is left of the first to end."""
    left = inf
    for beat in fleet.serving:
        for state in beat.processors:
            if state.queue is None or state.since is None:
                continue
            # By the worker's clock up to its heartbeat, by the storage's from then on.
            run = (beat.beat_at - state.since) / 1000 + max(0.0, (s.now - beat.beat_at) / 1000)
            each = job_seconds((beat,), state.queue)
            expected = UNKNOWN if each is None else each * state.slots
            if run < expected:
                left = min(left, expected - run)
            elif state.jobs > 1 or len(fleet.busy) > 1 or expected < 2.0:  # it may end at any moment
                left = min(left, interval / 2)
            else:
                left = min(left, max(interval / 2, run / 2))
    return left if isfinite(left) else interval / 2


def _line(s: Snapshot, pace: Pace) -> Estimate:
    """The time for the jobs ahead, and its range: each take may last longer or shorter, and so may all of them."""
    before = s.ahead // pace.batch
    likely = pace.first + before * pace.interval * _overtaking(s, pace)
    if before == 0 and pace.first <= SOON:
        return Estimate(0.0, pace.first, 1.0)
    chance = pace.interval * sqrt(before + 1)
    low = max(0.0, likely * (1 - pace.spread) - chance)
    # At worst, what comes in is as urgent as its level allows.
    worst = max(1.0, _stretch(_arrivals(s) * _better(s), pace) / _overtaking(s, pace))
    high = likely * (1 + 2.0 * pace.spread) * worst + 1.3 * chance
    return Estimate(low, likely, high)


def _overtaking(s: Snapshot, pace: Pace) -> float:
    """How much longer it takes because others overtake it: as often as in the time that it has waited."""
    waited = PATIENCE + max(0, s.now - s.job.created_at) / 1000
    return _stretch(s.look.newer / waited, pace)


def _stretch(coming: float, pace: Pace) -> float:
    """How many times longer it takes if so many jobs a second overtake it."""
    return 1 / (1 - min(MOST_OVERTAKING, coming * pace.interval / pace.batch))


def _arrivals(s: Snapshot) -> float:
    """Jobs a second that come in: on average as many as were done since the workers began."""
    queue = s.job.queue
    served = [beat for beat in s.workers if queue in beat.sums]
    return sum(beat.sums[queue].jobs * 1000 / max(30_000, beat.beat_at - beat.started_at) for beat in served)


def _better(s: Snapshot) -> float:
    """The share of them that overtakes the job: as among the newer jobs that wait before and behind it, as far as there
    are any; else what its level suggests."""
    newer, behind = s.look.newer, max(0, s.stats.ready - s.ahead - 1)
    expected = LEVELS.get(s.job.rank, 0.1)
    return (newer + expected * FEW) / (newer + behind + FEW)
