"""A store that was put back from a backup gives ids and attempts again: old leases are refused, new ones accepted."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import pytest

from accoda import App, Bury, Done, Job, ManualClock, NewJob, Refused, Retry, Worker, WorkerOptions, open_storage
from accoda.settings import Settings
from accoda.storage.protocol import Store

COUNT = 12
HOUR = 3600.0


def copy_into(source: Path, target: Path) -> None:
    """What `sqlite3 TARGET ".restore SOURCE"` does: one commit, also while other connections have the target open."""
    ours, theirs = apsw.Connection(str(target)), apsw.Connection(str(source))
    ours.set_busy_timeout(10_000)
    with ours.backup("main", theirs, "main") as backup:
        while not backup.done:
            backup.step()
    ours.close()
    theirs.close()


class Place:
    """A file, and its backup. `put_back` makes the store an older one, and gives what to go on with."""

    def __init__(self, folder: Path) -> None:
        self.path, self.copy = folder / "jobs.db", folder / "copy.db"
        self.url = f"sqlite:///{self.path}"
        self.clock = ManualClock()
        self.open_stores = AsyncExitStack()

    async def open(self) -> Store:
        return await self.open_stores.enter_async_context(await open_storage(self.url, clock=self.clock))

    def back_up(self) -> None:
        copy_into(self.path, self.copy)

    async def put_back_under(self, store: Store) -> Store:
        copy_into(self.copy, self.path)
        return store

    async def put_back_closed(self, store: Store) -> Store:
        await self.open_stores.aclose()
        shutil.copy(self.copy, self.path)
        return await self.open()


PutBack = Callable[[Place, Store], Awaitable[Store]]
WAYS = pytest.mark.parametrize("put_back", [Place.put_back_under, Place.put_back_closed])


def all_lost(jobs: list[Job]) -> list[Refused]:
    return [Refused(job.lease, "lost") for job in jobs]


async def refused_everywhere(store: Store, old: list[Job]) -> None:
    """No verb takes the leases."""
    assert await store.extend([job.lease for job in old], HOUR) == all_lost(old)
    assert await store.settle([Done(job.lease, then=[NewJob("next")]) for job in old]) == all_lost(old)
    assert await store.settle([Retry(job.lease) for job in old]) == all_lost(old)
    assert await store.settle([Bury(job.lease, "old", [NewJob("next")]) for job in old]) == all_lost(old)
    assert "next" not in (await store.stats()).queues


def tokens(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(job.id, job.attempts) for job in jobs]


@WAYS
async def test_leases_of_jobs_that_are_forgotten_do_not_fit_those_that_got_their_ids(
    tmp_path: Path, put_back: PutBack
) -> None:
    place = Place(tmp_path)
    async with place.open_stores:
        store = await place.open()
        await store.enqueue([NewJob("q") for _ in range(3)])
        before = await store.take("q", 3, lease=HOUR)
        place.back_up()
        await store.enqueue([NewJob("q", b"old") for _ in range(COUNT)])
        old = await store.take("q", COUNT, lease=HOUR)
        store = await put_back(place, store)
        place.clock.advance(0.001)
        await store.enqueue([NewJob("q", b"new") for _ in range(COUNT)])
        new = await store.take("q", COUNT, lease=HOUR)
        assert tokens(new) == tokens(old), "ids and attempts came again"
        await refused_everywhere(store, old)
        assert await store.extend([job.lease for job in new], HOUR) == []
        assert await store.settle([Done(job.lease) for job in new]) == []
        assert await store.settle([Done(job.lease) for job in before]) == [], "the backup has these leases"
        assert (await store.stats()).queues["q"].done == COUNT + 3


@WAYS
async def test_a_job_of_the_backup_is_taken_anew_and_its_forgotten_lease_does_not_fit(
    tmp_path: Path, put_back: PutBack
) -> None:
    place = Place(tmp_path)
    async with place.open_stores:
        store = await place.open()
        await store.enqueue([NewJob("q") for _ in range(COUNT)])
        place.back_up()
        old = await store.take("q", COUNT, lease=HOUR)
        store = await put_back(place, store)
        assert await store.extend([job.lease for job in old], HOUR) == all_lost(old), "nobody holds them now"
        place.clock.advance(0.001)
        new = await store.take("q", COUNT, lease=HOUR)
        assert tokens(new) == tokens(old)
        await refused_everywhere(store, old)
        assert await store.settle([Done(job.lease) for job in new]) == []


async def test_a_queue_that_is_forgotten_gets_no_jobs_of_the_one_that_got_its_number(tmp_path: Path) -> None:
    """A process remembers the numbers of queues. After a return of the file they may be others'."""
    place = Place(tmp_path)
    async with place.open_stores:
        one, other = await place.open(), await place.open()
        await one.enqueue([NewJob("first")])
        place.back_up()
        await one.enqueue([NewJob("forgotten", b"x")])
        await place.put_back_under(one)
        await other.enqueue([NewJob("new", b"new")])
        assert await one.wait(["forgotten"], 0) is False
        assert await one.take("forgotten", 9) == []
        await one.enqueue([NewJob("forgotten", b"again")])
        for queue, data in (("new", b"new"), ("forgotten", b"again")):
            for store in (one, other):
                assert await store.wait([queue], 0)
            assert [job.data for job in await other.take(queue, 9)] == [data]


class Side:
    """An app with a worker. Its handler notes the payloads that it began and finished, and waits in between."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.began: list[str] = []
        self.finished: list[str] = []
        self.all_began, self.go = asyncio.Event(), asyncio.Event()

        @self.app.handler("q", batch=COUNT, lease=HOUR)
        async def handle(payload: str) -> None:
            self.began.append(payload)
            if len(self.began) == COUNT:
                self.all_began.set()
            await self.go.wait()
            self.finished.append(payload)

        self.worker = Worker(self.app, WorkerOptions(settings=Settings.load(environ={})))
        self.running = asyncio.create_task(self.worker.run())

    async def stop(self) -> None:
        self.go.set()
        assert await self.worker.graceful_stop(20)
        await self.running
        await self.app.close()


async def test_a_busy_worker_ends_no_job_that_was_acknowledged_after_the_return(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with asyncio.timeout(60), App(place.url) as producer:
        await producer.storage.stats()
        place.back_up()
        first = Side(place.url)
        lost = await producer.enqueue_many("q", [f"a{n}" for n in range(COUNT)])
        await first.all_began.wait()
        first.worker.shutdown()  # it finishes what it has; else it may take the new jobs too, once it hears of the loss
        await place.put_back_under(producer.storage)
        names = [f"b{n}" for n in range(COUNT)]
        acknowledged = await producer.enqueue_many("q", names)
        again = {each.id for each in acknowledged} & {each.id for each in lost}
        assert len(again) > COUNT // 2, "their ids came again, but for a few that jobs of the system got"
        second = Side(place.url)
        await second.all_began.wait()
        await first.stop()  # its handlers end, and it says Done of ids that others hold
        counts = (await producer.storage.stats()).queues["q"]
        assert (counts.done, counts.taken, counts.total) == (0, COUNT, COUNT)
        await second.stop()
        assert sorted(second.finished) == sorted(names) and not set(names) & set(first.began)
        counts = (await producer.storage.stats()).queues["q"]
        assert (counts.done, counts.total) == (COUNT, 0)
