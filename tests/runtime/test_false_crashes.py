"""An outage of the store is no crash of its jobs: the worker that lived through it takes the crashes back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tests.runtime.running import running, until

from accoda import App, Batch, ManualClock, Worker
from accoda.connections import Connections
from accoda.errors import InvalidInput, StorageUnavailable
from accoda.model import ById, Done, JobInfo, Lease, NotCrashed, Refused
from accoda.runtime.false_crashes import FalseCrashes
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper

LEASE = 0.4


class Away(Wrapper):
    """A store that can be away for some verbs, and counts the calls that it refused then."""

    def __init__(self, clock: ManualClock) -> None:
        self.core = MemoryStorage(clock)
        self.clock = clock
        self.away: tuple[str, ...] = ()
        self.refused: dict[str, int] = {}
        self.taken_back: list[int] = []

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if verb in self.away:
            self.refused[verb] = self.refused.get(verb, 0) + 1
            raise StorageUnavailable("away")
        if verb == "change":
            self.taken_back += [change.id for change in args[0] if isinstance(change, NotCrashed)]
        return await getattr(self.core, verb)(*args, **kwargs)

    async def close(self) -> None: ...

    async def be_away_for_three_leases(self) -> None:
        """Come back when the worker has noticed it, and the leases have long ended."""
        self.refused.clear()
        self.away = ("enqueue", "take", "settle", "extend", "wait", "stats", "read", "write", "documents", "change")
        await until(lambda: self.refused.get("extend"))
        self.clock.advance(3 * LEASE)
        self.away = ()

    async def job(self, id: int) -> JobInfo | None:
        return (await self.core.look(ById(id))).job


class OneStore(Connections):
    """Connections that all lead to one store."""

    def __init__(self, store: Away) -> None:
        super().__init__("memory://", clock=store.clock)
        self.store = cast(Store, store)

    async def open(self) -> Store:
        return self.store

    async def put_back(self, store: Store) -> None: ...


async def until_so(true: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while not await true():
            await asyncio.sleep(0.002)


@pytest.fixture
def store() -> Away:
    return Away(ManualClock())


def app_on(store: Away) -> App:
    app = App("memory://")
    app.connections = OneStore(store)
    return app


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_five_outages_of_three_leases_leave_no_crash_and_nothing_dead_or_quarantined(
    store: Away, batch: bool
) -> None:
    app, gate, starts = app_on(store), asyncio.Event(), [0]

    async def wait() -> None:
        starts[0] += 1
        await gate.wait()

    if batch:

        @app.handler("a", lease=LEASE, max_attempts=1)
        async def whole(jobs: Batch[int]) -> None:
            await wait()
    else:

        @app.handler("a", lease=LEASE, max_attempts=1)
        async def single(n: int) -> None:
            await wait()

    id = (await app.enqueue("a", 0)).id

    async def taken_back() -> bool:
        job = await store.job(id)
        return job is not None and job.crashes == 0 and len(store.taken_back) == outage

    async with running(app, Worker.abort, system_jobs=False):
        for outage in range(1, 6):
            await until(lambda: starts[0] == outage)  # noqa: B023 - called before the next round
            await store.be_away_for_three_leases()
            await until_so(taken_back)
        await until(lambda: starts[0] == 6)
        gate.set()
        await until_so(lambda: done(store, 1))
    stats = (await store.core.stats()).queues["a"]
    assert (stats.done, stats.dead, stats.retried, stats.expired) == (1, 0, 0, 5)
    assert store.taken_back == [id] * 5, "once for each lease"


async def done(store: Away, count: int) -> bool:
    return (await store.core.stats()).queues["a"].done == count


async def test_a_late_outcome_takes_the_crash_back_also_after_another_worker_took_the_job(store: Away) -> None:
    """The lease ends while the outcome waits for the store; `extend` says nothing, as it is on its way."""
    app = app_on(store)

    @app.handler("a", lease=LEASE)
    async def work(n: int) -> None:
        store.away = ("settle", "extend", "change")

    id = (await app.enqueue("a", 0)).id
    async with running(app, Worker.abort, system_jobs=False):
        await until(lambda: store.refused.get("settle"))
        store.clock.advance(3 * LEASE)
        # Ours would take it as well: this is the other worker, and it was quicker.
        [job] = await store.core.take("a", 1, lease=3600)
        assert job.crashes == 1
        store.away = ("change",)
        await until(lambda: store.refused.get("change", 0) >= 2)
        store.away = ()
        await until(lambda: store.taken_back)
        found = await store.job(id)
        assert found is not None
        assert (found.state, found.crashes) == ("taken", 0)
        assert await store.core.settle([Done(job.lease)]) == [], "the other worker's lease is as it was"
    assert store.taken_back == [id]


async def test_what_waits_is_told_when_the_worker_leaves(store: Away) -> None:
    app = app_on(store)

    @app.handler("a", lease=LEASE)
    async def work(n: int) -> None:
        store.away = ("settle", "extend", "take")

    id = (await app.enqueue("a", 0)).id
    async with running(app, Worker.abort, system_jobs=False) as worker:
        await until(lambda: store.refused.get("settle"))
        store.clock.advance(3 * LEASE)
        store.away = ("take",)
        worker.shutdown()
    found = await store.job(id)
    assert found is not None
    assert (found.state, found.crashes, store.taken_back) == ("ready", 0, [id])


async def test_a_lease_that_both_extend_and_settle_refuse_is_told_once(store: Away) -> None:
    crashes = FalseCrashes()
    one, two, grown = (Lease("a", id, 0, 7) for id in (1, 2, 3))
    crashes.not_extended([one])
    crashes.not_extended([one])
    crashes.not_settled([Refused(one, "lost"), Refused(two, "lost"), Refused(grown, "grown")])
    await crashes.run_once(cast(Store, store))
    assert store.taken_back == [1, 2]
    assert not crashes._reported, "nothing is kept of leases that are settled"


async def test_a_store_that_will_not_have_it_is_not_asked_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(MemoryStorage):
        async def change(self, changes: Any) -> int:
            raise InvalidInput("changes", "no")

    crashes = FalseCrashes()
    telling = asyncio.create_task(crashes.run(Picky))
    crashes.not_extended([Lease("a", 1, 0, 7)])
    await until(lambda: not crashes._waiting)
    assert "refused to take back" in caplog.text
    telling.cancel()


async def test_a_job_that_failed_on_its_own_has_no_crash_taken_back(store: Away) -> None:
    app = app_on(store)

    @app.handler("a", retry=0, max_attempts=20, lease=LEASE)
    async def work(n: int) -> None:
        raise ValueError("no")

    await app.enqueue("a", 0)
    async with running(app, Worker.abort, system_jobs=False):

        async def dead() -> bool:
            return (await store.core.stats()).queues["a"].dead == 1

        await until_so(dead)
    assert store.taken_back == []
    [job] = await store.core.browse("a", "dead")
    assert job.reason == "failed 20 times, the last time with ValueError: no"
