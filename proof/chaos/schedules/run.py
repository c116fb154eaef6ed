"""One run: a schedule with so many ticks, two schedulers, kills, and a count of the jobs that came of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from accoda import Cursor, Head, Store, open_storage
from accoda.envelope import unwrap
from accoda.errors import NotFound
from accoda.schedules import Schedule, create, get
from proof.chaos.fleet import python_path

QUEUE = "ticks"
NAME = "chaos"
SCHEDULERS = 2
START = 1.0
"""Seconds until the first tick."""
ON_THEIR_WAY = 60.0
"""Seconds within which jobs that a dead scheduler left in an outbox (Redis Cluster) are moved on by others."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """`pause` is the mean time between kills from outside; `doom` the chance to die in a tick; times in seconds.

    `torn` schedulers are wrong on purpose.
    """

    ticks: int
    every: float
    lease: float = 2.0
    pause: float = 1.0
    doom: float = 0.1
    patience: float = 120.0
    seed: int = 0
    torn: bool = False


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `kills` are from outside, `deaths` in the middle of a tick."""

    ticks: int
    jobs: int
    missing: int
    twice: int
    strange: int
    ended: bool
    kills: int
    deaths: int
    odd_exits: int

    @property
    def ok(self) -> bool:
        wrong = self.missing or self.twice or self.strange or self.odd_exits
        return self.ended and not wrong and self.jobs == self.ticks

    def __str__(self) -> str:
        how = "each tick once: ok" if self.ok else "BROKEN"
        parts = [
            f"{self.ticks} ticks",
            f"{self.kills} kills from outside",
            f"{self.deaths} deaths in a tick",
            f"{self.jobs} jobs",
            f"{self.missing} ticks without a job",
            f"{self.twice} with two",
        ]
        parts += [f"{self.strange} jobs for no tick"] if self.strange else []
        parts += [f"{self.odd_exits} schedulers that left by themselves"] if self.odd_exits else []
        parts += [] if self.ended else ["not ended in time"]
        return f"{', '.join(parts)}; {how}"


class Fleet:
    """The schedulers, and what starts a dead one again."""

    def __init__(self, url: str, orders: Orders, errors: Path) -> None:
        self._url, self._orders, self._errors = url, orders, errors
        self._living: list[Process] = []
        self._exits: Counter[int] = Counter()
        self.kills = 0

    async def fill(self) -> None:
        """Count the dead and start new ones in their places."""
        self._exits.update(one.returncode for one in self._living if one.returncode is not None)
        self._living = [one for one in self._living if one.returncode is None]
        while len(self._living) < SCHEDULERS:
            self._living.append(await self._start())

    def kill(self, chance: random.Random) -> None:
        """Kill one of them, whichever."""
        self._kill(chance.choice(self._living))

    async def end(self) -> None:
        for one in self._living:
            self._kill(one)
            await one.wait()
        self._exits.update(one.returncode for one in self._living if one.returncode is not None)
        self._living = []

    def exits(self) -> tuple[int, int]:
        """Deaths in the middle of a tick, and exits that were not ordered."""
        killed = self._exits[-signal.SIGKILL]
        return max(0, killed - self.kills), self._exits.total() - killed

    def _kill(self, victim: Process) -> None:
        if victim.returncode is None:
            # Not by `victim.kill()`: that looks for its exit code first, and if it has just died by itself, asyncio
            # would never learn the code.
            with suppress(ProcessLookupError):
                os.kill(victim.pid, signal.SIGKILL)
                self.kills += 1

    async def _start(self) -> Process:
        environment = {**os.environ, "ACCODA_URL": self._url, "PYTHONPATH": python_path()}
        words: tuple[str, ...] = ("-m", "proof.chaos.schedules.child", str(self._orders.lease), str(self._orders.doom))
        words = (*words, "torn") if self._orders.torn else words
        with self._errors.open("ab") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable, *words, stdin=DEVNULL, stdout=DEVNULL, stderr=errors, env=environment
            )


async def run(url: str, orders: Orders, errors: Path, tell: Callable[[str], None] = lambda text: None) -> Verdict:
    """Let the ticks come among kills, until the schedule has ended."""
    async with await open_storage(url) as store:
        moments = await begin(store, orders)
        fleet = Fleet(url, orders, errors)
        try:
            ended = await fire(store, fleet, orders, tell)
        finally:
            await fleet.end()
        return await judge(store, moments, ended, fleet)


async def begin(store: Store, orders: Orders) -> set[int]:
    """Store the schedule; the moments of its ticks."""
    first = (await store.look(Head(QUEUE))).at + round(START * 1000)
    step = round(orders.every * 1000)
    moments = {first + number * step for number in range(orders.ticks)}
    begin = datetime.fromtimestamp(first / 1000, UTC)
    end = begin + timedelta(milliseconds=step * (orders.ticks - 1))
    schedule = Schedule(
        name=NAME, queue=QUEUE, every=orders.every, starts_at=begin, ends_at=end, catch_up="all", catch_up_limit=1000
    )
    view = await create(store, schedule)
    assert view.next_at == first
    return moments


async def fire(store: Store, fleet: Fleet, orders: Orders, tell: Callable[[str], None]) -> bool:
    """Kill and start anew until the schedule has ended; False: it takes too long."""
    chance = random.Random(orders.seed)
    try:
        async with asyncio.timeout(START + orders.ticks * orders.every + orders.patience):
            while await is_active(store):
                await fleet.fill()
                await asyncio.sleep(chance.uniform(0, 2 * orders.pause))
                fleet.kill(chance)
                stats = (await store.stats()).queues.get(QUEUE)
                tell(f"{stats.total if stats else 0} of {orders.ticks} ticks, {fleet.kills} kills")
    except TimeoutError:
        return False
    return True


async def is_active(store: Store) -> bool:
    """Whether it has not ended. On Redis Cluster it is away for a while if its scheduler died at the wrong moment."""
    try:
        return (await get(store, NAME)).state == "active"
    except NotFound:
        return True


async def count(store: Store) -> Counter[int]:
    """The jobs that are there, by their ticks."""
    found: Counter[int] = Counter()
    after: Cursor | None = None
    while page := await store.browse(QUEUE, "ready", order="id", after=after, limit=500):
        found.update(unwrap(job.data)[0].tick or 0 for job in page)
        after = page[-1].cursor("id")
    return found


async def judge(store: Store, moments: set[int], ended: bool, fleet: Fleet) -> Verdict:
    """Compare the jobs with the ticks."""
    found = await count(store)
    with suppress(TimeoutError):
        async with asyncio.timeout(ON_THEIR_WAY):
            while moments - found.keys():
                await store.stats()  # the count also moves on what dead schedulers left behind
                await asyncio.sleep(0.5)
                found = await count(store)
    deaths, odd = fleet.exits()
    return Verdict(
        ticks=len(moments),
        jobs=found.total(),
        missing=len(moments - found.keys()),
        twice=sum(times > 1 for times in found.values()),
        strange=len(found.keys() - moments),
        ended=ended,
        kills=fleet.kills,
        deaths=deaths,
        odd_exits=odd,
    )
