"""All targets, in one list."""

from __future__ import annotations

from proof.fuzz import contracts, demands, documents, payloads, sources, wires
from proof.fuzz.target import Target


def all_targets() -> list[Target]:
    parts = (payloads, contracts, documents, demands, sources, wires)
    return [target for part in parts for target in part.targets()]
