"""The rule: how many processors each queue gets, and in which worker. Pure functions of what was seen; no I/O.

    work(q)     = service × (ready + arrivals × look_ahead)          seconds for one processor
    drain(q, n) = work(q) / n                                        seconds with n processors

The next processor goes to the queue with the longest drain time, until all are short enough or no processor is left.
That is the arrangement whose longest drain time is least; `docs/manager.md` tells it in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from math import ceil, inf

from msgspec import Struct

from accoda.runtime.heartbeat import Amount, Processors
from accoda.runtime.manager.board import Board, Placement, WorkerView, merge


class QueueView(Struct, frozen=True):
    """One queue, as the rule sees it.

    Jobs that are ready, jobs that are taken, seconds of a processor that one job takes, and jobs that become ready in a
    second.
    """

    ready: int = 0
    taken: int = 0
    service: float = 1.0
    arrivals: float = 0.0


class Situation(Struct, frozen=True):
    """What the rule decides on."""

    queues: dict[str, QueueView]
    workers: tuple[WorkerView, ...]


class Plan(Struct, frozen=True):
    """Why a queue has what it has: what was seen of it, its processors, and the drain time that follows."""

    ready: int
    taken: int
    service: Amount
    arrivals: Amount
    processors: int
    drain: float | None
    """Seconds; None: it has work and no processor."""


class Assignment(Struct, frozen=True):
    """The manager's decision: for each worker, how many of its processors each queue may have.

    `term` tells which leader made it: a later leader has a higher one.
    """

    workers: dict[str, dict[str, Processors]]
    plans: dict[str, Plan] = {}
    term: int = 0
    leader: str = ""
    made_at: int = 0


class Rule(Struct, frozen=True):
    """The rule's numbers."""

    look_ahead: float = 4.0
    """Seconds of new jobs that count as work already: about what arrives before a new assignment takes effect."""
    enough: float = 2.0
    """Seconds: a queue that drains sooner than this needs no more processors, and is not worth a change."""
    gain: float = 0.2
    """A change must shorten the longest drain time by this part of it."""


def work(queue: QueueView, rule: Rule) -> float:
    """Seconds that one processor would need for what waits in a queue. What is taken waits no longer.

    >>> work(QueueView(ready=30, service=0.5, arrivals=5), Rule(look_ahead=4))
    25.0
    """
    return queue.service * (queue.ready + queue.arrivals * rule.look_ahead)


def has_jobs(queue: QueueView) -> bool:
    """Whether there is work now, and not only expected."""
    return queue.ready > 0 or queue.taken > 0


def assign(situation: Situation, previous: Assignment | None = None, rule: Rule | None = None) -> Assignment:
    """The next assignment, given the last one. The same situation gives the same, and a second time no change."""
    rule = rule or Rule()
    best = level(situation, rule)
    old = previous.workers if previous else {}
    if not _same_fleet(situation, old) or _worth_it(situation, best, totals(old), rule):
        placement = _place(situation, best, old)
    else:
        placement = old
    return Assignment(placement, _plans(situation, totals(placement), rule))


def level(situation: Situation, rule: Rule) -> dict[str, int]:
    """How many processors each queue should have over all workers, so that the longest drain time is least.

    Greedy is exact here. The sets of processors that fit on the board form a matroid (they are the flows of a
    transport network), and for a sum or maximum of falling convex costs on a matroid, taking the best step each time
    is optimal. For the same reason a queue that found no room never finds any later, and drops out.
    """
    board = Board(merge(situation.workers))
    given: dict[str, int] = {}
    heap = [(_first(view, rule), -work(view, rule), name) for name, view in situation.queues.items()]
    heapify(heap)
    while heap:
        drain, load, name = heap[0]
        if -drain <= rule.enough or given.get(name, 0) >= _useful(situation.queues[name], rule) or not board.add(name):
            heappop(heap)
            continue
        given[name] = given.get(name, 0) + 1
        heapreplace(heap, (load / given[name], load, name))
    return given


