"""Bulk changes: all that fit, each once, with the right counts, through crashes."""

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from accoda import App, Bury, Done, InvalidInput, ManualClock, NewJob
from accoda.errors import Conflict, NotFound, StorageUnavailable
from accoda.fingerprint import fingerprint
from accoda.model import STATES, ById, Change
from accoda.operations import bulk
from accoda.operations.bulk import BULKS, QUEUE, BulkView, Count, advance, bulk_runner
from accoda.operations.job_filter import JobFilter
from accoda.operations.levels import Level
from accoda.operations.moments import rfc3339
from accoda.storage.protocol import Store

CHILD = Path(__file__).parent / "bulk_child.py"


async def bury(store: Store, count: int, queue: str = "a", reason: str = "broken") -> list[int]:
    await store.enqueue([NewJob(queue) for _ in range(count)])
    jobs = await store.take(queue, count)
    await store.settle([Bury(job.lease, reason) for job in jobs])
    return [job.id for job in jobs]


async def finish(app: App, id: str) -> BulkView:
    store = await app.connections.get()
    while await bulk_runner(app).run_once(store):
        pass
    return await bulk.get(app, id)


def counts(view: BulkView) -> tuple[str, int, int, int]:
    return view.state, view.matched, view.changed, view.skipped


async def test_dead_jobs_are_ready_again_and_delayed_ones_start_now(app: App) -> None:
    store = app.storage
    await bury(store, 1203)
    await store.enqueue([NewJob("a", delay=60) for _ in range(3)] + [NewJob("b", delay=60)])
    view = await bulk.start(app, "retry", JobFilter(queue="a"), who="anna")
    assert counts(view) == ("running", 0, 0, 0) and (view.who, view.action) == ("anna", "retry")
    ended = await finish(app, view.id)
    assert counts(ended) == ("finished", 1206, 1206, 0) and ended.looked_at == 1206 and ended.ended_at
    stats = (await store.stats()).queues
    assert (stats["a"].ready, stats["a"].dead, stats["b"].delayed) == (1206, 0, 1)


async def test_jobs_are_cancelled_whether_they_wait_or_run(app: App) -> None:
    store = app.storage
    await bury(store, 1)
    await store.enqueue([NewJob("a") for _ in range(5)] + [NewJob("a", delay=60)])
    taken = await store.take("a", 2)
    ended = await finish(app, (await bulk.start(app, "cancel", JobFilter(queue="a"))).id)
    assert counts(ended) == ("finished", 6, 6, 0)
    assert [refused.why for refused in await store.settle([Done(job.lease) for job in taken])] == ["cancelled"] * 2
    assert (await store.stats()).queues["a"].dead == 1


async def test_jobs_are_deleted_in_whatever_state(app: App) -> None:
    store = app.storage
    await store.enqueue([NewJob("a", keep_for=60.0)])
    await store.settle([Done(job.lease) for job in await store.take("a", 1)])
    await bury(store, 3)
    [cancelled, *_] = await store.enqueue([NewJob("a", keep_for=60.0), NewJob("a"), NewJob("a", delay=5)])
    assert await app.cancel(cancelled.id)
    assert (await bulk.count(app, JobFilter(queue="a"))).n == 7
    assert counts(await finish(app, (await bulk.start(app, "delete", JobFilter(queue="a"))).id))[1:3] == (7, 7)
    assert all([not await store.browse("a", state) for state in STATES])


async def test_a_level_is_given_to_those_that_wait_and_have_another(app: App) -> None:
    store = app.storage
    made = await store.enqueue(
        [NewJob("a", rank=float(number % 4)) for number in range(8)] + [NewJob("a", rank=2.0, delay=9)]
    )
    await store.take("a", 1)  # the first CRITICAL one runs
    view = await bulk.start(app, "priority", JobFilter(queue="a"), level="CRITICAL")
    assert counts(await finish(app, view.id)) == ("finished", 8, 7, 1)
    infos = [(await store.look(ById(one.id))).job for one in made]
    assert {info.rank for info in infos if info is not None} == {0.0}


async def test_only_what_fits_is_changed(app: App) -> None:
    store = app.storage
    keep = await bury(store, 2, reason="TimeoutError: no answer")
    go = await bury(store, 2, reason="KeyError: 'x'")
    ended = await finish(app, (await bulk.start(app, "delete", JobFilter(state="dead", error="keyerror"))).id)
    assert counts(ended)[1:3] == (2, 2)
    assert [(await store.look(ById(id))).job is not None for id in keep + go] == [True, True, False, False]


async def test_jobs_that_come_or_die_while_it_runs_are_spared(app: App, clock: ManualClock) -> None:
    store = app.storage
    await bury(store, 3)
    view = await bulk.start(app, "retry", JobFilter(queue="a"))
    clock.advance(1)
    await bury(store, 4)
    assert counts(await finish(app, view.id))[1:3] == (3, 3)
    view = await bulk.start(app, "cancel", JobFilter(queue="a"))
    clock.advance(1)
    await store.enqueue([NewJob("a")])
    assert counts(await finish(app, view.id))[1:3] == (3, 3)


