"""Does a store stay small? Jobs go through it for a long time, with the same number waiting all along."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from accoda.model import Done, NewJob
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store

BATCH = 100
DATA = b"x" * 200


@dataclass(frozen=True)
class Growth:
    """Sizes in bytes after so many jobs; `log` is the largest that the log ever was."""

    jobs: int
    database: int
    log: int
    seconds: float


async def measure(
    jobs: int, backlog: int, *, progress: Callable[[Growth], None] = lambda now: None, looks: int = 20
) -> list[Growth]:
    """Send `jobs` through a fresh store; sizes at `looks` points."""
    with TemporaryDirectory(prefix="accoda-growth-") as folder:
        path = Path(folder) / "jobs.db"
        async with await open_storage(f"sqlite:///{path}") as store:
            return await flow(store, path, jobs, backlog, progress, looks)


async def flow(
    store: Store, path: Path, jobs: int, backlog: int, progress: Callable[[Growth], None], looks: int
) -> list[Growth]:
    start, largest, seen = time.monotonic(), 0, []
    for first in range(0, backlog, BATCH):
        await store.enqueue([NewJob("q", DATA)] * min(BATCH, backlog - first))
    every = max(BATCH, jobs // looks // BATCH * BATCH)
    for gone in range(BATCH, jobs + BATCH, BATCH):
        taken = await store.take("q", BATCH)
        await asyncio.gather(
            store.settle([Done(job.lease) for job in taken]), store.enqueue([NewJob("q", DATA)] * len(taken))
        )
        largest = max(largest, size(path.with_name(path.name + "-wal")))
        if gone % every == 0:
            seen.append(Growth(gone, size(path), largest, time.monotonic() - start))
            progress(seen[-1])
    return seen


def size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
