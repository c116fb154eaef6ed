"""`python -m benchmarks [--quick]`: measure, print the table, write it to benchmarks/results/."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from accoda import open_storage
from benchmarks.measure import BATCHES, Effort, Rate, Side, producers, rates
from benchmarks.raw import Raw, RawHeap, RawSqlite
from benchmarks.report import HEADINGS, rows, save, table
from benchmarks.wakeup import Wakeup, wakeup

STORAGES = ("memory", "sqlite")


async def open_side(name: str, waiting: int, levels: int, folder: Path) -> Side:
    """A new store and a new bare engine of that kind, with that many jobs in both."""
    raw: Raw
    if name == "memory":
        store, raw = await open_storage("memory://"), RawHeap(levels)
    else:
        url = f"sqlite:///{folder}/accoda-{waiting}.db"
        store, raw = await open_storage(url), RawSqlite(folder / f"raw-{waiting}.db", levels)
    side = Side(waiting, levels, store, raw)
    await side.fill(lambda done: tell(f"{name}: {done:,} of {waiting:,} waiting"))
    return side


async def measure(
    name: str, amounts: tuple[int, ...], levels: int, batches: tuple[int, ...], effort: Effort
) -> list[Rate]:
    with tempfile.TemporaryDirectory(prefix="accoda-bench-") as folder:
        sides = [await open_side(name, waiting, levels, Path(folder)) for waiting in amounts]
        found: list[Rate] = []
        for batch in batches:
            tell(f"{name}: batch {batch:,}")
            found += await rates(name, sides, batch, effort)
        for side in sides:
            await side.store.close()
            side.raw.close()
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


def flatness(found: list[Rate], levels: int) -> list[str]:
    """How the rate of take with many waiting compares with the rate with few, at batch 100."""
    chosen = [rate for rate in found if rate.what == "take" and rate.batch == 100]
    return [
        f"{many.storage}: take with {many.waiting:,} waiting on {levels} level{'s'[: levels - 1]} runs at "
        f"{many.to_few:.0%} of its rate with {few.waiting:,} (batch 100)"
        for few, many in zip(chosen[::2], chosen[1::2], strict=True)
    ]


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples and 100,000 waiting instead of 1,000,000")
    quick = parser.parse_args().quick
    effort = Effort(0.1, 3) if quick else Effort()
    few, many = 1000, 100_000 if quick else 1_000_000
    found: list[Rate] = []
    mixed: list[Rate] = []
    for name in STORAGES:
        found += await measure(name, (few, many), 1, BATCHES, effort)
        mixed += await measure(name, (few, many), 4, (100,), effort)
    one, hundred = await measure_sharing(effort)
    woken = await measure_wakeup()
    text = "\n".join(
        [
            table(HEADINGS, rows(found)),
            "",
            *flatness(found, 1),
            *flatness(mixed, 4),
            f"sqlite: 100 producers enqueue {hundred:,.0f}/s, one {one:,.0f}/s: {hundred / one:.1f} times",
            f"sqlite: another process is woken in {woken.median:.2f} ms (median), {woken.p99:.2f} ms (99th percentile)",
        ]
    )
    print(text)
    if not quick:
        save(found, [woken], text)


if __name__ == "__main__":
    asyncio.run(main())
