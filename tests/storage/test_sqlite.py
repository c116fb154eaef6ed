"""What is special about the SQLite storage: commits that are shared, files that are not right, disks that are full."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import apsw
import pytest

from accoda import (
    Done,
    InvalidInput,
    ManualClock,
    NewJob,
    NotADatabase,
    SchemaMismatch,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    VersionConflict,
    open_storage,
)
from accoda.storage.sqlite import connection, sync
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.storage.sqlite.transaction import SQL


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
        take.cancel()  # the thread is at it and will take the job for nobody
        await asyncio.gather(take, return_exceptions=True)
        other.execute("COMMIT")
        other.close()
        async with asyncio.timeout(10):
            assert await store.wait(["q"], 5)
        [job] = await store.take("q", 1)
        assert job.attempts == 0, "nobody ever saw the first lease"
        assert await store.settle([Done(job.lease)]) == []


@pytest.mark.parametrize(("query", "durable"), [("", True), ("?durability=fast", False)])
async def test_durable_by_default_and_faster_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, durable: bool
) -> None:
    synced: list[str] = []
    real = sync._sync_data

    def counted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(sync, "_sync_data", counted)
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
    monkeypatch.setattr(connection, "LOCK_PATIENCE", 0.05)
    async with await opened(tmp_path / "q.db") as store:
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageUnavailable, match="stayed locked by another process"):
            await store.enqueue([NewJob("q")])
        other.execute("COMMIT")
        other.close()
        await store.enqueue([NewJob("q")])
        assert (await store.stats()).queues["q"].ready == 1


async def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as store:
        await store.enqueue([NewJob("q")])
    raw = apsw.Connection(str(path))
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=r"newer Accoda \(layout 99.*pip install --upgrade accoda"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 1000)
    with pytest.raises(NotADatabase, match="not an SQLite database; choose another file"):
        await opened(path)
    assert path.read_text() == "Dear diary, " * 1000


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    raw = apsw.Connection(str(path))
    raw.execute("CREATE TABLE orders (id)")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase, match="another program"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_missing_folder_and_a_folder_as_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"there is no folder .*nowhere; create it"):
        await opened(tmp_path / "nowhere" / "q.db")
    with pytest.raises(NotADatabase, match="is a folder; name a file in it"):
        await opened(tmp_path)


async def test_a_file_that_was_deleted_under_us_acknowledges_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as store:
        await store.enqueue([NewJob("q")])
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StorageUnavailable, match="was removed or replaced while it was open"):
            await store.enqueue([NewJob("q")])


OPEN_AND_TELL = """
import asyncio, concurrent.futures.thread, os, sys
import accoda.storage.sqlite.open  # now: the other user may not be allowed to read Python itself
from accoda import NewJob, open_storage
if os.geteuid() == 0:  # rights do not bind root
    os.setgid(65534); os.setuid(65534)
async def main():
    try:
        async with await open_storage(sys.argv[1]) as store:
            await store.enqueue([NewJob("q")])
    except Exception as error:
        print(type(error).__name__, error)
asyncio.run(main())
"""


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that another user can reach."""
    folder = tmp_path_factory.mktemp("rights")
    for parent in (folder, *folder.parents):
        if parent.owner() != "root" or parent.stat().st_mode & 0o777 == 0o700:
            parent.chmod(parent.stat().st_mode | 0o055)
    return folder


