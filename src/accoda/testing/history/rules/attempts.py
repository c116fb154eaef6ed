"""How often a job came back. Each step from attempts k to k + 1 ends the lease k, and something must have ended it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from accoda.testing.history.ledger import Leased, Ledger, Life
from accoda.testing.history.rules.base import Broken, Options
from accoda.testing.history.rules.hidden import Hidden
from accoda.testing.history.rules.leases import clock_end

Step = Literal["expired", "other", "either"]


def attempts_right(ledger: Ledger, options: Options) -> Iterable[Broken]:
    hidden = Hidden(ledger, options)
    for life in ledger.lives.values():
        if highest(life):
            yield from _unseen(life, hidden)
            yield from _unexplained(life, ledger, options)
            yield from _crashes(life, ledger)
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
        text = f"came to attempts {highest(life)}, but nobody took it with attempts {unexplained}"
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


def _crashes(life: Life, ledger: Ledger) -> Iterator[Broken]:
    """A job tells how many of its leases ended without an outcome since it began afresh."""
    fresh_again = bool(life.revivals or ledger.replacements(life))
    for lease in life.leases:
        taken = lease.taken
        if taken.fresh_at > taken.attempts or (taken.fresh_at and not fresh_again):
            text = f"says that it began afresh at attempts {taken.fresh_at}, but nobody revived or replaced it"
            yield Broken(life.id, text, (lease.call,))
            continue
        steps = [step(life, k, ledger) for k in range(taken.fresh_at, taken.attempts)]
        least, most = steps.count("expired"), len(steps) - steps.count("other")
        if not least <= taken.crashes <= most:
            text = f"says {taken.crashes} crashes at attempts {taken.attempts}, but it had {least}"
            yield Broken(life.id, text + (f" to {most}" if most > least else ""), (lease.call,))


def _returned_in_vain(life: Life) -> Iterator[Broken]:
    """Who waits in the end has come back from every lease that was handed out."""
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