async def test_a_job_whose_key_is_held_is_skipped(app: App) -> None:
    store = app.storage
    await store.enqueue([NewJob("a", key="k")])
    await store.settle([Bury(job.lease, "x") for job in await store.take("a", 1)])
    await store.enqueue([NewJob("a", key="k")])
    assert counts(await finish(app, (await bulk.start(app, "retry", JobFilter(queue="a"))).id))[1:4] == (1, 0, 1)


@pytest.mark.parametrize("action", ["retry", "cancel", "delete", "priority"])
async def test_killed_between_its_act_and_its_settlement_it_counts_each_once(
    app: App, clock: ManualClock, action: bulk.Action
) -> None:
    store = app.storage
    if action == "retry":
        await bury(store, 700)
    else:
        await store.enqueue([NewJob("a", rank=2.0) for _ in range(700)])
    view = await bulk.start(app, action, JobFilter(queue="a"), level="HIGH" if action == "priority" else None)
    await bulk_runner(app).run_once(store)
    [job] = await store.take(QUEUE, 1, lease=60)
    step = BULKS.decode(job.data)
    assert step is not None and len(step.plan) == 500
    await advance(app, store, step, False)  # what a process does that is killed before it settles
    if action == "retry":  # some of them run, and die again, before anybody notices
        await store.settle([Bury(job.lease, "again") for job in await store.take("a", 100)])
    clock.advance(61)
    assert counts(await finish(app, view.id)) == ("finished", 700, 700, 0)
    stats = (await store.stats()).queues["a"]
    left = {"retry": (600, 100), "cancel": (0, 0), "delete": (0, 0), "priority": (700, 0)}
    assert (stats.ready, stats.dead) == left[action]  # what died again was not revived a second time


async def test_a_process_that_is_killed_again_and_again_changes_each_job_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with App(url) as app:
        store = await app.connections.get()
        ids = await bury(store, 3000)
        view = await bulk.start(app, "retry", JobFilter(queue="a"))
        kills = 0
        async with asyncio.timeout(60):
            while (await bulk.get(app, view.id)).state == "running":
                child = await asyncio.create_subprocess_exec(sys.executable, str(CHILD), url)
                seen = (await bulk.get(app, view.id)).changed
                while (now := await bulk.get(app, view.id)).state == "running" and now.changed < seen + 600:
                    await asyncio.sleep(0.002 * random.random())
                child.kill()
                await child.wait()
                kills += 1
        ended = await bulk.get(app, view.id)
        assert counts(ended) == ("finished", 3000, 3000, 0) and kills >= 2
        after, jobs = None, []
        while page := await store.browse("a", "ready", order="id", after=after, limit=1000):
            after, jobs = page[-1].cursor("id"), [*jobs, *page]
        assert len(jobs) == len(ids) == 3000 and {job.attempts for job in jobs} == {1}


async def test_three_runners_do_each_step_once(app: App) -> None:
    store = app.storage
    await bury(store, 2600)
    view = await bulk.start(app, "retry", JobFilter(queue="a"))
    while any(await asyncio.gather(*(bulk_runner(app).run_once(store) for _ in range(3)))):
        pass
    assert counts(await bulk.get(app, view.id)) == ("finished", 2600, 2600, 0)


async def test_while_the_store_is_away_nothing_is_lost(app: App, clock: ManualClock) -> None:
    store = await app.connections.get()
    await bury(store, 3)
    view = await bulk.start(app, "retry", JobFilter(queue="a"))
    await bulk_runner(app).run_once(store)
    change = store.change

    async def away(changes: object) -> int:
        raise StorageUnavailable("away")

    store.change = away  # type: ignore[method-assign]
    with pytest.raises(StorageUnavailable):
        await bulk_runner(app).run_once(store)
    store.change = change  # type: ignore[method-assign]
    clock.advance(2)
    assert counts(await finish(app, view.id)) == ("finished", 3, 3, 0)


async def test_one_can_be_stopped_and_looked_up_and_listed(app: App, clock: ManualClock) -> None:
    store = app.storage
    await bury(store, 1100)
    view = await bulk.start(app, "retry", JobFilter(queue="a"))
    for _ in range(2):
        await bulk_runner(app).run_once(store)
    stopped = await bulk.stop(app, view.id)
    assert (stopped.state, stopped.changed) == ("stopped", 500) and await finish(app, view.id) == stopped
    with pytest.raises(Conflict, match="stopped already"):
        await bulk.stop(app, view.id)
    clock.advance(1)
    second = await bulk.start(app, "delete", JobFilter(queue="a"))
    assert [one.id for one in await bulk.list(app)] == [second.id, view.id]
    with pytest.raises(NotFound):
        await bulk.get(app, "../x")
    with pytest.raises(NotFound):
        await bulk.stop(app, "f00")


