"""Another client of the same store, in a process of its own: how long it waits for an answer, all the while.

`python -m benchmarks.demand.probe URL` writes a document again and again until its standard input is closed, and
then prints the moment and the length (seconds) of each call: a write waits for everything that may hold the store up.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from typing import Self

from accoda import open_storage

EVERY = 0.002
KEPT = 0.001
"""Calls that were answered sooner than that are not told of."""


class Probe:
    """The process, and what it saw."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: Process | None = None
        self.calls: list[tuple[float, float]] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.demand.probe", self._url, stdin=PIPE, stdout=PIPE
        )
        assert self._process.stdout is not None
        await self._process.stdout.readline()
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._process is not None
        text, _ = await self._process.communicate(b"")  # closes its input
        self.calls = [(float(at), float(took)) for at, took in (line.split() for line in text.splitlines())]

    def longest(self, since: float, until: float) -> float:
        """The longest wait that began, or went on, between two moments of `time.monotonic`."""
        return max((took for at, took in self.calls if at < until and at + took > since), default=0.0)


async def call_on(url: str) -> None:
    calls = []
    async with await open_storage(url) as store:
        await store.write("probe", b"")
        print("ready", flush=True)
        closed = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not closed.done():
            began = time.monotonic()
            await store.write("probe", b"")
            took = time.monotonic() - began
            if took > KEPT:
                calls.append((began, took))
            await asyncio.sleep(EVERY)
    print("\n".join(f"{at:.4f} {took:.4f}" for at, took in calls))


if __name__ == "__main__":
    asyncio.run(call_on(sys.argv[1]))
