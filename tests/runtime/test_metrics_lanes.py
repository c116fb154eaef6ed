"""The lanes with most jobs on the metrics page, where they are asked for."""

import asyncio
import http.client
import threading
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions
from accoda.runtime.metrics import Server, lanes_from, serve
from accoda.runtime.metrics import lanes as read

NAME = 'né"\\ & {b}'
ESCAPED = r"né\"\\ & {b}"


@pytest_asyncio.fixture
async def app() -> AsyncIterator[App]:
    async with App("memory://") as app:
        await fill(app)
        yield app


async def fill(app: App) -> None:
    """Two queues with rules and one without."""
    for queue in ("mails", "news"):
        await app.lanes.change(queue, limit=1)
    for queue in ("mails", "news", "plain"):
        for lane, count in {"a": 1, NAME: 4, "c": 2}.items():
            await app.enqueue_many(queue, list(range(count)), lane=lane)


def get(server: Server, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def lines(page: str) -> list[str]:
    return [line for line in page.splitlines() if "queue_lane_jobs" in line]


EXPECTED = [
    "# HELP queue_lane_jobs Jobs of the lanes with most jobs ready or held, by state.",
    "# TYPE queue_lane_jobs gauge",
    *(
        f'queue_lane_jobs{{queue="mails",lane="{lane}",state="{state}"}} {count}.0'
        for lane, counts in ((ESCAPED, (1, 3, 0)), ("c", (1, 1, 0)))
        for state, count in zip(("ready", "held", "taken"), counts, strict=True)
    ),
]


async def test_a_worker_shows_those_of_its_queues_with_rules(app: App) -> None:
    collect = lanes_from(asyncio.get_running_loop(), lambda: app.storage, ("mails", "plain", "other"))
    with serve(0, collect=lambda: b"page\n", lanes=collect) as server:
        status, page = await asyncio.to_thread(get, server, "/metrics?lanes=2")
        assert (status, lines(page)) == (200, EXPECTED) and page.startswith("page\n")
        for path in ("/metrics", "/metrics?lanes=0", "/metrics?other=2"):
            assert await asyncio.to_thread(get, server, path) == (200, "page\n")


@pytest.mark.parametrize("asked", ["-1", "101", "ten", "", "1.5", "1000", "²"])
async def test_what_is_no_number_of_lanes_is_refused(asked: str) -> None:
    with serve(0, collect=lambda: b"page\n", lanes=lambda most: b"") as server:
        status, text = await asyncio.to_thread(get, server, f"/metrics?lanes={quote(asked)}")
        assert (status, text) == (400, "lanes: must be an integer from 0 to 100\n")


async def test_a_loop_that_is_blocked_costs_the_lanes_alone(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PATIENCE", 0.05)
    collect = lanes_from(asyncio.get_running_loop(), lambda: app.storage, ("mails",))
    found: list[tuple[int, str]] = []
    with serve(0, collect=lambda: b"page\n", lanes=collect) as server:
        thread = threading.Thread(target=lambda: found.append(get(server, "/metrics?lanes=5")))
        thread.start()
        thread.join()  # this blocks the loop
    assert found == [(200, "page\n")]


def test_several_processes_say_who_has_them() -> None:
    with serve(0, collect=lambda: b"page\n") as server:
        status, text = get(server, "/metrics?lanes=5")
        assert status == 400 and "accoda serve" in text


def test_the_service_shows_those_of_all_queues_with_rules() -> None:
    app = App("memory://")
    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as service:
        asyncio.run(fill(app))
        assert lines(service.get("/metrics").body.decode()) == []
        found = lines(service.get("/metrics?lanes=2").body.decode())
        assert found == [*EXPECTED, *(line.replace("mails", "news") for line in EXPECTED[2:])]
        assert service.get("/metrics?lanes=101").status == 422


def test_a_token_for_some_queues_sees_those_alone() -> None:
    from accoda.http.security import Security, tokens

    app = App("memory://")

    async def make() -> str:
        await fill(app)
        return (await tokens.create(app.storage, "one", ["read"], now=0, queues=["mails"]))[1]

    text = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        reply = service.get("/metrics?lanes=2", Authorization=f"Bearer {text}")
        assert lines(reply.body.decode()) == EXPECTED
