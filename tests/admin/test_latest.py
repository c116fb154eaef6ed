"""The newest jobs of a queue, found with bounded work."""

import pytest

from accoda import App, Bury
from accoda.admin.latest import latest
from accoda.model import JobInfo, NewJob, State


async def fill(app: App, *queues: str) -> None:
    await app.storage.enqueue([NewJob(queue) for queue in queues])


async def test_all_are_given_where_they_are_few(app: App) -> None:
    await fill(app, "a", "b", "a")
    assert [job.id for job in await latest(app.storage, "a", "ready", 10)] == [1, 3]
    assert await latest(app.storage, "a", "dead", 10) == []


async def test_of_many_the_newest_are_given_without_a_gap(app: App) -> None:
    await fill(app, *("a",) * 1000)
    found = [job.id for job in await latest(app.storage, "a", "ready", 100)]
    assert found[-1] == 1000 and 50 <= len(found) <= 100
    assert found == list(range(found[0], 1001))


@pytest.mark.parametrize("every", [2, 7, 50, 400])
async def test_they_are_found_where_ids_are_thin(app: App, every: int) -> None:
    await fill(app, *("b" if n % every else "a" for n in range(8000)))
    ids = [n + 1 for n in range(0, 8000, every)]
    found = [job.id for job in await latest(app.storage, "a", "ready", 15)]
    assert found == ids[-len(found) :] and 7 <= len(found) <= 15


async def test_a_crowd_after_a_desert_and_a_desert_after_a_crowd_are_no_trouble(app: App) -> None:
    await fill(app, *("a",) * 500, *("b",) * 3000, *("a",) * 3)
    found = [job.id for job in await latest(app.storage, "a", "ready", 50)]
    assert found[-3:] == [3501, 3502, 3503]
    await fill(app, *("b",) * 3000, *("a",) * 500)
    assert [job.id for job in await latest(app.storage, "a", "ready", 50)][-1] == 7003


async def test_the_work_is_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(app, *("a",) * 20_000)
    store = await app.connections.get()
    looks = seen = 0
    browse = store.browse

    async def counted(queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        nonlocal looks, seen
        page = await browse(queue, state, after, limit)
        looks, seen = looks + 1, seen + len(page)
        return page

    monkeypatch.setattr(store, "browse", counted)
    await latest(store, "a", "ready", 100)
    assert looks < 40 and seen < 500


async def test_it_looks_into_the_state_that_is_asked_for(app: App) -> None:
    await fill(app, "a", "a", "a")
    taken = await app.storage.take("a", 2)
    await app.storage.settle([Bury(taken[0].lease, "why")])
    assert [job.id for job in await latest(app.storage, "a", "dead", 1)] == [1]
    assert [job.id for job in await latest(app.storage, "a", "ready", 5)] == [3]
