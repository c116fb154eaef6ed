"""Pages of jobs: each job once, in order, with bounded work for each page."""

from typing import Any

import pytest

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.admin import jobs, pages
from accoda.admin.pages import JobFilter
from accoda.admin.requests import NewJobRequest
from accoda.admin.views import JobView, Page
from accoda.fingerprint import fingerprint
from accoda.model import STATES, NewJob


async def page_of(app: App, limit: int = 50, cursor: str | None = None, **where: Any) -> Page[JobView]:
    return await jobs.page(app, JobFilter(**where), limit=limit, cursor=cursor)


async def all_pages(app: App, **where: Any) -> tuple[list[JobView], int]:
    found: list[JobView] = []
    cursor, count = None, 0
    while True:
        page = await page_of(app, cursor=cursor, **where)
        found += page.items
        cursor, count = page.next, count + 1
        if cursor is None:
            return found, count


async def fill(app: App) -> None:
    store = app.storage
    for queue in ("b", "a.x", "a", "accoda.webhooks"):
        await store.enqueue([NewJob(queue, rank=float(number % 4)) for number in range(7)])
        await store.enqueue([NewJob(queue, delay=60)])
        first, second, *_ = await store.take(queue, 3)
        await store.settle([Bury(first.lease, "no user 7"), Bury(second.lease, "other")])


async def test_every_job_is_on_one_page_in_order(app: App) -> None:
    await fill(app)
    for limit in (1, 2, 3, 50):
        found, _ = await all_pages(app, limit=limit)
        order = [(job.queue, STATES.index(job.state), job.id) for job in found]
        assert order == sorted(order) and len(set(order)) == 24
        assert {job.queue for job in found} == {"a", "a.x", "b"}


async def test_the_last_page_says_that_it_is_the_last(app: App) -> None:
    await app.storage.enqueue([NewJob("a") for _ in range(4)])
    page = await page_of(app, limit=4)
    assert len(page.items) == 4 and page.next is None
    assert (await page_of(app)).next is None and (await page_of(app, queue="none")).items == []


async def test_system_queues_are_shown_when_asked_for(app: App) -> None:
    await fill(app)
    found, _ = await all_pages(app, system=True)
    assert len(found) == 32
    named, _ = await all_pages(app, queue="accoda.webhooks")
    assert len(named) == 8


async def test_filters_combine(app: App) -> None:
    await fill(app)
    found, _ = await all_pages(app, queue="a", state="ready", priority="LOW", limit=1)
    assert [(job.queue, job.state, job.priority) for job in found] == [("a", "ready", "LOW")]
    dead, _ = await all_pages(app, state="dead", error=fingerprint("no user 8"))
    assert [job.queue for job in dead] == ["a", "a.x", "b"]


async def test_a_filter_that_matches_little_ends_pages_early(app: App) -> None:
    await app.storage.enqueue([NewJob("a", rank=2.0) for _ in range(4999)] + [NewJob("a", rank=0.0)])
    page = await page_of(app, priority="CRITICAL")
    assert page.items == [] and page.next is not None
    found, count = await all_pages(app, priority="CRITICAL")
    assert len(found) == 1 and count == 6


async def test_thousands_of_queues_are_looked_through_page_by_page(app: App) -> None:
    await app.storage.enqueue([NewJob(f"q{number:04}") for number in range(250)])
    page = await page_of(app, limit=1000)
    assert len(page.items) == pages.LOOKS and page.next is not None
    found, count = await all_pages(app, limit=1000)
    assert len(found) == 250 and count == 3


async def test_jobs_that_come_and_go_between_pages_move_no_other(app: App) -> None:
    made = await app.storage.enqueue([NewJob("a") for _ in range(6)])
    first = await page_of(app, limit=3)
    await app.storage.remove([made[0].id, made[2].id, made[3].id])
    await app.storage.enqueue([NewJob("a")])
    rest = await page_of(app, limit=9, cursor=first.next)
    assert [job.id for job in rest.items] == [made[4].id, made[5].id, made[5].id + 1]


async def test_a_cursor_of_another_filter_does_not_lead_out_of_this_one(app: App) -> None:
    await fill(app)
    system = await page_of(app, system=True, queue="accoda.webhooks", limit=1)
    assert all(job.queue == "b" for job in (await page_of(app, cursor=system.next)).items)
    other = await page_of(app, queue="a", state="dead", limit=1)
    assert {job.state for job in (await page_of(app, queue="a", state="ready", cursor=other.next)).items} <= {"ready"}


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": True}, "limit"),
        ({"cursor": "?"}, "cursor"),
        ({"queue": "a b"}, "queue"),
        ({"state": "lost"}, "state"),
        ({"priority": "URGENT"}, "priority"),
        ({"key": ""}, "key"),
        ({"error": "x" * 501}, "error"),
        ({"name": "a\0"}, "name"),
        ({"field": "customer"}, "field"),
        ({"field": "customer..id=4"}, "field"),
    ],
)
async def test_what_cannot_be_asked_is_refused(app: App, where: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        await page_of(app, **where)
    assert error.value.field == field


async def test_levels_of_aging_jobs_are_found(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("old", policy="aging")
    async def old(payload: object) -> None: ...

    await jobs.create(app, [NewJobRequest(queue="old", priority="LOW"), NewJobRequest(queue="old", delay=9999.0)])
    found, _ = await all_pages(app)
    assert [(job.state, job.priority) for job in found] == [("ready", "LOW"), ("delayed", "NORMAL")]
