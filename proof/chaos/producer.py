"""A producer process: `python -m proof.chaos.producer`. It enqueues in batches at a steady rate until told to end."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from accoda import Enqueued, NewJob, StorageError, Store, open_storage
from accoda.payload import encode
from proof.chaos.flows import FlowProducer
from proof.chaos.lanes import QUEUES, draw_lane
from proof.chaos.settings import FLAKY_BURY, Settings
from proof.chaos.watch import users
from proof.checker import FileSink, Recorder, record

BACKLOG = 4_000
"""More ready and held jobs than this, and the producer waits for the workers."""
LOOK = 0.5
"""Seconds between two looks at the counters."""
KEYS = 40
BURY = encode(FLAKY_BURY)
FLOWS = 0.5
"""How many flows there are for each batch of jobs."""


class Producer:
    """Looks at the counters, and enqueues what is missing. It keeps no count of its own, so it may be killed."""

    def __init__(self, store: Store, settings: Settings, rng: random.Random) -> None:
        self.store = store
        self.settings = settings
        self.rng = rng
        self.missing = 0
        self.flows = FlowProducer(store, rng)
        # Every payload is another, so that the history can tell jobs apart also where no id is known.
        self.numbers = itertools.count(rng.getrandbits(30) << 32)

    async def run(self, stopping: asyncio.Event) -> None:
        looked = 0.0
        while not stopping.is_set():
            try:
                if time.monotonic() - looked > LOOK:
                    self.missing = await self.look()
                    looked = time.monotonic()
                if self.missing > 0:
                    jobs = batch(self.rng, self.numbers)
                    await self.store.enqueue(jobs)
                    self.missing -= len(jobs)
                    if self.rng.random() < FLOWS:
                        await self.flows.start()
            except StorageError:
                pass  # what became of it is not known: the history says so
            if self.missing <= 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), 0.05)
            else:
                await asyncio.sleep(self.rng.uniform(0.0, 0.02))

    async def look(self) -> int:
        """How many jobs should be there by now and are not; none while the workers are behind."""
        queues = users((await self.store.stats()).queues)
        if sum(queue.ready + queue.held for queue in queues) > BACKLOG:
            return 0
        made = sum(queue.total + queue.done for queue in queues)
        wanted = self.settings.rate * (time.monotonic() - self.settings.since)
        # Each of two producers sees the same gap; half of it each, and the next look puts right what is left.
        return min(2_000, int(wanted - made) // 2 + 1)


def batch(rng: random.Random, numbers: Iterator[int]) -> list[NewJob]:
    """10 to 100 jobs of one kind, as a program would enqueue them."""
    count = rng.randint(10, 100)
    payloads = [encode(number) for number in itertools.islice(numbers, count)]
    kind = rng.choices(("work", "delayed", "chain", "flaky", "keyed", "lanes"), (50, 12, 12, 10, 6, 10))[0]
    if kind == "delayed":
        return [NewJob("work", payload, delay=rng.uniform(0.0, 2.0)) for payload in payloads]
    if kind == "flaky":
        return [NewJob("flaky", BURY if rng.random() < 0.01 else payload) for payload in payloads]
    if kind == "keyed":
        return [keyed(rng, payload) for payload in payloads[:10]]
    rank = float(rng.randrange(4))
    if kind == "lanes":
        return [NewJob(rng.choice(QUEUES), payload, rank=rank, lane=draw_lane(rng)) for payload in payloads]
    return [NewJob(kind, payload, rank=rank) for payload in payloads]


def keyed(rng: random.Random, payload: bytes) -> NewJob:
    """One of few keys, so that many meet a job that waits or runs."""
    key = f"k{rng.randrange(KEYS)}"
    how = rng.choice(("keep", "rerank", "replace", "attach"))
    waiter = rng.randbytes(4) if how == "attach" else None
    return NewJob("keyed", payload, key=key, on_duplicate=how, waiter=waiter)  # type: ignore[arg-type]


class Liar:
    """A store that acknowledges some batches and drops them: to show that the verdict finds it."""

    def __init__(self, store: Store, share: float, rng: random.Random) -> None:
        self._store = store
        self._share = share
        self._rng = rng
        self._next = 1 << 40

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if any(job.key for job in jobs) or self._rng.random() >= self._share:
            return await self._store.enqueue(jobs)
        self._next += len(jobs)
        return [Enqueued(self._next - n, "created") for n in range(len(jobs), 0, -1)]

    def __getattr__(self, verb: str) -> object:
        return getattr(self._store, verb)


def leave_with_harness() -> None:
    """End when standard input does: then the harness is gone, and nothing else would end this process."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="chaos-harness", daemon=True).start()


async def main(url: str, settings: Settings) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    rng = random.Random(settings.seed)
    recorder = Recorder(settings.client, FileSink(Path(settings.log)))
    bare = None
    while bare is None:
        try:
            bare = await open_storage(url)
        except StorageError:
            await asyncio.sleep(0.2)
    if settings.drops:
        bare = Liar(bare, settings.drops, rng)  # type: ignore[assignment]
    async with record(bare, recorder) as store:
        await Producer(store, settings, rng).run(stopping)


if __name__ == "__main__":
    leave_with_harness()
    asyncio.run(main(os.environ["ACCODA_URL"], Settings.of_environment()))