@pytest.mark.parametrize(
    ("action", "where", "level", "field"),
    [
        ("explode", {"queue": "a"}, None, "action"),
        ("retry", {}, None, "filter"),
        ("retry", {"queue": "a", "state": "ready"}, None, "state"),
        ("retry", {"queue": "a b"}, None, "queue"),
        ("retry", {"queue": "accoda.schedules"}, None, "queue"),
        ("delete", {"state": "done", "system": True}, None, "system"),
        ("cancel", {"state": "dead", "queue": "accoda.webhooks"}, None, "queue"),
        ("retry", {"queue": "a"}, "LOW", "level"),
        ("priority", {"queue": "a"}, None, "level"),
        ("priority", {"queue": "a"}, "URGENT", "level"),
        ("retry", {"field": "x"}, None, "field"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_begins(
    app: App, action: bulk.Action, where: dict[str, str], level: Level, field: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        await bulk.start(app, action, JobFilter(**where), level=level)  # type: ignore[arg-type]
    assert error.value.field == field and await bulk.list(app) == []


async def test_those_that_fit_are_counted_from_counters_or_by_bounded_looks(app: App) -> None:
    store = app.storage
    await store.enqueue([NewJob("a", rank=float(number % 2)) for number in range(30_000)])
    await bury(store, 5, "b")
    assert (
        await bulk.count(app, JobFilter(queue="a"))
        == Count(30_000, True)
        == await bulk.count(app, JobFilter(state="ready"))
    )
    assert await bulk.count(app, JobFilter(queue="b"), "cancel") == Count(0, True)
    assert await bulk.count(app, JobFilter(queue="b", error="broken")) == Count(5, True)
    half = await bulk.count(app, JobFilter(queue="a", priority="HIGH"))
    assert not half.exact and 9_000 < half.n < 11_000


async def test_run_does_it_here_and_now_and_tells_how_far_it_is(app: App) -> None:
    store = app.storage
    await bury(store, 2, reason="no user 1")
    await bury(store, 1, reason="disk full")
    await bury(store, 1, "b", "no user 3")
    told: list[int] = []
    wanted = JobFilter(state="dead", queue="a", fingerprint=fingerprint("no user 9"))
    done = await bulk.run(app, "retry", wanted, progress=told.append)
    assert counts(done) == ("finished", 2, 2, 0) and told[-1] == 2
    assert (await store.stats()).queues["a"].dead == 1 == (await store.stats()).queues["b"].dead
    assert (await bulk.run(app, "retry", JobFilter(state="dead"))).changed == 2
    assert await bulk.list(app) == []


async def test_run_keeps_a_rate(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("accoda.operations.bulk.asyncio.sleep", nap)
    await bury(app.storage, 25)
    assert (await bulk.run(app, "retry", JobFilter(state="dead"), rate=10)).changed == 25
    assert naps == [1.0, 1.0, 1.0, 0.0]
    for rate in (0, -1, float("nan"), float("inf"), True):
        with pytest.raises(InvalidInput, match="rate"):
            await bulk.run(app, "retry", JobFilter(state="dead"), rate=rate)


async def test_jobs_are_filtered_by_the_moment_of_their_end(app: App, clock: ManualClock) -> None:
    first = clock.now()
    await bury(app.storage, 1)
    clock.advance(10)
    await bury(app.storage, 2)
    assert (await bulk.count(app, JobFilter(state="dead", before=rfc3339(first + 1)))).n == 1
    assert (await bulk.count(app, JobFilter(state="dead", after=rfc3339(first + 1)))).n == 2
    with pytest.raises(InvalidInput, match="after: needs an offset"):
        await bulk.run(app, "retry", JobFilter(state="dead", after="2030-01-01T00:00:00"))


async def test_letters_that_die_again_meanwhile_are_not_revived_again(app: App, clock: ManualClock) -> None:
    store = await app.connections.get()
    await bury(store, 600)
    change = store.change

    async def revive_and_die(changes: Sequence[Change]) -> int:
        done = await change(changes)
        clock.advance(1)
        await store.settle([Bury(job.lease, "x") for job in await store.take("a", 1000)])
        return done

    store.change = revive_and_die  # type: ignore[method-assign]
    assert (await bulk.run(app, "retry", JobFilter(state="dead"))).changed == 600
    assert (await store.stats()).queues["a"].dead == 600


async def test_dead_jobs_of_system_queues_may_be_retried_and_deleted(app: App) -> None:
    await bury(app.storage, 3, "accoda.webhooks")
    assert (await bulk.run(app, "retry", JobFilter(state="dead"))).changed == 0
    assert (await bulk.run(app, "retry", JobFilter(state="dead", system=True))).changed == 3
