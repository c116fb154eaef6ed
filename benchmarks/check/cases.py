"""What is measured, for each storage: the storage's verbs, and a whole worker."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from accoda import App, Worker, WorkerOptions
from accoda.settings import Settings
from benchmarks.check.verdict import Figure
from benchmarks.check.yardsticks import PostgresYardstick, RedisYardstick, TarantoolYardstick
from benchmarks.engines import ENGINES, Engine
from benchmarks.measure import Effort, rates
from benchmarks.raw.shape import Raw

NAMES = tuple(ENGINES)
VERBS = ("enqueue", "take+settle", "fused")
BATCHES = (1, 100)
WAITING = 1000
WORKER = "worker, batch 100"
_tables = itertools.count()


async def measure(storage: str, wanted: Sequence[str] | None, rounds: int) -> AsyncIterator[Figure]:
    """The figures of a storage: all, or those with these names."""
    async with ENGINES[storage]() as found:
        engine = _with_yardstick(found)
        for batch in BATCHES:
            names = {verb: f"{storage}: {verb}, batch {batch}" for verb in VERBS}
            if wanted is not None and not set(names.values()) & set(wanted):
                continue
            side = await engine.side(WAITING, 1, lambda text: None)
            for rate in await rates(storage, [side], batch, Effort(0.15, rounds)):
                if rate.what in names and (wanted is None or names[rate.what] in wanted):
                    yield Figure(names[rate.what], rate.accoda, rate.raw, rate.ratio)
            await side.store.purge(side.queue, "ready")
            await side.store.close()
            await side.raw.close()
        if wanted is None or f"{storage}: {WORKER}" in wanted:
            yield await _worker(engine, rounds)


def _with_yardstick(engine: Engine) -> Engine:
    """Memory's and SQLite's bare engines are yardsticks already: of Accoda they have the tables at most."""
    name, url = engine.name, engine.url

    async def open_raw(queue: str, levels: int) -> Raw:
        own = f"{queue}-{next(_tables)}"
        if url is None or name == "sqlite":
            return await engine.open_raw(own, levels)
        if name == "redis":
            return RedisYardstick(int(url.rpartition(":")[2].partition("/")[0]), own)
        if name == "postgres":
            return await PostgresYardstick.open(url, own)
        return TarantoolYardstick(url, own)

    return replace(engine, open_raw=open_raw)


async def _worker(engine: Engine, rounds: int) -> Figure:
    """A worker with one processor drains a queue, beside the yardstick that takes and settles as many."""
    app = App(engine.url or "memory://")
    raw = await engine.open_raw("worker", 1)
    count = 10_000
    pairs = [(await _drained(app, count), await _drained_raw(raw, count)) for _ in range(rounds)]
    await raw.close()
    await app.close()
    return Figure(
        f"{engine.name}: {WORKER}",
        statistics.median(ours for ours, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        statistics.median(ours / theirs for ours, theirs in pairs),
    )


async def _drained(app: App, count: int) -> float:
    """Jobs a second, from the moment when a fifth has run: before that, the worker finds its feet."""
    moments: list[float] = []
    if "checked" not in app.handlers:
        app.handler("checked", batch=100)(_note)
    _heard[:] = [moments]
    await app.enqueue_many("checked", [{"n": 1}] * count)
    settings = Settings.load(environ={}, overrides={"max_processors": 1})
    worker = Worker(app, WorkerOptions(queues=("checked",), burst=True, settings=settings))
    await worker.init()
    await worker.run()
    first = moments[count // 5]
    return (count - count // 5) / (moments[-1] - first)


_heard: list[list[float]] = [[]]


async def _note(payload: dict[str, Any]) -> None:
    _heard[0].append(time.perf_counter())


async def _drained_raw(raw: Raw, count: int) -> float:
    for _ in range(count // 1000):
        await raw.enqueue(1000)
    start = time.perf_counter()
    for _ in range(0, count, 100):
        await raw.settle(await raw.take(100))
    return count / (time.perf_counter() - start)
