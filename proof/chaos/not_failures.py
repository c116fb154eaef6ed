"""`python -m proof.chaos.not_failures deploys outages quarantine --storage redis`: what is no failure of a job.

- deploys: 200 jobs of five seconds that may fail once, and a worker that is replaced every three seconds, ten times,
  with a grace of one. Then it is left alone: all must be done, none dead, none tried or crashed.
- outages: a worker with jobs in hand, and a store that stands still for three leases, five times. None may be dead or
  quarantined, and all must be done in the end.
- quarantine: a job that kills its process whenever it runs, among 100 good ones. All good ones must be done, and the
  pauses between its runs must grow. It is removed after five runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from accoda import App, Remove, Store, open_storage
from proof.chaos.faults import KINDS, Fault, Target, open_target
from proof.chaos.faults.server import Outage
from proof.chaos.strikes import LongLock

JOBS, LENGTH = 200, 5.0
DEPLOYS, EVERY, GRACE = 10, 3.0, 1
OUTAGES, LEASE = 5, 2.0
NEIGHBOURS, RUNS = 100, 5
app = App()


@app.handler("long", batch=100, max_attempts=2)
async def run_long(number: int) -> None:
    await asyncio.sleep(LENGTH)


@app.handler("held", batch=20, lease=LEASE, max_attempts=2)
async def hold(number: int) -> None:
    await asyncio.sleep(0.5)


@app.handler("deadly", batch=20, lease=1.0)
def kill_own_process(number: int) -> None:
    if number == NEIGHBOURS // 2:
        with Path(os.environ["RUNS"]).open("a") as runs:
            runs.write(f"{time.monotonic()}\n")
        os.kill(os.getpid(), signal.SIGKILL)


async def start(url: str, queue: str, *options: str) -> asyncio.subprocess.Process:
    words = f"-m accoda worker proof.chaos.not_failures:app -q {queue} -c 2 --grace {GRACE}".split()
    return await asyncio.create_subprocess_exec(
        sys.executable, *words, *options, env={**os.environ, "ACCODA_URL": url}, stderr=asyncio.subprocess.DEVNULL
    )


async def deploys(target: Target, store: Store) -> None:
    async with App(target.url) as producer:
        await producer.enqueue_many("long", range(JOBS))
    for _ in range(DEPLOYS):
        worker = await start(target.url, "long")
        await asyncio.sleep(EVERY)
        worker.send_signal(signal.SIGTERM)
        await worker.wait()


async def outages(target: Target, store: Store) -> None:
    rng = random.Random(1)
    fault: Fault = Outage(target, LEASE)
    if target.kind == "sqlite":
        fault = LongLock(Path(target.url.removeprefix("sqlite:///")), target.note, LEASE)
    rng.uniform = lambda low, high: 3.0  # type: ignore[method-assign]  # leases that the store stands still for
    async with App(target.url) as producer:
        await producer.enqueue_many("held", range(JOBS * 4))
    worker = await start(target.url, "held")
    for _ in range(OUTAGES):
        while not (await store.stats()).queues["held"].taken:
            await asyncio.sleep(0.01)
        await fault.strike(rng)
        await asyncio.sleep(0.5)
    worker.send_signal(signal.SIGTERM)
    await worker.wait()


async def quarantine(target: Target, store: Store) -> None:
    with tempfile.NamedTemporaryFile("r") as runs:
        os.environ["RUNS"] = runs.name
        async with App(target.url) as producer:
            ids = [each.id for each in await producer.enqueue_many("deadly", range(NEIGHBOURS + 1))]
        pool = await start(target.url, "deadly", "--processes", "2")
        moments: list[float] = []
        while len(moments) < RUNS:
            moments += map(float, runs)  # the lines that came since
            await asyncio.sleep(0.1)
        await store.change([Remove(ids[NEIGHBOURS // 2])])
        pool.send_signal(signal.SIGTERM)
        await pool.wait()
    gaps = [after - before for before, after in pairwise(moments)]
    print("seconds between the runs of the deadly job: " + ", ".join(f"{gap:.1f}" for gap in gaps), flush=True)
    assert gaps == sorted(gaps), "the pauses must grow"


SCENARIOS = {"deploys": (deploys, "long"), "outages": (outages, "held"), "quarantine": (quarantine, "deadly")}


async def run(scenario: str, storage: str) -> bool:
    play, queue = SCENARIOS[scenario]
    began = time.monotonic()
    async with open_target(storage) as target, await open_storage(getattr(target.server, "url", target.url)) as store:
        await play(target, store)
        left = [*await store.browse(queue, "ready", limit=10_000), *await store.browse(queue, "delayed", limit=10_000)]
        blamed = sum(job.tries > 0 or job.crashes > 0 for job in left)
        returns = max((job.attempts for job in left), default=0)
        worker = await start(target.url, queue)
        while (stats := (await store.stats()).queues[queue]).total > stats.dead:
            await asyncio.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
    ends = f"done {stats.done}, dead {stats.dead}, expired {stats.expired}"
    before = f"before the end {len(left)} waited, {blamed} of them blamed, attempts up to {returns}"
    print(f"{scenario} on {storage}: {ends}; {before}; {time.monotonic() - began:.0f} s", flush=True)
    return stats.dead == 0 and blamed == 0


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.chaos.not_failures", description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--storage", action="append", choices=KINDS)
    given = parser.parse_args(words)
    storages = given.storage or ["sqlite", "redis", "postgres", "tarantool"]
    good = [asyncio.run(run(one, each)) for one in given.scenarios for each in storages]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
