"""What has come and gone leaves nothing behind: after thousands of jobs the tables are as empty as before."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import Bury, Done, ManualClock, NewJob, Retry, Store, open_storage
from accoda.model import Remove
from accoda.storage.memory import MemoryStorage

DAY = 86_400.0
ROUNDS = 25
Sizes = Callable[[], Awaitable[dict[str, int]]]


async def live(store: Store, clock: ManualClock, n: int) -> None:
    """A round of everything: some hundred jobs that are done, kept, retried, buried, left to their leases, purged."""
    queue = f"q{n % 3}"
    keyed = [NewJob(queue, key=f"{n}-{each}", waiter=b"w", keep_for=each % 2 * 60.0) for each in range(20)]
    await store.enqueue([*keyed, *(NewJob(queue, rank=n * 100 + each, delay=each % 3) for each in range(100))])
    await store.enqueue([NewJob(queue, key=f"{n}-{each}", on_duplicate="attach", waiter=b"v") for each in range(20)])
    clock.advance(3)
    jobs = await store.take(queue, 200, lease=10)
    await store.settle([Done(job.lease, then=[NewJob(queue)]) for job in jobs[:40]])
    await store.settle([Retry(job.lease, delay=1) for job in jobs[40:60]])
    await store.settle([Bury(job.lease, "x") for job in jobs[60:100]])
    await store.change([Remove(job.id) for job in jobs[100:105]])
    clock.advance(11)  # the rest is left to its leases
    while left := await store.take(queue, 50):
        await store.settle([Done(job.lease) for job in left])
    for each in range(10):
        await store.write(f"note/{n}/{each}", b"x", ttl=5)
    await store.write("heartbeat", b"x", ttl=30)
    await store.pause(queue, clock.now() + 1)


async def empty(store: Store, clock: ManualClock) -> None:
    clock.advance(2 * DAY)
    for name in (await store.stats()).queues:
        while await store.purge(name, "dead", before=clock.now(), limit=100):
            pass
    for _ in range(3):
        await store.stats()
        await store.write("heartbeat", b"x", ttl=30)


async def check(store: Store, clock: ManualClock, sizes: Sizes) -> None:
    for n in range(3):  # so that the three queues are known
        await live(store, clock, n)
    await empty(store, clock)
    before = await sizes()
    for n in range(ROUNDS):
        await live(store, clock, n)
    assert await sizes() != before
    await empty(store, clock)
    assert await sizes() == before


async def test_sqlite(tmp_path: Path) -> None:
    async def sizes() -> dict[str, int]:
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            return {table: raw.execute(f"SELECT count(*) FROM {table}").get for table in tables}

    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/q.db?durability=fast", clock=clock) as store:
        await check(store, clock, sizes)


async def test_postgres() -> None:
    clock = ManualClock()
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"])) as server:
        raw = await asyncpg.connect(server.url)

        async def sizes() -> dict[str, int]:
            tables = await raw.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'accoda' ORDER BY 1")
            return {table: await raw.fetchval(f"SELECT count(*) FROM accoda.{table}") for (table,) in tables}

        async with await open_storage(server.url, clock=clock) as store:
            await check(store, clock, sizes)
        await raw.close()


async def test_memory() -> None:
    clock = ManualClock()
    async with MemoryStorage(clock) as store:

        async def sizes() -> dict[str, int]:
            queues = store._queues.values()
            return {
                "jobs": len(store._jobs),
                "keys": sum(len(queue.keys) for queue in queues),
                "records": sum(len(records) for queue in queues for records in queue.states.values()),
                "documents": len(store._documents.all),
            }

        await check(store, clock, sizes)
        # Hints may outlive what they point at, but only so many.
        for queue in store._queues.values():
            assert len(queue.order) + len(queue.ages) + len(queue.due) + len(queue.kept) < 1000
        assert len(store._documents._ends) < 200
