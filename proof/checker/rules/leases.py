"""Which client may hold a job, and when. A lease is named by the job's id, its attempts and the moment of its take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from proof.checker.call_log import Call
from proof.checker.ledger import Extension, Leased, Ledger, Life, Outcome
from proof.checker.rules.base import Broken, Options


def double_lease(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        if len(life.leases) > 1:
            yield from _twice(life)
            yield from _overlap(life, ledger, options)


def _twice(life: Life) -> Iterator[Broken]:
    """Attempts grow with every return, so a lease that two takes gave was given to two at once."""
    first: dict[int, Leased] = {}
    for lease in life.leases:
        other = first.setdefault(lease.attempts, lease)
        if other is not lease:
            text = f"the lease with attempts {lease.attempts} was handed out twice"
            yield Broken(life.id, text, (other.call, lease.call))


def _overlap(life: Life, ledger: Ledger, options: Options) -> Iterator[Broken]:
    for lease, other in zip(life.leases, life.leases[1:], strict=False):
        # The other take's moment lies between its start and its end: if both are inside, so is the moment.
        if lease.call.ended <= other.call.started and other.call.ended <= held_until(life, lease, ledger, options):
            text = f"taken with attempts {other.attempts} while the lease with attempts {lease.attempts} was valid"
            yield Broken(life.id, text, (lease.call, other.call))


def clock_end(life: Life, lease: Leased, options: Options) -> float:
    """The earliest moment at which the clock can have ended this lease.

    The take happened not before its start, so the lease lasts at least until start + lease. An accepted extension sets
    that end anew, counted from its own moment, which may also be earlier than before. Only the last one counts, and
    those that may have come after it; the earliest of their ends is certain.
    """
    extensions = [each for each in life.extensions if each.attempts == lease.attempts]
    if not extensions:
        return lease.call.started + options.surely(lease.lease)
    last = max((each for each in extensions if each.sure), key=lambda each: each.call.started, default=None)
    since = lease.call.started if last is None else last.call.started
    end = since + options.surely(lease.lease if last is None else last.lease)
    later = [each for each in extensions if last is None or each.call.ended > last.call.started]
    return min([end, *(each.call.started + options.surely(each.lease) for each in later)])


def held_until(life: Life, lease: Leased, ledger: Ledger, options: Options) -> float:
    """The last moment at which this lease was valid for certain, counted from the end of its take.

    - The clock ends it not before `clock_end`.
    - Anything else that may have ended it (an outcome, a removal, a cancel, a purge, a replacement) did so not before
      it started.
    - Whatever of the lease was accepted, it was valid then, and so ever since it was handed out: a lost lease never
      becomes valid again. An accepted call's moment is not before its start.
    """
    outcomes = [each for each in life.outcomes if each.attempts == lease.attempts]
    enders: list[Call] = [each.call for each in outcomes]
    enders += [each.call for each in life.removals]
    enders += [each.call for each in ledger.replacements(life)]
    enders += [call for call in ledger.purges.get(life.queue, ()) if call.start.state == "taken"]
    ended = min((call.started for call in enders if call.ended > lease.call.started), default=inf)
    proofs = [each.call.started for each in outcomes if each.sure]
    proofs += [each.call.started for each in life.extensions if each.sure and each.attempts == lease.attempts]
    return max([min(clock_end(life, lease, options), ended), *proofs])


def tokens_grow(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        if len(life.leases) > 1:
            yield from _falling(life)
        final = life.final
        highest = max((lease.attempts for lease in life.leases), default=0)
        if final is not None and final.attempts < highest:
            yield Broken(life.id, f"taken with attempts {highest}, in the end it has {final.attempts}")


def _falling(life: Life) -> Iterator[Broken]:
    """A take with higher attempts that ended before this one started had its moment before this one's."""
    first: Leased | None = None
    for lease in sorted(life.leases, key=lambda each: -each.attempts):
        if first is not None and first.call.ended < lease.call.started:
            text = f"taken with attempts {first.attempts} and later with attempts {lease.attempts}"
            yield Broken(life.id, text, (first.call, lease.call))
        if first is None or lease.call.ended < first.call.ended:
            first = lease


def stale_token(ledger: Ledger, options: Options) -> Iterable[Broken]:
    for life in ledger.lives.values():
        if life.outcomes or life.extensions:
            settled: dict[int, Outcome] = {}
            yield from _settled_twice(life, settled)
            yield from _extended_late(life, settled)
            yield from _overtaken(life)


def _settled_twice(life: Life, settled: dict[int, Outcome]) -> Iterator[Broken]:
    """Any accepted outcome ends its lease, so only one can be accepted, whatever the order of the calls."""
    for outcome in life.outcomes:
        if outcome.sure:
            first = settled.setdefault(outcome.attempts, outcome)
            if first is not outcome:
                text = f"{first.kind} and {outcome.kind} of attempts {outcome.attempts} were both accepted"
                yield Broken(life.id, text, (first.call, outcome.call))


def _extended_late(life: Life, settled: dict[int, Outcome]) -> Iterator[Broken]:
    for each in life.extensions:
        over = settled.get(each.attempts)
        if each.sure and over is not None and over.call.ended < each.call.started:
            text = f"the lease with attempts {each.attempts} was extended after it had been settled"
            yield Broken(life.id, text, (over.call, each.call))


def _overtaken(life: Life) -> Iterator[Broken]:
    """A later lease was handed out, or the job was removed or cancelled, before the call began that was accepted."""
    if len(life.leases) < 2 and not life.removals:
        return
    uses: list[Outcome | Extension] = [*life.outcomes, *life.extensions]
    for use in uses:
        if not use.sure:
            continue
        newer = next((x for x in life.leases if x.attempts > use.attempts and x.call.ended < use.call.started), None)
        removed = next((x for x in life.removals if x.sure and x.call.ended < use.call.started), None)
        what = use.kind if isinstance(use, Outcome) else "extension"
        if newer is not None:
            text = f"{what} of attempts {use.attempts} was accepted after attempts {newer.attempts} had been taken"
            yield Broken(life.id, text, (newer.call, use.call))
        elif removed is not None:
            text = f"{what} of attempts {use.attempts} was accepted after the job had been removed or cancelled"
            yield Broken(life.id, text, (removed.call, use.call))


def own_lease(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """An accepted outcome or extension has the token of a take. One that has the attempts of a take and another moment
    belongs to a job of before the store came back older, with another payload."""
    for life in ledger.lives.values():
        moments = {lease.attempts: {each.taken.taken_at for each in life.leases if each.attempts == lease.attempts}
                   for lease in life.leases}  # fmt: skip
        uses: list[Outcome | Extension] = [*life.outcomes, *life.extensions]
        for use in uses:
            moment = use.told.taken_at if isinstance(use, Outcome) else use.taken_at
            if use.sure and use.attempts in moments and moment not in moments[use.attempts]:
                what = use.kind if isinstance(use, Outcome) else "extension"
                text = f"{what} of attempts {use.attempts} was accepted for a lease of another moment"
                yield Broken(life.id, text, (*(lease.call for lease in life.leases[:3]), use.call))
