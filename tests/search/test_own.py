"""Which queues are the user's."""

from accoda import App, NewJob
from accoda.admin import bulk, jobs, overview, queues
from accoda.search import JobFilter, kept_by_us


async def filled() -> App:
    """A demand with its books, and a user's queue that is only called like one."""
    app = App("memory://")
    for queue in ("deals", "deals.cache", "deals.deliver", "deals.spent", "web", "web.cache", "accoda.history"):
        await app.storage.enqueue([NewJob(queue, delay=60)])
    await app.storage.write("demand/deals/counts", b"{}")
    return app


async def test_books_of_demands_are_ours_and_queues_that_are_called_alike_are_not() -> None:
    app = await filled()
    names = (await app.storage.stats()).queues
    assert await kept_by_us(app.storage, names) == {"deals.cache", "deals.spent", "accoda.history"}


async def test_they_are_shown_and_counted_only_where_they_are_asked_for() -> None:
    app = await filled()
    mine = ["deals", "deals.deliver", "web", "web.cache"]
    assert [queue.name for queue in await queues.list(app)] == mine
    assert [queue.name for queue in (await overview.overview(app)).queues] == mine
    assert {job.queue for job in (await jobs.page(app, JobFilter())).items} == set(mine)
    assert (await bulk.count(app, JobFilter(state="delayed"))).n == len(mine)
    assert len(await queues.list(app, system=True)) == 7
    assert len((await jobs.page(app, JobFilter(system=True))).items) == 7
    assert len((await jobs.page(app, JobFilter(queue="deals.cache"))).items) == 1
