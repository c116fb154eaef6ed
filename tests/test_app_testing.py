"""Testing mode, as a user's tests see it."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from accoda import (
    App,
    Demand,
    InvalidInput,
    JobFailed,
    ResultTimeout,
    RetryLater,
    Trial,
    Waiter,
)


class User(msgspec.Struct):
    name: str


app = App("sqlite:////nowhere/that/exists.db")  # testing mode never opens it
app.budget("api", capacity=2, refill=2, per=60)
threads: list[int] = []
deals: Demand[str] = app.demand("deals", fresh_for=60)
delivered: list[tuple[str, str]] = []


@app.handler("welcome", retry=60, max_attempts=3)
async def welcome(user: User) -> str:
    if user.name == "nobody":
        raise ValueError("no such user")
    if user.name == "later":
        raise RetryLater(delay=10)
    return user.name


@app.handler("reports", type="daily")
async def daily(day: str) -> None: ...


@app.handler("reports", type="weekly")
async def weekly(week: int) -> None: ...


@app.handler("calls", budget="api", cost=1)
async def call(number: int) -> None: ...


@app.handler("double", keep_for=60)
def double(n: int) -> int:
    threads.append(threading.get_ident())
    return 2 * n


@app.handler("quadruple", keep_for=60)
def quadruple(n: int) -> int:
    return double.sync.enqueue(double.sync.enqueue(n).result()).result()


@app.handler("octuple", keep_for=60)
async def octuple(n: int) -> int:
    return await (await quadruple.enqueue(2 * n)).result()


@app.handler("again")
async def again() -> None:
    app.current.enqueue("again", delay=60)


@deals.fetch
async def fetch(category: str) -> str:
    return category.upper()


@deals.deliver
async def deliver(waiter: Waiter[None], found: str) -> None:
    delivered.append((waiter.id, found))


@pytest.fixture
def jobs() -> Iterator[Trial]:
    threads.clear()
    delivered.clear()
    with app.testing() as trial:
        yield trial


# -- time


def test_time_travel_without_await(jobs: Trial) -> None:
    app.sync.enqueue("welcome", User("anna"), delay=86_400)
    assert jobs.sync.drain() == 0
    jobs.advance(days=1)
    assert jobs.sync.drain() == 1
    assert jobs.payloads(welcome) == [User("anna")]
    jobs.assert_no_failures()


async def test_retries_follow_the_clock_and_end_among_the_dead(jobs: Trial) -> None:
    await welcome.enqueue(User("nobody"))
    for _ in range(3):
        await jobs.drain()
        jobs.advance(minutes=1)
    assert [run.ended for run in jobs.runs()] == ["failed"] * 3
    dead = jobs.assert_dead("welcome", "no such user")
    assert dead.attempts == 2
    with pytest.raises(AssertionError, match="failed: ValueError"):
        jobs.assert_no_failures()


async def test_the_clock_starts_where_it_is_told_and_goes_to_a_moment() -> None:
    with app.testing(now=datetime(2030, 1, 1, tzinfo=UTC)) as jobs:
        await welcome.enqueue(User("anna"), at=datetime(2030, 2, 1, tzinfo=UTC))
        jobs.travel_to(datetime(2030, 1, 31, 23, 59, 59, tzinfo=UTC))
        assert await jobs.drain() == 0
        jobs.travel_to(datetime(2030, 2, 1, tzinfo=UTC))
        assert await jobs.drain() == 1
        assert jobs.now == datetime(2030, 2, 1, tzinfo=UTC)
        with pytest.raises(InvalidInput, match="is before the clock's, 2030-02-01"):
            jobs.travel_to(jobs.now - timedelta(seconds=1))


# -- what waits


async def test_what_waits_can_be_asked_for(jobs: Trial) -> None:
    await welcome.enqueue(User("anna"))
    await welcome.enqueue(User("ben"), delay=60)
    assert [job.payload for job in jobs.waiting("welcome")] == [User("anna"), User("ben")]
    (ben,) = jobs.assert_enqueued("welcome", User("ben"), count=1)
    assert (ben.state, ben.delay, ben.starts_at) == ("delayed", 60.0, jobs.now + timedelta(minutes=1))
    assert jobs.assert_enqueued(welcome).payload == User("anna")
    assert jobs.assert_enqueued(welcome, count=0, payload=User("carla")) == []
    jobs.refute_enqueued(welcome, User("carla"))
    jobs.refute_enqueued("unknown")


async def test_an_assertion_says_what_there_is_instead(jobs: Trial) -> None:
    await daily.enqueue("2030-01-01")
    await welcome.enqueue(User("anna"), lane="acme", key="a", headers={"tenant": "acme"}, name="hello")
    await welcome.enqueue(User("ben"), delay=60)
    await double.enqueue(1)
    await jobs.drain("double")
    with pytest.raises(AssertionError) as missed:
        jobs.assert_enqueued(welcome, User("carla"), delay=5)
    assert str(missed.value).splitlines() == [
        "no job of welcome with payload User(name='carla'), delay 5 waits; waiting in welcome:",
        "  job 2: User(name='anna'), name 'hello', key 'a', lane 'acme', headers {'tenant': 'acme'}",
        "  job 3: User(name='ben'), starts in 60 s",
        "jobs wait in: reports",
    ]
    with pytest.raises(AssertionError) as ran:
        jobs.assert_enqueued(double, 1)
    assert str(ran.value).splitlines()[:2] == [
        "no job of double with payload 1 waits; nothing waits in double",
        "double has run: 1 done",
    ]
    with pytest.raises(AssertionError, match="a job of welcome waits 2 times, not 3"):
        jobs.assert_enqueued(welcome, count=3)
    with pytest.raises(AssertionError, match=r"(?s)no job of reports should wait.*job 1: '2030-01-01', type 'daily'"):
        jobs.refute_enqueued("reports")
    with pytest.raises(AssertionError, match="dead are: none"):
        jobs.assert_dead("welcome")


def test_a_name_that_is_misspelt_is_refused_and_refutes_nothing(jobs: Trial) -> None:
    for ask in (jobs.refute_enqueued, jobs.assert_enqueued, jobs.assert_dead, jobs.runs, jobs.payloads):
        with pytest.raises(InvalidInput, match=r"no queue 'wellcome'; is 'welcome' meant\? .*app.declare"):
            ask("wellcome")
    jobs.refute_enqueued("parcels")  # of another service, perhaps: nothing is called like that
    app.sync.enqueue("wellcomes")
    jobs.assert_enqueued("wellcomes")


async def test_only_handlers_of_the_app_and_queues_can_be_asked_for(jobs: Trial) -> None:
    other = App("memory://")

    @other.handler("welcome")
    async def welcome_elsewhere(user: User) -> None: ...

    with pytest.raises(InvalidInput, match="is of another app"):
        jobs.refute_enqueued(welcome_elsewhere)
    wrong: Any = deals.request
    for ask in (jobs.refute_enqueued, jobs.assert_enqueued, jobs.runs, jobs.drain):
        with pytest.raises(InvalidInput, match="must be a handler or the name of a queue, not <bound method"):
            await jobs.drain(wrong) if ask == jobs.drain else ask(wrong)


async def test_a_message_lists_ten_jobs(jobs: Trial) -> None:
    await double.enqueue_many(range(15))
    with pytest.raises(AssertionError, match=r"and 5 more$"):
        jobs.assert_enqueued(double, 99)


async def test_each_condition_tells_jobs_apart(jobs: Trial) -> None:
    moment = jobs.now + timedelta(hours=2)
    told: dict[str, Any] = {
        "lane": "acme",
        "key": "k",
        "name": "a name",
        "headers": {"tenant": "acme"},
        "priority": "HIGH",
        "delay": 90,
        "at": moment,
    }
    for name, value in told.items():
        await app.enqueue("plain", {"number": name}, **{name: value})
    for name, value in told.items():
        (found,) = jobs.waiting("plain", **{name: value})  # type: ignore[misc]
        assert found.payload == {"number": name}
    jobs.refute_enqueued("plain", headers={"tenant": "acme", "region": "eu"})
    assert jobs.waiting("plain", {"number": ANY}, lane="acme")
    with pytest.raises(InvalidInput, match="lanes: there is no such condition; use payload, count, type, lane"):
        jobs.waiting("plain", lanes="acme")  # type: ignore[call-overload]


async def test_a_handler_stands_for_its_own_jobs(jobs: Trial) -> None:
    await daily.enqueue("2030-01-01")
    await weekly.enqueue(7)
    assert [job.payload for job in jobs.waiting(weekly)] == [7]
    assert [job.payload for job in jobs.waiting("reports", type="daily")] == ["2030-01-01"]
    jobs.refute_enqueued(weekly, "2030-01-01")
    await jobs.drain(weekly)
    assert jobs.payloads(weekly) == [7]
    assert jobs.payloads("reports") == ["2030-01-01", 7]  # draining is by queue: its order holds over all types


async def test_a_demand_shows_its_keys_and_not_what_it_has_cached(jobs: Trial) -> None:
    await deals.request("tea", Waiter("anna"))
    assert jobs.assert_enqueued("deals").payload == "tea"
    await jobs.drain()
    assert delivered == [("anna", "TEA")]
    assert jobs.waiting() == []


# -- drain


async def test_draining_runs_what_jobs_enqueue_but_not_what_starts_later(jobs: Trial) -> None:
    await again.enqueue()
    assert await jobs.drain() == 1
    jobs.assert_enqueued(again, delay=60)


async def test_draining_with_what_is_scheduled_moves_the_clock_from_job_to_job(jobs: Trial) -> None:
    start = jobs.now
    await welcome.enqueue(User("anna"), delay=timedelta(days=3))
    await welcome.enqueue(User("nobody"), delay=3600)
    assert await jobs.drain(with_scheduled=True) == 4
    assert jobs.now == start + timedelta(days=3)
    assert [run.payload.name for run in jobs.runs()] == ["nobody"] * 3 + ["anna"]
    jobs.assert_dead(welcome, "no such user")


async def test_draining_leaves_queues_that_it_does_not_name(jobs: Trial) -> None:
    start = jobs.now
    await welcome.enqueue(User("anna"), delay=3600)
    await double.enqueue(1)
    assert await jobs.drain("double", with_scheduled=True) == 1
    assert jobs.now == start
    with pytest.raises(InvalidInput, match="there is no handler for 'unknown'"):
        await jobs.drain("unknown")


async def test_draining_with_what_is_scheduled_waits_for_tokens_and_for_the_end_of_a_pause(jobs: Trial) -> None:
    start = jobs.now
    await call.enqueue_many(range(6))
    assert await jobs.drain() == 2
    assert await jobs.drain(with_scheduled=True) == 4
    assert timedelta(minutes=1) < jobs.now - start <= timedelta(minutes=2)
    until = jobs.now + timedelta(hours=1)
    await app.storage.pause("double", round(until.timestamp() * 1000))
    await double.enqueue(1)
    assert await jobs.drain() == 0
    assert await jobs.drain(with_scheduled=True) == 1
    assert jobs.now == until


async def test_jobs_that_enqueue_themselves_again_and_again_fail_the_test(jobs: Trial) -> None:
    await again.enqueue()
    with pytest.raises(AssertionError, match=r"of again still waits after 500 moves of the clock.*use advance"):
        await jobs.drain(with_scheduled=True)


async def test_flows_keep_their_deadlines_while_the_clock_moves(jobs: Trial) -> None:
    flow = app.flow("late", deadline=60)
    flow.add(double, 1, delay=3600)
    info = await flow.start()
    await welcome.enqueue(User("anna"), delay=7200)
    await jobs.drain(with_scheduled=True)
    assert (await app.flows.get(info.id)).state == "expired"
    assert jobs.payloads(double) == []


async def test_schedules_tick_as_the_clock_moves() -> None:
    ticking = App("memory://")
    ran: list[int] = []

    @ticking.every("1h")
    async def hourly() -> None:
        ran.append(1)

    with ticking.testing() as jobs:
        await jobs.drain()
        for _ in range(3):
            jobs.advance(hours=1)
            await jobs.drain()
        assert len(ran) == 3
        assert await jobs.drain(with_scheduled=True) == 0  # a tick is no job yet: else there would be no end


def test_a_drain_that_nobody_awaits_is_an_error(jobs: Trial) -> None:
    with pytest.raises(RuntimeError, match=r"without one: sync\.drain\(\)"):
        jobs.drain()  # type: ignore[unused-coroutine]


@pytest.mark.filterwarnings("error")
async def test_a_drain_without_await_in_an_async_test_is_an_error_at_its_end() -> None:
    with pytest.raises(RuntimeError, match="without awaiting it"), app.testing() as jobs:
        await welcome.enqueue(User("anna"))
        jobs.drain()  # type: ignore[unused-coroutine]
        jobs.assert_no_failures()
    with pytest.raises(ZeroDivisionError), app.testing() as jobs:  # an error of the test comes first
        jobs.drain()  # type: ignore[unused-coroutine]
        raise ZeroDivisionError
    with app.testing() as jobs:
        await welcome.enqueue(User("anna"))
        assert await jobs.drain() == 1


def test_plain_handlers_run_in_the_thread_of_a_test_that_waits_for_them(jobs: Trial) -> None:
    double.sync.enqueue(1)
    jobs.sync.drain()
    jobs.inline = True
    assert octuple.sync.enqueue(1).result() == 8  # also where an async handler is in between
    assert quadruple.sync.enqueue(1).result() == 4
    assert set(threads) == {threading.get_ident()}


async def test_plain_handlers_leave_the_loop_of_an_async_test_alone(jobs: Trial) -> None:
    await double.enqueue(1)
    await jobs.drain()
    assert threading.get_ident() not in threads


# -- inline


async def test_inline_a_job_has_run_when_the_call_that_enqueued_it_returns() -> None:
    with app.testing(inline=True) as jobs:
        handle = await double.enqueue(4)
        assert jobs.payloads(double) == [4]
        assert await handle.result() == 8
        await double.enqueue_many(range(10))
        assert len(jobs.runs(double)) == 11
        flow = app.flow("sums")
        flow.add(octuple, 3, after=flow.add(double, 1))
        assert (await flow.start()).progress == (2, 2) or (await app.flows.list(state="done"))
        assert await deals.get("tea") == "TEA"
        jobs.assert_no_failures()


async def test_inline_handlers_may_wait_for_jobs_that_they_enqueue() -> None:
    with app.testing(inline=True):
        handles = await asyncio.gather(*(octuple.enqueue(n) for n in range(20)))
        assert [await handle.result() for handle in handles] == [8 * n for n in range(20)]


async def test_inline_each_of_many_calls_at_once_returns_when_its_own_job_has_run() -> None:
    done: list[int] = []
    slow = App("memory://")

    @slow.handler
    async def step(n: int) -> None:
        await asyncio.sleep(0.001)
        done.append(n)

    async def enqueue(n: int) -> None:
        await step.enqueue(n)
        assert n in done

    with slow.testing(inline=True):
        await asyncio.gather(*(enqueue(n) for n in range(50)))
        threads = [threading.Thread(target=lambda n=n: step.sync.enqueue(n)) for n in range(50, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert sorted(done) == list(range(60))


async def test_inline_a_job_fails_as_in_production_and_the_call_that_enqueued_it_does_not() -> None:
    with app.testing(inline=True) as jobs:
        await welcome.enqueue(User("nobody"))
        await welcome.enqueue(User("anna"), delay=60)
        assert [(run.payload.name, run.ended) for run in jobs.runs()] == [("nobody", "failed")]
        assert {job.payload.name: job.state for job in jobs.waiting(welcome)} == {
            "nobody": "delayed",
            "anna": "delayed",
        }
        with pytest.raises(AssertionError, match="no such user"):
            jobs.assert_no_failures()
        handle = await welcome.enqueue(User("nobody"), max_attempts=1)
        with pytest.raises(JobFailed, match="no such user"):
            await handle.result()


async def test_inline_may_be_switched_on_and_off(jobs: Trial) -> None:
    await double.enqueue(1)
    assert jobs.runs() == []
    jobs.inline = True
    await double.enqueue(2)
    assert sorted(jobs.payloads(double)) == [1, 2]  # they ran side by side
    jobs.inline = False
    await double.enqueue(3)
    jobs.assert_enqueued(double, 3)


async def test_a_result_that_no_test_runs_does_not_hang(jobs: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.connections, "result_timeout", 0.01)
    with pytest.raises(ResultTimeout, match=r"job 1 is still ready after 0\.01 s"):
        await (await double.enqueue(1)).result()


async def test_inline_a_job_may_enqueue_itself_under_its_own_key() -> None:
    with app.testing(inline=True) as jobs:

        @app.handler("own")
        async def own(n: int) -> None:
            await app.enqueue("own", n + 1, key="own")  # kept: it runs

        try:
            await app.enqueue("own", 1, key="own")
            assert jobs.payloads(own) == [1]
        finally:
            app.remove_handler(own)


# -- around it


def test_what_a_demand_knew_of_another_trial_is_forgotten() -> None:
    """The sync face keeps its loop, and ids begin again: what was known before would lose the second waiter."""
    for name in ("anna", "ben"):
        delivered.clear()
        with app.testing() as jobs:
            app.sync.run(deals.request("tea", Waiter(f"{name}-1")))
            app.sync.run(deals.request("tea", Waiter(f"{name}-2")))
            jobs.sync.drain()
        assert sorted(delivered) == [(f"{name}-1", "TEA"), (f"{name}-2", "TEA")]


def test_a_job_of_a_caller_s_transaction_is_there_at_once(jobs: Trial) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        handle = double.sync.enqueue(1, connection=connection)
        assert jobs.assert_enqueued(double, 1).id == handle.id
        jobs.inline = True
        assert double.sync.enqueue(2, connection=connection).result() == 4
        assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


async def test_the_app_is_as_before_afterwards() -> None:
    connections = app.connections
    async with app.testing() as trial:
        assert app.connections is not connections
        with pytest.raises(RuntimeError, match="under way"):
            trial.__enter__()
    assert app.connections is connections
    assert app.middleware == ()
    assert not app.sync.lends_thread
