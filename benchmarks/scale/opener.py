"""The new process that opens a store and takes one job: `python -m benchmarks.scale.opener URL QUEUE`.

It prints two moments: before it opens the store, and when it has its job.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from accoda import Done, open_storage


async def take_one(url: str, queue: str) -> None:
    begun = time.monotonic()
    async with await open_storage(url) as store:
        jobs = await store.take(queue, 1)
        print(json.dumps((begun, time.monotonic())), flush=True)
        await store.settle([Done(job.lease) for job in jobs])
        assert jobs, "the jobs are gone"


if __name__ == "__main__":
    asyncio.run(take_one(*sys.argv[1:]))
