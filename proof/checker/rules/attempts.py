"""How often a job came back. Each step from attempts k to k + 1 ends the lease k, and something must have ended it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from proof.checker.ledger import Leased, Ledger, Life
from proof.checker.records import Taken
from proof.checker.rules.base import Broken, Options
from proof.checker.rules.hidden import Hidden
from proof.checker.rules.leases import clock_end

Step = Literal["expired", "other", "either"]


def attempts_right(ledger: Ledger, options: Options) -> Iterable[Broken]:
    hidden = Hidden(ledger, options)
    for life in ledger.lives.values():
        if highest(life):
            yield from _unseen(life, hidden)
            yield from _unexplained(life, ledger, options)
            yield from _failures(life, ledger)
        if life.final is not None and life.leases:
            yield from _returned_in_vain(life)


def highest(life: Life) -> int:
    """The highest attempts that the job is known to have had."""
    top = 0 if life.final is None else life.final.attempts
    for lease in life.leases:
        top = max(top, lease.attempts)
    return top


def _unseen(life: Life, hidden: Hidden) -> Iterator[Broken]:
    """Every step needs a lease that ended, so each number below was handed out: if not by a take whose answer names it,
    then by one that may have leased it without a word."""
    known = {lease.attempts for lease in life.leases}
    missing = [k for k in range(highest(life)) if k not in known]
    unexplained = hidden.unexplained(life, missing)
    if unexplained is not None:
        text = f"came to attempts {highest(life)}, but no take had it with attempts {unexplained}"
        yield Broken(life.id, text, tuple(lease.call for lease in life.leases[:3]))


def _unexplained(life: Life, ledger: Ledger, options: Options) -> Iterator[Broken]:
    known = {lease.attempts: lease for lease in life.leases}
    later: Leased | None = None  # of those with higher attempts, the one that ended first
    for attempts, lease in sorted(known.items(), reverse=True):
        if later is not None and not _ended(life, lease, later.call.ended, ledger, options):
            text = f"attempts grew beyond {attempts}, but nothing can have ended that lease, and its time was not over"
            yield Broken(life.id, text, (lease.call, later.call))
        if later is None or lease.call.ended < later.call.ended:
            later = lease


def _ended(life: Life, lease: Leased, by: float, ledger: Ledger, options: Options) -> bool:
    """Whether anything can have brought the job back by the moment `by`."""
    if clock_end(life, lease, options) <= by:
        return True
    outcomes = [each for each in life.outcomes if each.attempts == lease.attempts and each.call.started <= by]
    if any(each.kind == "retry" for each in outcomes):
        return True
    if any(each.kind == "bury" for each in outcomes) and any(each.call.started <= by for each in life.revivals):
        return True
    return any(each.call.started <= by for each in ledger.replacements(life))


def step(life: Life, attempts: int, ledger: Ledger) -> Step:
    """How the step from these attempts to the next was made, as far as it is certain."""
    outcomes = [each for each in life.outcomes if each.attempts == attempts]
    if any(each.sure for each in outcomes):
        return "other"
    return "either" if outcomes or life.revivals or ledger.replacements(life) else "expired"


def _failures(life: Life, ledger: Ledger) -> Iterator[Broken]:
    """A job tells how many of its leases ended without an outcome (crashes), and how many of its retries counted
    (tries), since it was enqueued, revived or replaced. A worker may take a crash back."""
    steps = [_step_counts(life, k, ledger) for k in range(highest(life))]
    for lease in life.leases:
        taken = lease.taken
        begins = _beginnings(life, taken.attempts, ledger)
        # Each crash that was taken back until then may be missing, or not: it may have come when there was none.
        taken_back = sum(each.call.started <= lease.call.ended for each in life.not_crashed)
        if not any(_explains(steps[begin : taken.attempts], taken, taken_back) for begin in begins):
            text = f"says {taken.crashes} crashes and {taken.tries} tries at attempts {taken.attempts}, which its"
            yield Broken(life.id, f"{text} returns cannot have given", (lease.call,))


class _Counts(NamedTuple):
    """What one step may have added: at least and at most."""

    crashes: tuple[int, int]
    tries: tuple[int, int]


def _step_counts(life: Life, attempts: int, ledger: Ledger) -> _Counts:
    outcomes = [each for each in life.outcomes if each.attempts == attempts]
    sure = next((each for each in outcomes if each.sure), None)
    if sure is not None:
        tries = int(sure.kind == "retry" and sure.told.counts)
        return _Counts((0, 0), (tries, tries))
    maybe = int(any(each.kind == "retry" and each.told.counts for each in outcomes))
    return _Counts((int(step(life, attempts, ledger) == "expired"), 1), (0, maybe))


def _beginnings(life: Life, attempts: int, ledger: Ledger) -> range:
    """With which attempts it may have begun again, the last time before it had these."""
    if not life.revivals and not ledger.replacements(life):
        return range(1)
    # A buried job comes back only by a revival, which sets both to zero.
    buried = [each.attempts for each in life.outcomes if each.sure and each.kind == "bury" and each.attempts < attempts]
    return range(max(buried, default=-1) + 1, attempts + 1)


def _explains(steps: list[_Counts], taken: Taken, taken_back: int) -> bool:
    for told, name, fewer in ((taken.crashes, "crashes", taken_back), (taken.tries, "tries", 0)):
        bounds = [getattr(each, name) for each in steps]
        if not sum(least for least, _ in bounds) - fewer <= told <= sum(most for _, most in bounds):
            return False
    return True


def _returned_in_vain(life: Life) -> Iterator[Broken]:
    """A job that waits in the end has come back from every lease that was handed out."""
    final = life.final
    if final is not None and final.state in ("ready", "delayed"):
        for lease in life.leases:
            if lease.attempts == final.attempts:
                text = f"{final.state} in the end with attempts {final.attempts}, with which it had been taken"
                yield Broken(life.id, text, (lease.call,))


def expiries(life: Life, ledger: Ledger) -> tuple[int, int]:
    """How many leases of this job ended by the clock: at least, and at most."""
    if len(life.leases) == 1 == len(life.outcomes) and life.outcomes[0].sure and not highest(life):
        return 0, 0  # the usual life: taken once, and settled
    top = highest(life)
    steps = [step(life, k, ledger) for k in range(top)]
    least, most = steps.count("expired"), len(steps) - steps.count("other")
    last = [lease for lease in life.leases if lease.attempts == top]
    settled = any(each.sure and each.attempts == top for each in life.outcomes)
    if last and life.final is None and not settled:
        most += 1  # it may have ended before the job was removed, or done by a call whose end is unknown
    return least, most
