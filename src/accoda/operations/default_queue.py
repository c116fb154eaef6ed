"""The queue of a job that is requested without one.

It is the only queue with a handler for exactly the job's type, in this process or in a worker that is alive; if there
is none, or the job has no type, the queue `default`. A handler without a type serves any, so it does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from accoda.errors import InvalidInput
from accoda.operations.host import Host
from accoda.operations.new_jobs import NewJobRequest
from accoda.operations.words import listed, quoted
from accoda.runtime.heartbeat import read_heartbeats

DEFAULT = "default"


async def with_queues(
    host: Host, requests: Sequence[NewJobRequest], where: str | None = None, among: Collection[str] | None = None
) -> Sequence[NewJobRequest]:
    """The requests, each with its queue. With `among`, only these queues are looked at.

    `where`: as in `prepare`.
    """
    if all(request.queue is not None for request in requests):
        return requests
    queues = await _queues_by_type(host, among) if any(request.type is not None for request in requests) else {}
    return [
        request
        if request.queue is not None
        else replace(request, queue=_queue(queues, request.type, "queue" if where is None else f"{where}[{n}].queue"))
        for n, request in enumerate(requests)
    ]


async def _queues_by_type(host: Host, among: Collection[str] | None) -> dict[str, set[str]]:
    # Read anew each time, not from the cache of `served`: a job in the wrong queue is worse than one more call.
    workers = await read_heartbeats(await host.connections.get())
    known = [(queue, tuple(handlers.by_type)) for queue, handlers in host.handlers.items()]
    known += [(queue, types) for worker in workers for queue, types in worker.types.items()]
    found: dict[str, set[str]] = {}
    for queue, types in known:
        if among is None or queue in among:
            for type in types:
                if type is not None:
                    found.setdefault(type, set()).add(queue)
    return found


def _queue(queues: dict[str, set[str]], type: str | None, field: str) -> str:
    found = sorted(queues.get(type, ())) if type is not None else []
    if len(found) > 1:
        names = listed(found)
        raise InvalidInput(field, f"name one: type {quoted(type or '')} has handlers in several queues, {names}")
    return found[0] if found else DEFAULT
