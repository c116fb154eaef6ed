"""Sends one request with an idempotency key, and is killed in the middle: `idempotent_child.py FILE before|after`."""

import asyncio
import os
import signal
import sys
from typing import Any

from accoda import App
from accoda.operations import jobs
from accoda.operations.new_jobs import NewJobRequest


async def main(url: str, when: str) -> None:
    app = App(url)
    store: Any = await app.connections.get()
    enqueue = store.enqueue

    async def fatal(asked: Any) -> Any:
        if when == "after":
            await enqueue(asked)
        os.kill(os.getpid(), signal.SIGKILL)

    store.enqueue = fatal
    await jobs.create_once(app, [NewJobRequest(queue="q", payload=n) for n in range(3)], "key", "anna")


asyncio.run(main(*sys.argv[1:]))
