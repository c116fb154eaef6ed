"""Storages that are broken on purpose, to prove that the conformance suite notices.

Each breaks one promise in one small place. `caught_by` names the test that must fail on it; `by_machine` says that the
state machine must find it too (it cannot see what is slow, asleep, or refused before it is stored).

    ACCODA_MUTANT=late-done pytest tests/storage/mutant_target.py
"""

from proof.mutants import (
    browse,
    change,
    documents,
    enqueue,
    lanes,
    leases,
    look,
    purge,
    reports,
    settle,
    sqlite,
    take,
    turns,
    wait,
)
from proof.mutants.mutant import MUTANTS, mutant_fixture

__all__ = [
    "MUTANTS", "browse", "change", "documents", "enqueue", "lanes", "leases", "look", "mutant_fixture", "purge",
    "reports", "settle", "sqlite", "take", "turns", "wait",
]  # fmt: skip
