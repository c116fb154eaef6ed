"""Whether someone works on a queue: a word for those who enqueue to one that no running worker handles.

It is never a refusal: a worker may come later. The answer may be a few seconds old, as heartbeats are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.errors import StorageError
from accoda.operations.host import Host
from accoda.operations.words import listed, quoted
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats

FRESH = 2.0
"""Seconds for which an answer of the store is used again: enqueueing must not cost a second call each time."""
PATIENCE = 1.0
"""Seconds that the store has to answer."""
TAKEN = 120.0
"""Seconds for which a queue counts as served after a take over the HTTP API: longer than the longest poll."""
MOST_TAKEN = 10_000
LIKE = 0.75
"""How alike a name must be to be suggested, from 0 to 1: `emials` is like `emails`, `reports` is not like `imports`."""

Target = tuple[str, str | None]
"""A queue and a type."""


class _Known(Struct):
    """What is known at the moment `at` (monotonic): workers, queues with running jobs, takes over the HTTP API."""

    at: float = float("-inf")
    workers: list[Heartbeat] = []
    running: frozenset[str] = frozenset()
    taken: dict[str, float] = {}


async def warning_of(host: Host, targets: Iterable[Target]) -> str | None:
    """Why nobody would run some of these jobs now, with the name that may be meant; None: all are handled."""
    try:
        async with asyncio.timeout(PATIENCE):
            known = await _known(host)
    except (StorageError, TimeoutError):  # the jobs are stored: what cannot be known now is no error
        return None
    for queue, type in dict.fromkeys(targets):
        if not any(beat.serves(queue, type) for beat in known.workers) and not _is_taken_from(known, queue):
            return _text(known.workers, queue, type)
    return None


def note_take(host: Host, queue: str) -> None:
    """A worker over the HTTP API asked for jobs of this queue: such workers have no heartbeat."""
    taken = _of(host).taken
    if queue not in taken and len(taken) >= MOST_TAKEN:
        taken.clear()
    taken[queue] = time.monotonic()


def _text(workers: list[Heartbeat], queue: str, type: str | None) -> str:
    if not workers:
        return f"no worker is running; start one that handles queue {queue}"
    if not any(queue in beat.queues for beat in workers):
        names = {name for beat in workers for name in beat.queues}
        return f"no running worker handles queue {queue}{_meant(queue, names)}"
    types = {each for beat in workers for each in beat.types.get(queue, ()) if each is not None}
    if type is None:
        return f"no running worker handles jobs without a type of queue {queue}; its types are {listed(sorted(types))}"
    return f"no running worker handles type {quoted(type)} of queue {queue}{_meant(type, types)}"


def _meant(name: str, known: Iterable[str]) -> str:
    like = get_close_matches(name, sorted(known), 1, LIKE)
    return f"; did you mean {like[0]}?" if like else ""


def _is_taken_from(known: _Known, queue: str) -> bool:
    here = any(queue in beat.queues for beat in known.workers)  # then the running jobs may be of another type
    return (queue in known.running and not here) or time.monotonic() - known.taken.get(queue, float("-inf")) < TAKEN


async def _known(host: Host) -> _Known:
    known, now = _of(host), time.monotonic()
    if now - known.at > FRESH:
        if known.at > 0:
            known.at = now  # one call asks again; those that come meanwhile use what was known before
        store = await host.connections.get()
        workers, stats = await read_heartbeats(store), await store.stats()
        known.at, known.workers = time.monotonic(), workers
        known.running = frozenset(name for name, each in stats.queues.items() if each.taken)
    return known


def _of(host: Host) -> _Known:
    known = _last.get(host)
    if known is None:
        known = _last[host] = _Known()
    return known


_last: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
"""What each app knows."""
