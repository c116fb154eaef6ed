"""`place` as a step inside a transaction."""

from __future__ import annotations

from accoda.model import JobInfo, Place
from accoda.storage import density
from accoda.storage.density import Look, Stretch
from accoda.storage.sqlite.inspector import describe, read
from accoda.storage.sqlite.jobs import apply_due, apply_own_due
from accoda.storage.sqlite.transaction import Transaction
from accoda.storage.standing import Survey, estimated


def place_only(tx: Transaction, id: int, most: int) -> tuple[bool, Place | None]:
    """The answer of `place` where that changes nothing, and whether it is one: see `peek_only`."""
    found = tx.row("state_of", id)
    if found is None:
        return True, None
    moments = tx.row("next_moments", found[0], tx.now)
    due = [moment for moment in moments[:2] if moment is not None and moment <= tx.now] if moments else []
    info = None if due or tx.row("own_due", id, tx.now) else read(tx, id)
    return (False, None) if info is None else (True, _stand(tx, found[0], info, most))


def place(tx: Transaction, id: int, most: int) -> Place | None:
    found = tx.row("state_of", id)
    if found is None:
        return None
    apply_due(tx, found[0])
    apply_own_due(tx, id)  # however much else is due
    info = describe(tx, id)
    return None if info is None else _stand(tx, found[0], info, most)


def _stand(tx: Transaction, queue: int, info: JobInfo, most: int) -> Place:
    if info.state not in ("ready", "delayed"):
        return Place(tx.now, info)
    before = tx.rows("line_before", queue, info.rank, info.id, most + 1)
    if len(before) <= most:
        return Place(tx.now, info, len(before), sum(id > info.id for _, id in before))
    tx.finish()  # before the counters are read
    ready, last_rank = tx.row("line_end", queue) or (0, 0.0)
    behind = len(tx.rows("line_from", queue, info.rank, info.id + 1, most + 1))
    ranks = [rank for (rank,) in tx.rows("lowest_ranks", queue, density.RANKS + 1)]
    survey = Survey(tx.now, info, len(before), 0, behind, ready, ranks, last_rank)
    weights = density.drive(density.weigh(survey.line()), lambda look: _look(tx, queue, look))
    return estimated(survey, weights, most)


def _look(tx: Transaction, queue: int, look: Look) -> Stretch:
    entries = tx.rows("line_before" if look.down else "line_from", queue, look.rank, look.id, look.number)
    if not entries:
        return Stretch(())
    far, beyond = tx.row("lane_down" if look.down else "lane_up", queue, entries[-1][0]) or (0, None)
    return Stretch(entries, far, beyond)
