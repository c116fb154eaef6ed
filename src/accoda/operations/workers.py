"""Workers that are alive, by their heartbeats; and draining one, so that it can be stopped."""

from __future__ import annotations

import builtins

from msgspec import Struct

from accoda.errors import NotFound
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.views import same
from accoda.runtime.drain import ask, asked_for
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, QueueSums, read_heartbeats


class ProcessorView(Struct, rename="camel", frozen=True, kw_only=True):
    """What one processor runs of one queue, in how many slots at most; without a queue it runs nothing."""

    queue: str | None = None
    jobs: int = 0
    slots: int = 1
    first_id: int | None = None
    since: str | None = None
    busy_for: float | None = None

    @classmethod
    def of(cls, processor: ProcessorState, now: int) -> ProcessorView:
        since = processor.since
        return cls(
            **same(processor, "queue jobs slots first_id"),
            since=rfc3339(since),
            busy_for=None if since is None or processor.queue is None else max(0, now - since) / 1000,
        )


class HandlerStatsView(Struct, rename="camel", frozen=True, kw_only=True):
    """What a worker's handlers did for a queue since it started: jobs that were done, runs that failed, jobs that went
    back, seconds that they ran in sum, and the latest error."""

    processed: int = 0
    errors: int = 0
    retried: int = 0
    duration: float = 0.0
    last_error: str = ""

    @classmethod
    def of(cls, sums: QueueSums) -> HandlerStatsView:
        return cls(**same(sums, "processed errors retried last_error"), duration=round(sums.ran, 3))


class WorkerView(Struct, rename="camel", frozen=True, kw_only=True):
    """A worker, as it last described itself `beat_age` seconds ago: `running` jobs of the `slots` that it can run at
    once. `problem` is empty while all is well.

    `types` are those that it handles, by queue; a queue that is not there has handlers without a type only.
    `stats` is what its handlers did, by queue. `draining`: it was asked to take nothing more. `drained`: it knows, and
    nothing runs in it any more.
    """

    id: str
    name: str
    host: str
    pid: int
    started_at: str
    beat_at: str
    beat_age: float
    queues: builtins.list[str]
    types: dict[str, builtins.list[str | None]] = {}
    stats: dict[str, HandlerStatsView] = {}
    max_processors: int
    slots: int
    running: int
    processors: builtins.list[ProcessorView]
    ready: bool
    problem: str = ""
    draining: bool = False
    drained: bool = False

    @classmethod
    def of(cls, beat: Heartbeat, now: int, draining: bool = False) -> WorkerView:
        return cls(
            **same(beat, "id name host pid max_processors running ready problem"),
            started_at=rfc3339(beat.started_at),
            beat_at=rfc3339(beat.beat_at),
            beat_age=max(0, now - beat.beat_at) / 1000,
            queues=[*beat.queues],
            types={queue: [*types] for queue, types in beat.types.items() if types != (None,)},
            stats={queue: HandlerStatsView.of(sums) for queue, sums in beat.sums.items()},
            slots=beat.most,
            processors=[ProcessorView.of(processor, now) for processor in beat.processors],
            draining=draining,
            drained=draining and beat.draining and not beat.running,
        )


def running_by_queue(worker: WorkerView) -> dict[str, tuple[int, float]]:
    """What a worker runs: for each queue how many jobs, and for how many seconds at most, over all its processors."""
    found: dict[str, tuple[int, float]] = {}
    for one in worker.processors:
        if one.queue is not None:
            jobs, longest = found.get(one.queue, (0, 0.0))
            found[one.queue] = jobs + one.jobs, max(longest, one.busy_for or 0.0)
    return found


async def list(host: Host) -> builtins.list[WorkerView]:
    """Every running worker, by name."""
    store = await host.connections.get()
    beats = await read_heartbeats(store)
    asked = await asked_for(store)
    now = await now_of(store)
    views = (WorkerView.of(beat, now, beat.id in asked) for beat in beats)
    return sorted(views, key=lambda worker: (worker.name, worker.id))


async def get(host: Host, id: str) -> WorkerView:
    """One worker."""
    for worker in await list(host):
        if worker.id == id:
            return worker
    raise NotFound("worker", id, "`accoda workers` lists the running ones")


async def drain(host: Host, id: str, on: bool = True) -> WorkerView:
    """Let a worker finish what it runs and take nothing more, until it is un-drained (`on` False) or restarts.

    It learns of it with its next heartbeat. Asking twice does no harm.
    """
    await get(host, id)
    await ask(await host.connections.get(), id, on)
    return await get(host, id)
