"""The statements of the SQLite storage: what they cost, and that a batch is exactly the jobs that it names."""

import re
from array import array
from pathlib import Path
from typing import Any

import apsw

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.storage.sqlite.transaction import SQL


async def opened(path: Path) -> SqliteStorage:
    store = await open_storage(f"sqlite:///{path}")
    assert isinstance(store, SqliteStorage)
    return store


async def test_no_statement_scans_or_sorts_the_jobs(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        for name, text in SQL.items():
            if name in ("taken_by_id", "worst_ready"):  # sort the taken jobs of a queue, or as many as a limit: few
                continue
            values: list[Any] = [1] * max((int(number) for number in re.findall(r"\?(\d+)", text)), default=0)
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


async def test_a_counter_that_is_too_low_does_not_stop_the_queue(tmp_path: Path) -> None:
    async with await opened(tmp_path / "q.db") as store:
        await store.enqueue([NewJob("q") for _ in range(5)])
        store._writer._connection.execute("UPDATE queues SET ready = 1")
        jobs = await store.take("q", 5)
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        stats = (await store.stats()).queues["q"]
        assert (stats.ready, stats.taken, stats.done) == (0, 0, 5)


async def test_an_id_is_never_given_twice_though_the_counter_was_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as store:
        assert isinstance(store, SqliteStorage)
        await store.enqueue([NewJob("q") for _ in range(5)])
        store._writer._connection.execute("UPDATE counters SET value = 0")
        assert (await store.enqueue([NewJob("q")]))[0].id == 6
