"""Files of older versions: they open, keep what is in them, and become what a new file is."""

import asyncio
from pathlib import Path

import apsw

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.storage.sqlite import connection
from accoda.storage.sqlite.storage import SqliteStorage

FIRST_LAYOUT_JOBS = """
INSERT INTO queues (no, name, ready, delayed, taken, dead) VALUES (1, 'q', 1, 1, 1, 1);
INSERT INTO jobs (id, queue, state, sort, attempts, waiters, rank, cost, key, created_at, start_time, keep_for, data,
                  ended_at, reason)
VALUES (1, 1, 0, 0.0,     2, 1, 0.0, 0, 'k',  1000, 1000, 0.0, x'01', NULL, NULL),
       (2, 1, 1, 90000.0, 1, 0, 0.0, 0, NULL, 1000, 90000, 0.0, x'02', NULL, NULL),
       (3, 1, 2, 60000.0, 3, 0, 0.0, 0, NULL, 1000, 1000, 0.0, x'03', NULL, NULL),
       (4, 1, 3, 1000.0,  5, 0, 0.0, 0, NULL, 1000, 1000, 0.0, x'04', 1000, 'broken');
INSERT INTO waiters VALUES (1, 1, x'77');
UPDATE counters SET value = 4 WHERE name = 'last_id';
"""


async def opened(path: Path) -> SqliteStorage:
    store = await open_storage(f"sqlite:///{path}")
    assert isinstance(store, SqliteStorage)
    return store


def file_of_the_first_layout(path: Path) -> None:
    """A store as the first version made it, with a job in each state but done."""
    raw = apsw.Connection(str(path))
    raw.execute(connection.MIGRATIONS[0])
    raw.execute(FIRST_LAYOUT_JOBS)
    raw.execute(f"PRAGMA user_version = 1; PRAGMA application_id = {connection.APPLICATION_ID}")
    raw.close()


async def test_a_file_of_the_first_layout_opens_and_works(tmp_path: Path) -> None:
    file_of_the_first_layout(tmp_path / "q.db")
    clock = ManualClock(50_000)
    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as store:

        async def past(id: int) -> tuple[str, int, int, int]:
            info = await store.find(id)
            assert info is not None
            return info.state, info.attempts, info.fresh_at, info.crashes

        assert [await past(id) for id in (1, 2, 3, 4)] == [
            ("ready", 2, 0, 0),
            ("delayed", 1, 0, 0),
            ("taken", 3, 0, 0),
            ("dead", 5, 0, 0),
        ]
        assert await store.revive([4]) == 1
        [new] = await store.enqueue([NewJob("q", key="k", on_duplicate="replace")])
        assert (new.id, new.what, new.waiters) == (1, "replaced", 1)
        clock.advance(10)
        assert [await past(id) for id in (1, 3, 4)] == [("ready", 2, 2, 0), ("ready", 4, 0, 1), ("ready", 6, 6, 0)]
        clock.advance(30)
        jobs = await store.take("q", 10)
        assert [job.data for job in jobs] == [b"", b"\x02", b"\x03", b"\x04"]
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert (await store.enqueue([NewJob("q")]))[0].id == 5
        assert (await store.stats()).queues["q"].total == 1


async def test_a_file_of_the_first_layout_becomes_what_a_new_file_is(tmp_path: Path) -> None:
    file_of_the_first_layout(tmp_path / "old.db")
    layouts = []
    for name in ("old.db", "new.db"):
        async with await opened(tmp_path / name) as store:
            raw = store._writer._connection
            layouts.append(
                (raw.pragma("user_version"), raw.execute("SELECT sql FROM sqlite_schema ORDER BY name").fetchall())
            )
    assert layouts[0] == layouts[1]
    assert layouts[0][0] == len(connection.MIGRATIONS)


async def test_many_who_open_a_file_of_the_first_layout_migrate_it_once(tmp_path: Path) -> None:
    file_of_the_first_layout(tmp_path / "q.db")
    stores = await asyncio.gather(*(opened(tmp_path / "q.db") for _ in range(8)))
    await asyncio.gather(*(store.enqueue([NewJob("q")]) for store in stores))
    # By the real clock all that was delayed or taken long ago is ready.
    stats = (await stores[0].stats()).queues["q"]
    assert (stats.ready, stats.dead, stats.total) == (11, 1, 12)
    for store in stores:
        await store.close()
