"""All targets, in one list."""

from __future__ import annotations

from accoda.testing.fuzz import contracts, documents, payloads, sources, wires
from accoda.testing.fuzz.target import Target


def all_targets() -> list[Target]:
    return [*payloads.targets(), *contracts.targets(), *documents.targets(), *sources.targets(), *wires.targets()]