def limits(assignment: Assignment, worker_id: str, queues: Sequence[str], max_processors: int) -> dict[str, int]:
    """How many processors of a worker each of its queues may have at once; the settings' caps hold besides.

    A queue may have what it was given; one that was given nothing here may have one, so that new work begins at once.
    Processors that were given to no queue are there for every queue. A worker that is not in the assignment goes on
    round robin.

    >>> limits(Assignment({"w1": {"emails": 3, "reports": 3}}), "w1", ["emails", "reports", "sms"], 8)
    {'emails': 5, 'reports': 5, 'sms': 2}
    >>> limits(Assignment({"w1": {"emails": 3, "reports": 5}}), "w1", ["emails", "reports", "sms"], 8)
    {'emails': 3, 'reports': 5, 'sms': 1}
    """
    row = assignment.workers.get(worker_id)
    if row is None:
        return dict.fromkeys(queues, max_processors)
    spare = max(0, max_processors - sum(row.values()))
    return {queue: max(1, row.get(queue, 0) + spare) for queue in queues}


def left_to_others(assignment: Assignment, worker_id: str, queues: Sequence[str]) -> list[str]:
    """The queues that a worker leaves to others: if it was given nothing at all, those that others were given.

    A queue that nobody was given is left to nobody.

    >>> left_to_others(Assignment({"w1": {"emails": 1}, "w2": {}}), "w2", ["emails", "reports"])
    ['emails']
    >>> left_to_others(Assignment({"w1": {"emails": 1}, "w2": {"reports": 1}}), "w2", ["emails", "reports"])
    []
    """
    if assignment.workers.get(worker_id, {"": 1}):
        return []
    given = totals(assignment.workers)
    return [queue for queue in queues if given.get(queue)]


def totals(placement: Placement) -> dict[str, int]:
    """Processors of each queue over all workers."""
    found: dict[str, int] = {}
    for row in placement.values():
        for queue, count in row.items():
            found[queue] = found.get(queue, 0) + count
    return found


def _first(queue: QueueView, rule: Rule) -> float:
    """How urgent the first processor is. A queue with jobs comes before the second one of any other: a floor of one.

    One that only expects jobs competes with what it expects: it may start one processor without an assignment anyway.
    """
    return -inf if has_jobs(queue) else -work(queue, rule)


def _useful(queue: QueueView, rule: Rule) -> int:
    """More processors than jobs would be idle."""
    return max(1, queue.ready + queue.taken + ceil(queue.arrivals * rule.look_ahead))


def _same_fleet(situation: Situation, placement: Placement) -> bool:
    """Whether a placement names exactly these workers and is one that they could follow."""
    if placement.keys() != {worker.id for worker in situation.workers}:
        return False
    for worker in situation.workers:
        row = placement[worker.id]
        if sum(row.values()) > worker.max_processors or any(row[queue] > worker.most(queue) for queue in row):
            return False
    return True


def _worth_it(situation: Situation, best: Mapping[str, int], now: Mapping[str, int], rule: Rule) -> bool:
    """Whether going from `now` to `best` is worth the change.

    Only queues whose number would change are compared: one that is stuck at its cap with a long drain time must not
    hide what the others could gain. Times below `enough` count as equal, so that a nearly idle system stays at rest.
    """
    changed = [name for name in situation.queues if best.get(name, 0) != now.get(name, 0)]
    if any(best.get(name, 0) > 0 and not now.get(name, 0) for name in changed):
        return True
    longest_now = max((_drain(situation.queues[name], now.get(name, 0), rule) for name in changed), default=0.0)
    longest_then = max((_drain(situation.queues[name], best.get(name, 0), rule) for name in changed), default=0.0)
    return max(longest_then, rule.enough) <= (1 - rule.gain) * longest_now


def _drain(queue: QueueView, processors: int, rule: Rule) -> float:
    """Seconds. Jobs without a processor never end; jobs that are only expected may start one without an assignment."""
    if not processors and has_jobs(queue):
        return inf
    return work(queue, rule) / max(1, processors)


def _place(situation: Situation, wanted: Mapping[str, int], old: Placement) -> Placement:
    """Put them on workers: first where they were, then the rest.

    There is room for all: `wanted` was found to fit, and what is kept is a part of it, so that the difference between
    the two falls into paths from each queue that lacks processors to a worker that has some free.
    """
    board = Board(situation.workers)
    board.keep(wanted, old)
    for queue in sorted(wanted):
        for _ in range(wanted[queue] - board.total(queue)):
            board.add(queue)
    return board.placement


def _plans(situation: Situation, given: Mapping[str, int], rule: Rule) -> dict[str, Plan]:
    plans = {}
    for name, view in sorted(situation.queues.items()):
        processors = given.get(name, 0)
        drain = _drain(view, processors, rule)
        shown = None if drain == inf else round(drain, 3)
        plans[name] = Plan(view.ready, view.taken, view.service, view.arrivals, processors, shown)
    return plans
