"""What another process does in a race; its answer is one line of JSON.

python -m accoda.testing.other_process '{"url": …, "now": …, "do": "drain", …}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from accoda.clock import ManualClock
from accoda.errors import VersionConflict
from accoda.model import Done, NewJob
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store


async def drain(store: Store, queue: str, **_: object) -> list[int]:
    """Take and finish until nothing is left; the ids that this process finished."""
    finished: list[int] = []
    while jobs := await store.take(queue, 3, lease=3600):
        assert await store.settle([Done(job.lease, then=[NewJob("next", job.data)]) for job in jobs]) == []
        finished += [job.id for job in jobs]
    return finished


async def attach(store: Store, queue: str, name: str, count: int, **_: object) -> list[str]:
    """Join the same job many times; what each answer said."""
    said: list[str] = []
    for n in range(count):
        waiter = f"{name}-{n}".encode()
        (answer,) = await store.enqueue([NewJob(queue, key="k", waiter=waiter, on_duplicate="attach")])
        said.append(answer.what)
    return said


async def count_up(store: Store, name: str, count: int, **_: object) -> int:
    """Add one to a document many times, by compare and set."""
    for _n in range(count):
        await increment(store, name)
    return count


async def increment(store: Store, name: str) -> None:
    while True:
        found = await store.read(name)
        value, version = (int(found.value), found.version) if found else (0, 0)
        try:
            await store.write(name, str(value + 1).encode(), version=version)
            return
        except VersionConflict:
            continue


async def enqueue(store: Store, queue: str, **_: object) -> list[int]:
    return [answer.id for answer in await store.enqueue([NewJob(queue)])]


async def vanish(store: Store, queue: str, count: int, **_: object) -> None:
    """Take jobs and end without a word, as a killed process does."""
    jobs = await store.take(queue, count, lease=60)
    sys.stdout.write(json.dumps([job.id for job in jobs]))
    sys.stdout.flush()
    os._exit(0)


DOES: dict[str, Callable[..., Awaitable[object]]] = {
    "drain": drain,
    "attach": attach,
    "count_up": count_up,
    "enqueue": enqueue,
    "vanish": vanish,
}


async def main(order: dict[str, Any]) -> object:
    clock = None if order["now"] is None else ManualClock(order["now"])
    async with await open_storage(order["url"], clock=clock) as store:
        return await DOES[order["do"]](store, **order["with"])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
