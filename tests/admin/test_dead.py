"""Dead letters: what they have in common, and bringing them back."""

import pytest

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.admin import dead, jobs
from accoda.admin.dead import DeadFilter
from accoda.admin.moments import shown
from accoda.fingerprint import fingerprint
from accoda.model import NewJob


async def bury(app: App, queue: str, *reasons: str, key: str | None = None) -> list[int]:
    store = app.storage
    await store.enqueue([NewJob(queue, key=key) for _ in reasons])
    taken = await store.take(queue, len(reasons))
    await store.settle([Bury(job.lease, reason) for job, reason in zip(taken, reasons, strict=True)])
    return [job.id for job in taken]


async def count(app: App, queue: str = "a") -> tuple[int, int]:
    stats = (await app.storage.stats()).queues[queue]
    return stats.ready, stats.dead


async def test_groups_are_by_cause_with_the_largest_first(app: App, clock: ManualClock) -> None:
    await bury(app, "a", "no user 1", "disk full")
    clock.advance(5)
    [last] = await bury(app, "b", "no user 99")
    await bury(app, "accoda.webhooks", "refused")
    found = await dead.groups(app)
    assert [(group.count, group.reason, group.queues) for group in found.groups] == [
        (2, "no user 99", ["a", "b"]),
        (1, "disk full", ["a"]),
    ]
    first = found.groups[0]
    assert (first.fingerprint, first.last_id) == (fingerprint("no user 5"), last)
    assert (first.first_at, first.last_at) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:25.000Z")
    assert not found.partial and found.looked_at == 3
    assert [group.count for group in (await dead.groups(app, "b")).groups] == [1]


async def test_groups_of_too_many_are_said_to_be_partial(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "GROUPED", 3)
    await bury(app, "a", *("x",) * 4)
    found = await dead.groups(app)
    assert found.partial and found.looked_at == 3 and found.groups[0].count == 3
    monkeypatch.setattr(dead, "GROUPED", 4)
    assert (await dead.groups(app)).groups[0].count == 4


async def test_pages_hold_the_dead_alone_and_by_cause(app: App) -> None:
    ids = await bury(app, "a", "no user 1", "disk full", "no user 2")
    await app.storage.enqueue([NewJob("a")])
    assert [job.id for job in (await dead.page(app)).items] == ids
    page = await dead.page(app, fingerprint=fingerprint("no user 0"), limit=1)
    assert [job.id for job in page.items] == ids[:1]
    page = await dead.page(app, fingerprint=fingerprint("no user 0"), limit=1, cursor=page.next)
    assert [job.id for job in page.items] == ids[2:] and page.next is None
    with pytest.raises(InvalidInput, match="fingerprint"):
        await dead.page(app, fingerprint="xyz")


async def test_a_replay_revives_all_that_fit_and_nothing_else(app: App) -> None:
    await bury(app, "a", "no user 1", "disk full", "no user 2")
    await bury(app, "b", "no user 3")
    told: list[int] = []
    report = await dead.replay(app, DeadFilter(queue="a", fingerprint=fingerprint("no user 9")), progress=told.append)
    assert (report.matched, report.revived, report.held, report.gone) == (2, 2, 0, 0) and told == [2]
    assert await count(app) == (2, 1) and await count(app, "b") == (0, 1)
    everything = await dead.replay(app, DeadFilter())
    assert everything.revived == 2


async def test_a_dry_run_counts_and_shows_and_changes_nothing(app: App) -> None:
    ids = await bury(app, "a", *(f"no user {number}" for number in range(7)))
    report = await dead.replay(app, DeadFilter(), dry_run=True)
    assert (report.matched, report.revived, report.dry_run, report.partial) == (7, 0, True, False)
    assert [job.id for job in report.samples] == ids[:5]
    assert await count(app) == (0, 7)


async def test_filters_by_the_moment_of_death(app: App, clock: ManualClock) -> None:
    first = clock.now()
    await bury(app, "a", "x")
    clock.advance(10)
    await bury(app, "a", "x")
    assert (await dead.replay(app, DeadFilter(before=shown(first + 1)), dry_run=True)).matched == 1
    assert (await dead.replay(app, DeadFilter(after=shown(first + 1)), dry_run=True)).matched == 1
    with pytest.raises(InvalidInput, match="after: needs an offset"):
        await dead.replay(app, DeadFilter(after="2030-01-01T00:00:00"))


