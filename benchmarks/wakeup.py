"""From an enqueue in one process to the take in another that sleeps, on an idle queue."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass

from accoda import Done, NewJob, open_storage


@dataclass(frozen=True)
class Wakeup:
    """Milliseconds: the median and the 99th percentile."""

    storage: str
    median: float
    p99: float


async def wakeup(name: str, url: str, count: int = 100) -> Wakeup:
    sleeper = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.wakeup", url, stdout=asyncio.subprocess.PIPE
    )
    assert sleeper.stdout is not None
    delays: list[float] = []
    async with await open_storage(url) as store:
        assert await sleeper.stdout.readline() == b"waiting\n"
        for _ in range(count):
            await asyncio.sleep(0.02)  # it sleeps again
            await store.enqueue([NewJob("wake", str(time.monotonic_ns()).encode())])
            delays.append(float(await sleeper.stdout.readline()))
    sleeper.terminate()
    await sleeper.wait()
    delays.sort()
    return Wakeup(name, statistics.median(delays), delays[int(len(delays) * 0.99)])


async def sleep_and_tell(url: str) -> None:
    async with await open_storage(url) as store:
        print("waiting", flush=True)
        while True:
            if await store.wait(["wake"], 60):
                for job in await store.take("wake", 10):
                    print((time.monotonic_ns() - int(job.data)) / 1e6, flush=True)
                    await store.settle([Done(job.lease)])


if __name__ == "__main__":
    asyncio.run(sleep_and_tell(sys.argv[1]))
