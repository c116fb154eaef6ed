"""Ticks become jobs: by the clock, after an outage, with overlap, and when records are damaged."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from schedule_world import MINUTE, START, World, every, extras_of, payload_of

from accoda import NewJob, Priority, Waiter
from accoda.enqueue import EnqueueOptions
from accoda.envelope import Extras, Hook
from accoda.errors import InvalidInput, StorageClosed
from accoda.model import Done
from accoda.schedules import QUEUE, Schedule, Scheduler, create, delete, get, list_all, maker_of, pause, put, resume
from accoda.schedules.record import KEEP_ENDED


async def test_a_tick_makes_one_job_and_stands_at_the_next(world: World) -> None:
    await create(world.store, every(60, payload={"kind": "daily"}))
    assert await world.tick(59) == 0
    assert await world.tick(1) == 1
    assert await world.tick() == 0
    jobs = await world.jobs()
    assert [payload_of(job) for job in jobs] == [{"kind": "daily"}]
    assert extras_of(jobs[0]) == Extras(schedule="report", tick=START + MINUTE)
    view = await get(world.store, "report")
    assert (view.state, view.next_at, view.last_at) == ("active", START + 2 * MINUTE, START + MINUTE)


async def test_ticks_do_not_drift_however_late_they_are_done(world: World) -> None:
    await create(world.store, every(60))
    for _ in range(5):
        await world.tick(67)
    assert await world.ticks() == [60, 120, 180, 240, 300]


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_a_schedule_that_somebody_starts_early_gives_no_job_before_its_time(world: World, catch_up: str) -> None:
    await create(world.store, every(60, catch_up=catch_up))
    for seconds in (0, 20, 39):
        world.clock.advance(seconds)
        [waiting] = await world.store.browse(QUEUE, "delayed")
        assert await world.store.start_now([waiting.id]) == 1
        assert await world.tick() == 1  # it goes back to its tick
        assert await world.tick() == 0
        assert await world.ticks() == []
        assert (await get(world.store, "report")).next_at == START + MINUTE
    await world.tick(1)
    assert await world.ticks() == [60]


async def test_a_paused_schedule_that_somebody_starts_stays_paused(world: World) -> None:
    await create(world.store, every(60))
    await pause(world.store, "report")
    [waiting] = await world.store.browse(QUEUE, "delayed")
    assert await world.store.start_now([waiting.id]) == 1
    await world.tick(300)
    assert (await get(world.store, "report")).state == "paused"
    assert (await world.ticks(), len(await world.store.browse(QUEUE, "delayed"))) == ([], 1)


async def test_a_cron_schedule_ticks_in_its_own_zone(world: World) -> None:
    # Noon in UTC is 13:00 in Rome; 14:00 there is an hour away.
    await create(world.store, Schedule(name="report", queue="reports", cron="0 14 * * MON-FRI", tz="Europe/Rome"))
    await world.tick(3599)
    assert await world.ticks() == []
    await world.tick(1)
    assert await world.ticks() == [3600]
    assert (await get(world.store, "report")).next_at == START + 3_600_000 + 86_400_000


async def test_the_jobs_are_as_the_schedule_says(world: World) -> None:
    hook = {"webhook_url": "https://example.com/hook", "webhook_on": ("dead",)}
    more = {"priority": "HIGH", "job_name": "Monthly", "max_retries": 2, "cost": 7, "keep_for": "1h"}
    await create(world.store, every(60, **more, **hook))
    await world.tick(60)
    job = (await world.jobs())[0]
    assert (job.rank, job.cost, job.keep_for) == (float(Priority.HIGH), 7, 3600.0)
    expected = Hook("https://example.com/hook", ("dead",))
    tick = START + MINUTE
    assert extras_of(job) == Extras(name="Monthly", max_attempts=3, hook=expected, schedule="report", tick=tick)


async def test_what_the_handler_says_of_its_jobs_is_kept(world: World) -> None:
    def make_job(queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        from msgspec.structs import replace

        from accoda.envelope import wrap

        job = world.app.new_job(queue, payload, options)
        return replace(job, data=wrap(job.data, Extras(secret=("card",))))

    world.scheduler = Scheduler(make_job)
    await create(world.store, every(60))
    await world.tick(60)
    assert extras_of((await world.jobs())[0]).secret == ("card",)


# -- three missed ticks: the schedule stands at 60, the outage ends at 200 (60, 120 and 180 have come)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", [180]), ("once", [180]), ("all", [60, 120, 180])],
)
async def test_three_missed_ticks_by_each_policy(world: World, catch_up: str, expected: list[int]) -> None:
    await create(world.store, every(60, catch_up=catch_up))
    assert await world.tick(200) == 1
    assert await world.ticks() == expected
    await world.tick(40)
    assert await world.ticks() == [*expected, 240]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    # 35 s after the last of them: more than half of the gap to the next tick
    [("skip", []), ("once", [180]), ("all", [60, 120, 180])],
)
async def test_three_missed_ticks_that_are_late_as_well(world: World, catch_up: str, expected: list[int]) -> None:
    await create(world.store, every(60, catch_up=catch_up))
    await world.tick(215)
    assert await world.ticks() == expected
    await world.tick(25)
    assert await world.ticks() == [*expected, 240]


async def test_a_grace_of_ones_own_wins(world: World) -> None:
    await create(world.store, every(60, catch_up="skip", grace=10))
    await world.tick(71)
    assert await world.ticks() == []
    await world.tick(59)  # 130: the tick at 120 is exactly 10 s late
    assert await world.ticks() == [120]


async def test_all_has_a_limit_and_says_what_it_leaves_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await create(world.store, every(60, catch_up="all", catch_up_limit=2))
    await world.tick(200)
    assert await world.ticks() == [120, 180]
    assert "schedule report: the newest 2 of its missed ticks get a job; older ones are left out" in caplog.text


async def test_a_one_second_schedule_after_a_year_without_a_scheduler(world: World) -> None:
    await create(world.store, every(1, catch_up="all"))
    year = 366 * 86_400
    assert await world.tick(year) == 1
    assert await world.ticks() == list(range(year - 99, year + 1))


async def test_many_schedules_are_due_at_once(world: World) -> None:
    for number in range(250):
        await create(world.store, every(60, name=f"r{number}", catch_up="all"))
    world.clock.advance(600)
    assert [await world.tick() for _ in range(4)] == [100, 100, 50, 0]
    queue = (await world.store.stats()).queues["reports"]
    assert queue.ready == 2500


# -- overlap


async def test_overlap_allow_gives_every_tick_a_job_of_its_own(world: World) -> None:
    await create(world.store, every(60))
    for _ in range(3):
        await world.tick(60)
    assert await world.ticks() == [60, 120, 180]


async def test_overlap_skip_gives_none_while_the_last_one_waits_or_runs(world: World) -> None:
    await create(world.store, every(60, overlap="skip"))
    await world.tick(60)
    await world.tick(60)
    assert await world.ticks() == [60]
    (running,) = await world.store.take("reports", 1, lease=600)
    await world.tick(60)
    assert await world.ticks() == [60]
    await world.store.settle([Done(running.lease)])
    await world.tick(60)
    assert await world.ticks() == [240]


async def test_overlap_replace_puts_the_new_job_in_the_place_of_the_last_one(world: World) -> None:
    await create(world.store, every(60, overlap="replace"))
    await world.tick(60)
    (running,) = await world.store.take("reports", 1, lease=600)
    await world.tick(60)
    assert await world.ticks() == [120]
    assert [one.why for one in await world.store.settle([Done(running.lease)])] == ["lost"]
    assert await world.ticks() == [120]


# -- beginning, end, pause


async def test_it_begins_when_it_is_told_to(world: World) -> None:
    begin = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=90)
    await create(world.store, every(60, starts_at=begin))
    await world.tick(89)
    assert await world.ticks() == []
    await world.tick(1)  # the first tick of an interval is its start
    await world.tick(60)
    assert await world.ticks() == [90, 150]


async def test_after_its_end_it_is_seen_as_ended_for_a_week(world: World) -> None:
    end = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=120)
    await create(world.store, every(60, ends_at=end))
    await world.tick(60)
    await world.tick(60)
    assert await world.ticks() == [60, 120]
    for _ in range(2):
        view = await get(world.store, "report")
        assert (view.state, view.next_at, view.last_at) == ("ended", None, START + 2 * MINUTE)
        assert view.upcoming(5) == []
        await world.tick()  # its last job, which makes nothing, is kept as done
    assert [one.state for one in await list_all(world.store)] == ["ended"]
    assert (await world.store.stats()).queues[QUEUE].total == 0
    await world.tick(KEEP_ENDED + 1)
    assert await list_all(world.store) == []
    assert await world.ticks() == [60, 120]


async def test_an_end_in_an_outage_is_an_end_too(world: World) -> None:
    end = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=130)
    await create(world.store, every(60, ends_at=end, catch_up="all"))
    await world.tick(10_000)
    assert await world.ticks() == [60, 120]
    await world.tick()
    assert (await get(world.store, "report")).state == "ended"


async def test_a_schedule_without_a_tick_left_is_refused(world: World) -> None:
    with pytest.raises(InvalidInput, match="endsAt: no tick of 'report' is left"):
        await create(world.store, every(60, ends_at=datetime(2020, 1, 1, tzinfo=UTC)))


async def test_a_paused_schedule_does_nothing_and_goes_on_with_the_next_tick(world: World) -> None:
    await create(world.store, every(60, catch_up="all"))
    await world.tick(60)
    view = await pause(world.store, "report")
    assert (view.state, view.next_at) == ("paused", None)
    await world.tick(300)
    assert await world.ticks() == [60]
    view = await resume(world.store, "report")
    assert (view.state, view.next_at) == ("active", START + 7 * MINUTE)  # it keeps its step
    await world.tick(60)
    assert await world.ticks() == [60, 420]


async def test_a_paused_schedule_that_somebody_made_ready_goes_back_to_sleep(world: World) -> None:
    view = await create(world.store, every(60, enabled=False))
    assert view.state == "paused" and view.id is not None
    from msgspec.structs import replace

    from accoda.schedules.record import job_of
    from accoda.schedules.store import look

    seen = await look(world.store, "report")
    assert seen.record is not None
    await world.store.enqueue([replace(job_of(seen.record), start_at=0, on_duplicate="replace")])
    assert await world.tick() == 1
    assert (await get(world.store, "report")).state == "paused"
    assert await world.ticks() == []


# -- trouble


async def test_a_damaged_record_is_buried_and_the_others_go_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await create(world.store, every(60))
    damaged = [b"", b"\xc1", b"\x80", b"nonsense", b"\x81\xa8schedule\x80", b"\x82\xa8schedule\x80\xa6anchor\x01"]
    for number, data in enumerate(damaged):
        await world.store.enqueue([NewJob(QUEUE, data, key=f"bad{number}")])
    await world.store.enqueue([NewJob(QUEUE, b"no key at all")])
    assert await world.tick(60) == len(damaged) + 2
    assert await world.ticks() == [60]
    views = {view.name: view for view in await list_all(world.store)}
    assert {name for name, view in views.items() if view.state == "broken"} > {f"bad{n}" for n in range(len(damaged))}
    assert "accoda schedules delete bad0" in str(views["bad0"].problem)
    assert "schedule bad0 is broken and ticks no more" in caplog.text
    assert await delete(world.store, "bad0")
    await put(world.store, every(60, name="bad1"))
    assert (await get(world.store, "bad1")).state == "active"
    assert sum(view.name == "bad1" for view in await list_all(world.store)) == 1


async def test_fields_of_a_later_version_are_passed_over(world: World) -> None:
    import msgspec

    await create(world.store, every(60))
    job = (await world.store.peek(QUEUE, "report")).job
    assert job is not None
    plain = msgspec.msgpack.decode(job.data)
    plain["schedule"]["mood"] = "good"
    plain["colour"] = "red"
    data = msgspec.msgpack.encode(plain)
    await world.store.enqueue([NewJob(QUEUE, data, key="report", start_at=job.start_time, on_duplicate="replace")])
    await world.tick(60)
    assert await world.ticks() == [60]


async def test_a_job_that_cannot_be_made_loses_no_tick(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @world.app.handler("reports")
    async def report(pages: int) -> None: ...

    await create(world.store, every(60, payload="many", catch_up="all"))
    await create(world.store, every(60, name="other", queue="others"))
    assert await world.tick(60) == 2
    assert await world.ticks("others") == [60]
    view = await get(world.store, "report")
    assert view.state == "active" and "its job cannot be made: InvalidInput: payload" in str(view.problem)
    assert "schedule report: its job cannot be made, trying again in 5 s" in caplog.text
    await put(world.store, every(60, payload=12, catch_up="all"))
    await world.tick(80)
    assert await world.ticks() == [60, 120]


# -- the loop


async def test_the_loop_wakes_for_a_tick_and_can_be_cancelled_at_any_moment(world: World) -> None:
    await create(world.store, every(60))
    running = asyncio.create_task(world.scheduler.run(world.store))
    for tick in (60, 120):
        world.clock.advance(60)
        while tick not in await world.ticks():
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await world.store.stats()).queues[QUEUE].taken == 0


class Slow:
    """A store whose settle waits for the word."""

    def __init__(self, world: World) -> None:
        self._store = world.store
        self.called, self.go = asyncio.Event(), asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def settle(self, outcomes: Any) -> Any:
        self.called.set()
        await self.go.wait()
        return await self._store.settle(outcomes)


async def test_a_scheduler_that_is_cancelled_settles_what_it_has_in_hand(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(60)
    slow = Slow(world)
    running = asyncio.create_task(world.scheduler.run_once(slow))
    await slow.called.wait()
    running.cancel()
    await asyncio.sleep(0)
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await world.ticks() == [60]
    assert (await world.store.stats()).queues[QUEUE].taken == 0


async def test_a_store_that_was_closed_ends_the_loop(world: World) -> None:
    class Closed(Slow):
        async def take(self, *args: Any, **given: Any) -> Any:
            raise StorageClosed("closed")

    with pytest.raises(StorageClosed):
        await world.scheduler.run(Closed(world))


async def test_a_store_that_is_away_for_a_while_is_waited_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    from accoda.errors import StorageUnavailable

    class Away(Slow):
        calls = 0

        async def take(self, *args: Any, **given: Any) -> Any:
            self.calls += 1
            if self.calls < 3:
                raise StorageUnavailable("gone fishing")
            return await self._store.take(*args, **given)

    await create(world.store, every(60))
    world.clock.advance(60)
    away = Away(world)
    away.go.set()
    caplog.set_level(logging.WARNING)
    running = asyncio.create_task(world.scheduler.run(away))
    await away.called.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await world.ticks() == [60]
    assert "no schedule ticks; trying again: gone fishing" in caplog.text


async def test_a_scheduler_that_dies_with_a_lease_leaves_the_tick_to_another(world: World) -> None:
    await create(world.store, every(60, catch_up="all"))
    world.clock.advance(60)
    (dying,) = await world.store.take(QUEUE, 1, lease=30)  # and then it dies
    assert await world.tick(29) == 0
    assert await world.tick(1) == 1
    assert await world.ticks() == [60]
    from accoda.schedules.scheduler import decide

    late = decide(dying, START + 90_000, world.app.new_job)  # it was only slow, and comes back too late
    assert [one.why for one in await world.store.settle([late])] == ["lost"]
    assert await world.ticks() == [60]


def with_demand(world: World) -> list[str]:
    """Let the app have the demand `deals`; what it is asked to fetch and to deliver."""
    asked: list[str] = []
    deals = world.app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> str:
        asked.append(key)
        return key

    @deals.deliver
    async def deliver(waiter: Waiter[Any], result: str) -> None:
        asked.append(result)

    return asked


async def test_a_schedule_for_a_demands_queue_is_broken_by_the_first_who_knows_it(world: World) -> None:
    await create(world.store, every(60, queue="deals"))
    with_demand(world)
    world.scheduler = Scheduler(maker_of(world.app))
    assert await world.tick(61) == 1
    view = await get(world.store, "report")
    assert view.state == "broken" and view.problem is not None
    assert "'deals' belongs to a demand" in view.problem and "schedules add report --replace" in view.problem
    await put(world.store, every(60))
    await world.tick(60)
    assert len(await world.jobs()) == 1


@pytest.mark.parametrize("payload", [None, "a", ["a"], ["a", True, 0], {"key": "a"}])
async def test_what_a_stranger_ticked_into_a_demands_queue_is_a_dead_letter_and_no_fetch(
    world: World, payload: object
) -> None:
    for name, queue in (("one", "deals"), ("two", "deals.deliver")):
        await create(world.store, every(60, name=name, queue=queue, payload=payload))
    await world.tick(61)
    asked = with_demand(world)
    await world.app.run_until_idle()
    assert asked == []
    for name, queue in (("one", "deals"), ("two", "deals.deliver")):
        [dead] = await world.store.browse(queue, "dead")
        assert f"made by the schedule '{name}'" in (dead.reason or "") and "belongs to a demand" in (dead.reason or "")
