"""A disk that fails, is full or is slow: callers are told what to do, nothing is lost, and the store goes on."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import apsw
import pytest
import pytest_asyncio
from msgspec.structs import replace
from proof.powercut import Disk, Machine, Operation, PowerVFS, SyncFailed, installed, machine
from proof.powercut.check import damage
from proof.powercut.disk import Survival
from proof.powercut.faults import FaultyLife, OneFault
from proof.powercut.lockstep import Handle, HeldClock, Time
from proof.powercut.workload import StoreCall

from accoda import Done, ManualClock, NewJob, StorageFull, StorageUnavailable, VersionConflict
from accoda.storage.common.lease_durability import held_here
from accoda.storage.sqlite import connection
from accoda.storage.sqlite.storage import SqliteStorage

MANY = 100_000


@pytest.fixture
def vfs() -> Iterator[PowerVFS]:
    with installed() as vfs:
        yield vfs


class Lab:
    """A store on a disk of the model, and what is left of it when the power goes."""

    def __init__(self, place: Machine) -> None:
        self.place = place
        self.path = place.path
        self.disk = place.insert(Disk())
        self.stores: list[SqliteStorage] = []
        self.survival: Survival | None = None  # what a cut leaves; None: as it comes

    async def open(self) -> SqliteStorage:
        store = await self.place.open()
        self.stores.append(store)
        return store

    async def cut(self) -> SqliteStorage:
        """Cut the power, start again, and give the store that is found."""
        self.disk.cut()
        await self.close()
        self.disk = self.place.insert(self.disk.survivor(random.Random(1), self.survival))
        store = await self.open()
        assert damage(self.path) == []
        return store

    async def close(self) -> None:
        for store in self.stores:
            await store.close()
        self.stores.clear()


@pytest_asyncio.fixture
async def lab(vfs: PowerVFS) -> AsyncIterator[Lab]:
    with machine(vfs) as place:
        lab = Lab(place)
        yield lab
        lab.disk.trouble = None
        await lab.close()


async def ids(store: SqliteStorage) -> set[int]:
    return {job.id for job in await store.browse("q", "ready", limit=MANY)}


async def enqueue_all(store: SqliteStorage, count: int) -> tuple[set[int], Counter[type[BaseException]]]:
    """So many callers at once: the ids that were acknowledged, and the errors."""
    answers = await asyncio.gather(*(store.enqueue([NewJob("q")]) for _ in range(count)), return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    known = {one.id for answer in answers if not isinstance(answer, BaseException) for one in answer}
    return known, Counter(map(type, errors))


async def test_wherever_an_operation_fails_an_error_changes_nothing_and_the_store_goes_on(vfs: PowerVFS) -> None:
    faults: Counter[str] = Counter()
    errors: Counter[type[BaseException]] = Counter()
    for seed in range(25):
        with machine(vfs) as place:
            found = await FaultyLife(seed, place).live()
        assert found.told == []
        faults += found.faults
        errors += found.errors
    assert set(faults) == {"sync", "write", "read", "truncate"}
    assert set(errors) == {StorageUnavailable, StorageFull}


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("sync", SyncFailed()),
        ("sync", SyncFailed(kept=True)),
        ("write", apsw.exception_for(apsw.SQLITE_IOERR_WRITE)),
    ],
)
async def test_a_disk_that_fails_for_a_while_is_told_and_loses_nothing(lab: Lab, kind: str, failure: Exception) -> None:
    store = await lab.open()
    before, errors = await enqueue_all(store, 50)
    assert len(before) == 50
    lab.disk.trouble = OneFault(kind, 0, 1_000_000, lambda: failure)
    unsure = []
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match=r"the disk .*jobs\.db .*check it and try again") as raised:
            await store.enqueue([NewJob("q")])
        unsure.append(raised.value.unsure)
    assert unsure == [kind == "sync", False, False], "only what was made before anybody knew of the trouble is in doubt"
    known, errors = await enqueue_all(store, 20)
    assert not known
    assert errors == {StorageUnavailable: 20}
    lab.disk.trouble = None
    after, errors = await enqueue_all(store, 50)
    assert not errors
    made = {max(before) + 1} if kind == "sync" else set()
    assert await ids(store) == before | made | after
    assert await ids(await lab.cut()) == before | made | after


async def test_a_sync_that_fails_once_is_made_good(lab: Lab) -> None:
    store = await lab.open()
    await store.enqueue([NewJob("q")])
    fault = lab.disk.trouble = OneFault("sync", 0, 1, SyncFailed)  # which forgets what it did not write
    await store.enqueue([NewJob("q"), NewJob("q")])
    assert fault.hits == 1
    lab.survival = Survival(None, 0.0, 0.0, False)  # nothing that was not synced
    assert len(await ids(await lab.cut())) == 3


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_sync_that_cannot_be_made_good_says_that_the_change_was_made_and_may_be_lost(
    lab: Lab, recovers: bool
) -> None:
    store, other = await lab.open(), await lab.open()
    await store.enqueue([NewJob("q")])
    lab.disk.trouble = OneFault("sync", 0, 1000, SyncFailed)
    with pytest.raises(StorageUnavailable, match="the change was made, and lasts if the disk recovers") as raised:
        await store.enqueue([NewJob("q"), NewJob("q")])
    assert raised.value.unsure
    assert len(await ids(other)) == 3, "every process sees it"
    if recovers:
        lab.disk.trouble = None
        await store.write("d", b"later")  # nothing is added to the log before all of it is on the disk
    lab.survival = Survival(None, 0.0, 0.0, False)
    assert len(await ids(await lab.cut())) == (3 if recovers else 1)


async def test_a_job_can_be_taken_before_the_disk_has_it_and_only_then_is_its_producer_told(lab: Lab) -> None:
    store, worker = await lab.open(), await lab.open()
    await store.enqueue([NewJob("q")])
    with held_here():
        [first] = await worker.take("q", 1)
    await worker.settle([Done(first.lease)])
    arrived, go = threading.Event(), threading.Event()

    def slow(operation: Operation) -> None:
        if operation.kind == "sync":
            arrived.set()
            go.wait(60)

    waiting = asyncio.create_task(worker.wait(["q"], 60))
    lab.disk.trouble = slow
    producer = asyncio.create_task(store.enqueue([NewJob("q")]))
    assert await asyncio.to_thread(arrived.wait, 60)
    lab.disk.trouble = None
    assert await waiting, "the worker is called"
    with held_here():
        [job] = await worker.take("q", 1)
    assert not producer.done()
    go.set()
    assert [one.id for one in await producer] == [job.id]


@pytest.mark.parametrize("mode", ["PASSIVE", "RESTART", "TRUNCATE"])
async def test_a_log_that_another_begins_anew_before_the_sync_has_taken_the_commit_along(lab: Lab, mode: str) -> None:
    store = await lab.open()
    await store.enqueue([NewJob("q")])
    other = apsw.Connection(str(lab.path))

    def interfere(operation: Operation) -> None:
        if operation.kind == "sync":
            lab.disk.trouble = None
            other.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            other.execute("UPDATE documents SET value = value")  # begins the log anew, over the frames of the commit

    lab.disk.trouble = interfere
    await store.enqueue([NewJob("q")])
    other.close()
    lab.survival = Survival(None, 0.0, 0.0, False)  # nothing that was not synced
    assert len(await ids(await lab.cut())) == 2


async def test_a_full_disk_is_told_and_the_store_goes_on_when_there_is_space(lab: Lab) -> None:
    store = await lab.open()
    [first] = await store.enqueue([NewJob("q")])
    lab.disk.capacity = sum(map(len, lab.disk.image().values())) + 200_000
    known = {first.id}
    with pytest.raises(
        StorageFull, match=r"no space left for .*jobs\.db; free some and try again: nothing was changed"
    ):
        while True:
            [more] = await store.enqueue([NewJob("q", b"x" * 1000)])
            known.add(more.id)
    assert len(known) > 1
    assert await ids(store) == known, "reading goes on"
    with pytest.raises(StorageFull):
        await store.write("d", b"x" * 200_000)
    lab.disk.capacity = None
    known |= (await enqueue_all(store, 30))[0]
    [job] = await store.take("q", 1)
    assert await store.settle([Done(job.lease)]) == []
    assert await ids(await lab.cut()) == known - {job.id}


async def test_a_slow_sync_holds_up_its_callers_and_nothing_else(lab: Lab) -> None:
    store = await lab.open()
    await store.enqueue([NewJob("q")])
    arrived, go = threading.Event(), threading.Event()

    def slow(operation: Operation) -> None:
        if operation.kind == "sync":
            arrived.set()
            go.wait(60)

    lab.disk.trouble = slow
    calls = [asyncio.create_task(store.enqueue([NewJob("q")])) for _ in range(100)]
    assert await asyncio.to_thread(arrived.wait, 60), "the loop is free meanwhile"
    assert not any(call.done() for call in calls), "nothing is acknowledged before it is on the disk"
    lab.disk.trouble = None
    go.set()
    assert len({one.id for [one] in await asyncio.gather(*calls)}) == 100
    assert len(await ids(await lab.cut())) == 101


async def test_nothing_is_acknowledged_before_it_would_survive_a_cut(lab: Lab) -> None:
    store = await lab.open()
    await store.enqueue([NewJob("q")])

    def off(operation: Operation) -> None:
        if operation.kind == "sync":
            lab.disk.cut()

    lab.disk.trouble = off
    with pytest.raises(StorageUnavailable):
        await store.enqueue([NewJob("q")])


async def test_a_checkpoint_that_fails_disturbs_no_call_and_is_made_up_for(lab: Lab) -> None:
    store = await lab.open()
    store._writer.log.after = 20

    def failing(operation: Operation) -> None:
        if operation.name == "jobs.db" and operation.kind in ("sync", "write"):
            raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)

    lab.disk.trouble = failing
    known = set()
    for _ in range(30):
        [one] = await store.enqueue([NewJob("q", b"x" * 4000)])
        known.add(one.id)
    longest = lab.disk.size("jobs.db-wal")
    assert longest > 60 * 4096, "nothing could be moved out of the log"
    lab.disk.trouble = None
    store._writer._connection.execute("PRAGMA journal_size_limit = 0")
    for _ in range(3):
        [one] = await store.enqueue([NewJob("q")])
        known.add(one.id)
    await store.read("d")  # the checkpoint comes after the answer; this one comes after the checkpoint
    assert lab.disk.size("jobs.db-wal") < longest / 2
    assert await ids(await lab.cut()) == known


async def test_an_open_that_fails_can_be_repeated(lab: Lab) -> None:
    for after in range(0, 12, 3):
        lab.disk.trouble = OneFault("write", after, 1, lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE))
        with pytest.raises(StorageUnavailable, match="the disk failed"):
            await lab.open()
    lab.disk.trouble = None
    store = await lab.open()
    await store.enqueue([NewJob("q")])
    assert len(await ids(await lab.cut())) == 1


async def test_a_refusal_that_was_taken_back_is_not_told(lab: Lab) -> None:
    # Both writers want to be the first. In one transaction the second is refused; it fails, each runs on its own, and
    # now the first fails at the disk. So the second is the first, and must not hear the refusal of the other try.
    clock = HeldClock(Time())
    handle = Handle(await lab.place.open(clock), clock)
    await handle.hold()
    writes = [StoreCall("write", ("d", text), {"version": 0}) for text in (b"first", b"second")]
    lab.disk.trouble = OneFault("write", 0, 2, lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE))
    first, second = await handle.run(writes)
    lab.disk.trouble = None
    assert isinstance(first, StorageUnavailable)
    assert second == 1
    [conflict] = await handle.run([StoreCall("write", ("d", b"third"), {"version": 0})])
    assert isinstance(conflict, VersionConflict)
    await handle.close()


async def test_callers_that_wait_for_a_lock_together_give_up_together(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_PATIENCE", 0.05)
    clock = HeldClock(Time())
    store = await lab.place.open(clock)
    handle = Handle(store, clock)
    await handle.hold()
    asked = 0
    nap = connection.wait_for_lock()

    def counted(earlier: int) -> bool:
        nonlocal asked
        asked += earlier == 0
        return nap(earlier)

    store._writer._connection.set_busy_handler(counted)
    other = apsw.Connection(str(lab.path))
    other.execute("BEGIN IMMEDIATE")
    answers = await handle.run([StoreCall("enqueue", ([NewJob("q")],))] * 50)
    assert {type(answer) for answer in answers} == {StorageUnavailable}
    assert asked == 1, "one wait for all of them, not one for each"
    other.execute("COMMIT")
    other.close()
    assert all(isinstance(answer, list) for answer in await handle.run([StoreCall("enqueue", ([NewJob("q")],))] * 50))
    await handle.close()


class TestATakeOfThisMachine:
    """It does not wait for the disk: the cut that would take it back ends its holder too."""

    def syncs(self, lab: Lab) -> list[str]:
        seen: list[str] = []
        lab.disk.trouble = lambda operation: seen.append(operation.name) if operation.kind == "sync" else None
        return seen

    async def test_is_not_synced_and_what_follows_it_is(self, lab: Lab) -> None:
        store = await lab.open()
        await store.enqueue([NewJob("q") for _ in range(3)])
        syncs = self.syncs(lab)
        with held_here():
            [first] = await store.take("q", 1)
            assert await store.extend([first.lease], 30) == []
        assert syncs == []
        await store.settle([Done(first.lease)])
        assert syncs == ["jobs.db-wal"]
        with held_here():
            await store.take("q", 1)
        assert syncs == ["jobs.db-wal"]
        await store.take("q", 1)
        assert len(syncs) == 2, "a lease that may leave the machine must survive it"

    async def test_is_synced_with_a_settlement_of_the_same_commit(self, lab: Lab) -> None:
        clock = HeldClock(Time())
        handle = Handle(await lab.place.open(clock), clock)
        await handle.hold()
        await handle.run([StoreCall("enqueue", ([NewJob("q"), NewJob("q")],))])
        [[job]] = await handle.run([StoreCall("take", ("q", 1), here=True)])
        syncs = self.syncs(lab)
        await handle.run([StoreCall("take", ("q", 1), here=True), StoreCall("settle", ([Done(job.lease)],))])
        assert syncs == ["jobs.db-wal"]
        await handle.close()

    async def test_may_be_taken_back_by_a_cut_and_the_job_is_ready_then(self, lab: Lab) -> None:
        store = await lab.open()
        [one] = await store.enqueue([NewJob("q")])
        with held_here():
            [job] = await store.take("q", 1)
        lab.survival = Survival(None, 0.0, 0.0, False)  # nothing that was not synced
        store = await lab.cut()
        assert await ids(store) == {one.id}
        [again] = await store.take("q", 1)
        assert replace(again.lease, taken_at=job.lease.taken_at) == job.lease, "it differs only in its moment"

    async def test_is_there_after_a_cut_if_anything_was_acknowledged_after_it(self, lab: Lab) -> None:
        store = await lab.open()
        other = await lab.open()
        await store.enqueue([NewJob("q")])
        with held_here():
            [job] = await store.take("q", 1)
        [later] = await other.enqueue([NewJob("q")])
        lab.survival = Survival(None, 0.0, 0.0, False)
        store = await lab.cut()
        assert await ids(store) == {later.id}
        assert await store.settle([Done(job.lease)]) == []

    async def test_leaves_no_hole_in_the_log_when_the_next_sync_fails(self, lab: Lab) -> None:
        store = await lab.open()
        [one] = await store.enqueue([NewJob("q")])
        with held_here():
            await store.take("q", 1)
        lab.disk.trouble = OneFault("sync", 0, 2, SyncFailed)  # which forgets the take too, and its first repair
        with pytest.raises(StorageUnavailable):
            await store.enqueue([NewJob("q")])
        lab.disk.trouble = None
        [later] = await store.enqueue([NewJob("q")])
        lab.survival = Survival(None, 0.0, 0.0, False)
        left = await ids(await lab.cut())
        assert later.id in left, "behind a take that is on no disk it would be lost"
        assert one.id not in left


async def test_many_jobs_are_changed_without_a_copy_of_their_pages(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    xopen = PowerVFS.xOpen

    def noted(vfs: PowerVFS, name: object, flags: list[int]) -> object:
        opened.append(flags[0])
        return xopen(vfs, name, flags)

    monkeypatch.setattr(PowerVFS, "xOpen", noted)
    clock = ManualClock()
    store = await lab.place.open(clock)
    lab.stores.append(store)
    await store.enqueue([NewJob("q", b"x" * 1500, delay=1.0) for _ in range(200)])
    clock.advance(1)
    assert len(await store.take("q", 200, lease=1.0)) == 200
    clock.advance(1)
    assert len(await store.take("q", 200)) == 200
    assert opened
    assert not any(flags & apsw.SQLITE_OPEN_SUBJOURNAL for flags in opened), "SQLite's file for undoing a statement"
