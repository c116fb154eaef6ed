"""Admin on every storage: what it builds on (order of pages, keys, documents, revival) holds on each server."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from accoda import App, Bury
from accoda.admin import dead, jobs, queues
from accoda.admin.dead import DeadFilter
from accoda.admin.replays import Replayer
from accoda.admin.requests import NewJobRequest
from accoda.errors import KeyReused
from accoda.testing.servers.postgres import PostgresServer
from accoda.testing.servers.pytest import need
from accoda.testing.servers.redis import RedisServer
from accoda.testing.servers.tarantool import TarantoolServer

KINDS = ("memory", "sqlite", "redis", "postgres", "tarantool")


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], str]]:
    with ExitStack() as stack:

        def url_of(kind: str) -> str:
            if kind == "redis":
                return stack.enter_context(need(RedisServer)).url
            if kind == "postgres":
                return stack.enter_context(need(lambda: PostgresServer(durable=False))).url
            return stack.enter_context(need(TarantoolServer)).url

        yield url_of


@pytest_asyncio.fixture(params=KINDS)
async def app(request: pytest.FixtureRequest, tmp_path: Path, servers: Callable[[str], str]) -> AsyncIterator[App]:
    kind = request.param
    local = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}
    async with App(local[kind] if kind in local else servers(kind)) as app:
        yield app


async def test_a_day_of_an_operator(app: App) -> None:
    asked = [NewJobRequest(queue="a", payload={"n": n, "pin": "12345"}, secret_fields=("pin",)) for n in range(5)]
    made = await jobs.create(app, asked, "key", "anna")
    assert (await jobs.create_once(app, asked, "key", "anna")).replayed
    with pytest.raises(KeyReused):
        await jobs.create(app, asked[:1], "key", "anna")
    await jobs.create(app, [NewJobRequest(queue="b", delay=60.0, name="Later", priority="LOW")])

    first = await jobs.page(app, limit=4)
    rest = await jobs.page(app, limit=4, cursor=first.next)
    assert [(job.queue, job.state) for job in first.items + rest.items] == [("a", "ready")] * 5 + [("b", "delayed")]
    assert rest.next is None and first.items[0].payload == {"n": 0, "pin": "•••"} and rest.items[1].name == "Later"

    assert (await jobs.set_priority(app, made[4].id, "CRITICAL")).priority == "CRITICAL"
    taken = await app.storage.take("a", 5)
    assert taken[0].id == made[4].id
    await app.storage.settle([Bury(job.lease, f"no user {job.id}, pin 12345") for job in taken])
    [group] = (await dead.groups(app)).groups
    assert group.count == 5 and "12345" not in group.reason

    assert (await jobs.retry(app, made[0].id)).state == "ready"
    assert (await dead.replay(app, DeadFilter(queue="a", fingerprint=group.fingerprint), dry_run=True)).matched == 4
    view = await dead.start_replay(app, DeadFilter(fingerprint=group.fingerprint))
    while await Replayer().run_once(app.storage):
        pass
    ended = await dead.replay_state(app, view.id)
    assert (ended.status, ended.revived) == ("finished", 4)

    assert (await queues.pause(app, "a", 60)).paused and (await queues.get(app, "a")).ready == 5
    assert not (await queues.resume(app, "a")).paused
    assert await queues.purge(app, "a", "ready") == 5
    await jobs.cancel(app, (await jobs.page(app, queue="b")).items[0].id)
    assert (await jobs.page(app)).items == []
