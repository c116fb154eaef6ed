"""A worker process whose own clock is wrong: whatever it asks Python for the time, the answer is off.

usage: python clock_worker.py URL SECONDS_OFF JOBS
"""

import sys
import time

_off = float(sys.argv[2])
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _off  # before anything else is imported
time.time_ns = lambda: _time_ns() + int(_off * 1e9)

import asyncio  # noqa: E402

from accoda import Done, open_storage  # noqa: E402


async def main(url: str, count: int) -> None:
    async with await open_storage(url) as store:
        print("ready", flush=True)  # noqa: T201
        while (await store.stats()).queues["q"].done < count:
            if await store.wait(["q"], 1):
                jobs = await store.take("q", 5, lease=30)
                early = [job.id for job in jobs if job.start_time > _time() * 1000 + 5]
                refused = await store.settle([Done(job.lease) for job in jobs])
                for job in jobs:
                    print(job.id, job.attempts, job.id in early, bool(refused), flush=True)  # noqa: T201


asyncio.run(main(sys.argv[1], int(sys.argv[3])))
