"""The whole store in numbers."""

from accoda import App, Done, ManualClock
from accoda.model import NewJob
from accoda.operations import overview
from accoda.operations.history.recorder import Recorder, ensure_job
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode


async def beat(app: App, clock: ManualClock, name: str = "w", problem: str = "") -> None:
    now = clock.now()
    states = (ProcessorState("a", 3, 7, now - 2000), ProcessorState())
    value = Heartbeat(name, name, "host", 7, now - 60_000, now - 1000, ("a", "b"), 2, states, problem=problem, slots=10)
    await app.storage.write(f"worker/{name}", encode(value))


async def test_the_overview_sums_up_all_but_system_queues(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a"), NewJob("a", delay=9), NewJob("b"), NewJob("accoda.webhooks")])
    await app.storage.pause("b", None)
    await beat(app, clock)
    clock.advance(5)
    view = await overview.overview(app)
    assert (view.totals.queues, view.totals.ready, view.totals.delayed, view.totals.paused) == (2, 2, 1, 1)
    assert (view.workers, view.slots, view.used) == (1, 10, 3)
    assert view.running == "0 jobs running, 3 of 10 slots used"
    assert view.totals.oldest_age == 5.0 and [queue.name for queue in view.queues] == ["a", "b"]
    assert view.rates is None


async def test_rates_are_those_of_the_last_minute_from_the_history(app: App, clock: ManualClock) -> None:
    store = await app.connections.get()
    await ensure_job(store)
    await Recorder().run_once(store)
    await store.enqueue([NewJob("a") for _ in range(120)])
    await store.settle([Done(job.lease) for job in await store.take("a", 120)])
    clock.advance(15)
    await Recorder().run_once(store)
    rates = (await overview.overview(app)).rates
    assert rates is not None and (rates["a"].done, rates["a"].failed) == (2.0, 0.0)


async def test_a_rate_is_steady_over_a_minute_whatever_the_moment(app: App, clock: ManualClock) -> None:
    """One burst a minute: a difference of two looks would be 0 most of the time, and large now and then."""
    store = await app.connections.get()
    await ensure_job(store)
    await Recorder().run_once(store)
    seen = []
    for slot in range(12):
        if slot % 4 == 0:
            await store.enqueue([NewJob("a") for _ in range(120)])
            await store.settle([Done(job.lease) for job in await store.take("a", 120)])
        clock.advance(15)
        await Recorder().run_once(store)
        rates = (await overview.overview(app)).rates
        assert rates is not None
        seen.append(rates["a"].done)
    assert seen == [2.0] * 12
