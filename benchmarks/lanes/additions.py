"""What this comparison has beside the others: the memory storage, an environment for DBOS, and adapters of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.peers import catalogue, findings, stores

ADAPTERS = "../../lanes/adapters"
"""Beside those of the other comparisons, as `Peer.script` names it."""


@contextmanager
def memory() -> Iterator[stores.Place]:
    """Each process that opens it has a store of its own."""
    yield stores.Place("Memory of the worker's process", lambda: "memory://", lambda url: None, lambda url: 0)


def add() -> None:
    """Let the harness that all comparisons share know them."""
    stores.PLACES["memory"] = memory
    findings.NAMES["memory"] = "Memory"
    catalogue.ENVIRONMENTS["dbos"] = ("dbos",)
