"""What the jobs of the demo are, and the producer that enqueues them."""

from __future__ import annotations

from random import Random

import msgspec
from msgspec import Struct

from accoda.clock import Clock
from accoda.demo.journal import Journal
from accoda.model import NewJob
from accoda.priority import Priority, strict
from accoda.storage.protocol import Storage

QUEUE = "demo"
FULL = 120
"""The producer holds back while so many jobs are ready: a slow machine must not drown."""

KINDS: dict[Priority, tuple[str, ...]] = {
    Priority.CRITICAL: ("password reset", "fraud check"),
    Priority.HIGH: ("payment", "order mail"),
    Priority.NORMAL: ("invoice", "thumbnail", "search index"),
    Priority.LOW: ("newsletter", "clean-up"),
}
_SHARES = (1, 2, 4, 3)  # of ten jobs, so many of each priority
_WAVE = (1, 1, 2, 3, 4, 3, 2, 1, 0, 0, 0, 1)  # jobs at each step: a backlog grows and is worked off, again and again


class Work(Struct, frozen=True):
    """The payload: what to do, and how many runs of it fail."""

    kind: str
    fails: int = 0


def read_work(data: bytes) -> Work:
    """The payload of a job."""
    return msgspec.msgpack.decode(data, type=Work)


def new_job(number: int, random: Random, now: int) -> NewJob:
    """The job of that number. The number decides its fate, so that even a short demo shows each kind of fate."""
    (priority,) = random.choices(list(Priority), _SHARES)
    work = Work(random.choice(KINDS[priority]), _fails(number))
    delay = 1.0 + number % 4 if number % 7 == 3 else None
    return NewJob(QUEUE, msgspec.msgpack.encode(work), rank=strict(priority, now), delay=delay)


def _fails(number: int) -> int:
    if number % 20 == 5:
        return 4  # buried after its fourth run; works once somebody revived it
    if number % 6 == 1:
        return 1 + number // 6 % 2  # back once or twice, then done
    return 0


class Producer:
    """Enqueues in waves."""

    def __init__(self, storage: Storage, clock: Clock, journal: Journal, seed: int = 1) -> None:
        self._storage = storage
        self._clock = clock
        self._journal = journal
        self._random = Random(seed)
        self._steps = 0

    async def run_once(self) -> int:
        """Enqueue the next few jobs, unless too many wait; how many they were."""
        stats = (await self._storage.stats()).queues.get(QUEUE)
        if stats is not None and stats.ready >= FULL:
            return 0
        count = _WAVE[self._steps // 4 % len(_WAVE)]
        self._steps += 1
        first, now = self._journal.enqueued, self._clock.now()
        jobs = [new_job(first + n, self._random, now) for n in range(count)]
        answers = await self._storage.enqueue(jobs) if jobs else []
        created = sum(answer.what == "created" for answer in answers)
        self._journal.enqueued += created
        return created
