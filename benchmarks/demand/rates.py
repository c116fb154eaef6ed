"""How many requests a second one process makes that join a fetch, beside as many plain enqueues."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from dataclasses import dataclass

from accoda import App, NewJob
from accoda.demand import Waiter
from benchmarks.measure import together

CALLERS = (1, 100)
KEYS = (1, 1000)
PAYLOAD = b"x" * 64


@dataclass(frozen=True)
class Rate:
    """Medians over the rounds: attaches and enqueues of one job a second, and of the rounds' own ratios."""

    storage: str
    callers: int
    keys: int
    attach: float
    enqueue: float
    ratio: float


async def rates(storage: str, url: str, seconds: float, rounds: int) -> list[Rate]:
    """One caller and a hundred, on one key and on a thousand; attaches and enqueues in turns, so that both meet the
    same noise."""
    found = []
    for keys, callers in itertools.product(KEYS, CALLERS):
        async with App(url) as app:
            pairs = [await _pair(app, f"{keys}-{callers}-{one}", keys, callers, seconds) for one in range(rounds)]
        attach, enqueue = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        found.append(Rate(storage, callers, keys, attach, enqueue, ratio))
    return found


async def _pair(app: App, name: str, keys: int, callers: int, seconds: float) -> tuple[float, float]:
    demand = app.demand(f"bench-{name}", fresh_for=60)
    store = await app.connections.get()
    names = itertools.cycle([f"k{one}" for one in range(keys)])
    for start in range(0, keys, 100):  # the fetches that will be joined
        some = range(start, min(keys, start + 100))
        await asyncio.gather(*(demand.request(f"k{one}", Waiter("first")) for one in some))
    numbers = itertools.count()

    async def attach() -> None:
        answer = await demand.request(next(names), Waiter(f"w{next(numbers)}", tier="pro"))
        assert answer.what == "attached"

    async def enqueue() -> None:
        await store.enqueue([NewJob(f"plain-{name}", PAYLOAD)])

    pair = await together(attach, callers, seconds), await together(enqueue, callers, seconds)
    for queue in (demand.queue, f"plain-{name}"):
        await store.purge(queue, "ready")
    return pair
