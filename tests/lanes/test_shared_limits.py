"""Queues that share their limits, on every storage and through every interface; a Redis Cluster refuses some."""

import asyncio
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet
from proof.service import ServiceRunner
from tests.runtime.running import running, until

from accoda import App, InvalidInput, Lanes
from accoda.http.options import ServiceOptions
from accoda.lanes.rules import PREFIX
from accoda.settings import Settings

REFUSED = "on a Redis Cluster the queue 'mails.out' can share limits only as 'mails'"


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


@pytest.fixture
def family() -> str:
    """The tests share a store, so each has queues of its own: those whose names begin with this."""
    return f"q-{secrets.token_hex(4)}"


async def test_a_limit_holds_over_the_queues_and_their_workers(app: App, family: str) -> None:
    now: Counter[str | None] = Counter()
    most: Counter[str | None] = Counter()
    ran: list[int] = []

    async def work(n: int) -> None:
        lane = app.current.lane
        now[lane] += 1
        most[lane] = max(most[lane], now[lane])
        await asyncio.sleep(0.005)
        now[lane] -= 1
        ran.append(n)

    queues = [f"{family}.{name}" for name in ("clones", "builds", "tests")]
    for queue in queues:
        app.add_handler(queue, work, {"lanes": Lanes(limit=2, shared=family, fair=True)})
        await app.enqueue_many(queue, range(10), lane="a")
        await app.enqueue_many(queue, range(4), lane="b")
    settings = Settings.load(environ={}, overrides={"concurrency": 10})
    async with running(app, settings=settings, queues=queues[:2]), running(app, settings=settings, queues=queues[2:]):
        await until(lambda: len(ran) == 42)
    assert (most["a"], most["b"]) == (2, 2)
    stats = (await app.storage.stats()).queues
    assert [(stats[queue].held, stats[queue].done) for queue in queues] == [(0, 14)] * 3


async def test_limits_are_shared_and_no_longer_while_workers_run(app: App, family: str) -> None:
    one, other = f"{family}.one", f"{family}.other"

    async def held() -> tuple[int, int]:
        stats = (await app.storage.stats()).queues
        return stats[one].held, stats[other].held

    await app.lanes.change(one, limit=1, shared=family)
    await app.enqueue_many(one, [1, 2], lane="a")
    await app.enqueue_many(other, [1, 2], lane="a")
    assert await held() == (1, 0)
    assert await app.lanes.change(other, shared=family) == Lanes(shared=family)
    assert await held() == (1, 2), "the lowest limit is that of the first queue, whose job was there first"
    [job] = await app.storage.browse(other, "held", limit=1)
    assert f"has its 1 of 1 in queues {one} and {other}" in (await app.why(job.id)).line
    await app.lanes.change(other, shared=None)
    assert await held() == (1, 0)
    await app.lanes.reset(other)
    await app.lanes.reset(one)
    assert await held() == (0, 0)


# -- a Cluster lets the queues of one family share, and refuses all else


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    server = need(lambda: ClusterSet().start())
    try:
        yield server.url
    finally:
        server.close()


async def kept(url: str) -> object:
    """What of the rules is kept, and what is in force."""
    async with App(url) as app:
        return await app.storage.read(PREFIX + "mails.out"), (await app.lanes.get("mails.out", limit=0)).rules


async def test_a_worker_whose_code_shares_with_another_family_does_not_start(cluster: str) -> None:
    async with App(cluster) as app:
        app.add_handler("mails.out", lambda: None, {"run_in": "thread", "lanes": Lanes(limit=3, shared="github")})
        with pytest.raises(InvalidInput, match=REFUSED):
            await app.run_until_idle()
        with pytest.raises(InvalidInput, match=REFUSED):
            await app.lanes.change("mails.out", limit=3, shared="github")
    assert await kept(cluster) == (None, None)


def test_every_interface_says_so_and_keeps_nothing(cluster: str) -> None:
    command = [sys.executable, "-m", "accoda", "lanes", "mails.out", "--limit", "3", "--shared", "github"]
    with ServiceRunner(App(cluster), ServiceOptions(system_jobs=False)) as service:
        assert service.post("/api/v1/jobs", {"queue": "mails.out", "lane": "a"}).status == 201
        told = subprocess.run([*command, "--url", cluster], capture_output=True, text=True, timeout=60)
        assert (told.returncode, told.stdout) == (2, "")
        assert told.stderr.startswith(f"Error: shared: {REFUSED}")
        path = "/api/v1/queues/mails.out/lanes"
        reply = service.request("PATCH", path, {"limit": 3, "shared": "github"})
        assert (reply.status, reply.json()["field"]) == (422, "shared") and REFUSED in reply.json()["detail"]
        headers = {"Content_Type": "application/x-www-form-urlencoded", "Sec_Fetch_Site": "same-origin"}
        page = service.post("/do/queues/mails.out/lanes/shared", b"shared=github", **headers)
        assert page.status == 422 and "can share limits only as" in page.body.decode()
        assert service.get(path).json()["rules"] is None
        assert service.request("PATCH", path, {"limit": 3, "shared": "mails"}).json()["rules"]["shared"] == "mails"
        assert service.request("DELETE", path).json()["rules"] is None
