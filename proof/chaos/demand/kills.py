"""The worker that serves many waiters is killed by SIGKILL and restarted, again and again: no waiter may be lost.

Each kill is aimed: while `fetch` runs, between its return and the step that ends the fetch, or among the deliveries.
A waiter that was being served when the worker died may be served twice by the same delivery job; a second delivery
job of a waiter would come from a second fetch that served the same requests, and must not be.
"""

from __future__ import annotations

import asyncio
import random
import signal
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec

from proof.chaos.demand.crowd import PROCESSES, WAITERS
from proof.chaos.demand.stage import Stage

FETCHING, FETCHED, DELIVERING = "fetch", "fetched", "deliver"
PATIENCE = 60.0
"""Seconds after which an order that was not carried out is given up."""


class Kills(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. `second_jobs`: waiters with more than one delivery job; `twice`: served more than once.

    `unexplained` are the deliveries that came twice without a lost lease in between.
    """

    kills: dict[str, int]
    wanted: int
    calls: int
    waiters: int
    served: int
    deliveries: int
    twice: int
    second_jobs: int
    unexplained: int
    dead: int
    finished: bool

    @property
    def ok(self) -> bool:
        right = self.served == self.waiters and not (self.second_jobs or self.unexplained or self.dead)
        return right and self.finished and self.calls >= 1 and sum(self.kills.values()) == self.wanted


def moment_of(kill: int, kills: int) -> str:
    """Which moment a kill is for: first while it fetches, then at its end, then among the deliveries."""
    part = kill / kills
    return FETCHING if part < 0.4 else FETCHED if part < 0.75 else DELIVERING


def delay_at(moment: str, stage: Stage, rng: random.Random) -> float:
    """How long after the moment the worker dies: somewhere in what follows it."""
    return rng.uniform(0, {FETCHING: stage.settings.fetch_for, FETCHED: 0.006, DELIVERING: 0.02}[moment])


async def run(
    stage: Stage,
    kills: int,
    *,
    seed: int = 0,
    waiters: int = WAITERS,
    aims: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Kills:
    """Half of the people wait before the first worker starts; the others come when the first kills are over.

    `aims` are the moments of the kills, if they are to be others than those of `moment_of`.
    """
    rng = random.Random(seed)
    aims = aims or [moment_of(kill, kills) for kill in range(kills)]
    each = waiters // PROCESSES
    people = await asyncio.gather(*(stage.people(one, first=one * each, count=each) for one in range(PROCESSES)))
    await stage.send(people[:2])
    made: Counter[str] = Counter()
    late: asyncio.Task[None] | None = None
    worker = await stage.worker()
    for kill in range(kills):
        if kill == min(2, kills - 1):
            late = asyncio.create_task(stage.send(people[2:]))
        tell(f"kill {kill + 1} of {kills}")
        moment = await _kill(stage, worker, aims[kill], rng)
        if moment is None:
            break
        made[moment] += 1
        worker = await stage.worker()
    if late is not None:
        await late
    assert worker.returncode is None, _left_by_itself(stage, worker.returncode)
    return await what_became(stage, made, kills, each * PROCESSES)


async def _kill(stage: Stage, worker: Process, moment: str, rng: random.Random) -> str | None:
    """Order the worker to die at a moment, and wait for it. None: nothing is left at which it could."""
    doom = stage.settings.doom
    for _ in range(round(PATIENCE / 0.5)):
        if moment != DELIVERING and not await stage.fetches():
            moment = DELIVERING  # the fetch has ended meanwhile: it cannot be hit any more
        if not await stage.left():
            return None
        if not doom.exists():
            note = doom.with_suffix(".new")
            note.write_text(f"{moment} {delay_at(moment, stage, rng):.4f}")
            note.rename(doom)
        try:
            async with asyncio.timeout(0.5):
                code = await worker.wait()
        except TimeoutError:
            doom.unlink(missing_ok=True)  # write it anew: the moment may have gone by
            continue
        assert code == -signal.SIGKILL, _left_by_itself(stage, code)
        # The order may have been written anew while the worker was carrying it out: it was not meant for the next one.
        doom.unlink(missing_ok=True)
        return moment
    return None


def _left_by_itself(stage: Stage, code: int) -> str:
    return f"the worker left by itself, with {code}: {stage.errors.read_text()[-2000:]}"


async def what_became(stage: Stage, made: Counter[str], wanted: int, waiters: int) -> Kills:
    finished = await stage.until_served()
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in stage.lines("deliver"):
        runs[line.subject].append((line.job, line.attempts))
    queues = (await stage.store.stats()).queues
    return Kills(
        kills=dict(made),
        wanted=wanted,
        calls=len(stage.lines("fetch")),
        waiters=waiters,
        served=len(runs),
        deliveries=sum(map(len, runs.values())),
        twice=sum(len(found) > 1 for found in runs.values()),
        second_jobs=sum(len({job for job, _ in found}) > 1 for found in runs.values()),
        unexplained=sum(len(found) - len(set(found)) for found in runs.values()),
        dead=sum(queue.dead for queue in queues.values()),
        finished=finished,
    )
