"""A queue's line at a glance: exact while it is short, bounded when it is long."""

from accoda import App, Bury, NewJob
from accoda.admin import glance


async def test_a_short_line_is_told_in_its_order_and_by_level() -> None:
    async with App("memory://") as app:
        ranks = [2.0, 0.0, 3.0, 0.0, 7.5]
        ids = [each.id for each in await app.storage.enqueue([NewJob("emails", rank=rank) for rank in ranks])]
        line = await glance.line(app, "emails", shown=3)
        assert [job.id for job in line.next] == [ids[1], ids[3], ids[0]]
        assert line.levels == {"CRITICAL": 2, "HIGH": 0, "NORMAL": 1, "LOW": 1, "other": 1}
        assert line.exact and line.looked_at == 5


async def test_of_a_long_line_the_one_that_is_next_is_told_whatever_its_age() -> None:
    async with App("memory://") as app:
        await app.storage.enqueue([NewJob("emails", rank=3.0)] * (glance.LOOKED_AT + 50))
        newest = (await app.storage.enqueue([NewJob("emails", rank=0.0)]))[0].id
        line = await glance.line(app, "emails")
        assert line.next[0].id == newest and len(line.next) == 10
        assert not line.exact and line.looked_at == glance.LOOKED_AT + 1


async def test_the_last_failures_are_the_newest_first() -> None:
    async with App("memory://") as app:
        await app.storage.enqueue([NewJob("emails")] * 60)
        for job in await app.storage.take("emails", 60):
            await app.storage.settle([Bury(job.lease, f"no {job.id}")])
        found = await glance.failures(app, "emails", 5)
        assert len(found) == 5 and [job.id for job in found] == sorted((job.id for job in found), reverse=True)
        assert found[0].reason == f"no {found[0].id}"
        assert await glance.failures(app, "reports") == []
