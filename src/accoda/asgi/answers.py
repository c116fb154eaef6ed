"""What a view answers about a job: accepted, how it is doing, and a stream of what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from msgspec import json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import NoMatchFound

from accoda.app import App
from accoda.asgi.watching import View, Watch, look_at, streams, unwatch, watch
from accoda.errors import InvalidInput
from accoda.http.event_stream import BEAT, STILL_HERE, Ends, event_of, event_stream, send_event
from accoda.model import Enqueued, SyncEnqueued
from accoda.operations.views import JobView

Scope = MutableMapping[str, Any]

END = "end"
"""The id of the last event: a client that has seen it need not come back."""


def accepted(
    request: Request,
    job: Enqueued[Any] | SyncEnqueued[Any],
    *,
    id: int | None = None,
    status: str = "job_status",
    events: str | None = "job_events",
) -> Response:
    """202: the job is stored, and runs later. `Location` and the links in the body say where to ask for it.

    `status` and `events` are the names of your routes; a view of FastAPI is named like its function. They take an
    `id`: the job's own, or that of a record of yours which knows its job. `events=None`: there is no such view.
    """
    if id is None and job.what == "outbox":
        problem = (
            "the job is in the outbox, and has no id before a worker has moved it on; give that of your own record"
        )
        raise InvalidInput("id", problem)
    shown = job.id if id is None else id
    links = {"self": _path(request, "status", status, shown)}
    if events is not None:
        links["events"] = _path(request, "events", events, shown)
    return _json({"id": shown, "what": job.what, "links": links}, 202, {"location": links["self"]})


async def status_of(app: App, job: int, *, id: int | None = None) -> Response:
    """How a job is doing: its state, its progress and, when it is done, its result. 404: it is not stored.

    `id` is the one that the answer gives: the job's own, or that of a record of yours, as in `accepted`.
    """
    shown = job if id is None else id
    return _json(_told(app, shown, await _found(app, job, shown)))


async def events_of(app: App, job: int, *, id: int | None = None) -> Response:
    """What becomes of a job, as server-sent events, until its end. 404: it is not stored. `id`: as in `status_of`.

    `state` when that changes, `progress` when its handler says more, and at last `end`, with the result of a job that
    is done. A client that was cut off goes on where it was; one that has seen the end is told not to come back.
    """
    shown = job if id is None else id
    return _JobEvents(app, job, shown, await _found(app, job, shown))


class _JobEvents(Response):
    def __init__(self, app: App, job: int, id: int, view: View) -> None:
        super().__init__()
        self._app = app
        self._job = job
        self._id = id
        self._view = view

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        seen = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), "")
        if seen == END:
            await Response(status_code=204)(scope, receive, send)  # a browser does not connect again after that
            return
        watched = watch(self._app, self._job, self._view)
        try:
            async with event_stream(streams(), receive, send) as ends:
                await self._send_events(watched, ends, int(seen) if seen.isdigit() else 0, send)
        finally:
            unwatch(self._app, watched)

    async def _send_events(self, watched: Watch, ends: Ends, told: int, send: Any) -> None:
        state = ""
        while True:
            # The future before the view: what changes between the two wakes the wait below.
            changed, view = watched.changed, watched.view
            if view.told > told:
                told = view.told
                await send_event(send, event_of("progress", json.encode(view.progress).decode(), str(told)))
            if view.ended:
                await send_event(send, event_of("end", json.encode(_told(self._app, self._id, view)).decode(), END))
                return
            if view.state != state:
                state = view.state
                await send_event(send, event_of("state", json.encode({"state": state}).decode()))
            done, _ = await asyncio.wait((changed, *ends), timeout=BEAT, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                return
            if not done:
                await send_event(send, STILL_HERE)


async def _found(app: App, job: int, id: int) -> View:
    # What a client wrote into an address may be a number that no job can have.
    view = await look_at(app, job) if 0 <= job < 2**63 else View(None)
    if view.job is None:
        raise HTTPException(404, f"job {id} is not stored: it ended and was not kept, was deleted, or never was")
    return view


def _told(app: App, id: int, view: View) -> dict[str, Any]:
    """What a caller is told of a job. Not why it failed: the words of an exception are not for everybody."""
    told: dict[str, Any] = {"id": id, "state": view.state, "progress": view.progress}
    if view.job is not None and view.job.state == "done":
        told["result"] = JobView.of(app, view.job, None).result
    return told


def _path(request: Request, field: str, name: str, id: int) -> str:
    """A path and not a whole address: behind a proxy nobody here knows the name that clients use."""
    try:
        return request.url_for(name, id=id).path
    except NoMatchFound as error:
        advice = f'pass the name of yours, {field}="order_{field}"' + (", or None" if field == "events" else "")
        raise InvalidInput(field, f"no route is named {name!r} and takes an id; {advice}") from error


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.encode(body), status, {"cache-control": "no-store", **(headers or {})}, "application/json")
