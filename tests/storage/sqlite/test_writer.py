"""The thread that owns the connection: shared commits, locks of other programs, callers that go away, full disks."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from accoda import Done, NewJob, StorageFull, StorageUnavailable, VersionConflict, open_storage
from accoda.storage.sqlite import writer
from accoda.storage.sqlite.storage import SqliteStorage


async def opened(path: Path, query: str = "") -> SqliteStorage:
    store = await open_storage(f"sqlite:///{path}{query}")
    assert isinstance(store, SqliteStorage)
    return store


async def test_callers_that_wait_at_the_same_moment_share_a_commit(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        commits = 0

        def count() -> bool:
            nonlocal commits
            commits += 1
            return False

        store._writer._connection.set_commit_hook(count)
        answers = await asyncio.gather(*(store.enqueue([NewJob("q")]) for _ in range(500)))
        assert len({answer.id for [answer] in answers}) == 500
        assert commits < 50
        store._writer._connection.set_commit_hook(None)


async def test_a_call_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        await store.write("d", b"1")

        def broken(tx: object) -> None:
            raise ZeroDivisionError

        results = await asyncio.gather(
            store.enqueue([NewJob("q")]),
            store.write("d", b"2", version=7),
            store._writer.run(broken),
            store.enqueue([NewJob("new-queue")]),
            return_exceptions=True,
        )
        assert isinstance(results[1], VersionConflict)
        assert isinstance(results[2], ZeroDivisionError)
        stats = await store.stats()
        assert stats.queues["q"].ready == stats.queues["new-queue"].ready == 1
        assert await store.enqueue([NewJob("new-queue")]), "its number was not lost with the transaction that failed"


async def test_a_cancelled_take_gives_its_jobs_back_at_once(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        await store.enqueue([NewJob("q")])
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        take = asyncio.create_task(store.take("q", 1))
        await asyncio.sleep(0)
        await asyncio.to_thread(_until_blocked, store)
        take.cancel()  # the thread is at it and will take the job for a caller that is gone
        await asyncio.gather(take, return_exceptions=True)
        other.execute("COMMIT")
        other.close()
        async with asyncio.timeout(10):
            assert await store.wait(["q"], 5)
        [job] = await store.take("q", 1)
        assert job.attempts == 0, "no caller ever saw the first lease"
        assert await store.settle([Done(job.lease)]) == []


@pytest.mark.parametrize(("query", "durable"), [("", True), ("?durability=fast", False)])
async def test_durable_by_default_and_faster_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, durable: bool
) -> None:
    synced: list[str] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    async with await opened(tmp_path / "a.db", query) as store:
        await store.stats()
        synced.clear()
        for _ in range(3):
            await store.enqueue([NewJob("q")])
        assert synced == (["a.db-wal"] * 3 if durable else [])
        assert store._writer._connection.pragma("journal_mode") == "wal"


async def test_a_lock_held_by_another_program_is_waited_for(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        enqueue = asyncio.create_task(store.enqueue([NewJob("q")]))
        await asyncio.to_thread(_until_blocked, store)
        assert not enqueue.done()
        other.execute("COMMIT")
        assert len(await enqueue) == 1
        other.close()


def _until_blocked(store: SqliteStorage) -> None:
    """The writer has fetched the call and is now at the lock."""
    while not store._writer._calls.empty():
        os.sched_yield()


async def test_a_lock_that_never_ends_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOCK_PATIENCE", 0.05)
    async with await opened(tmp_path / "q.db") as store:
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable, match="stayed locked by another process"):
            await store.enqueue([NewJob("q")])
        other.execute("COMMIT")
        other.close()
        await store.enqueue([NewJob("q")])
        assert (await store.stats()).queues["q"].ready == 1


async def test_a_file_that_was_deleted_under_us_acknowledges_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as store:
        await store.enqueue([NewJob("q")])
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StorageUnavailable, match="was removed or replaced while it was open"):
            await store.enqueue([NewJob("q")])


FILL_THE_DISK = """
import asyncio, pathlib, subprocess, sys
from accoda import NewJob, StorageFull, open_storage
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "accoda", sys.argv[1]], check=True)
ballast = pathlib.Path(sys.argv[1], "ballast")
ballast.write_bytes(bytes(65536))
async def main():
    acknowledged = 0
    async with await open_storage(f"sqlite:///{sys.argv[1]}/q.db") as store:
        try:
            while True:
                await store.enqueue([NewJob("q", bytes(5000)) for _ in range(7)])
                acknowledged += 7
        except StorageFull as error:
            print(error)
        print("kept", (await store.stats()).queues["q"].ready == acknowledged > 0)
        ballast.unlink()
        jobs = await store.take("q", 1)
        print("goes on", len(jobs))
asyncio.run(main())
"""


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode:
        pytest.skip("needs `unshare -rm` for a small disk of its own")
    told = subprocess.run(
        [unshare, "-rm", sys.executable, "-c", FILL_THE_DISK, str(tmp_path)], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert lines[0].startswith("no space left for ")
    assert lines[1] == "kept True"


async def test_full_is_told_whatever_the_disk(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        store._writer._connection.execute("PRAGMA max_page_count = 60")
        acknowledged = 0
        with pytest.raises(StorageFull, match="no space left"):
            while True:
                await store.enqueue([NewJob("q", bytes(3000)) for _ in range(3)])
                acknowledged += 3
        stats = (await store.stats()).queues["q"]
        assert stats.ready == acknowledged > 0
        jobs = await store.take("q", 10)
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert (await store.enqueue([NewJob("q")]))[0].what == "created", "there is room again"
