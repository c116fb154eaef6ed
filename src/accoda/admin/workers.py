"""Workers that live, by their heartbeats; and to drain one, so that it can be stopped."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.admin.store import now_of
from accoda.errors import NotFound
from accoda.runtime.draining import ask, asked_for
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, read_heartbeats

if TYPE_CHECKING:
    from accoda.app import App


class ProcessorView(Struct, rename="camel", frozen=True, kw_only=True):
    """What one processor does; no queue: it is free."""

    queue: str | None = None
    jobs: int = 0
    first_id: int | None = None
    since: str | None = None
    busy_for: float | None = None

    @classmethod
    def of(cls, processor: ProcessorState, now: int) -> ProcessorView:
        since = processor.since
        return cls(
            queue=processor.queue,
            jobs=processor.jobs,
            first_id=processor.first_id,
            since=shown(since),
            busy_for=None if since is None or processor.queue is None else max(0, now - since) / 1000,
        )


class WorkerView(Struct, rename="camel", frozen=True, kw_only=True):
    """A worker, as it last described itself `beat_age` seconds ago. `problem` is empty while all is well.

    `draining`: it is asked to take nothing more. `drained`: it has heard that, and nothing runs in it any more.
    """

    id: str
    name: str
    host: str
    pid: int
    started_at: str
    beat_at: str
    beat_age: float
    queues: builtins.list[str]
    max_processors: int
    busy: int
    processors: builtins.list[ProcessorView]
    ready: bool
    problem: str = ""
    draining: bool = False
    drained: bool = False

    @classmethod
    def of(cls, beat: Heartbeat, now: int, draining: bool = False) -> WorkerView:
        busy = sum(processor.queue is not None for processor in beat.processors)
        return cls(
            id=beat.id,
            name=beat.name,
            host=beat.host,
            pid=beat.pid,
            started_at=shown(beat.started_at) or "",
            beat_at=shown(beat.beat_at) or "",
            beat_age=max(0, now - beat.beat_at) / 1000,
            queues=[*beat.queues],
            max_processors=beat.max_processors,
            busy=busy,
            processors=[ProcessorView.of(processor, now) for processor in beat.processors],
            ready=beat.ready,
            problem=beat.problem,
            draining=draining,
            drained=draining and beat.draining and not busy,
        )


async def list(app: App) -> builtins.list[WorkerView]:
    """Every worker that lives, by name."""
    store = await app.connections.get()
    beats = await read_heartbeats(store)
    asked = await asked_for(store)
    now = await now_of(store)
    views = (WorkerView.of(beat, now, beat.id in asked) for beat in beats)
    return sorted(views, key=lambda worker: (worker.name, worker.id))


async def get(app: App, id: str) -> WorkerView:
    """One worker."""
    for worker in await list(app):
        if worker.id == id:
            return worker
    raise NotFound("worker", id, "`accoda workers` lists those that live")


async def drain(app: App, id: str, on: bool = True) -> WorkerView:
    """Let a worker finish what it runs and take nothing more, until it is un-drained (`on` False) or restarts.

    It hears of it with its next heartbeat. To ask twice does no harm.
    """
    await get(app, id)
    await ask(await app.connections.get(), id, on)
    return await get(app, id)
