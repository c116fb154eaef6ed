"""What the adapters of the kill test share: their command line, and the file in which every run is noted.

    python fire_celery.py fill '{"url": "redis://…", "count": 2000, "diary": "runs.txt"}'
    python fire_celery.py work '{"url": "redis://…", "count": 2000, "diary": "runs.txt"}'

`fill` enqueues the numbers from 0 up to `count`; the handler of `work` notes that it began with a number, sleeps 20 ms,
and notes that it ended. This file imports nothing but the standard library: it runs in the environments of all peers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

LENGTH = 0.02
AT_ONCE = 4
"""Jobs that a worker runs at the same time, the same for all."""


@dataclass(frozen=True)
class Order:
    url: str
    count: int
    diary: str

    def note(self, what: str, number: int) -> None:
        """One small append is whole or not there, also when the process is killed."""
        file = os.open(self.diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what} {number} {time.time():.3f}\n".encode())
        os.close(file)

    def run(self, number: int) -> None:
        self.note("began", number)
        time.sleep(LENGTH)
        self.note("ended", number)

    async def run_async(self, number: int) -> None:
        self.note("began", number)
        await asyncio.sleep(LENGTH)
        self.note("ended", number)


def main(fill: Callable[[Order], None], work: Callable[[Order], None]) -> None:
    what, text = sys.argv[1:]
    (fill if what == "fill" else work)(Order(**json.loads(text)))
