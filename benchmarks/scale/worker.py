"""One worker process: `python -m benchmarks.scale.worker ORDER`, Accoda's own `Worker` with handlers that do nothing.

Each handler adds 1 to a cell of a file that all processes map, which the benchmark reads without any call.
With `late` it also keeps by how many seconds each job ran after the moment in its payload. Until its standard input is
closed it works on; then it prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings

CELL = struct.calcsize("Q")


@dataclass(frozen=True)
class Order:
    """`queues`: so many, `queue-0` and on; 0 means the queue itself."""

    url: str
    queue: str
    cells: str
    cell: int = 0
    queues: int = 0
    batch: int = 100
    processors: int = 4
    late: bool = False

    @property
    def names(self) -> list[str]:
        return [f"{self.queue}-{number}" for number in range(self.queues)] if self.queues else [self.queue]


def handler(order: Order, cells: memoryview, late: array[float]) -> Callable[[float], Awaitable[None]]:
    place = order.cell

    async def count(payload: float) -> None:
        cells[place] += 1

    async def count_late(payload: float) -> None:
        late.append(time.time() - payload)
        cells[place] += 1

    return count_late if order.late else count


async def work(order: Order) -> None:
    late: array[float] = array("d")
    with Path(order.cells).open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:  # noqa: ASYNC230
        cells = memoryview(shared).cast("Q")
        app = App(order.url)
        run = handler(order, cells, late)
        for name in order.names:
            app.handler(name, batch=order.batch)(run)
        settings = Settings.load(environ={}, overrides={"max_processors": order.processors})
        worker = Worker(app, WorkerOptions(settings=settings, system_jobs=False))
        await worker.init()
        working = asyncio.create_task(worker.run())
        # SQLite is written by a thread of its own: what it uses is what a server would use.
        writers = [t.native_id for t in threading.enumerate() if t.name == f"accoda {order.url.rpartition('/')[2]}"]
        print(json.dumps({"pid": os.getpid(), "writers": writers}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await worker.graceful_stop(10)
        await working
        await app.close()
        print(json.dumps({"ran": cells[order.cell], "late": late.tolist()}), flush=True)
        cells.release()


if __name__ == "__main__":
    import uvloop

    logging.disable(logging.WARNING)
    uvloop.run(work(Order(**json.loads(sys.argv[1]))))
