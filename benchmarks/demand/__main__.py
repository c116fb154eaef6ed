"""`python -m benchmarks.demand`: requests that join a fetch, beside plain enqueues; and 100,000 waiters on one key."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from proof.servers.process import ServerMissing

from benchmarks.demand.many import Many, many
from benchmarks.demand.rates import Rate, rates
from benchmarks.engines import ENGINES

STORAGES = ("redis", "sqlite", "postgres", "tarantool")
WAITERS = 100_000
RESULTS = Path(__file__).parent.parent / "results" / "demand.md"


def show_rates(found: Sequence[Rate]) -> list[str]:
    lines = [
        "| storage | callers | keys | attaches/s | enqueues/s | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.storage} | {one.callers} | {one.keys:,} | {one.attach:,.0f} | {one.enqueue:,.0f} | {one.ratio:.2f} |"
        for one in found
    ]
    return lines


def show_many(found: Sequence[Many]) -> list[str]:
    lines = [
        "| storage | waiters | all joined in | fetch ended in | all delivered in | calls | delivered "
        "| longest stall: joining | ending | delivering |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.storage} | {one.waiters:,} | {one.joined_in:.1f} s | {one.ended_in:.1f} s | {one.delivered_in:.1f} s "
        f"| {one.calls} | {one.delivered:,} | {one.stall_joining * 1000:.0f} ms | {one.stall_ending * 1000:.0f} ms "
        f"| {one.stall_delivering * 1000:.0f} ms |"
        for one in found
    ]
    return lines


async def measure(name: str, waiters: int, quick: bool) -> tuple[list[Rate], Many]:
    """Each on a fresh store."""
    async with ENGINES[name]() as engine:
        assert engine.url is not None
        found = await rates(name, engine.url, 0.3 if quick else 1.0, 1 if quick else 3)
    async with ENGINES[name]() as engine:
        assert engine.url is not None
        return found, await many(name, engine.url, waiters)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demand", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short samples, 10,000 waiters, nothing saved")
    parser.add_argument("--waiters", type=int, help=f"on the one key (default: {WAITERS:,})")
    parser.add_argument("storages", nargs="*", help=f"of {', '.join(STORAGES)} (all unless told)")
    given = parser.parse_args()
    if unknown := set(given.storages) - set(STORAGES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(STORAGES)}")
    found: list[Rate] = []
    crowds: list[Many] = []
    missing: list[str] = []
    for name in given.storages or STORAGES:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            part, crowd = await measure(name, given.waiters or (WAITERS // 10 if given.quick else WAITERS), given.quick)
        except ServerMissing as reason:
            missing.append(f"{name}: not measured: {reason}")
            continue
        found += part
        crowds.append(crowd)
    text = "\n".join([*show_rates(found), "", *show_many(crowds), *missing])
    print(text)
    if not given.quick and not given.storages:
        RESULTS.write_text(f"{text}\n")


if __name__ == "__main__":
    asyncio.run(main())
