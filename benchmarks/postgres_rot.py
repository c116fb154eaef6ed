"""Does speed rot? `python -m benchmarks.postgres_rot [jobs]` runs 2,000,000 jobs through one table.

A durable PostgreSQL with its own settings. There are always WAITING jobs in the queue; again and again SLICE jobs are
enqueued in thousands, then as many are taken and settled in hundreds by two workers. After each slice a control does
the same with a few jobs on a table that was just emptied, in another schema: what the machine gives varies with time
and the share of the control's rate does not. A line shows a tenth of the run, and what the dead rows have done
to the files. The share of the last tenth should be 80 % of that of the first, or better.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import asyncpg  # type: ignore[import-untyped]
from proof.servers.postgres import PostgresServer

from accoda.model import Done, NewJob
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from benchmarks.report import RESULTS, table

WAITING = 50_000
SLICE = 20_000
CONTROL = 4_000
BATCH = 100
WORKERS = 2
PAYLOAD = b"x" * 100
HEADINGS = (
    "storage", "jobs", "take+settle/s", "control/s", "share", "table MB", "indexes MB", "dead rows", "autovacuums",
    "own vacuums",
)  # fmt: skip

SIZES = """
SELECT pg_table_size('accoda.jobs') / 1e6, pg_indexes_size('accoda.jobs') / 1e6, n_dead_tup,
       autovacuum_count, vacuum_count
FROM pg_stat_all_tables WHERE relid = 'accoda.jobs'::regclass
"""


async def put(store: Store, count: int) -> None:
    for _ in range(0, count, 1000):
        await store.enqueue([NewJob("rot", PAYLOAD, rank=float(n % 4)) for n in range(1000)])


async def work(store: Store, count: int) -> None:
    for _ in range(count // BATCH):
        jobs = await store.take("rot", BATCH)
        assert len(jobs) == BATCH
        assert await store.settle([Done(job.lease) for job in jobs]) == []


async def run_slice(store: Store, jobs: int) -> float:
    """Enqueue, then take and settle; the seconds of the latter."""
    await put(store, jobs)
    start = time.perf_counter()
    await asyncio.gather(*(work(store, jobs // WORKERS) for _ in range(WORKERS)))
    return time.perf_counter() - start


async def tenth(store: Store, control: Store, sql: Any, jobs: int) -> tuple[float, float]:
    """Run so many jobs; jobs a second of take and settle, there and on the control."""
    spent, control_spent = 0.0, 0.0
    for _ in range(0, jobs, SLICE):
        spent += await run_slice(store, SLICE)
        await sql.execute("TRUNCATE control.jobs, control.counts")
        control_spent += await run_slice(control, CONTROL)
    return jobs / spent, jobs // SLICE * CONTROL / control_spent


async def main() -> None:
    total = int(sys.argv[1]) if sys.argv[1:] else 2_000_000
    with PostgresServer() as server:
        sql: Any = await asyncpg.connect(server.url)
        async with (
            await open_storage(server.url) as store,
            await open_storage(f"{server.url}?schema=control") as control,
        ):
            await put(store, WAITING)
            await tenth(store, control, sql, SLICE)  # plans and caches
            shares: list[float] = []
            lines: list[tuple[str, ...]] = []
            for n in range(1, 11):
                rate, reference = await tenth(store, control, sql, total // 10)
                shares.append(rate / reference)
                table_mb, index_mb, dead, auto, own = await sql.fetchrow(SIZES)
                figures = (f"{table_mb:.1f}", f"{index_mb:.1f}", f"{dead:,}", str(auto), str(own))
                lines.append(("postgres", f"{total // 10 * n:,}", f"{rate:,.0f}", f"{reference:,.0f}",
                              f"{shares[-1]:.0%}", *figures))  # fmt: skip
                print(f"{total // 10 * n:,} jobs", file=sys.stderr, flush=True)
        await sql.close()
    text = table(HEADINGS, lines)
    text += f"\n\nThe last tenth runs at {shares[-1] / shares[0]:.0%} of the first, by its share of the control."
    print(text)
    if not sys.argv[1:]:
        (RESULTS / "postgres_rot.md").write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(main())
