"""Searches: cursors, pages with each job once and in order, bounded work for each page, which queues are hidden."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.fingerprint import fingerprint
from accoda.model import STATES, NewJob, Remove
from accoda.operations import bulk, jobs, overview, queues
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.job_filter import JobFilter
from accoda.operations.new_jobs import NewJobRequest
from accoda.operations.search import CALLS, SearchCursor
from accoda.operations.views import JobView, Page

cursors = st.builds(
    SearchCursor,
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True),
    st.sampled_from(STATES),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 2**63 - 1),
)


@given(cursors)
def test_a_token_leads_back_to_its_cursor(cursor: SearchCursor) -> None:
    assert SearchCursor.read(cursor.token()) == cursor


@given(st.text(max_size=60))
def test_any_other_text_is_refused_or_a_token(text: str) -> None:
    try:
        assert SearchCursor.read(text).token() == text
    except InvalidInput as error:
        assert error.field == "cursor"


TOKEN = SearchCursor("a").token()


@pytest.mark.parametrize("damaged", ["", "x", "====", TOKEN + "A", TOKEN[:-2], "é", "a" * 999])
def test_a_damaged_token_is_refused(damaged: str) -> None:
    with pytest.raises(InvalidInput, match="cursor: is damaged"):
        SearchCursor.read(damaged)


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


async def test_every_job_is_on_one_page_by_queue_and_state(app: App) -> None:
    await fill(app)
    for limit in (1, 2, 3, 50):
        found, _ = await all_pages(app, limit=limit)
        order = [(job.queue, STATES.index(job.state)) for job in found]
        assert order == sorted(order) and len({job.id for job in found}) == 24
        assert {job.queue for job in found} == {"a", "a.x", "b"}


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_ready_jobs_are_listed_as_they_will_be_handed_out(app: App, limit: int) -> None:
    await app.storage.enqueue([NewJob("a", rank=rank) for rank in (2.0, 0.5, 3.0, 0.5, -1.0, 2.0)])
    found, _ = await all_pages(app, queue="a", state="ready", limit=limit)
    assert [job.id for job in found] == [job.id for job in await app.storage.take("a", 6)]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_delayed_and_taken_jobs_are_listed_by_their_moment(app: App, limit: int) -> None:
    await app.storage.enqueue([NewJob("a", delay=delay) for delay in (30, 10, 20, 10)])
    found, _ = await all_pages(app, state="delayed", limit=limit)
    moments = [job.scheduled_at for job in found]
    assert moments == sorted(moments) and len({job.id for job in found}) == 4
    await app.storage.enqueue([NewJob("b") for _ in range(3)])
    for lease in (30, 10, 20):
        await app.storage.take("b", 1, lease=lease)
    taken = [job.lease_until for job in (await all_pages(app, state="taken", limit=limit))[0]]
    assert taken == sorted(taken, key=str) and len(taken) == 3


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_dead_jobs_are_listed_latest_first(app: App, clock: ManualClock, limit: int) -> None:
    await app.storage.enqueue([NewJob("a") for _ in range(5)])
    taken = await app.storage.take("a", 5)
    for job in (taken[2], taken[0], taken[4], taken[1], taken[3]):
        await app.storage.settle([Bury(job.lease, "no")])
        clock.advance(1)
    found, _ = await all_pages(app, state="dead", limit=limit)
    assert [job.id for job in found] == [taken[place].id for place in (3, 1, 4, 0, 2)]


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_jobs_of_one_state_are_merged_over_queues_by_their_moment(
    app: App, clock: ManualClock, limit: int
) -> None:
    names = ["b", "a", "c"]
    for number in range(12):
        await app.storage.enqueue([NewJob(names[number % 3]), NewJob(names[number % 3], delay=100 - 7 * (number % 5))])
    taken = [job for name in names for job in await app.storage.take(name, 4)]
    for place, job in enumerate(taken):
        clock.advance(0.001 * (place % 3))  # some end at the same moment
        await app.storage.settle([Bury(job.lease, f"no user {place}")])
    dead = (await all_pages(app, state="dead", limit=limit))[0]
    assert [(job.ended_at, job.id) for job in dead] == sorted(((job.ended_at, job.id) for job in dead), reverse=True)
    assert len({job.id for job in dead}) == 12 and len({job.queue for job in dead[:6]}) > 1
    delayed = (await all_pages(app, state="delayed", limit=limit))[0]
    starts = [(job.scheduled_at, job.id) for job in delayed]
    assert starts == sorted(starts) and len({job.id for job in delayed}) == 12
    some = (await all_pages(app, state="dead", error="user 7", limit=limit))[0]
    assert [job.id for job in some] == [taken[7].id]


async def test_a_merged_page_is_bounded_and_the_pages_together_have_each_job_once(app: App) -> None:
    """2,500 in one queue between two small ones: no page reads more than 1,000 records for them."""
    await app.storage.enqueue([NewJob("big", delay=60 + n / 1000) for n in range(2500)])
    await app.storage.enqueue([NewJob("small", delay=60 + n) for n in (0.5, 2.4)])
    found, count = await all_pages(app, state="delayed", limit=1000)
    assert len({job.id for job in found}) == len(found) == 2502 and count >= 3
    assert [job.scheduled_at for job in found] == sorted(job.scheduled_at for job in found)
    rare, parts = await all_pages(app, state="delayed", key="none", limit=5)
    assert not rare and parts == 1
    none, parts = await all_pages(app, state="delayed", name="none", limit=5)
    assert not none and parts >= 3


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
    await app.storage.enqueue([NewJob("a", rank=2.0) for _ in range(4999)] + [NewJob("a", rank=3.0)])
    page = await page_of(app, priority="LOW")
    assert page.items == [] and page.next is not None
    found, count = await all_pages(app, priority="LOW")
    assert len(found) == 1 and count == 6


async def test_thousands_of_queues_are_searched_page_by_page(app: App) -> None:
    await app.storage.enqueue([NewJob(f"q{number:04}") for number in range(250)])
    page = await page_of(app, limit=1000)
    assert len(page.items) == CALLS and page.next is not None
    found, count = await all_pages(app, limit=1000)
    assert len(found) == 250 and count == 3


async def test_jobs_that_come_and_go_between_pages_move_no_other(app: App) -> None:
    made = await app.storage.enqueue([NewJob("a") for _ in range(6)])
    first = await page_of(app, limit=3)
    await app.storage.change([Remove(made[number].id) for number in (0, 2, 3)])
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


async def filled() -> App:
    """A demand with its companions, and a user's queue that only has such a name."""
    app = App("memory://")
    for queue in (
        "deals",
        "deals.cache",
        "deals.deliver",
        "deals.spent",
        "web",
        "web.cache",
        "accoda.history",
    ):
        await app.storage.enqueue([NewJob(queue, delay=60)])
    await app.storage.write("demand/deals/counts", b"{}")
    return app


async def test_companions_of_demands_are_hidden_and_queues_with_similar_names_are_not() -> None:
    app = await filled()
    names = (await app.storage.stats()).queues
    assert await bookkeeping(app.storage, names) == {"deals.cache", "deals.spent", "accoda.history"}


async def test_hidden_queues_are_shown_and_counted_only_when_named() -> None:
    app = await filled()
    mine = ["deals", "deals.deliver", "web", "web.cache"]
    assert [queue.name for queue in await queues.list(app)] == mine
    assert [queue.name for queue in (await overview.overview(app)).queues] == mine
    assert {job.queue for job in (await jobs.page(app, JobFilter())).items} == set(mine)
    assert (await bulk.count(app, JobFilter(state="delayed"))).n == len(mine)
    assert len(await queues.list(app, system=True)) == 7
    assert len((await jobs.page(app, JobFilter(system=True))).items) == 7
    assert len((await jobs.page(app, JobFilter(queue="deals.cache"))).items) == 1
