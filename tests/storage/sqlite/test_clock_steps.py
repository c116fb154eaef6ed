"""Steps of the machine's clock: leases last as long as they should, delayed jobs and schedules go on."""

import asyncio
import logging
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from accoda import ById, Done, JobInfo, ManualClock, NewJob, open_storage
from accoda.schedules import Schedule, Scheduler
from accoda.schedules.store import create
from accoda.storage.protocol import Store
from accoda.storage.sqlite.clock_steps import HostClock, find_boot_id
from accoda.storage.sqlite.storage import SqliteStorage

HOUR = 3600.0
START = 1_700_000_000


class Machine:
    """Two clocks that tests move, and the stores that go by them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.boot_id = "first"
        self.wall, self.boot = START * 10**9, 5 * 10**9
        self.stores = AsyncExitStack()

    def clock(self) -> HostClock:
        return HostClock(lambda: self.wall, lambda: self.boot, self.boot_id)

    async def open(self) -> Store:
        return await self.stores.enter_async_context(await open_storage(self.url, clock=self.clock()))

    def wait(self, seconds: float) -> None:
        self.boot += round(seconds * 10**9)
        self.wall += round(seconds * 10**9)

    def step(self, seconds: float) -> None:
        self.wall += round(seconds * 10**9)


@pytest_asyncio.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    async with machine.stores:
        yield machine


async def info(store: Store, id: int) -> JobInfo:
    found = (await store.look(ById(id))).job
    assert found is not None
    return found


BOTH_WAYS = pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])


@BOTH_WAYS
async def test_a_live_lease_lasts_and_a_dead_one_ends_as_long_after_as_it_would_have(
    machine: Machine, step: float
) -> None:
    store = await machine.open()
    await store.enqueue([NewJob("q", b"live"), NewJob("q", b"dead")])
    live, dead = await store.take("q", 2, lease=60)
    machine.wait(20)
    machine.step(step)
    assert await store.take("q", 9) == []
    assert await store.extend([live.lease], 60) == [], "the token is the same"
    machine.wait(39)
    assert await store.take("q", 9) == [], "the dead one has a second left"
    machine.wait(1)
    (again,) = await store.take("q", 9)
    assert (again.data, again.attempts, again.crashes) == (b"dead", 1, 1)
    assert await store.settle([Done(live.lease), Done(dead.lease), Done(again.lease)]) != []
    assert (await store.stats()).queues["q"].done == 2


async def test_a_delayed_job_and_a_pause_go_on_after_the_clock_was_set_back(machine: Machine) -> None:
    store = await machine.open()
    (one,) = await store.enqueue([NewJob("q", b"delayed", delay=8)])
    await store.enqueue([NewJob("paused")])
    await store.pause("paused", machine.clock().now() + 8000)
    machine.wait(3)
    machine.step(-HOUR)
    assert await store.wait(["q", "paused"], 0) is False
    assert (await info(store, one.id)).start_time == machine.clock().now() + 5000
    machine.wait(4.9)
    assert not await store.take("q", 1) and not await store.take("paused", 1)
    machine.wait(0.1)
    assert [len(await store.take(queue, 1)) for queue in ("q", "paused")] == [1, 1]


async def test_a_job_starts_at_its_moment_by_the_clock_that_was_set_forward(machine: Machine) -> None:
    store = await machine.open()
    await store.enqueue([NewJob("q", b"soon", delay=60), NewJob("q", b"later", delay=2 * HOUR)])
    machine.step(HOUR)
    assert [job.data for job in await store.take("q", 9)] == [b"soon"]


@BOTH_WAYS
async def test_a_document_lives_as_long_as_it_should(machine: Machine, step: float) -> None:
    store = await machine.open()
    await store.write("lock", b"x", ttl=10)
    machine.step(step)
    await store.stats()
    machine.wait(9)
    assert await store.read("lock") is not None
    machine.wait(1)
    assert await store.read("lock") is None


SCHEDULES = {
    10: Schedule(name="s", queue="ticks", every=10.0),
    60: Schedule(name="s", queue="ticks", cron="* * * * *"),
}


@pytest.mark.parametrize("gap", SCHEDULES, ids=["interval", "cron"])
async def test_a_schedule_goes_on_after_the_clock_was_set_back(machine: Machine, gap: int) -> None:
    store = await machine.open()
    await create(store, SCHEDULES[gap])
    scheduler = Scheduler(lambda queue, payload, options: NewJob(queue))
    ticks: list[int] = []

    async def live(seconds: int) -> None:
        for _ in range(seconds):
            machine.wait(1)
            if await scheduler.run_once(store):
                ticks.extend(machine.boot // 10**9 for _ in await store.take("ticks", 9, lease=9 * HOUR))

    await live(3 * gap)
    machine.step(-HOUR - 3.7)
    await live(4 * gap)
    gaps = [later - earlier for earlier, later in pairwise(ticks)]
    assert len(ticks) >= 6 and max(gaps) <= gap + 5, gaps


async def test_a_daily_schedule_ticks_at_its_hour_by_the_clock_that_was_set_back(machine: Machine) -> None:
    machine.wall = round(datetime(2026, 3, 2, 11, 59, 50, tzinfo=UTC).timestamp()) * 10**9
    store = await machine.open()
    await create(store, Schedule(name="s", queue="ticks", cron="0 12 * * *"))
    scheduler = Scheduler(lambda queue, payload, options: NewJob(queue))
    machine.step(-HOUR)
    seen = []
    for _ in range(3 * 60):
        machine.wait(60)
        await scheduler.run_once(store)
        seen += [machine.clock().now() for _ in await store.take("ticks", 9, lease=9 * HOUR)]
    assert [datetime.fromtimestamp(moment / 1000, UTC).hour for moment in seen] == [12]


async def test_two_stores_apply_one_step_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    one, two = await machine.open(), await machine.open()
    (job,) = await one.enqueue([NewJob("q")])
    await one.take("q", 1, lease=60)
    await two.stats()
    end = (await info(two, job.id)).lease_until
    assert end is not None
    with caplog.at_level(logging.WARNING, "accoda.storage.sqlite"):
        for total, step in ((HOUR, HOUR), (-HOUR, -2 * HOUR)):
            machine.step(step)
            for store in (two, one, two):
                await store.stats()
                assert (await info(store, job.id)).lease_until == end + total * 1000
    words = [record.message for record in caplog.records]
    assert len(words) == 2 and "was set forward by 3600.0 s" in words[0] and "was set back by 7200.0 s" in words[1]


CHILD = """
import asyncio, logging, sys, time
from accoda import open_storage
from accoda.storage.sqlite.clock_steps import HostClock, boot_time
logging.basicConfig()
step = 0
async def main():
    global step
    clock = HostClock(lambda: time.time_ns() + step, boot_time, "here")
    async with await open_storage(sys.argv[1], clock=clock) as store:
        await store.stats()
        print("ready", flush=True)
        sys.stdin.readline()
        step = int(sys.argv[2]) * 10**9
        for _ in range(20):
            await store.stats()
