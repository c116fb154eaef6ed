"""The engine refuses records that no Accoda wrote; texts that a bad disk has damaged stop no worker."""

from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from proof.damage.sqlite import ABSURD_NUMBERS, ABSURD_REALS, NUMBERS, set_column
from proof.damage.survival import REASON, survive

from accoda import ById, ByKey, Done, Head, ManualClock, NewJob, Store, open_storage
from accoda.model import REPORTS, Report

Q = "q"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


async def opened(path: Path, clock: ManualClock | None = None) -> Store:
    return await open_storage(f"sqlite:///{path}", clock=clock)


@pytest.mark.parametrize("seed", range(3))
async def test_thousands_of_damaged_records_lose_no_good_job_and_raise_nothing(path: Path, seed: int) -> None:
    clock = ManualClock(1_790_000_000_000)
    async with await opened(path, clock) as store:
        damaged, dead = await survive(store, clock, Random(seed), 3000)
    assert 600 < damaged < 1800, "texts and queues, and nothing else"
    assert any((job.reason or "").startswith(REASON) for job in dead)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *((column, value) for column in NUMBERS for value in ABSURD_NUMBERS),
        *((column, value) for column in ("rank", "sort", "keep_for") for value in ABSURD_REALS),
        *((column, "text") for column in (*NUMBERS, "state", "sort", "rank", "queue", "data", "id")),
        ("state", -2),
        ("state", -1),  # held, but of no lane
        ("state", 6),
        ("state", 3),  # dead, but never ended
        ("sort", 7.0),  # ready, but not at its rank
        ("keep_for", -1.0),
        ("data", None),
        ("reports_to", ""),
        ("lane", ""),
        ("id", 0),
        ("id", -1),
    ],
)
async def test_the_engine_refuses_a_record_that_no_accoda_wrote(path: Path, column: str, value: Any) -> None:
    async with await opened(path) as store:
        (new,) = await store.enqueue([NewJob(Q)])
        connection = apsw.Connection(str(path))
        assert not set_column(connection, column, value, new.id)
        connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE queues SET ready = -1",
        "UPDATE queues SET done = 9223372036854775807",
        "UPDATE queues SET paused = 2",
        "UPDATE queues SET held = -1",
        "UPDATE queues SET lanes = 'two'",
        "UPDATE counters SET value = -1",
        "UPDATE counters SET value = 9223372036854775807",
        "UPDATE documents SET version = 0",
        "UPDATE documents SET version = 9223372036854775807",
        "UPDATE documents SET expires_at = -1",
        "UPDATE waiters SET n = 0",
    ],
)
async def test_the_engine_refuses_impossible_numbers_beside_the_jobs(path: Path, statement: str) -> None:
    async with await opened(path) as store:
        await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
        await store.write("d", b"1")
        connection = apsw.Connection(str(path))
        with pytest.raises(apsw.ConstraintError):
            connection.execute(statement)
        connection.close()


async def test_a_job_whose_key_is_no_text_is_buried_and_the_next_is_given(path: Path) -> None:
    async with await opened(path) as store:
        bad, _ = await store.enqueue([NewJob(Q, b"bad", key="k", waiter=b"w"), NewJob(Q, b"good")])
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE jobs SET key = CAST(x'ff41' AS TEXT) WHERE id = ?", (bad.id,))
        connection.close()
        assert [job.data for job in await store.take(Q, 1)] == [b"good"]
        (dead,) = await store.browse(Q, "dead")
        assert (dead.id, dead.data, dead.key, dead.waiters) == (bad.id, b"bad", None, 1)
        assert dead.reason == "unreadable record: its key is b'\\xffA'"
        stats = (await store.stats()).queues[Q]
        assert (stats.ready, stats.taken, stats.dead, stats.buried) == (0, 1, 1, 1)


async def test_texts_that_are_none_are_shown_as_far_as_they_go(path: Path) -> None:
    async with await opened(path) as store:
        (new,) = await store.enqueue([NewJob(Q)])
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE jobs SET key = CAST(x'ff41' AS TEXT), worker = key, reason = CAST(x'42ff' AS TEXT)")
        connection.close()
        for target in (ById(new.id), Head(Q)):
            info = (await store.look(target)).job
            assert info is not None
            assert (info.key, info.reason) == ("\ufffdA", "B\ufffd")
        assert [job.id for job in await store.browse(Q, "ready")] == [new.id]
        assert (await store.look(ByKey(Q, "k"))).job is None


async def test_a_job_that_is_damaged_while_it_runs_spoils_no_batch(path: Path) -> None:
    async with await opened(path) as store:
        await store.enqueue([NewJob(Q, key=f"k{n}", keep_for=60.0) for n in range(3)])
        jobs = await store.take(Q, 3)
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE jobs SET key = CAST(x'ff' AS TEXT), worker = key WHERE id = ?", (jobs[1].id,))
        connection.close()
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert len(await store.browse(Q, "done")) == 3


@pytest.mark.parametrize("damaged", [b"\xff7", b"\x007", b"\xff" * 600])
async def test_a_flow_whose_name_is_damaged_spoils_no_batch(path: Path, damaged: bytes) -> None:
    async with await opened(path) as store:
        await store.enqueue([NewJob(Q, key=f"k{n}", reports_to="flow") for n in range(3)])
        jobs = await store.take(Q, 3)
        connection = apsw.Connection(str(path))
        assert set_column(connection, "reports_to", damaged, jobs[1].id)
        connection.close()
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        flows = [job.key for job in await store.browse(REPORTS, "ready")]
        assert flows == ["flow", damaged.decode("utf-8", "replace").replace("\0", "\ufffd")[:512]]


async def test_an_unreadable_job_that_is_buried_is_reported(path: Path) -> None:
    async with await opened(path) as store:
        (bad,) = await store.enqueue([NewJob(Q, key="k", reports_to="flow")])
        connection = apsw.Connection(str(path))
        assert set_column(connection, "key", b"\xff", bad.id)
        connection.close()
        assert await store.take(Q, 1) == []
        (report,) = [Report.read(each) for each in (await store.look(ByKey(REPORTS, "flow"), waiters_after=0)).waiters]
        assert (report.kind, report.id, report.body) == ("dead", bad.id, b"unreadable record: its key is b'\\xff'")


async def test_a_document_or_a_queue_whose_name_is_no_text_hides_no_other(path: Path) -> None:
    async with await opened(path) as store:
        await store.write("a", b"1")
        await store.write("b", b"2")
        await store.enqueue([NewJob(Q), NewJob("other")])
        connection = apsw.Connection(str(path))
        connection.execute("UPDATE documents SET name = CAST(x'ff' AS TEXT) WHERE name = 'a'")
        connection.execute("UPDATE queues SET name = CAST(x'ff' AS TEXT) WHERE name = 'other'")
        connection.close()
        assert [document.name for document in await store.documents("")] == ["b"]
        assert [*(await store.stats()).queues] == [Q, "\ufffd"]


async def test_a_job_of_a_queue_that_is_not_there_disturbs_none(path: Path) -> None:
    async with await opened(path) as store:
        stray, good = await store.enqueue([NewJob(Q), NewJob(Q)])
        connection = apsw.Connection(str(path))
        assert set_column(connection, "queue", 7_777, stray.id)
        connection.close()
        assert (await store.look(ById(stray.id))).job is None
        assert [job.id for job in await store.take(Q, 5)] == [good.id]
