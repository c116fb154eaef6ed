"""Many lives, some of them at the same time: each is a world of its own, so that its seed alone decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from proof.powercut.life import Findings, Life, Plan
from proof.powercut.machine import machine
from proof.powercut.vfs import installed

AT_ONCE = 4  # a life often waits for its threads


async def run_cuts(cuts: int, first: Plan, progress: Callable[[Findings], None] = lambda found: None) -> Findings:
    """Lives from the seed of `first` on, until at least so many cuts were made."""
    total, seed = Findings(), first.seed

    async def live_on() -> None:
        nonlocal seed
        while total.cuts < cuts:
            plan = replace(first, seed=seed)
            seed += 1
            with machine(vfs) as place:
                total.add(await Life(plan, place).live())
            progress(total)

    with installed() as vfs:
        async with asyncio.TaskGroup() as lives:
            for _ in range(AT_ONCE):
                lives.create_task(live_on())
    return total


async def replay(plan: Plan) -> Findings:
    """One life, as it always is."""
    with installed() as vfs, machine(vfs) as place:
        return await Life(plan, place).live()
