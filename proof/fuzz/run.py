"""The loop: one hostile input after another to one decoder after another, and what came of it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from proof.fuzz.bytes import Source
from proof.fuzz.target import Target

SLOW = 2.0
"""Seconds: a decode that takes longer is as bad as a crash. Generous, because a loaded machine may stop for a while."""
TURN = 250
"""Decodes of a target in a row, before the event loop has its turn."""
MOST_CRASHES = 100


class Crash(Struct, frozen=True):
    """An input that a decoder could not bear."""

    target: str
    data: bytes
    error: str

    def __str__(self) -> str:
        shown = repr(self.data if len(self.data) <= 200 else self.data[:200] + b"...")
        return f"{self.target}: {self.error.strip()}\n  input of {len(self.data)} bytes: {shown}"


class Tally(Struct):
    """What one decoder did: gave something, refused, crashed; and its slowest decode in seconds."""

    accepted: int = 0
    refused: int = 0
    crashed: int = 0
    slowest: float = 0.0

    @property
    def decodes(self) -> int:
        return self.accepted + self.refused + self.crashed


class Report(Struct):
    """The whole run."""

    seed: int
    tallies: dict[str, Tally]
    crashes: list[Crash] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def decodes(self) -> int:
        return sum(tally.decodes for tally in self.tallies.values())

    def __str__(self) -> str:
        width = max(len(name) for name in self.tallies)
        lines = [f"{'decoder':{width}}  {'decodes':>9}  {'accepted':>9}  {'refused':>9}  crashes  slowest"]
        lines += [
            f"{name:{width}}  {tally.decodes:9,}  {tally.accepted:9,}  {tally.refused:9,}  {tally.crashed:7}"
            f"  {tally.slowest * 1000:4.0f} ms"
            for name, tally in self.tallies.items()
        ]
        crashes = sum(tally.crashed for tally in self.tallies.values())
        lines.append(f"{self.decodes:,} decodes, crashes {crashes}, {self.seconds:.1f} s, seed {self.seed}")
        kinds = {(crash.target, crash.error.splitlines()[-1].split(":")[0]): crash for crash in self.crashes}
        return "\n".join((*lines, *(str(crash) for crash in kinds.values())))  # one of each kind is enough


def fuzz(
    targets: Sequence[Target], decodes: int, seed: int = 0, progress: Callable[[int], object] | None = None
) -> Report:
    """Give the targets that many inputs in sum. Inside an event loop, because some decoders belong to connections."""
    return asyncio.run(_fuzz(targets, decodes, seed, progress))


async def _fuzz(targets: Sequence[Target], decodes: int, seed: int, progress: Callable[[int], object] | None) -> Report:
    report = Report(seed, {target.name: Tally() for target in targets})
    # A source for each target: what one gets does not depend on which others take part.
    sources = {target.name: Source(hash_of(target.name) ^ seed) for target in targets}
    shares = sum(target.share for target in targets)
    wanted = {target.name: max(1, round(decodes * target.share / shares)) for target in targets}
    start = time.monotonic()
    while any(wanted.values()):
        for target in targets:
            count = min(wanted[target.name], max(1, round(TURN * target.share)))
            wanted[target.name] -= count
            for _ in range(count):
                _one(target, sources[target.name].next(target.seeds, target.tokens), report)
            await asyncio.sleep(0)
        if progress is not None:
            progress(report.decodes)
    report.seconds = time.monotonic() - start
    return report


def _one(target: Target, data: bytes, report: Report) -> None:
    tally = report.tallies[target.name]
    problem = None
    start = time.perf_counter()
    try:
        target.decode(data)
        tally.accepted += 1
    except target.errors:
        tally.refused += 1
    except Exception as error:
        tally.crashed += 1
        problem = "".join(traceback.format_exception(error, limit=-3))
    took = time.perf_counter() - start
    tally.slowest = max(tally.slowest, took)
    if problem is None and took > SLOW:
        tally.crashed += 1
        problem = f"took {took:.1f} s"
    if problem is not None and len(report.crashes) < MOST_CRASHES:
        report.crashes.append(Crash(target.name, data, problem))


def hash_of(name: str) -> int:
    """A number from a name, the same in every process."""
    return int.from_bytes(name.encode()) % (1 << 61)