asyncio.run(main())
"""


async def test_processes_that_notice_a_step_at_once_apply_it_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with await open_storage(url, clock=HostClock(boot_id="here")) as store:
        (job,) = await store.enqueue([NewJob("q")])
        await store.take("q", 1, lease=9 * HOUR)
        end = (await info(store, job.id)).lease_until
        assert end is not None
        words = (sys.executable, "-c", CHILD, url, str(round(HOUR)))
        children = [await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE) for _ in "123"]
        for child in children:
            assert child.stdout is not None and await child.stdout.readline() == b"ready\n"
        answers = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        assert [child.returncode for child in children] == [0] * 3, answers
        assert sum(b"was set forward by 3600" in errors for _, errors in answers) == 1, answers
        moved = (await info(store, job.id)).lease_until
        assert moved is not None and abs(moved - end - HOUR * 1000) <= 1


async def test_a_slow_drift_is_no_step(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    store, other = await machine.open(), await machine.open()
    (job,) = await store.enqueue([NewJob("q")])
    await store.take("q", 1, lease=9 * HOUR)
    await other.stats()
    end = (await info(store, job.id)).lease_until
    for _ in range(40):
        machine.wait(60)
        machine.step(0.3)  # 12 s in all
        await store.stats()
    await (await machine.open()).stats()
    await other.stats()
    assert (await info(store, job.id)).lease_until == end and not caplog.records


async def test_a_leap_second_is_no_step(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    store = await machine.open()
    (job,) = await store.enqueue([NewJob("q")])
    await store.take("q", 1, lease=60)
    end = (await info(store, job.id)).lease_until
    machine.step(-1)
    await store.stats()
    assert (await info(store, job.id)).lease_until == end and not caplog.records


async def test_a_process_that_is_stopped_between_two_readings_sees_no_step(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    stops: list[float] = []  # seconds before each of the next readings

    def read(clock: str) -> int:
        machine.wait(stops.pop(0) if stops else 0)
        return int(getattr(machine, clock))

    stopped = HostClock(lambda: read("wall"), lambda: read("boot"), machine.boot_id)
    async with await open_storage(machine.url, clock=stopped) as store:
        await store.stats()
        stops += [0, 30, 0, 30]  # the wall clock and a stop, the time since boot; once more, the other way round
        await store.stats()
        assert stops == []
        await store.stats()
    assert not caplog.records


async def test_after_a_reboot_nothing_is_moved(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    store = await machine.open()
    (job,) = await store.enqueue([NewJob("q")])
    await store.take("q", 1, lease=60)
    end = (await info(store, job.id)).lease_until
    await machine.stores.aclose()
    machine.boot, machine.boot_id = 10**9, "second"
    store = await machine.open()
    assert (await store.stats()).queues["q"].taken == 1
    assert (await info(store, job.id)).lease_until == end and not caplog.records
    machine.step(HOUR)
    assert (await store.stats()).queues["q"].taken == 1, "the row is of this boot now"


async def test_a_step_while_no_process_was_there_is_seen_by_the_next(machine: Machine) -> None:
    store = await machine.open()
    await store.enqueue([NewJob("q")])
    (job,) = await store.take("q", 1, lease=60)
    await machine.stores.aclose()
    machine.step(HOUR)
    assert await (await machine.open()).settle([Done(job.lease)]) == []


async def test_a_transaction_that_fails_leaves_the_step_to_the_next(machine: Machine) -> None:
    store = await machine.open()
    assert isinstance(store, SqliteStorage)
    await store.enqueue([NewJob("q")])
    (job,) = await store.take("q", 1, lease=60)
    machine.step(HOUR)

    def fail(tx: object) -> None:
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        await store._writer.run(fail)
    assert await store.settle([Done(job.lease)]) == []


async def test_a_wait_ends_in_time_though_the_clock_was_set_back(machine: Machine) -> None:
    store = await machine.open()
    waiting = asyncio.create_task(store.wait(["q"], 0.1))
    await store.stats()
    machine.step(-HOUR)
    async with asyncio.timeout(30):
        assert await waiting is False


async def test_one_that_waits_notices_a_step_by_itself(machine: Machine) -> None:
    """A sleeper looks once a second, and no one else may write."""
    store = await machine.open()
    await store.enqueue([NewJob("q", delay=1)])
    waiting = asyncio.create_task(store.wait(["q"], 60))
    await store.stats()
    machine.step(-HOUR)
    machine.wait(1)
    async with asyncio.timeout(30):
        assert await waiting is True


async def test_a_clock_of_a_test_may_jump_as_it_likes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db", clock=clock) as store:
        await store.enqueue([NewJob("q")])
        await store.take("q", 1, lease=60)
        clock.advance(HOUR)
        assert len(await store.take("q", 1)) == 1


def test_this_machine_has_a_boot_id_and_one_without_has_none(tmp_path: Path) -> None:
    assert find_boot_id(tmp_path) == ""
    if sys.platform == "linux":
        assert find_boot_id() == find_boot_id() != ""
    clock = HostClock()
    assert abs(clock.offset() - (time.time_ns() - clock.boot())) < 10**9
