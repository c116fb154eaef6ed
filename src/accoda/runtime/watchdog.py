"""Finds a worker that lives but does nothing: the silent stall."""

from __future__ import annotations

from collections.abc import Iterable

from accoda.model import Stats


def stalled(stats: Stats, queues: Iterable[str], free: int, silent: float, after: float) -> str:
    """Why a worker is stalled; empty if it is not.

    It is, if jobs are ready in a queue that is not paused, processors are free to run them, and none was taken for
    `after` seconds.

    >>> from accoda.model import QueueStats
    >>> stalled(Stats({"emails": QueueStats(ready=7)}), ["emails"], 2, 31.0, 30.0)
    '7 jobs are ready in emails and 2 processors are free, but none was taken for 31 s'
    """
    if not free or silent < after:
        return ""
    ready = {q: stats.queues[q].ready for q in queues if q in stats.queues and not stats.queues[q].paused}
    waiting = {queue: count for queue, count in ready.items() if count}
    if not waiting:
        return ""
    names = ", ".join(waiting)
    return (
        f"{sum(waiting.values())} jobs are ready in {names} and {free} processors are free, "
        f"but none was taken for {silent:.0f} s"
    )
