"""The app that worker processes run under fire: `accoda worker proof.chaos.app:app`.

| queue | its jobs |
| --- | --- |
| work | plain ones, and those that come later by a delay |
| chain | each has a follow-up in `work`, enqueued in the step in which it is done |
| flaky | fail once, then run well; a few are buried by their handler |
| keyed | share a few keys: kept, replaced, attached |
| poison | one of them kills its process, its neighbours do not |

Every run of a job is noted when it starts and when it ends, in one write each.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

from accoda import App, Batch
from accoda.runtime.batch import Running
from accoda.runtime.middleware import Run
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


app = App(middleware=[under_fire])
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


@app.handler("keyed", batch=10, lease=LEASE, retry=0)
async def keyed(batch: Batch[int]) -> None:
    await work_a_little()


@app.handler("poison", batch=20, lease=LEASE, max_crashes=POISON_CRASHES, retry=0)
async def poison(batch: Batch[int]) -> None:
    await work_a_little()
    for job in batch:
        if job.payload == POISON:
            recorder.note("kill", client=settings.client, how="poison", id=job.id)
            os.kill(os.getpid(), signal.SIGKILL)
