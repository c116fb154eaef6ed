"""A process with many waiters: `python -m proof.chaos.demand.people`.

It says "ready" when it is connected, and begins when it is sent a line, so that several begin together.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from accoda.demand import Waiter
from proof.chaos.demand.app import app, deals, pen, settings

TIERS = ("business", "pro", "starter", "free")


async def join(number: int, key: str) -> str:
    waiter = Waiter(f"w{number}", tier=TIERS[number % 4], data=number)
    pen.note("asks", waiter.id)
    answer = await deals.request(key, waiter)
    pen.note(answer.what, waiter.id, answer.id)
    return answer.what


async def crowd() -> None:
    """All at once, each once."""
    await asyncio.gather(*(join(settings.first + one, f"k{one % settings.keys}") for one in range(settings.count)))


async def come_and_go() -> None:
    """Several at a time join, wait for a moment, and leave again, most of them."""
    end = time.monotonic() + settings.seconds
    rng = random.Random(settings.seed)
    numbers = iter(range(settings.first, settings.first + settings.count))

    async def one_after_another() -> None:
        while time.monotonic() < end and (number := next(numbers, None)) is not None:
            key = f"k{rng.randrange(settings.keys)}"
            if await join(number, key) in ("created", "attached") and rng.random() < 0.7:
                await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 0.05))))
                pen.note("leaves", f"w{number}")
                pen.note(await deals.withdraw(key, f"w{number}"), f"w{number}")

    await asyncio.gather(*(one_after_another() for _ in range(10)))


async def main() -> None:
    async with app:
        await app.connections.get()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await (come_and_go() if settings.seconds else crowd())


if __name__ == "__main__":
    asyncio.run(main())
