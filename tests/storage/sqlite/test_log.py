"""The log and the file stay small, however many jobs go through and however many readers there are."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from proof.powercut.growth import Growth, flow, size

from accoda import NewJob, open_storage
from accoda.storage.sqlite.storage import SqliteStorage

PAGE = 4096
AFTER = 100  # pages of log until a checkpoint: 4,000 in earnest, which would take longer


async def opened(path: Path) -> SqliteStorage:
    store = await open_storage(f"sqlite:///{path}")
    assert isinstance(store, SqliteStorage)
    store._writer.log.after = AFTER
    return store


async def sent(store: SqliteStorage, path: Path, jobs: int) -> list[Growth]:
    return await flow(store, path, jobs, backlog=1000, progress=lambda now: None, looks=10)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A second process that has a snapshot at every moment, though never one for long."""
    command = [sys.executable, str(Path(__file__).with_name("reader.py")), str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        yield
        assert reader.stdin is not None
        reader.stdin.close()
        assert reader.wait(30) == 0


async def test_the_log_and_the_file_stay_flat_with_a_constant_backlog(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as store:
        seen = await sent(store, path, 10_000)
    assert seen[-1].database <= 1.2 * seen[2].database
    assert seen[-1].log < 2 * AFTER * PAGE


async def test_they_stay_flat_while_another_process_reads_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as store:
        store._writer.log.patience = 20.0  # on a busy machine a reader may be stopped in its middle
        with reading(path):
            seen = await sent(store, path, 10_000)
    assert seen[-1].database <= 1.2 * seen[2].database
    assert seen[-1].log < 8 * AFTER * PAGE  # four times AFTER, then readers are waited for


async def test_two_storages_that_write_at_once_keep_the_log_short(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with await opened(path) as one, await opened(path) as two:
        seen = await asyncio.gather(sent(one, path, 8_000), sent(two, path, 8_000))
    assert max(each[-1].log for each in seen) < 18 * AFTER * PAGE  # they may be in each other's way a few times


async def test_a_reader_that_stays_makes_the_log_longer_and_its_end_makes_it_short_again(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    log = path.with_name("q.db-wal")
    async with await opened(path) as store:
        store._writer.log.patience = 0.01
        store._writer._connection.execute(f"PRAGMA journal_size_limit = {AFTER * PAGE}")
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
        await sent(store, path, 10_000)
        assert size(log) > 6 * AFTER * PAGE, "nothing may be thrown away that the reader can still ask for"
        reader.execute("COMMIT")
        reader.close()
        for _ in range(3):  # the first moves all of the log, the next begins it anew
            await store.enqueue([NewJob("q")])
        assert size(log) <= AFTER * PAGE
        assert (await store.stats()).queues["q"].ready == 1003


async def test_a_log_in_doubt_is_written_again_as_it_was_before_anything_is_added(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/q.db", tmp_path / "q.db-wal"
    async with await open_storage(url) as store, await open_storage(url) as other:
        assert isinstance(store, SqliteStorage)
        await store.enqueue([NewJob("q", b"x" * 5000) for _ in range(300)])  # more than one piece of the log
        before = log.read_bytes()
        store._writer.log.in_doubt = True
        [last] = await store.enqueue([NewJob("q")])
        assert not store._writer.log.in_doubt
        assert log.read_bytes().startswith(before)
        assert len(await other.take("q", 500)) == last.id == 301
        assert await store.take("q", 1) == []
