"""What handlers ran, by the notes `start` and `end`."""

from __future__ import annotations

from collections.abc import Iterable

from proof.checker.ledger import Ledger
from proof.checker.records import Note
from proof.checker.rules.base import Broken, Options


def runs_explained(ledger: Ledger, options: Options) -> Iterable[Broken]:
    """A run has a lease, which was handed to that client before it began, and a lease has one run.

    A job that runs again with higher attempts had come back: that is explained by what brought it back, which the rule
    on attempts looks into.
    """
    first: dict[tuple[int, int], Note] = {}
    for note in ledger.notes("start"):
        id, attempts = int(note.fields["id"]), int(note.fields["attempts"])
        life = ledger.lives.get(id)
        calls = [lease.call for lease in life.leases if lease.attempts == attempts] if life is not None else []
        other = first.setdefault((id, attempts), note)
        if other is not note:
            yield Broken(id, f"ran twice with attempts {attempts}, by {other.client} and {note.client}", tuple(calls))
        if not calls:
            yield Broken(id, f"ran with attempts {attempts} by {note.client}, but no take was given that lease")
        elif all(call.start.client != note.client or call.started > note.at for call in calls):
            text = f"ran with attempts {attempts} by {note.client}, which did not hold that lease"
            yield Broken(id, text, tuple(calls))
