"""Names of queues that are our own."""

from __future__ import annotations

SYSTEM = "accoda."
"""What the names of our own queues begin with."""


def is_system(queue: str) -> bool:
    """Whether a queue is one of our own: hidden unless asked for, and closed to enqueueing from outside."""
    return queue.startswith(SYSTEM)
