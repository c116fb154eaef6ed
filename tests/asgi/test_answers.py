"""202 with links, the state of a job, and streams of what becomes of it: in a web application that a server serves."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from fastapi import FastAPI, Request, Response
from web import Event, Served, events

from accoda import App
from accoda.asgi import Jobs, accepted, answers, events_of, lifespan, status_of, watching
from accoda.errors import InvalidInput
from accoda.model import Enqueued

PATIENCE = 30


class Bakery:
    """A web application whose jobs go step by step, as the test says."""

    def __init__(self) -> None:
        self.app = App("memory://")
        self.steps: dict[str, threading.Event] = {"half": threading.Event(), "done": threading.Event()}
        self.web = FastAPI(lifespan=lifespan(self.app, worker=True))

        @self.app.handler("bread", keep_for=60, max_attempts=1)
        async def bake(loaf: dict[str, Any]) -> dict[str, Any]:
            await self.app.progress(0.1, "kneading")
            await asyncio.to_thread(self.steps["half"].wait, PATIENCE)
            await self.app.progress(1.0, "in the oven")
            await asyncio.to_thread(self.steps["done"].wait, PATIENCE)
            if loaf.get("burns"):
                raise ValueError("the secret recipe was burnt")
            return {"loaf": loaf["of"]}

        @self.web.post("/orders")
        async def order(request: Request, jobs: Jobs, loaf: dict[str, Any]) -> Response:
            return accepted(request, await jobs.enqueue("bread", loaf))

        @self.web.get("/orders/{id}")
        async def job_status(id: int, jobs: Jobs) -> Response:
            return await status_of(jobs, id)

        @self.web.get("/orders/{id}/events")
        async def job_events(id: int, jobs: Jobs) -> Response:
            return await events_of(jobs, id)

    def let(self, *steps: str) -> None:
        for step in steps:
            self.steps[step].set()


@pytest.fixture
def bakery() -> Iterator[Bakery]:
    made = Bakery()
    yield made
    made.let("half", "done")


@pytest.fixture
def client(bakery: Bakery) -> Iterator[httpx2.Client]:
    with Served(bakery.web) as served, httpx2.Client(base_url=served.url, timeout=PATIENCE) as client:
        yield client
        bakery.let("half", "done")  # the worker ends with the application, after what it runs


def order(client: httpx2.Client, **loaf: Any) -> str:
    reply = client.post("/orders", json=loaf)
    assert reply.status_code == 202
    return str(reply.headers["location"])


def test_accepted_says_where_the_job_is(client: httpx2.Client) -> None:
    reply = client.post("/orders", json={"of": "rye"})
    id = reply.json()["id"]
    links = {"self": f"/orders/{id}", "events": f"/orders/{id}/events"}
    assert (reply.status_code, reply.headers["location"]) == (202, f"/orders/{id}")
    assert reply.json() == {"id": id, "what": "created", "links": links}
    assert client.get(f"/orders/{id}").json()["id"] == id


def test_links_are_below_the_prefix_of_the_application(bakery: Bakery) -> None:
    async def under_a_prefix(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/api", "path": "/api" + scope["path"]}
        await bakery.web(scope, receive, send)

    with Served(under_a_prefix) as served, httpx2.Client(base_url=served.url, timeout=PATIENCE) as client:
        assert order(client, of="rye").startswith("/api/orders/")
        bakery.let("half", "done")


async def test_links_lead_to_views_that_there_are() -> None:
    web = FastAPI()
    web.add_api_route("/orders/{id}", lambda id: None, name="order_status")
    web.add_api_route("/orders/{number}/events", lambda number: None, name="job_events")
    request = Request({"type": "http", "app": web, "router": web.router, "path": "/", "headers": [(b"host", b"shop")]})
    job = Enqueued(17, "created")
    with pytest.raises(InvalidInput, match=r"no route is named 'job_status' and takes an id; .*status=\"order_status"):
        accepted(request, job)
    with pytest.raises(InvalidInput, match=r"events: no route is named 'job_events' .*, or None"):
        accepted(request, job, status="order_status")
    links = msgspec.json.decode(accepted(request, job, status="order_status", events=None).body)["links"]
    assert links == {"self": "/orders/17"}


def test_a_stream_tells_states_progress_and_the_result_and_ends(bakery: Bakery, client: httpx2.Client) -> None:
    where = order(client, of="rye")
    with client.stream("GET", where + "/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        seen: list[Event] = []
        for event in events(reply):
            seen.append(event)
            if event[1:] == ("progress", {"fraction": 0.1, "message": "kneading"}):
                bakery.let("half")
            if event[1:] == ("progress", {"fraction": 1.0, "message": "in the oven"}):
                bakery.let("done")
    states = [told["state"] for _, name, told in seen if name == "state"]
    marks = [int(id) for id, name, _ in seen if name == "progress" and id is not None]
    assert states[-1] == "taken" and marks == sorted(set(marks))
    id, name, told = seen[-1]
    assert (id, name, told["state"], told["result"]) == ("end", "end", "done", {"loaf": "rye"})


def test_a_client_that_comes_back_goes_on_where_it_was(bakery: Bakery, client: httpx2.Client) -> None:
    where = order(client, of="rye") + "/events"
    with client.stream("GET", where) as reply:
        mark = next(id for id, name, _ in events(reply) if name == "progress")
    assert mark is not None
    bakery.let("half", "done")
    with client.stream("GET", where, headers={"last-event-id": mark}) as reply:
        told = [said for _, name, said in events(reply) if name == "progress"]
    assert told == [{"fraction": 1.0, "message": "in the oven"}]
    assert client.get(where, headers={"last-event-id": "end"}).status_code == 204


def test_a_job_that_fails_ends_its_stream_without_the_words_of_the_error(bakery: Bakery, client: httpx2.Client) -> None:
    where = order(client, burns=True)
    bakery.let("half", "done")
    with client.stream("GET", where + "/events") as reply:
        *_, (_, name, told) = events(reply)
    assert (name, told["state"]) == ("end", "dead")
    assert "secret" not in repr(told) and "secret" not in client.get(where).text


def test_a_job_that_is_not_stored_is_a_404(client: httpx2.Client) -> None:
    for id in (999999, -1, 2**63):  # the last two are no ids at all
        for where in (f"/orders/{id}", f"/orders/{id}/events"):
            reply = client.get(where)
            assert reply.status_code == 404 and f"job {id} is not stored" in reply.json()["detail"]


def test_a_quiet_stream_sends_comments(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BEAT", 0.05)
    with client.stream("GET", order(client, of="rye") + "/events") as reply:
        assert any(line == ": still here" for line in reply.iter_lines())


def test_a_job_that_nobody_waits_for_any_more_is_not_looked_at(bakery: Bakery, client: httpx2.Client) -> None:
    where = order(client, of="rye") + "/events"
    with client.stream("GET", where) as one, client.stream("GET", where) as other:
        streams = [events(one), events(other)]  # one that is dropped ends its connection
        assert all(next(stream) for stream in streams)
        (watches,) = [found for (app, _), found in watching._watches.items() if app is bakery.app]
        (watched,) = watches._jobs.values()
        assert watched.viewers == 2
    # The server sees that a client has gone as soon as its loop reads the end of the connection.
    for _ in range(1000):
        if not any(app is bakery.app for app, _ in watching._watches):
            return
        threading.Event().wait(0.01)
    raise AssertionError("the job is still looked at")


def test_the_end_of_the_application_ends_its_streams(bakery: Bakery) -> None:
    ended = threading.Event()

    async def follow_forever() -> None:
        id = (await bakery.app.enqueue("bread", {"of": "rye"}, delay=3600)).id
        web = FastAPI()

        @web.get("/")
        async def follow() -> Response:
            return await events_of(bakery.app, id)

        sent: list[Any] = []
        nothing = asyncio.Event()

        async def receive() -> Any:
            await nothing.wait()

        async def send(message: Any) -> None:
            sent.append(message)

        async with lifespan(bakery.app):
            scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
            reply = asyncio.ensure_future(web(scope, receive, send))
            while len(sent) < 3:  # it has begun, and told the state
                await asyncio.sleep(0)
        await asyncio.wait_for(reply, PATIENCE)
        assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        ended.set()

    asyncio.run(follow_forever())
    assert ended.is_set()
