"""Records of a SQLite file that cannot be read stop nobody, and are set aside where people find them."""

from collections import Counter
from pathlib import Path

import apsw
import pytest

from accoda import Done, ManualClock, NewJob, open_storage
from accoda.testing.damage.checks import Q, check_documents, check_good_jobs_are_done


def counted(path: Path) -> Counter[str]:
    names = ("ready", "delayed", "taken", "dead")
    with apsw.Connection(str(path)) as raw:
        found = dict(raw.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
    assert set(found) <= set(range(5)), "a record is in no state"
    return Counter({name: found.get(number, 0) for number, name in enumerate(names)})


@pytest.mark.parametrize("seed", range(3))
async def test_good_jobs_are_done_among_thousands_of_damaged_records(tmp_path: Path, seed: int) -> None:
    clock = ManualClock(1_790_000_000_000)

    async def advance(seconds: float) -> None:
        clock.advance(seconds)

    async with await open_storage(f"sqlite:///{tmp_path}/q.db", clock=clock) as store:
        stats = await check_good_jobs_are_done(store, advance, seed)
    assert counted(tmp_path / "q.db") == stats


async def test_documents_that_cannot_be_read_are_none_and_can_be_written_anew(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        await check_documents(store)


async def test_a_key_whose_holder_cannot_be_read_is_free(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE jobs SET waiters = 9223372036854775807, attempts = 9223372036854775807")
        new = NewJob(Q, b"new", key="k", waiter=b"v", on_duplicate="attach")
        assert [each.what for each in await store.enqueue([new, new])] == ["created", "attached"]
        (job,) = await store.take(Q, 9)
        assert (job.data, await store.waiters(job.lease)) == (b"new", [b"v", b"v"])


async def test_counters_that_cannot_be_right_are_counted_anew(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        await store.enqueue([NewJob(Q) for _ in range(5)])
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE queues SET ready = -7, taken = 9223372036854775807, done = 9223372036854775807")
        jobs = await store.take(Q, 2)
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        stats = (await store.stats()).queues[Q]
        assert (stats.ready, stats.taken, stats.total) == (3, 0, 3)


async def test_a_job_that_is_damaged_while_it_runs_spoils_no_batch(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        await store.enqueue([NewJob(Q, keep_for=60.0) for _ in range(5)])
        jobs = await store.take(Q, 5)
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE jobs SET keep_for = 1e999 WHERE id = ?", (jobs[0].id,))
            raw.execute("UPDATE jobs SET attempts = -1 WHERE id = ?", (jobs[1].id,))
            raw.execute("UPDATE jobs SET state = 9 WHERE id = ?", (jobs[2].id,))
            raw.execute("UPDATE jobs SET keep_for = -1e999 WHERE id = ?", (jobs[3].id,))
        refused = await store.settle([Done(job.lease) for job in jobs])
        assert [each.lease.id for each in refused] == [jobs[1].id, jobs[2].id]
        info = await store.find(jobs[2].id)
        assert info is not None
        assert (info.state, info.reason) == ("dead", "unreadable record: state is 9")


async def test_a_look_passes_over_what_cannot_be_read(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        number, text, good = await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q, key="l")])
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE jobs SET attempts = -1 WHERE id = ?", (number.id,))
            raw.execute("UPDATE jobs SET key = CAST(x'ff' AS TEXT) WHERE id = ?", (text.id,))
        seen = await store.peek(Q)
        assert seen.job is not None
        assert seen.job.id == good.id
        dead = {job.id: (job.reason, job.waiters) for job in await store.browse(Q, "dead")}
        assert dead == {
            number.id: ("unreadable record: attempts is -1", 1),
            text.id: ("unreadable record: key is no text", 0),
        }
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE jobs SET state = -1 WHERE id = ?", (good.id,))
        assert (await store.peek(Q, "l", after=0)).job is None, "who cannot be read holds nothing"
        assert (await store.stats()).queues[Q].dead == 3


async def test_a_job_that_cannot_be_read_is_not_dropped(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        (bad,) = await store.enqueue([NewJob(Q, key="k", waiter=b"w")])
        with apsw.Connection(str(tmp_path / "q.db")) as raw:
            raw.execute("UPDATE jobs SET waiters = -1")
        assert not await store.drop(Q, bad.id, 9), "nobody knows how many wait for it"
        info = await store.find(bad.id)
        assert info is not None
        assert (info.state, info.waiters) == ("dead", 1)
