"""Leases that no client was told of.

A client whose connection broke sends its take again. A store that knows it again gives those of the jobs that are still
leased by the first sending; but if the lease is over by then, those jobs have come back, or will, and to hand them out
would be wrong. So no client is told of that lease, though attempts grow by it. Whatever kept the answer away so long (a
server that was killed, a black hole, a slow network), one thing is needed for it: the call lasted as long as the lease.

That is exact. The lease began by the store's clock not before the call's start, and was over not after the call's end;
how much shorter this may seem by the recorder's clock is what `Options.surely` allows for (whole milliseconds, clocks
that are slewed). A shorter take hides nothing: what it leased is in its answer, or else it was lost, which is a fault.
There is one exception: a job that was replaced, removed or purged while a take was under way may have been leased by
that take before, and is then missing in the answer that is given again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from math import inf

from proof.checker.call_log import Call
from proof.checker.ledger import Ledger, Life
from proof.checker.records import Failed
from proof.checker.rules.base import Options


def outlasted(take: Call, options: Options) -> bool:
    """Whether the lease of an answered take can have been over before its answer came."""
    return take.ended - take.started >= options.surely(take.start.lease)


class Hidden:
    """The takes of a log that may have leased jobs that their answers do not name."""

    def __init__(self, ledger: Ledger, options: Options) -> None:
        self._ledger = ledger
        self._options = options
        self._kills: dict[str, list[int]] = defaultdict(list)
        for note in ledger.notes("kill"):
            self._kills[note.client].append(note.at)
        self._answered = {
            queue: takes if options.takes_anew else [take for take in takes if outlasted(take, options)]
            for queue, takes in ledger.takes.items()
        }

    def unexplained(self, life: Life, missing: list[int]) -> int | None:
        """The first of these attempts, in rising order, that no take can have handed out; None if there is none.

        Each needs a lease of its own, which was over before a higher one was handed out. A take that may explain lower
        attempts may explain higher ones too, so it is enough to count.
        """
        for place, attempts in enumerate(missing):
            by = min((lease.call.ended for lease in life.leases if lease.attempts > attempts), default=inf)
            found = 0
            for leases in self._leases(life, by):
                found += leases
                if found > place:
                    break
            else:
                return attempts
        return None

    def most_expired(self, queue: str, *, of_answered: bool) -> int:
        """How many leases of the queue at the most have ended untold: by takes whose end is unknown,
        or by those that were answered."""
        takes = self._answered if of_answered else self._ledger.unknown_takes
        return sum(take.start.count * self._times(take, take.started, inf) for take in takes.get(queue, ()))

    def _leases(self, life: Life, by: float) -> Iterator[int]:
        """For each take: how many leases of this job it may have hidden that were over by that moment."""
        queue, born = life.queue, life.born.call.started if life.born is not None else 0
        for take in self._ledger.unknown_takes.get(queue, ()):
            if take.started <= by:
                yield self._times(take, max(take.started, born), by)
        answered = self._answered.get(queue, [])
        first = bisect_left(answered, born, key=lambda take: take.started)
        for take in answered[first : first + bisect_left(answered[first:], by, key=lambda take: take.started)]:
            yield self._times(take, take.started, by)
        for take in answered[:first]:
            if take.ended >= born:
                yield self._times(take, born, by)
        yield self._replaced(life, by)

    def _times(self, take: Call, since: int, by: float) -> int:
        """How often a take may have leased the same job untold. Sent again and again, once for each lease.

        Of an answered one each of these leases was over before the answer, or the last was forgotten (`takes_anew`).
        """
        lease = max(1, self._options.surely(take.start.lease))
        if not take.ok:
            return 1 + int(max(0, self._given_up(take) - since) // lease)
        until = min(by, take.ended + (lease if self._options.takes_anew else 0))
        return int(max(0, until - since) // lease)

    def _given_up(self, take: Call) -> int:
        """When an unknown take was sent for the last time, at the latest."""
        if isinstance(take.end, Failed):
            return take.end.at
        return min((at for at in self._kills.get(take.client, ()) if at >= take.started), default=take.started)

    def _replaced(self, life: Life, by: float) -> int:
        """How many replacements may have met the job in the hands of a take that was still under way.

        What was forgotten (`takes_anew`) stays leased after the answer, so there any of them may.
        """
        calls = [each.call for each in self._ledger.replacements(life) if each.call.started <= by]
        if self._options.takes_anew:
            return len(calls)
        takes = self._ledger.takes.get(life.queue, ())
        return sum(any(overlap(call, take) for take in takes) for call in calls)


def overlap(one: Call, other: Call) -> bool:
    return one.started <= other.ended and other.started <= one.ended
