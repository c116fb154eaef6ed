"""Looks at a store that another process writes; what a purge costs."""

import asyncio
from pathlib import Path

import apsw

from accoda import ByKey, Head, ManualClock, NewJob, open_storage
from accoda.model import REPORTS
from accoda.storage.sqlite.storage import SqliteStorage


async def test_a_look_waits_for_no_other_process_unless_something_is_due(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as store:
        (first, _) = await store.enqueue([NewJob("q", key="k", waiter=b"w"), NewJob("q", rank=-1, delay=5)])
        other = apsw.Connection(str(tmp_path / "q.db"))
        other.execute("BEGIN IMMEDIATE")
        for target in (Head("q"), ByKey("q", "k")):
            seen = await store.look(target, waiters_after=0)
            assert seen.job is not None
            assert (seen.job.id, seen.waiters) == (first.id, (b"w",))
        clock.advance(5)
        looking = asyncio.create_task(store.look(Head("q")))
        await asyncio.sleep(0.05)
        assert not looking.done(), "it has to write that the job has started"
        other.execute("COMMIT")
        seen = await looking
        assert seen.job is not None
        assert seen.job.rank == -1
        other.close()


async def test_a_purge_of_many_jobs_that_do_not_report_runs_few_statements(tmp_path: Path) -> None:
    statements: list[str] = []
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        assert isinstance(store, SqliteStorage)
        members = [NewJob("q", key=f"k{n}", reports_to="flow") for n in range(2)]
        await store.enqueue([*members, *(NewJob("q") for _ in range(500))])
        store._writer._connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(event["sql"]))
        assert await store.purge("q", "ready") == 502
        store._writer._connection.trace_v2(0, None)
        assert len((await store.look(ByKey(REPORTS, "flow"), waiters_after=0)).waiters) == 2
    assert sum("DELETE FROM jobs" in each for each in statements) == 1
    assert len(statements) < 25
