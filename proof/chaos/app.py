"""The app that worker processes run under fire: `accoda worker proof.chaos.app:app`.

| queue | its jobs |
| --- | --- |
| work | plain ones, and those that come later by a delay |
| chain | each has a follow-up in `work`, enqueued in the step in which it is done |
| flaky | fail once, then run well; a few are buried by their handler |
| keyed | share a few keys: kept, replaced, attached |
| poison | one of them kills its process, its neighbours do not |
| steps | nodes of flows; some add nodes |
| failing | nodes of flows that are buried |
| lanes, lanes.more | jobs of lanes, with turns and limits that the two mostly share; some fail once |

Every run of a job is noted when it starts and when it ends, in one write each.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

from accoda import App, Batch, BuryJob
from accoda.flows.coordinator import Coordinator, FlowTimers, OnEnd
from accoda.runtime.batch import Running
from accoda.runtime.middleware import Run
from accoda.runtime.system_jobs import SystemJob
from proof.chaos.clocks import shift
from proof.chaos.orders import Orders
from proof.chaos.points import PointedConnections
from proof.chaos.settings import FLAKY_BURY, POISON, POISON_CRASHES, Settings
from proof.checker import FileSink, Recorder

settings = Settings.of_environment()
if settings.clock_off:
    shift(settings.clock_off)
recorder = Recorder(settings.client, FileSink(Path(settings.log)))
orders = Orders(recorder, settings.client)
LEASE = settings.lease
LARGE = 40_000
"""Bytes of a result that does not fit into a report."""


async def under_fire(batch: Batch[Any], run: Run) -> None:
    """Around every handler: note the runs, and do what was ordered in the middle of one."""
    for job in batch:
        recorder.note("start", **facts(job))
    order = orders.due("in handler")
    if order is not None:
        await obey(order)
    await run(batch)
    for job in batch:
        recorder.note("end", **facts(job))
    orders.reach("after handler")


def facts(job: Running[Any]) -> dict[str, object]:
    return {"id": job.id, "attempts": job.attempts, "taken_at": job.job.lease.taken_at, "queue": job.queue}


async def obey(order: Any) -> None:
    gate = connections.gate
    if gate is None or order.do == "die":
        orders.obey(order)
        return
    await gate.shut()
    try:
        orders.obey(order)
    finally:
        gate.open()


class ChaosApp(App):
    """Its coordinators have the leases of its handlers, so that flows go on soon after a kill."""

    def _flow_jobs(self, on_end: OnEnd | None = None) -> list[SystemJob]:
        return [FlowTimers(), Coordinator(on_end, lease=LEASE)]


app = ChaosApp(middleware=[under_fire])
connections = PointedConnections(app.url, recorder, orders)
app.connections = connections
if not settings.pool:
    orders.listen()


async def work_a_little() -> None:
    await asyncio.sleep(random.uniform(0.005, 0.03))


@app.handler("work", batch=25, lease=LEASE, retry=0)
async def work(batch: Batch[int]) -> None:
    await work_a_little()


@app.handler("chain", batch=20, lease=LEASE, retry=0)
async def chain(batch: Batch[int]) -> None:
    await work_a_little()
    for job in batch:
        job.enqueue("work", job.payload)


@app.handler("flaky", batch=20, lease=LEASE, retry=0)
async def flaky(batch: Batch[int]) -> None:
    await work_a_little()
    for job in batch:
        if job.payload == FLAKY_BURY:
            batch.bury(job, "asked for")
        elif job.attempts == 0:
            batch.retry(job, delay=random.uniform(0, 0.2), reason="the first run fails")


@app.handler("lanes", batch=20, lease=LEASE, retry=0)
async def lanes(batch: Batch[int]) -> None:
    await in_lanes(batch)


@app.handler("lanes.more", batch=20, lease=LEASE, retry=0)
async def more_lanes(batch: Batch[int]) -> None:
    await in_lanes(batch)


async def in_lanes(batch: Batch[int]) -> None:
    await work_a_little()
    for job in batch:
        if job.payload % 10 == 0 and job.attempts == 0:
            batch.retry(job, delay=random.choice((0.0, 0.2)), reason="the first run fails")


@app.handler("keyed", batch=10, lease=LEASE, retry=0)
async def keyed(batch: Batch[int]) -> None:
    await work_a_little()


@app.handler("steps", batch=10, lease=LEASE, retry=0)
async def step(number: int) -> object:
    await work_a_little()
    job = app.current
    if number % 10 == 0:
        parts = job.flow.map("steps", [1] * (number % 4), name="part", detached=number % 20 == 0)
        job.flow.add("steps", 1, name="after", after=parts)
    known = sorted(job.parents)
    return "x" * LARGE if number % 50 == 49 else [number, known]


@app.handler("failing", batch=10, lease=LEASE, retry=0)
async def fail(number: int) -> None:
    raise BuryJob("asked for")


@app.handler("poison", batch=20, lease=LEASE, max_crashes=POISON_CRASHES, retry=0)
async def poison(batch: Batch[int]) -> None:
    await work_a_little()
    for job in batch:
        if job.payload == POISON:
            recorder.note("kill", client=settings.client, how="poison", id=job.id)
            os.kill(os.getpid(), signal.SIGKILL)
