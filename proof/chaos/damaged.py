"""`python -m proof.chaos.damaged`: records that cannot be read, thousands of them, in front of real workers.

Good jobs and spoiled ones share a queue, then two worker processes come. Every good job must be done and no worker may
die. A spoiled record is a dead letter, or waits for a start time that never comes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from accoda import App, Batch, NewJob, Store, open_storage
from accoda.payload import encode
from proof.chaos.faults import open_target
from proof.chaos.fleet import python_path
from proof.damage import QUEUE, damage
from proof.servers.process import ServerMissing

STORAGES = ("sqlite", "redis", "postgres", "tarantool")
GOOD = 200
"""Good jobs among each five thousand that are spoiled."""
PATIENCE = 120.0
NOTES = "DAMAGED_NOTES"

app = App()


@app.handler(QUEUE, batch=100, lease=20)
async def good(batch: Batch[int]) -> None:
    """Note the number of each. What was spoiled has no number: where it can still be read, it is buried for that.

    The notes count, not what the store says of an id: the counters are spoiled too, that of the ids among them.
    """
    lines = "".join(f"{job.payload}\n" for job in batch)
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, lines.encode())
    os.close(file)


class Outcome(msgspec.Struct, frozen=True):
    """What became of the spoiled, the good and the workers. `left`: neither done nor dead, by the store's counters."""

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
    """The scenario on one storage."""
    rng = random.Random(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="accoda-damaged-") as folder:
        notes = Path(folder) / "notes.txt"
        async with open_target(storage) as target, await open_storage(target.url) as store:
            numbers = itertools.count()
            spoiled = await _spoil(store, rng, count, numbers)
            wanted = next(numbers)
            workers = [await _start(target.url, notes) for _ in range(2)]
            try:
                done = await _until_done(notes, wanted)
                died = sum(worker.returncode is not None for worker in workers)
            finally:
                for worker in workers:
                    if worker.returncode is None:
                        worker.terminate()
                    await worker.wait()
            stats = (await store.stats()).queues[QUEUE]
    left = stats.ready + stats.delayed + stats.taken
    return Outcome(storage, spoiled, wanted, done, left, died, time.monotonic() - began)


async def _spoil(store: Store, rng: random.Random, count: int, numbers: Iterator[int]) -> int:
    """Spoil so many records, with good jobs among them, each with a number of its own."""
    spoiled = 0
    for begin in range(0, count, 5000):
        await store.enqueue([NewJob(QUEUE, encode(next(numbers)), rank=rng.random()) for _ in range(GOOD)])
        spoiled += await damage(store, rng, min(5000, count - begin))
    return spoiled


async def _until_done(notes: Path, wanted: int) -> int:
    """How many of the good jobs have run."""
    end = time.monotonic() + PATIENCE
    while True:
        ran = _ran(notes)
        if ran >= wanted or time.monotonic() > end:
            return ran
        await asyncio.sleep(0.2)


def _ran(notes: Path) -> int:
    return len(set(notes.read_text().split())) if notes.exists() else 0


async def _start(url: str, notes: Path) -> asyncio.subprocess.Process:
    command = ("-m", "accoda", "worker", "proof.chaos.damaged:app", "-q", QUEUE, "-c", "2", "--log-level", "ERROR")
    environment = {**os.environ, "ACCODA_URL": url, "PYTHONPATH": python_path(), NOTES: str(notes)}
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, cwd=notes.parent, env=environment
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
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.damaged", description=__doc__)
    parser.add_argument("--storage", choices=STORAGES, action="append", help="which (default: all)")
    parser.add_argument("--records", type=int, default=25_000, help="to spoil, on each storage")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = []
    for storage in given.storage or STORAGES:
        print(f"{storage} …", file=sys.stderr, flush=True)
        try:
            found.append(asyncio.run(run(storage, given.records, given.seed)))
        except ServerMissing as missing:
            print(f"{storage} is skipped: {missing}", file=sys.stderr)
    print(show(found))
    return 0 if all(one.ok for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
