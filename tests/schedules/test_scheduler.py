"""Ticks become jobs: by the clock, after an outage, with overlap, and when records are damaged."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from schedule_env import MINUTE, START, Env, every, extras_of, payload_of

from accoda import NewJob, Priority, Waiter
from accoda.enqueue import EnqueueOptions
from accoda.envelope import Hook, JobMetadata
from accoda.errors import InvalidInput, StorageClosed
from accoda.model import ByKey, Done, StartNow
from accoda.schedules import QUEUE, Schedule, Scheduler, create, delete, get, list_all, maker_of, pause, put, resume
from accoda.schedules.record import KEEP_ENDED


async def test_a_tick_makes_one_job_and_moves_to_the_next(env: Env) -> None:
    await create(env.store, every(60, payload={"kind": "daily"}))
    assert await env.tick(59) == 0
    assert await env.tick(1) == 1
    assert await env.tick() == 0
    jobs = await env.jobs()
    assert [payload_of(job) for job in jobs] == [{"kind": "daily"}]
    assert extras_of(jobs[0]) == JobMetadata(schedule="report", tick=START + MINUTE)
    view = await get(env.store, "report")
    assert (view.state, view.next_at, view.last_at) == ("active", START + 2 * MINUTE, START + MINUTE)


async def test_ticks_do_not_drift_however_late_they_are_done(env: Env) -> None:
    await create(env.store, every(60))
    for _ in range(5):
        await env.tick(67)
    assert await env.ticks() == [60, 120, 180, 240, 300]


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
async def test_a_schedule_that_is_started_early_makes_no_job_before_its_time(env: Env, catch_up: str) -> None:
    await create(env.store, every(60, catch_up=catch_up))
    for seconds in (0, 20, 39):
        env.clock.advance(seconds)
        [waiting] = await env.store.browse(QUEUE, "delayed")
        assert await env.store.change([StartNow(waiting.id)]) == 1
        assert await env.tick() == 1  # it goes back to its tick
        assert await env.tick() == 0
        assert await env.ticks() == []
        assert (await get(env.store, "report")).next_at == START + MINUTE
    await env.tick(1)
    assert await env.ticks() == [60]


async def test_a_paused_schedule_that_is_started_by_hand_stays_paused(env: Env) -> None:
    await create(env.store, every(60))
    await pause(env.store, "report")
    [waiting] = await env.store.browse(QUEUE, "delayed")
    assert await env.store.change([StartNow(waiting.id)]) == 1
    await env.tick(300)
    assert (await get(env.store, "report")).state == "paused"
    assert (await env.ticks(), len(await env.store.browse(QUEUE, "delayed"))) == ([], 1)


async def test_a_cron_schedule_ticks_in_its_own_zone(env: Env) -> None:
    # Noon in UTC is 13:00 in Rome; 14:00 there is an hour away.
    await create(env.store, Schedule(name="report", queue="reports", cron="0 14 * * MON-FRI", tz="Europe/Rome"))
    await env.tick(3599)
    assert await env.ticks() == []
    await env.tick(1)
    assert await env.ticks() == [3600]
    assert (await get(env.store, "report")).next_at == START + 3_600_000 + 86_400_000


async def test_the_jobs_are_as_the_schedule_says(env: Env) -> None:
    hook = {"webhook_url": "https://example.com/hook", "webhook_on": ("dead",)}
    more = {"priority": "HIGH", "job_name": "Monthly", "max_retries": 2, "cost": 7, "keep_for": "1h"}
    await create(env.store, every(60, **more, **hook))
    await env.tick(60)
    job = (await env.jobs())[0]
    assert (job.rank, job.cost, job.keep_for) == (float(Priority.HIGH), 7, 3600.0)
    expected = Hook("https://example.com/hook", ("dead",))
    tick = START + MINUTE
    assert extras_of(job) == JobMetadata(name="Monthly", max_attempts=3, hook=expected, schedule="report", tick=tick)


async def test_the_handlers_metadata_is_kept(env: Env) -> None:
    def make_job(queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        from msgspec.structs import replace

        from accoda.envelope import wrap

        job = env.app.new_job(queue, payload, options)
        return replace(job, data=wrap(job.data, JobMetadata(secret=("card",))))

    env.scheduler = Scheduler(make_job)
    await create(env.store, every(60))
    await env.tick(60)
    assert extras_of((await env.jobs())[0]).secret == ("card",)


# -- three missed ticks: the schedule stands at 60, the outage ends at 200 (60, 120 and 180 have come)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", [180]), ("once", [180]), ("all", [60, 120, 180])],
)
async def test_three_missed_ticks_by_each_policy(env: Env, catch_up: str, expected: list[int]) -> None:
    await create(env.store, every(60, catch_up=catch_up))
    assert await env.tick(200) == 1
    assert await env.ticks() == expected
    await env.tick(40)
    assert await env.ticks() == [*expected, 240]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    # 35 s after the last of them: more than half of the gap to the next tick
    [("skip", []), ("once", [180]), ("all", [60, 120, 180])],
)
async def test_three_missed_ticks_that_are_late_as_well(env: Env, catch_up: str, expected: list[int]) -> None:
    await create(env.store, every(60, catch_up=catch_up))
    await env.tick(215)
    assert await env.ticks() == expected
    await env.tick(25)
    assert await env.ticks() == [*expected, 240]


async def test_an_explicit_grace_wins(env: Env) -> None:
    await create(env.store, every(60, catch_up="skip", grace=10))
    await env.tick(71)
    assert await env.ticks() == []
    await env.tick(59)  # 130: the tick at 120 is exactly 10 s late
    assert await env.ticks() == [120]


async def test_catching_up_has_a_limit_and_logs_what_is_left_out(env: Env, caplog: pytest.LogCaptureFixture) -> None:
    await create(env.store, every(60, catch_up="all", catch_up_limit=2))
    await env.tick(200)
    assert await env.ticks() == [120, 180]
    assert "schedule report: the newest 2 of its missed ticks get a job; older ones are left out" in caplog.text


async def test_a_one_second_schedule_after_a_year_without_a_scheduler(env: Env) -> None:
    await create(env.store, every(1, catch_up="all"))
    year = 366 * 86_400
    assert await env.tick(year) == 1
    assert await env.ticks() == list(range(year - 99, year + 1))


async def test_many_schedules_are_due_at_once(env: Env) -> None:
    for number in range(250):
        await create(env.store, every(60, name=f"r{number}", catch_up="all"))
    env.clock.advance(600)
    assert [await env.tick() for _ in range(4)] == [100, 100, 50, 0]
    queue = (await env.store.stats()).queues["reports"]
    assert queue.ready == 2500


# -- overlap


async def test_overlap_allow_gives_every_tick_a_job_of_its_own(env: Env) -> None:
    await create(env.store, every(60))
    for _ in range(3):
        await env.tick(60)
    assert await env.ticks() == [60, 120, 180]


async def test_overlap_skip_gives_none_while_the_last_one_waits_or_runs(env: Env) -> None:
    await create(env.store, every(60, overlap="skip"))
    await env.tick(60)
    await env.tick(60)
    assert await env.ticks() == [60]
    (running,) = await env.store.take("reports", 1, lease=600)
    await env.tick(60)
    assert await env.ticks() == [60]
    await env.store.settle([Done(running.lease)])
    await env.tick(60)
    assert await env.ticks() == [240]


async def test_overlap_replace_replaces_the_last_job(env: Env) -> None:
    await create(env.store, every(60, overlap="replace"))
    await env.tick(60)
    (running,) = await env.store.take("reports", 1, lease=600)
    await env.tick(60)
    assert await env.ticks() == [120]
    assert [one.why for one in await env.store.settle([Done(running.lease)])] == ["lost"]
    assert await env.ticks() == [120]


# -- beginning, end, pause


async def test_it_starts_at_starts_at(env: Env) -> None:
    begin = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=90)
    await create(env.store, every(60, starts_at=begin))
    await env.tick(89)
    assert await env.ticks() == []
    await env.tick(1)  # the first tick of an interval is its start
    await env.tick(60)
    assert await env.ticks() == [90, 150]


async def test_an_ended_schedule_is_shown_for_a_week(env: Env) -> None:
    end = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=120)
    await create(env.store, every(60, ends_at=end))
    await env.tick(60)
    await env.tick(60)
    assert await env.ticks() == [60, 120]
    for _ in range(2):
        view = await get(env.store, "report")
        assert (view.state, view.next_at, view.last_at) == ("ended", None, START + 2 * MINUTE)
        assert view.upcoming(5) == []
        await env.tick()  # its last job, which makes nothing, is kept as done
    assert [one.state for one in await list_all(env.store)] == ["ended"]
    assert (await env.store.stats()).queues[QUEUE].total == 0
    await env.tick(KEEP_ENDED + 1)
    assert await list_all(env.store) == []
    assert await env.ticks() == [60, 120]


async def test_an_end_in_an_outage_is_an_end_too(env: Env) -> None:
    end = datetime.fromtimestamp(START / 1000, UTC) + timedelta(seconds=130)
    await create(env.store, every(60, ends_at=end, catch_up="all"))
    await env.tick(10_000)
    assert await env.ticks() == [60, 120]
    await env.tick()
    assert (await get(env.store, "report")).state == "ended"


async def test_a_schedule_without_a_tick_left_is_refused(env: Env) -> None:
    with pytest.raises(InvalidInput, match="endsAt: no tick of 'report' is left"):
        await create(env.store, every(60, ends_at=datetime(2020, 1, 1, tzinfo=UTC)))


async def test_a_paused_schedule_does_nothing_and_goes_on_with_the_next_tick(env: Env) -> None:
    await create(env.store, every(60, catch_up="all"))
    await env.tick(60)
    view = await pause(env.store, "report")
    assert (view.state, view.next_at) == ("paused", None)
    await env.tick(300)
    assert await env.ticks() == [60]
    view = await resume(env.store, "report")
    assert (view.state, view.next_at) == ("active", START + 7 * MINUTE)  # it keeps its step
    await env.tick(60)
    assert await env.ticks() == [60, 420]


async def test_a_paused_schedule_that_was_made_ready_goes_back(env: Env) -> None:
    view = await create(env.store, every(60, enabled=False))
    assert view.state == "paused" and view.id is not None
    from msgspec.structs import replace

    from accoda.schedules.record import job_of
    from accoda.schedules.store import look

    seen = await look(env.store, "report")
    assert seen.record is not None
    await env.store.enqueue([replace(job_of(seen.record), start_at=0, on_duplicate="replace")])
    assert await env.tick() == 1
    assert (await get(env.store, "report")).state == "paused"
    assert await env.ticks() == []


# -- trouble


async def test_a_damaged_record_is_buried_and_the_others_go_on(env: Env, caplog: pytest.LogCaptureFixture) -> None:
    await create(env.store, every(60))
    damaged = [b"", b"\xc1", b"\x80", b"nonsense", b"\x81\xa8schedule\x80", b"\x82\xa8schedule\x80\xa6anchor\x01"]
    for number, data in enumerate(damaged):
        await env.store.enqueue([NewJob(QUEUE, data, key=f"bad{number}")])
    await env.store.enqueue([NewJob(QUEUE, b"no key at all")])
    assert await env.tick(60) == len(damaged) + 2
    assert await env.ticks() == [60]
    views = {view.name: view for view in await list_all(env.store)}
    assert {name for name, view in views.items() if view.state == "broken"} > {f"bad{n}" for n in range(len(damaged))}
    assert "accoda schedules delete bad0" in str(views["bad0"].problem)
    assert "schedule bad0 is broken and ticks no more" in caplog.text
    assert await delete(env.store, "bad0")
    await put(env.store, every(60, name="bad1"))
    assert (await get(env.store, "bad1")).state == "active"
    assert sum(view.name == "bad1" for view in await list_all(env.store)) == 1


async def test_fields_of_a_later_version_are_ignored(env: Env) -> None:
    import msgspec

    await create(env.store, every(60))
    job = (await env.store.look(ByKey(QUEUE, "report"))).job
    assert job is not None
    plain = msgspec.msgpack.decode(job.data)
    plain["schedule"]["mood"] = "good"
    plain["colour"] = "red"
    data = msgspec.msgpack.encode(plain)
    await env.store.enqueue([NewJob(QUEUE, data, key="report", start_at=job.start_time, on_duplicate="replace")])
    await env.tick(60)
    assert await env.ticks() == [60]


async def test_a_job_that_cannot_be_made_loses_no_tick(env: Env, caplog: pytest.LogCaptureFixture) -> None:
    @env.app.handler("reports")
    async def report(pages: int) -> None: ...

    await create(env.store, every(60, payload="many", catch_up="all"))
    await create(env.store, every(60, name="other", queue="others"))
    assert await env.tick(60) == 2
    assert await env.ticks("others") == [60]
    view = await get(env.store, "report")
    assert view.state == "active" and "its job cannot be made: InvalidInput: payload" in str(view.problem)
    assert "schedule report: its job cannot be made, trying again in 5 s" in caplog.text
    await put(env.store, every(60, payload=12, catch_up="all"))
    await env.tick(80)
    assert await env.ticks() == [60, 120]


# -- the loop


async def test_the_loop_wakes_for_a_tick_and_can_be_cancelled_at_any_moment(env: Env) -> None:
    await create(env.store, every(60))
    running = asyncio.create_task(env.scheduler.run(env.store))
    for tick in (60, 120):
        env.clock.advance(60)
        while tick not in await env.ticks():
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await env.store.stats()).queues[QUEUE].taken == 0


class Slow:
    """A store whose settle waits for the word."""

    def __init__(self, env: Env) -> None:
        self._store = env.store
        self.called, self.go = asyncio.Event(), asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def settle(self, outcomes: Any) -> Any:
        self.called.set()
        await self.go.wait()
        return await self._store.settle(outcomes)


async def test_a_cancelled_scheduler_settles_what_it_has_taken(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(60)
    slow = Slow(env)
    running = asyncio.create_task(env.scheduler.run_once(slow))
    await slow.called.wait()
    running.cancel()
    await asyncio.sleep(0)
    slow.go.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await env.ticks() == [60]
    assert (await env.store.stats()).queues[QUEUE].taken == 0


async def test_a_store_that_was_closed_ends_the_loop(env: Env) -> None:
    class Closed(Slow):
        async def take(self, *args: Any, **given: Any) -> Any:
            raise StorageClosed("closed")

    with pytest.raises(StorageClosed):
        await env.scheduler.run(Closed(env))


async def test_a_store_that_is_away_is_waited_for(env: Env, caplog: pytest.LogCaptureFixture) -> None:
    from accoda.errors import StorageUnavailable

    class Away(Slow):
        calls = 0

        async def take(self, *args: Any, **given: Any) -> Any:
            self.calls += 1
            if self.calls < 3:
                raise StorageUnavailable("gone fishing")
            return await self._store.take(*args, **given)

    await create(env.store, every(60))
    env.clock.advance(60)
    away = Away(env)
    away.go.set()
    caplog.set_level(logging.WARNING)
    running = asyncio.create_task(env.scheduler.run(away))
    await away.called.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await env.ticks() == [60]
    assert "no schedule ticks; trying again: gone fishing" in caplog.text


async def test_a_scheduler_that_dies_with_a_lease_leaves_the_tick_to_another(env: Env) -> None:
    await create(env.store, every(60, catch_up="all"))
    env.clock.advance(60)
    (dying,) = await env.store.take(QUEUE, 1, lease=30)  # and then it dies
    assert await env.tick(29) == 0
    assert await env.tick(1) == 1
    assert await env.ticks() == [60]
    from accoda.schedules.scheduler import decide

    late = decide(dying, START + 90_000, env.app.new_job)  # it was only slow, and comes back too late
    assert [one.why for one in await env.store.settle([late])] == ["lost"]
    assert await env.ticks() == [60]


def with_demand(env: Env) -> list[str]:
    """Let the app have the demand `deals`; what it is asked to fetch and to deliver."""
    asked: list[str] = []
    deals = env.app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> str:
        asked.append(key)
        return key

    @deals.deliver
    async def deliver(waiter: Waiter[Any], result: str) -> None:
        asked.append(result)

    return asked


async def test_a_schedule_for_a_demands_queue_is_buried_by_the_first_scheduler_that_knows_it(env: Env) -> None:
    await create(env.store, every(60, queue="deals"))
    with_demand(env)
    env.scheduler = Scheduler(maker_of(env.app))
    assert await env.tick(61) == 1
    view = await get(env.store, "report")
    assert view.state == "broken" and view.problem is not None
    assert "'deals' belongs to a demand" in view.problem and "schedules add report --replace" in view.problem
    await put(env.store, every(60))
    await env.tick(60)
    assert len(await env.jobs()) == 1


@pytest.mark.parametrize("payload", [None, "a", ["a"], ["a", True, 0], {"key": "a"}])
async def test_a_tick_of_another_app_in_a_demands_queue_is_a_dead_letter_and_no_fetch(
    env: Env, payload: object
) -> None:
    for name, queue in (("one", "deals"), ("two", "deals.deliver")):
        await create(env.store, every(60, name=name, queue=queue, payload=payload))
    await env.tick(61)
    asked = with_demand(env)
    await env.app.run_until_idle()
    assert asked == []
    for name, queue in (("one", "deals"), ("two", "deals.deliver")):
        [dead] = await env.store.browse(queue, "dead")
        assert f"made by the schedule '{name}'" in (dead.reason or "") and "belongs to a demand" in (dead.reason or "")
