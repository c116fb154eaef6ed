"""Figures of a log: what it came to, and how long trouble lasted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import pairwise

from accoda.model import REPORTS, Lease
from proof.checker.call_log import CallLog
from proof.checker.ledger import Ledger, Life, gather

_SECOND = 1_000_000_000


def counted(ledger: Ledger) -> dict[str, int]:
    """The figures of a verdict."""
    enqueued = done = dead = removed = leases = there = inboxes = in_lanes = held = 0
    for life in ledger.lives.values():
        enqueued += life.born is not None
        there += life.there
        leases += len(life.leases)
        kinds = [outcome.kind for outcome in life.outcomes if outcome.sure]
        done += "done" in kinds
        inboxes += "done" in kinds and life.queue == REPORTS
        dead += "bury" in kinds
        in_lanes += life.lane is not None and bool(life.leases)
        held += life.final is not None and life.final.state == "held"
        removed += any(each.sure for each in life.removals)
    runs = Counter(note.fields.get("id") for note in ledger.notes("start"))
    purged = sum(call.end.count for calls in ledger.purges.values() for call in calls if call.ok)
    return {
        "calls": len(ledger.log.calls),
        "unknown calls": ledger.unknown,
        "jobs": there,
        "enqueued": enqueued,
        "done": done,
        "dead": dead,
        "removed": removed + purged,
        "leases": leases,
        "runs": runs.total(),
        "ran more than once": sum(times > 1 for times in runs.values()),
        "refused outcomes": ledger.denied.total(),
        "inboxes done": inboxes,  # of flows: jobs without a handler
        "ran in lanes": in_lanes,
        "held": held,
        "flows": len(ledger.flows),
        "joins": sum(flow.joins for flow in ledger.flows.values()),
    }


def redelivery(log: CallLog) -> list[tuple[float, Lease]]:
    """For each job that a killed client held: the seconds from the note `kill` until it was taken again, and the lease
    that was lost."""
    kills: dict[str, list[int]] = defaultdict(list)
    for note in log.notes:
        if note.kind == "kill":
            kills[note.client].append(note.at)
    found: list[tuple[float, Lease]] = []
    for life in gather(log).lives.values() if kills else ():
        if len(life.leases) > 1:
            found += _redelivered(life, kills)
    return found


def _redelivered(life: Life, kills: dict[str, list[int]]) -> list[tuple[float, Lease]]:
    found = []
    settled = {outcome.attempts for outcome in life.outcomes if outcome.sure}
    leases = sorted(life.leases, key=lambda lease: lease.attempts)
    for lease, after in pairwise(leases):
        moments = kills.get(lease.call.client, [])
        place = bisect_left(moments, lease.call.started)
        if lease.attempts not in settled and place < len(moments) and moments[place] < after.call.ended:
            seconds = (after.call.ended - moments[place]) / _SECOND
            found.append((seconds, Lease(life.queue, life.id, lease.attempts, 0)))
    return found


def recovery(log: CallLog) -> list[float]:
    """The seconds from each note `server up` until a take next gave a job."""
    takes = sorted(call.ended for call in log.calls if call.verb == "take" and call.ok and call.end.taken)
    found = []
    for note in log.notes:
        if note.kind == "server up":
            place = bisect_right(takes, note.at)
            if place < len(takes):
                found.append((takes[place] - note.at) / _SECOND)
    return found
