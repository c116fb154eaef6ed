"""`python -m examples.deals.asking`: makes the requests of automations that are due. One process is enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from accoda.clock import Clock, SystemClock
from accoda.demand import Answer

from .app import Service
from .automations import MINUTE, Automation, runs

Told = Callable[[Automation, int, Answer], None]


async def ask_when_due(
    service: Service, automations: Sequence[Automation], clock: Clock, until: int, told: Told
) -> None:
    """From now to the moment `until`, ask for each automation when its moment comes; `told` hears the answers."""
    for at, automation in runs(automations, clock.now(), until):
        if at > clock.now():
            await asyncio.sleep((at - clock.now()) / 1000)
        told(automation, at, await service.ask(automation, at))


def tell(automation: Automation, at: int, answer: Answer) -> None:
    print(f"{automation.id} ({automation.tier}) wants {automation.category}: {answer.what}", flush=True)


async def main() -> None:
    from .app import AUTOMATIONS, service

    clock = SystemClock()
    async with service.app:
        while True:
            await ask_when_due(service, AUTOMATIONS, clock, clock.now() + 60 * MINUTE, tell)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
