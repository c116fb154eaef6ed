"""The recorder: each point once in any number of processes; a week in seconds; crashes, overtaken rounds, clocks."""

import asyncio
from types import SimpleNamespace

import pytest

from accoda import App, Bury, Done, ManualClock, NewJob, VersionConflict
from accoda.errors import InvalidInput
from accoda.model import ByKey, Remove
from accoda.operations.history import reading as history
from accoda.operations.history.plan import WorkerSums, unpack
from accoda.operations.history.reading import Series, read_budget_history, read_history, read_rate, read_sparks
from accoda.operations.history.recorder import KEY, PREFIX, QUEUE, Recorder, ensure_job
from accoda.operations.history.ring import SHAPES, STEP, Span
from accoda.storage.protocol import Store

START = 1_700_001_000_000
"""A whole half hour, so that slots of every span begin with it."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def slots(series: Series, span: Span) -> list[SimpleNamespace]:
    """One record for each slot; without a record all values are 0, and it is not `known`."""
    rows = zip(*series.columns.values(), strict=True)
    return [
        SimpleNamespace(
            at=series.at + number * SHAPES[span].step,
            known=None not in row,
            **{name: value or 0 for name, value in zip(series.columns, row, strict=True)},
        )
        for number, row in enumerate(rows)
    ]


async def points_of(store: Store, queue: str | None, span: Span) -> list[SimpleNamespace]:
    return slots(await read_history(store, queue, span), span)


async def work(store: Store, queue: str, done: int, buried: int = 0, left: int = 0) -> None:
    await store.enqueue([NewJob(queue) for _ in range(done + buried + left)])
    jobs = await store.take(queue, done + buried)
    await store.settle([Done(job.lease) for job in jobs[:done]] + [Bury(job.lease, "no") for job in jobs[done:]])


async def tick(store: Store, clock: ManualClock, rounds: int = 1, seconds: float = 15.0) -> None:
    for _ in range(rounds):
        clock.advance(seconds)
        await Recorder().run_once(store)


async def begin(app: App) -> Store:
    store = await app.connections.get()
    await ensure_job(store)
    assert await Recorder().run_once(store) == 1
    return store


async def test_what_happened_is_in_the_slot_in_which_it_did(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await tick(store, clock)
    await work(store, "a", done=5, buried=2, left=1)
    await tick(store, clock, 3)
    series = await points_of(store, "a", "1h")
    assert len(series) == 240
    assert [(point.at, point.done, point.buried, point.ready, point.dead) for point in series[-4:]] == [
        (START, 0, 0, 0, 0),
        (START + STEP, 5, 2, 1, 2),
        (START + 2 * STEP, 0, 0, 1, 2),
        (START + 3 * STEP, 0, 0, 1, 2),
    ]
    assert [point.oldest_age for point in series[-3:]] == [15, 30, 45]  # of the job that waits, also unwritten
    assert [point.known for point in series[-7:]] == [False, False, True, True, True, True, True]
    total = await points_of(store, None, "1h")
    assert [point.done for point in total[-4:]] == [0, 5, 0, 0]


async def test_a_week_has_fixed_sizes_and_every_event_once(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    for number in range(7 * 288):
        if number % 3 == 0:
            await work(store, "a", done=4)
        await tick(store, clock, seconds=300)  # rounds come late: each ends twenty slots
    for _ in range(480):
        await work(store, "a", done=1)
        await tick(store, clock)
    hour, day, week = [await points_of(store, "a", span) for span in SHAPES]
    assert [len(series) for series in (hour, day, week)] == [240, 288, 336]
    assert all(point.known for series in (hour, day, week) for point in series)
    assert sum(point.done for point in hour) == 240
    assert sum(point.done for point in day) == 480 + (288 - 24) // 3 * 4
    assert sum(point.done for point in week) == 480 + (336 - 4) * 6 // 3 * 4
    documents = {document.name: len(document.value) for document in await store.documents(PREFIX)}
    sizes = {"1h": 12_502, "24h": 14_998, "7d": 17_494}
    assert {name: documents[f"{PREFIX}a/{name}"] for name in sizes} == sizes
    assert {name: documents[f"{PREFIX}*/{name}"] for name in sizes} == sizes
    assert documents[f"{PREFIX}sparks"] < 400 and len(documents) == 7
    [job] = await store.browse(QUEUE, "delayed")
    assert len(job.data) < 1000


async def test_two_recorders_at_once_give_each_point_once(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    for _ in range(20):
        await work(store, "a", done=3)
        clock.advance(15)
        settled = await asyncio.gather(*(Recorder().run_once(store) for _ in range(4)))
        assert sorted(settled) == [0, 0, 0, 1]
    points = await points_of(store, "a", "1h")
    assert [point.done for point in points[-20:]] == [3] * 20
    assert (await store.stats()).queues[QUEUE].delayed == 1


async def test_killed_after_writing_the_round_is_done_again_and_counts_once(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=6)
    clock.advance(15)
    [job] = await store.take(QUEUE, 1, lease=60)
    await Recorder()._round(store, job)  # what a process does that is killed before it settles
    clock.advance(60)
    await tick(store, clock)
    points = await points_of(store, "a", "1h")
    assert sum(point.done for point in points) == 6 and all(point.known for point in points[-6:])


async def test_a_round_that_was_overtaken_writes_nothing(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=6)
    clock.advance(15)
    [slow] = await store.take(QUEUE, 1, lease=10)
    clock.advance(15)
    await work(store, "a", done=2)
    await tick(store, clock)  # the lease is over: another does both slots
    before = [point.done for point in (await points_of(store, "a", "1h"))]
    assert await Recorder()._do(store, slow) is False
    assert [point.done for point in (await points_of(store, "a", "1h"))] == before and sum(before) == 8


async def test_a_ring_that_somebody_else_writes_meanwhile_is_read_again(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=6)
    write, once = store.write, [True]

    async def raced(name: str, value: bytes, **more: object) -> int:
        if name == f"{PREFIX}a/1h" and once:
            once.clear()
            raise VersionConflict(name, 0, 1)
        return await write(name, value, **more)  # type: ignore[arg-type]

    store.write = raced  # type: ignore[method-assign]
    await tick(store, clock)
    store.write = write  # type: ignore[method-assign]
    assert (await points_of(store, "a", "1h"))[-1].done == 6


async def test_nobody_recorded_is_shown_as_such(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await tick(store, clock, 4)
    clock.advance(600)
    await work(store, "a", done=50)
    await tick(store, clock, 4)
    points = await points_of(store, "a", "1h")
    assert sum(not point.known for point in points[-47:]) == 40 and sum(point.done for point in points) == 0
    view = await history.series(app, "a")
    assert view.done[-10] is None and view.done[-1] == 0


async def test_a_recorder_that_is_silent_now_shows_a_gap_at_the_end(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await tick(store, clock, 4)
    clock.advance(30)
    assert (await points_of(store, "a", "1h"))[-1].known  # a bit late is not silent
    clock.advance(600)
    assert not (await points_of(store, "a", "1h"))[-1].known


async def test_a_clock_that_jumps_back_an_hour_goes_on_recording(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=1)
    await tick(store, clock, 8)
    clock._now -= 3_600_000
    assert await Recorder().run_once(store) == 0
    await ensure_job(store)  # which a recorder that waits for nothing does
    assert await Recorder().run_once(store) == 1
    await work(store, "a", done=7)
    await tick(store, clock, 2)
    points = await points_of(store, "a", "1h")
    assert points[-1].at == START + 8 * STEP - 3_600_000 + STEP
    assert [point.done for point in points[-2:]] == [7, 0] and sum(point.done for point in points) == 7


async def test_the_recorders_job_is_there_once_and_comes_back_if_it_is_deleted(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await ensure_job(store)
    await tick(store, clock, 2)
    assert (await store.stats()).queues[QUEUE].total == 1
    job = (await store.look(ByKey(QUEUE, KEY))).job
    assert job is not None and unpack(job.data) is not None
    await store.change([Remove(job.id)])
    await ensure_job(store)
    await tick(store, clock, 2)
    assert (await points_of(store, None, "1h"))[-1].known


async def test_the_duty_runs_by_itself(clock: ManualClock) -> None:
    async with App("memory://", clock=clock) as app:
        store = await app.connections.get()
        running = asyncio.create_task(Recorder().run(store))
        while (await store.read(f"{PREFIX}*/1h")) is None:
            await asyncio.sleep(0)
        running.cancel()
        assert (await asyncio.gather(running, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_rates_are_of_times_in_which_jobs_waited(app: App, clock: ManualClock) -> None:
    store = await begin(app)

    async def measured(store: Store) -> dict[str, WorkerSums]:
        return {"w": WorkerSums(START, {"a": (clock.now() - START, (clock.now() - START) * 0.5, 0.0)})}

    assert await read_rate(store, "a") is None
    for _ in range(8):
        await work(store, "a", done=1)
        await tick(store, clock)
    assert await read_rate(store, "a") is None  # all that came in was done: it is unknown how fast it could go
    await store.enqueue([NewJob("a") for _ in range(500)])
    for number in range(16):
        await store.settle([Done(job.lease) for job in await store.take("a", 30 if number % 2 else 20)])
        clock.advance(15)
        await Recorder(workers=measured).run_once(store)
    rate = await read_rate(store, "a")
    assert rate is not None and rate.jobs_a_second == pytest.approx(400 / 240) and rate.over == 240
    assert 1 < rate.low < rate.jobs_a_second < rate.high < 2.2 and rate.ran == pytest.approx(0.5)


async def test_sparks_are_of_the_last_quarter_of_an_hour(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=30, buried=15)
    await work(store, "idle", done=0, left=1)
    await tick(store, clock, 3)
    sparks = await read_sparks(store)
    assert list(sparks) == ["a"] and len(sparks["a"].done) == len(sparks["a"].failed) == 60
    assert sparks["a"].done[-4:] == [0, 2.0, 0, 0] and sparks["a"].failed[-3] == 1.0
    await tick(store, clock, 60)
    assert await read_sparks(store) == {}


async def test_budgets_have_a_history(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    used = [0.0]

    async def budgets() -> dict[str, tuple[float, float, float, float]]:
        return {"keepa": (20.0 - used[0], 1.0, used[0], 2.0)}

    for _ in range(4):
        clock.advance(15)
        await Recorder(budgets).run_once(store)
        used[0] += 3
    points = slots(await read_budget_history(store, "keepa", "1h"), "1h")
    assert [(point.left, point.reserved, point.used, point.refused) for point in points[-4:]] == [
        (20, 1, 0, 0),
        (17, 1, 3, 0),
        (14, 1, 3, 0),
        (11, 1, 3, 0),
    ]
    view = await history.budget(app, "keepa")
    assert view.left[-1] == 11 and view.used[-1] == 3 and view.left[0] is None


async def test_people_see_rates_and_gaps(app: App, clock: ManualClock) -> None:
    store = await begin(app)
    await work(store, "a", done=30)
    await tick(store, clock)
    view = await history.series(app, "a", "1h")
    assert view.done[-1] == 2.0 and view.done[0] is None and view.waited[-1] is None and len(view.ready) == 240
    assert view.start == "2023-11-14T21:30:15.000Z" and view.step == 15
    assert (await history.series(app)).queue is None
    with pytest.raises(InvalidInput, match="span"):
        await history.series(app, "a", "2h")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="queue"):
        await history.series(app, "a b")
