"""`python -m chaos.damaged`: records that cannot be read, thousands of them, in front of real workers.

Good jobs and spoiled ones share a queue; more are spoiled while two worker processes run. Every good job must be done
and no worker may die. What was spoiled lies with the dead, or waits out of everybody's way for a time that is not come.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from accoda import App, Batch, NewJob, QueueStats, Store, open_storage
from accoda.payload import encode
from accoda.testing.damage import QUEUE, damage
from accoda.testing.servers.process import ServerMissing
from chaos.faults import open_target
from chaos.fleet import python_path

STORAGES = ("sqlite", "redis", "postgres", "tarantool")
GOOD = 2000
PATIENCE = 240.0

app = App()


@app.handler(QUEUE, batch=100, lease=20)
async def good(batch: Batch[int]) -> None:
    """What was spoiled has no payload of this type: where it can still be read, it is buried for that."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of the spoiled, the good and the workers."""

    storage: str
    spoiled: int
    good: int
    done: int
    left: int
    workers_died: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.done >= self.good and not self.workers_died


async def run(storage: str, count: int, seed: int) -> Outcome:
    """The scenario on one storage: half of the damage before the workers come, half while they work."""
    rng = random.Random(seed)
    began = time.monotonic()
    async with open_target(storage) as target, await open_storage(target.url) as store:
        await store.enqueue([NewJob("marks", b"")])  # so that a counter of another queue is there to be compared
        ids: set[int] = set()
        before = await _spoil(store, rng, count // 2, ids)
        workers = [await _start(target.url) for _ in range(2)]
        try:
            later = await _spoil(store, rng, count - count // 2, ids)
            done = await _until_done(store, ids)
            died = sum(worker.returncode is not None for worker in workers)
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.terminate()
                await worker.wait()
        stats = await _stats(store)
        left = stats.ready + stats.delayed + stats.taken
    return Outcome(storage, before + later, len(ids), done, left, died, time.monotonic() - began)


async def _spoil(store: Store, rng: random.Random, count: int, ids: set[int]) -> int:
    """Spoil so many records, with good jobs among them, whose ids are noted."""
    spoiled = 0
    for begin in range(0, count, 5000):
        made = await store.enqueue([NewJob(QUEUE, encode(n), rank=rng.random()) for n in range(GOOD // 10)])
        ids |= {one.id for one in made}
        spoiled += await damage(store, rng, min(5000, count - begin))
    return spoiled


async def _until_done(store: Store, ids: set[int]) -> int:
    """How many of the good jobs are gone, which for them means done: nothing else removes them."""
    end = time.monotonic() + PATIENCE
    left = set(ids)
    while left and time.monotonic() < end:
        for id in list(left):
            if await store.find(id) is None:
                left.discard(id)
        await asyncio.sleep(0.2)
    return len(ids) - len(left)


async def _stats(store: Store) -> QueueStats:
    return (await store.stats()).queues[QUEUE]


async def _start(url: str) -> asyncio.subprocess.Process:
    command = ("-m", "accoda", "worker", "chaos.damaged:app", "-q", QUEUE, "-c", "2", "--log-level", "ERROR")
    environment = {**os.environ, "ACCODA_URL": url, "PYTHONPATH": python_path()}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, cwd=Path(tempfile.gettempdir()), env=environment
    )


def show(found: Sequence[Outcome]) -> str:
    """The table, in 80 columns."""
    lines = ["storage     spoiled  good jobs     done  not met yet  workers died  seconds"]
    lines += [
        f"{one.storage:<10} {one.spoiled:>8,} {one.good:>10,} {one.done:>8,} {one.left:>12,} {one.workers_died:>13} "
        f"{one.seconds:>8.1f}"
        for one in found
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.damaged", description=__doc__)
    parser.add_argument("--storage", choices=STORAGES, action="append", help="which (default: all)")
    parser.add_argument("--records", type=int, default=25_000, help="to spoil, on each storage")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = []
    for storage in given.storage or STORAGES:
        try:
            found.append(asyncio.run(run(storage, given.records, given.seed)))
        except ServerMissing as missing:
            print(f"{storage} is skipped: {missing}", file=sys.stderr)
            continue
        print(show(found[-1:]), flush=True)
    print("\n" + show(found))
    return 0 if all(one.ok for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