async def test_a_read_only_folder_and_a_read_only_file_are_told(open_folder: Path) -> None:
    path = open_folder / "q.db"
    async with await opened(path):
        pass
    path.chmod(0o444)
    open_folder.chmod(0o777)
    told = subprocess.run([sys.executable, "-c", OPEN_AND_TELL, f"sqlite:///{path}"], capture_output=True, text=True)
    assert told.stdout.startswith(StorageReadOnly.__name__), told
    assert "cannot be written by this user" in told.stdout
    open_folder.chmod(0o555)
    told = subprocess.run([sys.executable, "-c", OPEN_AND_TELL, f"sqlite:///{path}"], capture_output=True, text=True)
    assert told.stdout.startswith(StorageReadOnly.__name__), told
    assert f"the folder {open_folder} cannot be written" in told.stdout
    open_folder.chmod(0o755)


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


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "name a file"),
        ("sqlite:///", "name a file"),
        ("sqlite://host/q.db", "name a file"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///q.db?durabilty=fast", "has no option 'durabilty'; it takes durability"),
        ("sqlite:///q.db?durability=yes", "option durability must be full or fast, not 'yes'"),
        ("memory://?x=1", "has no option 'x'; it takes none"),
        ("memory://name", "takes no name"),
        ("mysql://localhost", "there is no storage for mysql://; use one of memory://, sqlite://"),
        ("q.db", "must look like sqlite:///jobs.db, not 'q.db'"),
        (None, "must look like sqlite:///jobs.db, not None"),
    ],
)
async def test_a_url_that_cannot_be_used_says_what_to_write(url: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await open_storage(url)
    assert message in str(caught.value)
    assert caught.value.field == "url"


async def test_a_relative_path_and_escaped_characters_are_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_storage("sqlite:///my%20queue%3F.db"):
        pass
    assert (tmp_path / "my queue?.db").exists()


async def test_a_file_keeps_everything_when_it_is_closed_and_opened(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path}/q.db"
    async with await open_storage(url, clock=clock) as store:
        await store.enqueue([NewJob("q", b"now", key="k", waiter=b"w", on_duplicate="attach"), NewJob("q", delay=5)])
        [job] = await store.take("q", 1)
        await store.pause("p")
        await store.write("d", b"v")
    assert not (tmp_path / "q.db-wal").exists(), "the last to close leaves one file"
    async with await open_storage(url, clock=clock) as store:
        assert (await store.stats()).queues["p"].paused
        assert await store.waiters(job.lease) == [b"w"]
        assert await store.settle([Done(job.lease, waiters=1)]) == []
        clock.advance(5)
        assert len(await store.take("q", 5)) == 1
        document = await store.read("d")
        assert document is not None and document.value == b"v"


async def test_a_look_waits_for_no_other_process_unless_something_is_due(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as store:
        (first, _) = await store.enqueue([NewJob("q", key="k", waiter=b"w"), NewJob("q", rank=-1, delay=5)])
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        for key in (None, "k"):
            seen = await store.peek("q", key, after=0)
            assert seen.job is not None
            assert (seen.job.id, seen.waiters) == (first.id, (b"w",))
        clock.advance(5)
        looking = asyncio.create_task(store.peek("q"))
        await asyncio.sleep(0.05)
        assert not looking.done(), "it has to write that the job has started"
        other.execute("COMMIT")
        seen = await looking
        assert seen.job is not None
        assert seen.job.rank == -1
        other.close()


async def test_no_statement_scans_or_sorts_the_jobs(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        for name, text in SQL.items():
            if name in ("browse_taken", "taken_before"):  # sort the taken jobs of one queue, which are few
                continue
            values = [1] * max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)
            if "carray" in text:
                values[0] = apsw.carray(array("q", [1]))
            plan = [row[3] for row in store._writer._connection.execute("EXPLAIN QUERY PLAN " + text, values)]
            bad = [step for step in plan if re.match(r"SCAN (jobs|waiters|documents)|USE TEMP B-TREE", step)]
            assert not bad, f"{name}: {plan}"


async def test_no_statement_is_compiled_again_for_other_values(tmp_path: Path) -> None:
    """SQLite would, where the plan may depend on a value that is bound: see QPSG in `connection.py`."""
    again: dict[str, int] = {}

    def note(event: dict[str, Any]) -> None:
        again[event["sql"]] = event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"]

    async with await opened(tmp_path / "q.db") as store:
        store._writer._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
        for number in range(3):
            jobs = [NewJob("q", rank=number), NewJob("q", key=str(number)), NewJob("q", delay=60 + number)]
            await store.enqueue(jobs)
            await store.wait(["q"], 0)
            taken = await store.take("q", 5)
            await store.extend([job.lease for job in taken], 60 + number)
            await store.settle([Done(job.lease) for job in taken])
            await store.stats()
        store._writer._connection.trace_v2(0, None)
    assert len(again) > 10
    assert {sql: times for sql, times in again.items() if times} == {}


async def test_a_log_in_doubt_is_written_again_as_it_was_before_anything_is_added(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/q.db", tmp_path / "q.db-wal"
    async with await open_storage(url) as store, await open_storage(url) as other:
        assert isinstance(store, SqliteStorage)
        await store.enqueue([NewJob("q", b"x" * 5000) for _ in range(300)])  # more than one piece of the log
        before = log.read_bytes()
        store._writer._sync.in_doubt = True
        [last] = await store.enqueue([NewJob("q")])
        assert not store._writer._sync.in_doubt
        assert log.read_bytes().startswith(before)
        assert len(await other.take("q", 500)) == last.id == 301
        assert await store.take("q", 1) == []