async def test_jobs_whose_key_is_held_are_counted_and_do_not_make_it_loop(app: App) -> None:
    await bury(app, "a", "x", key="k")
    await app.storage.enqueue([NewJob("a", key="k")])
    [free] = await bury(app, "b", "x")
    report = await dead.replay(app, DeadFilter())
    assert (report.matched, report.revived, report.held) == (2, 1, 1)
    assert (await jobs.get(app, free)).state == "ready"


async def test_those_that_die_again_meanwhile_are_not_revived_again(app: App, clock: ManualClock) -> None:
    await bury(app, "a", *("x",) * 600)

    def die_again(revived: int) -> None:
        clock.advance(1)

    store = await app.connections.get()
    revive = store.revive

    async def revive_and_die(ids: list[int]) -> int:
        done = await revive(ids)
        clock.advance(1)
        taken = await store.take("a", 1000)
        await store.settle([Bury(job.lease, "x") for job in taken])
        return done

    store.revive = revive_and_die  # type: ignore[method-assign, assignment]
    report = await dead.replay(app, DeadFilter(), progress=die_again)
    assert report.revived == 600 and await count(app) == (0, 600)


async def test_a_rate_is_kept(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("accoda.admin.dead.asyncio.sleep", nap)
    await bury(app, "a", *("x",) * 30)
    report = await dead.replay(app, DeadFilter(), rate=100)
    assert report.revived == 30
    assert [round(each, 1) for each in naps][:2] == [0.1, 0.2], (
        "ten after each tenth of a second, counted from the start"
    )
    for rate in (0, -1, float("nan"), float("inf"), True):
        with pytest.raises(InvalidInput, match="rate"):
            await dead.replay(app, DeadFilter(), rate=rate)


async def test_single_ones_are_revived_by_id(app: App) -> None:
    ids = await bury(app, "a", "x", "y")
    report = await dead.revive(app, [ids[0], ids[0], 999])
    assert (report.matched, report.revived, report.gone) == (2, 1, 1)


async def test_deleting_spares_what_does_not_fit_and_what_is_not_dead(app: App, clock: ManualClock) -> None:
    await bury(app, "a", "no user 1", "disk full", "no user 2")
    await bury(app, "b", *("x",) * 1200)
    await app.storage.enqueue([NewJob("a")])
    by_cause = DeadFilter(fingerprint=fingerprint("no user 0"))
    assert await dead.delete(app, by_cause, dry_run=True) == 2
    assert await dead.delete(app, by_cause) == 2
    assert await count(app) == (1, 1)
    told: list[int] = []
    assert await dead.delete(app, DeadFilter(), progress=told.append) == 1201
    assert await count(app) == (1, 0) and told[-1] == 1201


async def test_groups_of_the_newest_are_of_the_newest(app: App) -> None:
    await bury(app, "a", *("old 1",) * 300)
    await bury(app, "a", *("new",) * 300)
    await bury(app, "b", "other")
    await bury(app, "accoda.webhooks", "refused")
    found = await dead.latest_groups(app, 100)
    assert [group.reason for group in found.groups] == ["new", "other"]
    assert found.partial and 51 <= found.looked_at <= 100
    whole = await dead.latest_groups(app)
    assert not whole.partial and whole.looked_at == 601 and [group.count for group in whole.groups] == [300, 300, 1]


async def test_groups_of_the_newest_follow_every_change(app: App) -> None:
    first, second = await bury(app, "a", "x", "y")
    await dead.latest_groups(app)
    await dead.revive(app, [first])
    assert [group.reason for group in (await dead.latest_groups(app)).groups] == ["y"]
    [job] = await app.storage.take("a", 1)
    await app.storage.settle([Bury(job.lease, "z")])
    assert {group.reason for group in (await dead.latest_groups(app)).groups} == {"y", "z"}
    await app.storage.remove([second])
    assert [group.reason for group in (await dead.latest_groups(app)).groups] == ["z"]


async def test_counting_is_bounded_and_changes_nothing(app: App) -> None:
    await bury(app, "a", *("x",) * 5)
    assert (await dead.count(app, DeadFilter(queue="a"))).matched == 5
    part = await dead.count(app, DeadFilter(queue="a"), 3)
    assert part.matched == 3 and part.partial and await count(app) == (0, 5)
