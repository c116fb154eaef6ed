"""How soon another process that sleeps has a job in hand: after an enqueue, and after a delayed job's start time."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass

from accoda import Done, NewJob, open_storage


@dataclass(frozen=True)
class Wakeup:
    """Milliseconds, from the enqueue or from the start time: the median and the 99th percentile."""

    storage: str
    what: str
    median: float
    p99: float


async def wakeups(name: str, url: str, count: int = 100) -> list[Wakeup]:
    sleeper = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.wakeup", url, stdout=asyncio.subprocess.PIPE
    )
    assert sleeper.stdout is not None
    woken: list[float] = []
    late: list[float] = []
    async with await open_storage(url) as store:
        assert await sleeper.stdout.readline() == b"waiting\n"
        for number in range(count):
            await asyncio.sleep(0.02)  # it sleeps again
            await store.enqueue([NewJob("wake", str(time.time()).encode())])
            woken.append(float(await sleeper.stdout.readline()))
            await asyncio.sleep(0.005)
            await store.enqueue([NewJob("wake", delay=0.02 + number % 7 / 1000)])
            late.append(float(await sleeper.stdout.readline()))
    sleeper.terminate()
    await sleeper.wait()
    return [_summary(name, "wake-up", woken), _summary(name, "lateness", late)]


def _summary(name: str, what: str, times: list[float]) -> Wakeup:
    times.sort()
    return Wakeup(name, what, statistics.median(times), times[int(len(times) * 0.99)])


async def sleep_and_tell(url: str) -> None:
    async with await open_storage(url) as store:
        print("waiting", flush=True)
        while True:
            if await store.wait(["wake"], 60):
                for job in await store.take("wake", 10):
                    # All processes, the server included, share this machine's clock.
                    start = float(job.data) if job.data else job.start_time / 1000
                    print((time.time() - start) * 1000, flush=True)
                    await store.settle([Done(job.lease)])


if __name__ == "__main__":
    asyncio.run(sleep_and_tell(sys.argv[1]))
