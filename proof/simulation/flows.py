"""Flows in a simulation: the processes that start, stop and repair them, and the handlers of their nodes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, cast

from accoda.app import App
from accoda.errors import AccodaError, StorageError
from accoda.flows.chains import JobCall
from accoda.flows.model import WHENS
from accoda.flows.nodes import Node
from accoda.retry import Exponential

if TYPE_CHECKING:
    from proof.simulation.cluster import Cluster
    from proof.simulation.process import Process
    from proof.simulation.workload import Troubles

FLOW_QUEUES = ("steps", "parts")
"""The queues of the nodes."""
JOBS_FOR_A_FLOW = 150
"""For so many jobs that producers enqueue, a flow is started."""
_LARGE = 40_000
"""Bytes of a result that does not fit into a report."""


def install_steps(process: Process, troubles: Troubles) -> None:
    """Give a process the handlers of the nodes. Some add nodes, and some return much."""
    app, finished, retry = process.app, process.cluster.finished, Exponential(first=0.05, longest=1.0)

    @app.handler("steps", batch=10, lease=2.0, retry=retry, max_attempts=4)
    async def step(number: int) -> Any:
        job = troubles.begun(app.current)
        if troubles.draw():
            await troubles.befall(job, number, longest=3.0)
        if number % 5 == 0:
            parts = job.flow.map("parts", range(number % 4), detached=number % 3 == 0)
            job.flow.add("parts", number, name="after", after=parts, when="all_ended" if parts else "all_done")
        known = sorted(job.parents)
        finished.add((job.job.id, job.job.attempts))
        return "x" * _LARGE if number % 50 == 49 else [number, known]

    @app.handler("parts", batch=20, lease=3.0, retry=retry, max_attempts=4)
    async def part(number: int) -> int:
        job = troubles.begun(app.current)
        if troubles.draw():
            await troubles.befall(job, number, longest=1.0)
        finished.add((job.job.id, job.job.attempts))
        return number


class GivenUp(Exception):
    """What the block of a batch raises."""


async def run_flows(process: Process) -> None:
    """Start flows until all of the plan are asked for, and now and then cancel or repair one."""
    cluster, app = process.cluster, process.app
    random = cluster.stream(process.name)
    pause = 2 * cluster.mix.span * JOBS_FOR_A_FLOW / cluster.plan.jobs
    while cluster.flows_left > 0 and not cluster.calm:
        cluster.flows_left -= 1
        with suppress(StorageError):
            await (_batch if random.random() < 0.25 else _start)(app, cluster, random)
        for id in random.sample(cluster.flow_ids, min(2, len(cluster.flow_ids))):
            with suppress(AccodaError):  # the store is away, or the flow is not there: its start was lost
                await _operate(app, id, random)
        await asyncio.sleep(min(random.expovariate(1.0) * pause, 5.0))


async def _start(app: App, cluster: Cluster, random: Random) -> None:
    """A graph of random shape."""
    flow = app.flow("random", deadline=random.uniform(0.5, 30.0) if random.random() < 0.15 else None)
    cluster.flow_ids.append(flow.id)
    nodes: list[Node] = []
    for _ in range(random.choice((1, 3, 6, 10, 16))):
        after = random.sample(nodes, min(len(nodes), random.choice((0, 1, 1, 2, 3, 8))))
        when = random.choice(WHENS) if after and random.random() < 0.4 else "all_done"
        delay = random.random() * 2.0 if random.random() < 0.1 else None
        nodes.append(flow.add(random.choice(FLOW_QUEUES), random.randrange(1000), after=after, when=when, delay=delay))
    if random.random() < 0.3:
        flow.on_cancel("steps", 1, name="clean up")
    await flow.start()


async def _batch(app: App, cluster: Cluster, random: Random) -> None:
    """A batch whose members come bit by bit. Its process may die meanwhile, and then it stays open."""

    ends = {word: JobCall("parts", 1) for word in ("on_done", "on_ended", "on_any_dead") if random.random() < 0.6}
    batch = app.batch("batch", **cast(Any, ends))
    cluster.flow_ids.append(batch.id)
    with suppress(GivenUp):
        async with batch:
            for _ in range(random.randrange(4)):
                await batch.enqueue_many(random.choice(FLOW_QUEUES), range(random.randrange(1, 8)))
                await asyncio.sleep(random.random())
            if random.random() < 0.1:
                raise GivenUp


async def _operate(app: App, id: str, random: Random) -> None:
    """What an operator does to a flow."""
    kind = random.random()
    if kind < 0.1:
        await app.flows.cancel(id)
    elif kind < 0.7:
        await app.flows.retry(id)
    else:
        await app.flows.get(id)


async def calm_flows(app: App, cluster: Cluster) -> None:
    """The faults are over: close the batches whose producers died, and repair half of the flows that failed."""
    for number, id in enumerate(cluster.flow_ids):
        with suppress(AccodaError):  # its start was lost
            await app.flows.close(id)
            if number % 2:
                await app.flows.retry(id)
