"""Part `many`: ten million waiting jobs beside a thousand, each in a store of its own, asked in turns."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from accoda import Done, NewJob, Store, open_storage
from benchmarks.raw.shape import PAYLOAD
from benchmarks.scale.load import LOADERS, Loaded, Order, load
from benchmarks.scale.pages import look
from benchmarks.scale.places import PLACES, Place
from benchmarks.scale.processes import run_module
from benchmarks.scale.record import Progress
from benchmarks.scale.sizes import Sizes
from benchmarks.scale.usage import each_processor_seconds, grown

QUEUE = "waiting"
BATCHES = (100, 1)
LEAST_SHARE = 0.7
MOST_STATS_MS = 5.0


@dataclass(frozen=True)
class Sample:
    """One round: jobs a second by the takes alone, and the processor seconds for a job of client and server over take,
    settle and the enqueue that fills up again."""

    rate: float
    processor: float


async def sample(place: Place, store: Store, batch: int, seconds: float) -> Sample:
    """Take, settle, and enqueue as many, so that the number of waiting jobs stays the same at every take."""
    more = [NewJob(QUEUE, PAYLOAD)] * batch
    taking, count, begun = 0.0, 0, time.perf_counter()
    servers, mine = each_processor_seconds(place.servers()), time.process_time()
    while time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        jobs = await store.take(QUEUE, batch, worker="bench")
        taking += time.perf_counter() - before
        assert len(jobs) == batch, "the queue ran empty: the sample would measure nothing"
        await store.settle([Done(job.lease) for job in jobs])
        await store.enqueue(more)
        count += batch
    used = grown(servers, each_processor_seconds(place.servers())) + time.process_time() - mine
    return Sample(count / taking, used / count)


async def takes(few: Place, many: Place, sizes: Sizes, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """In turns, few and many, and the median of the rounds' own ratios."""
    found = []
    async with await open_storage(few.url) as a, await open_storage(many.url) as b:
        for batch in BATCHES:
            pairs = []
            for turn in range(sizes.rounds + 1):
                both = (await sample(few, a, batch, sizes.seconds), await sample(many, b, batch, sizes.seconds))
                if turn:  # the first warms both up
                    pairs.append(both)
            found.append(
                {
                    "batch": batch,
                    "few": statistics.median(one.rate for one, _ in pairs),
                    "many": statistics.median(other.rate for _, other in pairs),
                    "ratio": statistics.median(other.rate / one.rate for one, other in pairs),
                    "ratios": sorted(round(other.rate / one.rate, 3) for one, other in pairs),
                    "processor_ratio": statistics.median(one.processor / other.processor for one, other in pairs),
                }
            )
            tell(f"take at batch {batch}: {found[-1]['ratio']:.0%} of the rate with few")
    return found


async def stats_ms(place: Place, looks: int) -> dict[str, float]:
    async with await open_storage(place.url) as store:
        times = []
        for _ in range(looks + 1):
            before = time.perf_counter()
            await store.stats()
            times.append((time.perf_counter() - before) * 1000)
    return {"median": statistics.median(times[1:]), "worst": max(times[1:])}


def first_take(url: str) -> tuple[float, float]:
    """A new process opens the store and takes one job: seconds since it was started, and since it began to open."""
    begun = time.monotonic()
    with run_module("opener", url, QUEUE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the process that opens the store again ended without an answer")
        opened, took = json.loads(line)
    return took - begun, took - opened


def restart(place: Place) -> dict[str, float]:
    """The server stops in order and starts again; the time counts from the start until a new client has its job."""
    if not place.servers():
        whole, opened = first_take(place.url)
        return {"seconds": opened, "with_python": whole}
    stopped = time.monotonic()
    place.restart()
    up = time.monotonic()
    whole, opened = first_take(place.url)
    return {"seconds": up - stopped + opened, "with_python": up - stopped + whole, "server": up - stopped}


def measure(name: str, sizes: Sizes, tell: Callable[[str], None]) -> dict[str, Any]:
    with ExitStack() as stack:
        few, many = (stack.enter_context(PLACES[name]()) for _ in range(2))
        empty = asyncio.run(_opened(many))
        load(Order(few.url, QUEUE, sizes.few))
        before = each_processor_seconds(many.servers())
        loaded = load(Order(many.url, QUEUE, sizes.jobs), LOADERS[name], tell)
        used = grown(before, each_processor_seconds(many.servers())) if name == "redis" else 0.0
        size = asyncio.run(many.size()) - empty
        begun = time.monotonic()
        for place in (few, many):
            asyncio.run(_beside(place))
        asyncio.run(_tidied(few, many))
        tidy = time.monotonic() - begun
        found = {
            **_load_facts(loaded),
            "load_server": used / sizes.jobs,
            "bytes": size / sizes.jobs,
            "tidy_seconds": tidy,
            "take": asyncio.run(takes(few, many, sizes, tell)),
            "stats_ms": asyncio.run(stats_ms(many, sizes.looks)),
            "stats_few_ms": asyncio.run(stats_ms(few, sizes.looks)),
        }
        tell("the dashboard")
        found["pages_ms"] = look(many.url, QUEUE, sizes.looks)
        tell("restart")
        found["restart"] = restart(many)
    return found


def _load_facts(loaded: Loaded) -> dict[str, Any]:
    steps = loaded.rates()
    return {
        "load_seconds": loaded.seconds,
        "load_rate": loaded.rate,
        "load_steps": [(count, round(rate)) for count, rate in steps],
        "load_last_to_first": steps[-1][1] / steps[0][1],
        "load_client": loaded.client,
    }


async def _opened(place: Place) -> int:
    """The store with its empty tables, and its size."""
    async with await open_storage(place.url) as store:
        await store.stats()
    return await place.size()


async def _beside(place: Place) -> None:
    """Two more queues, one with a single job and one that has run empty, as any store in service has them: what looks
    for the first job of a queue must not walk over the millions of another."""
    async with await open_storage(place.url) as store:
        await store.enqueue([NewJob("beside", PAYLOAD), NewJob("empty", PAYLOAD)])
        await store.settle([Done(job.lease) for job in await store.take("empty", 1)])


async def _tidied(*places: Place) -> None:
    for place in places:
        await place.tidy()


def run(storages: list[str], sizes: Sizes, progress: Progress) -> dict[str, Any]:
    result: dict[str, Any] = {"jobs": sizes.jobs, "few": sizes.few}
    for name in storages:
        result[name] = measure(name, sizes, lambda text, name=name: progress.tell(f"{name}: {text}", often=True))  # type: ignore[misc]
        result[name]["verdict"] = verdict(result[name])
        for line in result[name]["verdict"]:
            progress.tell(f"{name}: {line}")
    return result


def verdict(found: dict[str, Any]) -> list[str]:
    """What must hold, each with what was found and whether it does."""
    lines = [
        f"take at batch {one['batch']}: {one['ratio']:.0%} of the rate with few (at least {LEAST_SHARE:.0%}): "
        + ("yes" if one["ratio"] >= LEAST_SHARE else "NO")
        for one in found["take"]
    ]
    median = found["stats_ms"]["median"]
    return [
        *lines,
        f"stats in {median:.2f} ms (under {MOST_STATS_MS:.0f}): " + ("yes" if median < MOST_STATS_MS else "NO"),
    ]
