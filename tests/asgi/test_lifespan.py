"""The life of an app inside a web application."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI, Request
from proof.servers.process import wait_until
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from web import Served, WebProcess

from accoda import App
from accoda.asgi import Access, Jobs, get_app, lifespan, mount, mounting
from accoda.errors import InvalidInput


def test_the_store_is_opened_before_the_first_request_and_closed_at_the_end(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    web = FastAPI(lifespan=lifespan(app))

    @web.get("/")
    async def stores(jobs: Jobs) -> int:
        assert jobs is app
        return len(jobs.connections.stores)

    with TestClient(web) as client:
        assert client.get("/").json() == 1
    assert not app.connections.stores


def test_it_composes_with_a_lifespan_of_ones_own() -> None:
    app = App("memory://")

    @asynccontextmanager
    async def own(web: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        async with lifespan(app) as state:
            yield {**state, "mine": 17}

    web = FastAPI(lifespan=own)

    @web.get("/")
    async def both(request: Request, jobs: Jobs) -> bool:
        return request.state.mine == 17 and jobs is app

    with TestClient(web) as client:
        assert client.get("/").json() is True


def test_starlette_alone_gets_the_app_from_the_request() -> None:
    async def enqueue(request: Any) -> JSONResponse:
        made = await get_app(request).enqueue("emails", {"to": "anna"})
        return JSONResponse({"id": made.id})

    inner = Starlette(routes=[Route("/", enqueue)])
    web = Starlette(routes=[Mount("/inner", inner)], lifespan=lifespan(App("memory://")))
    with TestClient(web) as client:
        assert client.get("/inner/").json() == {"id": 1}


def test_without_a_lifespan_the_error_says_where_it_goes() -> None:
    web = FastAPI()

    @web.get("/")
    async def view(jobs: Jobs) -> None: ...

    with pytest.raises(InvalidInput, match=r"FastAPI\(lifespan=accoda.asgi.lifespan\(app\)\)"):
        TestClient(web).get("/")


def test_a_test_gives_the_views_another_app() -> None:
    web = FastAPI(lifespan=lifespan(App("memory://")))

    @web.get("/")
    async def view(jobs: Jobs) -> int:
        return (await jobs.enqueue("emails")).id

    with App("memory://").testing() as trial:
        web.dependency_overrides[get_app] = lambda: trial.app
        assert TestClient(web).get("/").json() == 1
        trial.assert_enqueued("emails")


def test_a_worker_inside_finishes_what_it_runs_before_the_application_ends() -> None:
    app = App("memory://")
    done: list[str] = []

    async def run() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()

        @app.handler("emails")
        async def send(to: str) -> None:
            started.set()
            await go_on.wait()
            done.append(to)

        async with lifespan(app, worker=True):
            await send.enqueue("anna")
            await started.wait()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
        assert done == ["anna"]

    asyncio.run(run())


def test_a_worker_is_said_by_true_or_by_its_options() -> None:
    with pytest.raises(InvalidInput, match=r"worker: must be True or WorkerOptions\(queues=.*not 'emails'"):
        lifespan(App("memory://"), worker="emails")  # type: ignore[arg-type]


def test_a_worker_without_handlers_keeps_the_application_from_starting() -> None:
    async def run() -> None:
        async with lifespan(App("memory://"), worker=True):
            raise AssertionError("it has nothing to do")

    with pytest.raises(InvalidInput, match="the app has no handlers"):
        asyncio.run(run())


def test_a_live_page_ends_when_the_host_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounting, "ASK_AGAIN", 0.0)
    app, welcome = App("memory://"), True
    web = FastAPI(lifespan=lifespan(app))
    web.mount("/jobs", mount(app, auth=lambda request: Access("read") if welcome else None))
    with Served(web) as served, httpx2.stream("GET", f"{served.url}/jobs/live?page=/", timeout=30) as reply:
        for line in reply.iter_lines():
            if line.startswith("event: live"):
                welcome = False
        assert not welcome  # and the stream has ended


PROGRAM = """
from fastapi import FastAPI, Response
from accoda import App
from accoda.asgi import Access, Jobs, events_of, lifespan, mount

app = App("memory://")
web = FastAPI(lifespan=lifespan(app))
web.mount("/ops", mount(app, auth=lambda request: Access("read")))

@web.get("/events")
async def events(jobs: Jobs) -> Response:
    return await events_of(jobs, (await jobs.enqueue("later", delay=3600)).id)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_streams_do_not_keep_a_server_from_stopping(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    with WebProcess("program:web", environment) as program, httpx2.Client(base_url=program.url, timeout=60) as client:
        with client.stream("GET", "/events") as events, client.stream("GET", "/ops/live?page=/") as live:
            lines, other = events.iter_lines(), live.iter_lines()
            assert next(lines) == next(other) == "retry: 3000"
            os.kill(program.pid, number)
            # Both come to a proper end: a connection that breaks would raise an error here.
            assert list(lines)[-1] == list(other)[-1] == ""
        wait_until(lambda: not program.is_alive, lambda: "the server waits for something")
