"""What dead letters have in common."""

from accoda import App, Bury, ManualClock
from accoda.fingerprint import fingerprint
from accoda.model import NewJob, Remove
from accoda.operations import jobs
from accoda.operations.failure_groups import groups


async def bury(app: App, queue: str, *reasons: str, key: str | None = None) -> list[int]:
    store = app.storage
    await store.enqueue([NewJob(queue, key=key) for _ in reasons])
    taken = await store.take(queue, len(reasons))
    await store.settle([Bury(job.lease, reason) for job, reason in zip(taken, reasons, strict=True)])
    return [job.id for job in taken]


async def test_groups_are_by_cause_with_the_largest_first(app: App, clock: ManualClock) -> None:
    await bury(app, "a", "no user 1", "disk full")
    clock.advance(5)
    [last] = await bury(app, "b", "no user 99")
    await bury(app, "accoda.webhooks", "refused")
    found = await groups(app)
    assert [(group.count, group.reason, group.queues) for group in found.groups] == [
        (2, "no user 99", ["a", "b"]),
        (1, "disk full", ["a"]),
    ]
    first = found.groups[0]
    assert (first.fingerprint, first.last_id) == (fingerprint("no user 5"), last)
    assert (first.first_at, first.last_at) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:25.000Z")
    assert not found.partial and found.looked_at == 3
    assert [group.count for group in (await groups(app, "b")).groups] == [1]


async def test_groups_of_too_many_are_said_to_be_partial(app: App) -> None:
    await bury(app, "a", *("x",) * 4)
    found = await groups(app, most=3)
    assert found.partial and (found.looked_at, found.total) == (3, 4) and found.groups[0].count == 3
    assert (await groups(app, most=4)).groups[0].count == 4


async def test_groups_are_of_the_latest_letters_of_each_queue(app: App) -> None:
    await bury(app, "a", *("old 1",) * 300)
    await bury(app, "a", *("new",) * 300)
    await bury(app, "b", "other")
    await bury(app, "accoda.webhooks", "refused")
    found = await groups(app, most=100)
    assert [group.reason for group in found.groups] == ["new", "other"]
    assert found.partial and found.looked_at == 100
    whole = await groups(app)
    assert not whole.partial and whole.looked_at == 601 and [group.count for group in whole.groups] == [300, 300, 1]


async def test_groups_follow_every_change(app: App) -> None:
    first, second = await bury(app, "a", "x", "y")
    await groups(app)
    await jobs.revive(app, [first])
    assert [group.reason for group in (await groups(app)).groups] == ["y"]
    [job] = await app.storage.take("a", 1)
    await app.storage.settle([Bury(job.lease, "z")])
    assert {group.reason for group in (await groups(app)).groups} == {"y", "z"}
    await app.storage.change([Remove(second)])
    assert [group.reason for group in (await groups(app)).groups] == ["z"]
