"""A worker process for the tests: takes batches until the store is empty and writes down what it did.

usage: python worker.py URL LOG LEASE WORK     (WORK: seconds that a batch of 50 takes)
"""

import asyncio
import os
import sys

from accoda import Done, open_storage


async def run(url: str, log: int, lease: float, work: float) -> None:
    async with await open_storage(url) as store:
        while True:
            jobs = await store.take("q", 50, lease=lease, worker=str(os.getpid()))
            # One write for a line is atomic, and what the kernel has it keeps when we are killed.
            os.write(log, "".join(f"took {job.id} {job.attempts}\n" for job in jobs).encode())
            if jobs:
                await asyncio.sleep(work)
                refused = {lost.lease for lost in await store.settle([Done(job.lease) for job in jobs])}
                done = [job for job in jobs if job.lease not in refused]
                os.write(log, "".join(f"done {job.id} {job.attempts}\n" for job in done).encode())
            elif not (await store.stats()).queues["q"].total:
                return
            else:
                await store.wait(["q"], 5)


if __name__ == "__main__":
    url, path, lease, seconds = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asyncio.run(run(url, log, float(lease), float(seconds)))
