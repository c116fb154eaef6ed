"""`python -m benchmarks [--quick]`: measure, print the table, write it to benchmarks/results/."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from accoda import Store, open_storage
from benchmarks.measure import BATCHES, Effort, Rate, fill, producers, rates
from benchmarks.raw import Raw, RawHeap, RawSqlite
from benchmarks.report import HEADINGS, rows, save, table
from benchmarks.wakeup import Wakeup, wakeup

STORAGES = ("memory", "sqlite")


@asynccontextmanager
async def pair(name: str, folder: Path) -> AsyncIterator[tuple[Store, Raw]]:
    """A new store and a new bare engine of that kind."""
    if name == "memory":
        store, raw = await open_storage("memory://"), RawHeap()
    else:
        store, raw = await open_storage(f"sqlite:///{folder}/accoda.db"), RawSqlite(folder / "raw.db")
    try:
        yield store, raw
    finally:
        await store.close()
        raw.close()


async def measure(name: str, waiting: int, effort: Effort) -> list[Rate]:
    with tempfile.TemporaryDirectory(prefix="accoda-bench-") as folder:
        async with pair(name, Path(folder)) as (store, raw):
            await fill(store, raw, waiting, lambda done: tell(f"{name}: {done:,} of {waiting:,} waiting"))
            found = []
            for batch in BATCHES:
                tell(f"{name}: batch {batch:,} with {waiting:,} waiting")
                found += await rates(name, store, raw, batch, waiting, effort)
            return found


async def measure_sharing(effort: Effort) -> tuple[float, float]:
    """Jobs a second from one producer and from a hundred, on SQLite."""
    with tempfile.TemporaryDirectory(prefix="accoda-bench-") as folder:
        async with await open_storage(f"sqlite:///{folder}/accoda.db") as store:
            tell("sqlite: 1 and 100 producers")
            pairs = [
                (await producers(store, 1, effort.seconds), await producers(store, 100, effort.seconds))
                for _ in range(effort.rounds)
            ]
    pairs.sort(key=lambda found: found[1] / found[0])
    return pairs[len(pairs) // 2]


async def measure_wakeup() -> Wakeup:
    with tempfile.TemporaryDirectory(prefix="accoda-bench-") as folder:
        tell("sqlite: wake-up of another process")
        return await wakeup("sqlite", f"sqlite:///{folder}/accoda.db")


def tell(text: str) -> None:
    """Progress, on a line of its own, that a terminal overwrites."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{text:<70}", end=end, file=sys.stderr, flush=True)


def flatness(found: list[Rate], name: str, few: int, many: int) -> str:
    """How the rate of take with many waiting compares with the rate with few, at batch 100."""
    by_waiting = {r.waiting: r.accoda for r in found if (r.storage, r.what, r.batch) == (name, "take", 100)}
    share = by_waiting[many] / by_waiting[few]
    return f"{name}: take with {many:,} waiting runs at {share:.0%} of its rate with {few:,} (batch 100)"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples and 100,000 waiting instead of 1,000,000")
    quick = parser.parse_args().quick
    effort = Effort(0.1, 3) if quick else Effort()
    few, many = 1000, 100_000 if quick else 1_000_000
    found: list[Rate] = []
    for name in STORAGES:
        for waiting in (few, many):
            found += await measure(name, waiting, effort)
    one, hundred = await measure_sharing(effort)
    woken = await measure_wakeup()
    text = "\n".join(
        [
            table(HEADINGS, rows(found)),
            "",
            *(flatness(found, name, few, many) for name in STORAGES),
            f"sqlite: 100 producers enqueue {hundred:,.0f}/s, one {one:,.0f}/s: {hundred / one:.1f} times",
            f"sqlite: another process is woken in {woken.median:.2f} ms (median), {woken.p99:.2f} ms (99th percentile)",
        ]
    )
    print(text)
    if not quick:
        save(found, [woken], text)


if __name__ == "__main__":
    asyncio.run(main())
