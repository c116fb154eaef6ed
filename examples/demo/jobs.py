"""The jobs of the demo, and the producer that enqueues them."""

from __future__ import annotations

from random import Random

import msgspec
from examples.demo.event_log import EventLog
from msgspec import Struct

from accoda.clock import Clock
from accoda.model import NewJob
from accoda.priority import Priority, strict
from accoda.storage.protocol import Storage

QUEUE = "demo"
FULL = 120
"""The producer pauses while this many jobs are ready, for slow machines."""

KINDS: dict[Priority, tuple[str, ...]] = {
    Priority.CRITICAL: ("password reset", "fraud check"),
    Priority.HIGH: ("payment", "order mail"),
    Priority.NORMAL: ("invoice", "thumbnail", "search index"),
    Priority.LOW: ("newsletter", "clean-up"),
}
_SHARES = (1, 2, 4, 3)  # how many of ten jobs have each priority
_WAVE = (1, 1, 2, 3, 4, 3, 2, 1, 0, 0, 0, 1)  # jobs at each step: a backlog grows and shrinks periodically


class Work(Struct, frozen=True):
    """The payload: what to do, and how many of its runs fail."""

    kind: str
    fails: int = 0


def read_work(data: bytes) -> Work:
    """The payload of a job."""
    return msgspec.msgpack.decode(data, type=Work)


def new_job(number: int, random: Random, now: int) -> NewJob:
    """The job of that number. The number decides whether it fails, so that even a short demo shows every case."""
    (priority,) = random.choices(list(Priority), _SHARES)
    work = Work(random.choice(KINDS[priority]), _fails(number))
    delay = 1.0 + number % 4 if number % 7 == 3 else None
    return NewJob(QUEUE, msgspec.msgpack.encode(work), rank=strict(priority, now), delay=delay)


def _fails(number: int) -> int:
    if number % 20 == 5:
        return 4  # buried after its fourth run; succeeds once it is revived
    if number % 6 == 1:
        return 1 + number // 6 % 2  # retried once or twice, then done
    return 0


class Producer:
    """Enqueues in waves."""

    def __init__(self, storage: Storage, clock: Clock, log: EventLog, seed: int = 1) -> None:
        self._storage = storage
        self._clock = clock
        self._log = log
        self._random = Random(seed)
        self._steps = 0

    async def run_once(self) -> int:
        """Enqueue the next few jobs, unless too many are ready; how many it enqueued."""
        stats = (await self._storage.stats()).queues.get(QUEUE)
        if stats is not None and stats.ready >= FULL:
            return 0
        count = _WAVE[self._steps // 4 % len(_WAVE)]
        self._steps += 1
        first, now = self._log.enqueued, self._clock.now()
        jobs = [new_job(first + n, self._random, now) for n in range(count)]
        answers = await self._storage.enqueue(jobs) if jobs else []
        created = sum(answer.what == "created" for answer in answers)
        self._log.enqueued += created
        return created
