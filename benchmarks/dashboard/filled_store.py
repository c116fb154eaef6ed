"""A store with very many jobs in every state, and the app that serves it.

`python -m benchmarks.dashboard.filled_store URL` serves it on a free port, which it prints.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

from accoda import App, Bury, Done, NewJob
from accoda.payload import encode
from accoda.storage.protocol import Store

QUEUES = ("emails", "invoices", "reports", "thumbnails", "webshop")
AT_ONCE = 1000
DEAD, KEPT, TAKEN = 20_000, 10_000, 200
REASONS = (
    "ConnectionError: no route to mail-{}.example.com",
    "TimeoutError: no answer within 30 s",
    "ValueError: order {} has no address",
    "KeyError: 'customer'",
)


def make_app(url: str) -> App:
    """Handlers for every queue, a budget, a demand and two schedules, so that no page is empty."""
    app = App(url)
    for queue in QUEUES:
        app.handler(queue)(_nothing)
    app.budget("shop-api", capacity=100, refill=100, per=60)
    deals = app.demand("deals", cost=5, budget="shop-api", fresh_for=600)
    deals.fetch(_fetch)
    deals.deliver(_deliver)
    app.every("1h", queue="clean-up")(_tick)
    app.cron("0 7 * * MON-FRI", queue="newsletter", tz="Europe/Rome")(_report)
    return app


async def _nothing(payload: dict[str, int]) -> None: ...
async def _fetch(key: str) -> list[str]:
    return [key]


async def _deliver(waiter: object, found: list[str]) -> None: ...
async def _tick() -> None: ...
async def _report() -> None: ...


async def fill(store: Store, jobs: int, tell: Callable[[str], None]) -> dict[str, int]:
    """Store so many jobs: most wait, at all levels; some are delayed, dead, done or taken. Ids of some that wait."""
    for place, queue in enumerate(QUEUES):
        await _settle(store, queue, DEAD // len(QUEUES), place, bury=True)
        await _settle(store, queue, KEPT // len(QUEUES), place, bury=False)
    waiting = jobs - DEAD - KEPT
    ids: list[int] = []
    for first in range(0, waiting, AT_ONCE):
        queue = QUEUES[0] if first % (2 * AT_ONCE) == 0 else QUEUES[first // AT_ONCE % len(QUEUES)]
        part = [_job(queue, number) for number in range(first, min(waiting, first + AT_ONCE))]
        made = await store.enqueue(part)
        if queue == QUEUES[0]:
            ids.append(made[AT_ONCE // 2].id)
        if first % 100_000 == 0:
            tell(f"{first + AT_ONCE:,} of {waiting:,} jobs")
    for queue in QUEUES:
        await store.take(queue, TAKEN // len(QUEUES), lease=86_400, worker="bench")
    return {"first": ids[0], "middle": ids[len(ids) // 2], "last": ids[-1]}


def _job(queue: str, number: int) -> NewJob:
    data = encode({"order": number, "customer": {"id": number % 1000}})
    delay = 3600.0 + number % 10_000 if number % 17 == 0 else None
    return NewJob(queue, data, rank=float(number % 4), delay=delay)


async def _settle(store: Store, queue: str, count: int, place: int, *, bury: bool) -> None:
    for first in range(0, count, AT_ONCE):
        many = min(AT_ONCE, count - first)
        await store.enqueue([NewJob(queue, encode({"order": n}), rank=-1.0, keep_for=1e6) for n in range(many)])
        jobs = await store.take(queue, many, lease=600)
        await store.settle(
            [
                Bury(job.lease, REASONS[(place + n) % len(REASONS)].format(n % 7)) if bury else Done(job.lease)
                for n, job in enumerate(jobs)
            ]
        )


def main() -> None:
    from accoda.http import ServiceOptions
    from accoda.http.server import Server, configuration, leave_of
    from accoda.service import create_service

    service = create_service(make_app(sys.argv[1]), ServiceOptions())
    server = Server(configuration(service), leave=leave_of(service))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(listener.getsockname()[1], flush=True)
        server.run([listener])


if __name__ == "__main__":
    main()
