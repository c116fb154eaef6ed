"""`python -m benchmarks [--quick] [STORAGE ...]`: measure, print the table, write it to benchmarks/results/."""

from __future__ import annotations

import argparse
import asyncio
import sys

from proof.servers.process import ServerMissing

from accoda import open_storage
from benchmarks.engines import ENGINES, Engine
from benchmarks.measure import BATCHES, Effort, Rate, processors, producers, rates
from benchmarks.report import HEADINGS, rows, save, table
from benchmarks.wakeup import Wakeup, wakeups

EMBEDDED = ("memory", "sqlite")


async def measure(engine: Engine, amounts: tuple[int, ...], levels: int, effort: Effort) -> list[Rate]:
    """Rates at every batch size; with several levels only at 100, to see whether take stays flat there, too."""
    name = engine.name
    sides = [await engine.side(waiting, levels, lambda text: tell(f"{name}: {text}")) for waiting in amounts]
    found: list[Rate] = []
    for batch in BATCHES if levels == 1 else (100,):
        tell(f"{name}: batch {batch:,}, {levels} level(s)")
        found += await rates(name, sides, batch, effort)
    for side in sides:
        await side.store.purge(side.queue, "ready")
        await side.store.close()
        await side.raw.close()
    return found


async def measure_sharing(engine: Engine, effort: Effort) -> list[str]:
    """What many callers of one process gain over one: enqueueing, and taking and settling, one job at a time."""
    assert engine.url is not None
    lines = []
    async with await open_storage(engine.url) as store:
        for work, count, words in (
            (producers, 100, "producers enqueue"),
            (processors, 16, "processors take and settle"),
        ):
            tell(f"{engine.name}: 1 and {count} {words}")
            pairs = [
                (await work(store, 1, effort.seconds), await work(store, count, effort.seconds))
                for _ in range(effort.rounds)
            ]
            one, many = sorted(pairs, key=lambda found: found[1] / found[0])[len(pairs) // 2]
            lines.append(f"{engine.name}: {count} {words} {many:,.0f}/s, one {one:,.0f}/s: {many / one:.1f} times")
    return lines


def tell(text: str) -> None:
    """Progress, on a line that a terminal overwrites."""
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


async def measure_all(name: str, quick: bool) -> tuple[list[Rate], list[Wakeup], list[str]]:
    effort = Effort(0.1, 3) if quick else Effort()
    # A server is filled ten times slower than memory: there, a hundred thousand show the same.
    amounts = (1000, 1_000_000 if name in EMBEDDED and not quick else 100_000)
    async with ENGINES[name]() as engine:
        found = await measure(engine, amounts, 1, effort)
        mixed = await measure(engine, amounts, 4, effort)
        lines = flatness(found, 1) + flatness(mixed, 4)
        woken: list[Wakeup] = []
        if engine.url is not None:
            lines += await measure_sharing(engine, effort)
            tell(f"{name}: another process is woken")
            woken = await wakeups(name, engine.url)
            lines += [
                f"{name}: {w.what} in another process {w.median:.2f} ms (median), {w.p99:.2f} (99 %)" for w in woken
            ]
    return found, woken, lines


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples, at most 100,000 waiting, nothing saved")
    parser.add_argument("storages", nargs="*", help=f"of {', '.join(ENGINES)} (all unless told)")
    chosen = parser.parse_args()
    if unknown := set(chosen.storages) - set(ENGINES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(ENGINES)}")
    found: list[Rate] = []
    woken: list[Wakeup] = []
    lines: list[str] = []
    for name in chosen.storages or ENGINES:
        try:
            parts = await measure_all(name, chosen.quick)
        except ServerMissing as missing:
            lines.append(f"{name}: not measured: {missing}")
            continue
        found += parts[0]
        woken += parts[1]
        lines += parts[2]
    text = "\n".join([table(HEADINGS, rows(found)), "", *lines])
    print(text)
    if not chosen.quick and not chosen.storages:
        save(found, woken, text)


if __name__ == "__main__":
    asyncio.run(main())
