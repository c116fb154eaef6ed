"""Opening a file: files that are not right are left alone, and the error says what to do."""

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from accoda import (
    ById,
    Done,
    ManualClock,
    NewJob,
    NotADatabase,
    SchemaMismatch,
    StorageReadOnly,
    StorageUnavailable,
    open_storage,
)
from accoda.storage.sqlite.connection import LAYOUT
from accoda.storage.sqlite.storage import SqliteStorage


async def opened(path: Path) -> SqliteStorage:
    store = await open_storage(f"sqlite:///{path}")
    assert isinstance(store, SqliteStorage)
    return store


async def test_many_that_open_a_new_file_at_once_make_its_layout_once(tmp_path: Path) -> None:
    stores = await asyncio.gather(*(opened(tmp_path / "q.db") for _ in range(8)))
    await asyncio.gather(*(store.enqueue([NewJob("q")]) for store in stores))
    assert (await stores[0].stats()).queues["q"].ready == 8
    assert stores[0]._writer._connection.pragma("user_version") == LAYOUT
    for store in stores:
        await store.close()


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


async def test_a_file_keeps_everything_when_it_is_closed_and_opened(tmp_path: Path) -> None:
    clock = ManualClock()
    url = f"sqlite:///{tmp_path}/q.db"
    async with await open_storage(url, clock=clock) as store:
        await store.enqueue([NewJob("q", b"now", key="k", waiter=b"w", on_duplicate="attach"), NewJob("q", delay=5)])
        [job] = await store.take("q", 1)
        await store.pause("p", None)
        await store.write("d", b"v")
    assert not (tmp_path / "q.db-wal").exists(), "the last to close leaves one file"
    async with await open_storage(url, clock=clock) as store:
        assert (await store.stats()).queues["p"].paused
        assert (await store.look(ById(job.id), waiters_after=0)).waiters == (b"w",)
        assert await store.settle([Done(job.lease, waiters=1)]) == []
        clock.advance(5)
        assert len(await store.take("q", 5)) == 1
        document = await store.read("d")
        assert document is not None and document.value == b"v"
