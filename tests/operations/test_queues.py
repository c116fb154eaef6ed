"""Queues: what is in them, which jobs are next, pausing, emptying."""

import pytest

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.errors import Conflict, NotFound
from accoda.model import NewJob
from accoda.operations import queues
from accoda.runtime.heartbeat import PREFIX, encode
from accoda.runtime.worker import Worker, WorkerOptions


async def test_queues_are_listed_with_their_counts_and_system_queues_when_asked_for(app: App) -> None:
    @app.handler("idle")
    async def idle(payload: object) -> None: ...

    await app.storage.enqueue([NewJob("b"), NewJob("a"), NewJob("a", delay=9), NewJob("accoda.webhooks")])
    listed = await queues.list(app)
    assert [(each.name, each.ready, each.delayed, each.total, each.handled) for each in listed] == [
        ("a", 1, 1, 2, False),
        ("b", 1, 0, 1, False),
        ("idle", 0, 0, 0, True),
    ]
    everything = {each.name: each for each in await queues.list(app, system=True)}
    assert everything["accoda.webhooks"].system and not everything["a"].system


async def test_a_queue_has_the_number_of_its_contract_also_where_only_a_worker_knows_it(app: App) -> None:
    @app.handler("emails", number=7)
    async def send(payload: object) -> None: ...

    assert (await queues.get(app, "emails")).number == 7
    stranger = App("memory://")
    stranger.connections = app.connections  # one that knows no handler
    await app.storage.enqueue([NewJob("emails"), NewJob("other")])
    assert [each.number for each in await queues.list(stranger)] == [None, None]
    worker = Worker(app, WorkerOptions(managed=False, system_jobs=False))
    await worker.init()
    beat = worker.heartbeat()
    await app.storage.write(PREFIX + beat.id, encode(beat), ttl=60)
    assert [each.number for each in await queues.list(stranger)] == [7, None]


async def test_a_queue_that_never_was_is_not_found(app: App) -> None:
    with pytest.raises(NotFound) as error:
        await queues.get(app, "never")
    assert (error.value.kind, error.value.name) == ("queue", "never")
    with pytest.raises(InvalidInput):
        await queues.get(app, "a b")


async def test_a_pause_lasts_for_its_seconds_or_until_it_is_resumed(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a")])
    view = await queues.pause(app, "a", 30)
    assert view.paused and view.paused_until == "2023-11-14T22:13:50.000Z"
    assert await app.storage.take("a", 1) == []
    clock.advance(30)
    assert not (await queues.get(app, "a")).paused
    assert (await queues.pause(app, "a")).paused_until is None
    assert not (await queues.resume(app, "a")).paused
    with pytest.raises(InvalidInput, match="until"):
        await queues.pause(app, "a", -1)


async def test_purging_deletes_one_state_in_parts_and_tells_how_far_it_is(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a") for _ in range(2500)] + [NewJob("a", delay=60)])
    told: list[int] = []
    assert await queues.purge(app, "a", "ready", progress=told.append) == 2500
    assert told == [1000, 2000, 2500]
    assert (await queues.get(app, "a")).delayed == 1


async def test_purging_may_spare_what_is_newer(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a")])
    clock.advance(10)
    await app.storage.enqueue([NewJob("a")])
    assert await queues.purge(app, "a", "ready", clock.now()) == 1


async def test_schedules_are_not_purged(app: App) -> None:
    with pytest.raises(Conflict, match="schedules themselves"):
        await queues.purge(app, "accoda.schedules", "delayed")
    with pytest.raises(InvalidInput, match="state"):
        await queues.purge(app, "a", "lost")  # type: ignore[arg-type]


async def test_waiting_jobs_are_summarised_in_their_order_and_by_level() -> None:
    async with App("memory://") as app:
        ranks = [2.0, 0.0, 3.0, 0.0, 7.5]
        ids = [each.id for each in await app.storage.enqueue([NewJob("emails", rank=rank) for rank in ranks])]
        found = await queues.waiting(app, "emails", shown=3)
        assert [job.id for job in found.next] == [ids[1], ids[3], ids[0]]
        assert found.levels == {"CRITICAL": 2, "HIGH": 0, "NORMAL": 1, "LOW": 1, "other": 1}
        assert found.exact and found.looked_at == 5


async def test_the_summary_of_a_long_line_begins_with_the_next_job_whatever_its_age() -> None:
    async with App("memory://") as app:
        await app.storage.enqueue([NewJob("emails", rank=3.0)] * (queues.SUMMARISED + 50))
        newest = (await app.storage.enqueue([NewJob("emails", rank=0.0)]))[0].id
        found = await queues.waiting(app, "emails")
        assert found.next[0].id == newest and len(found.next) == 10
        assert not found.exact and found.looked_at == queues.SUMMARISED


async def test_failures_are_the_latest_first() -> None:
    async with App("memory://") as app:
        await app.storage.enqueue([NewJob("emails")] * 60)
        taken = await app.storage.take("emails", 60)
        await app.storage.settle([Bury(job.lease, f"no {job.id}") for job in taken])
        found = await queues.failures(app, "emails", 5)
        assert len(found) == 5 and [job.id for job in found] == sorted((job.id for job in found), reverse=True)
        assert found[0].reason == f"no {found[0].id}"
        assert await queues.failures(app, "reports") == []
