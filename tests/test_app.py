"""The app: handlers, enqueueing, results, progress, cancelling; through the public API."""

import asyncio
import concurrent.futures
import os
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accoda import (
    App,
    Batch,
    BuryJob,
    ById,
    Enqueued,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Priority,
    ResultTimeout,
    RetryLater,
    Revive,
    StorageError,
)
from accoda.clock import ManualClock


class Email(msgspec.Struct):
    to: str
    user_id: int = 0


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_the_url_is_the_argument_then_the_environment_then_a_file_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCODA_URL", raising=False)
    assert App().url == "sqlite:///accoda.db"
    monkeypatch.setenv("ACCODA_URL", "redis://there")
    assert App().url == "redis://there"
    assert App("memory://").url == "memory://"


async def test_a_handler_may_be_bare_or_called_and_can_still_be_called_plainly(app: App) -> None:
    @app.handler
    async def send(email: Email) -> str:
        """Send it."""
        return f"to {email.to}"

    @app.handler("reports", batch=5)
    def report(number: int) -> int:
        return number * 2

    assert send.queue == "send"
    assert report.queue == "reports"
    assert await send(Email("anna")) == "to anna"
    assert report(4) == 8
    assert send.__doc__ == "Send it."
    assert send.__name__ == "send"


async def test_single_and_batch_handlers_get_decoded_payloads(app: App) -> None:
    seen: list[object] = []

    @app.handler("single")
    async def single(email: Email) -> None:
        seen.append(email)

    @app.handler("batch")
    async def batch(batch: Batch[Email]) -> None:
        seen.append([(job.payload, job.attempts, job.prev_start_time) for job in batch])

    @app.handler("plain")
    async def plain(anything) -> None:  # type: ignore[no-untyped-def]
        seen.append(anything)

    @app.handler("nothing")
    async def nothing() -> None:
        seen.append("called")

    await single.enqueue(Email("anna"))
    await batch.enqueue_many([Email("ben"), Email("carla")])
    await app.enqueue("plain", {"any": [1, None]})
    await nothing.enqueue()
    assert await app.run_until_idle() == 5
    assert seen == [Email("anna"), [(Email("ben"), 0, None), (Email("carla"), 0, None)], {"any": [1, None]}, "called"]


async def test_enqueue_says_all_that_a_job_can_be(app: App) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    made = await app.enqueue("emails", Email("a"), priority=Priority.HIGH, delay=timedelta(minutes=1), cost=3)
    later = await app.enqueue("emails", Email("b"), at=soon, key="b", keep_for=60)
    again = await app.enqueue("emails", Email("b"), key="b")
    assert made.what == "created"
    assert again == Enqueued(later.id, "kept")
    first, second = (await app.storage.look(ById(made.id))).job, (await app.storage.look(ById(later.id))).job
    assert first is not None
    assert second is not None
    assert (first.rank, first.cost, first.state) == (1.0, 3, "delayed")
    assert second.start_time == round(soon.timestamp() * 1000)
    assert second.keep_for == 60


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay": -1}, "delay"),
        ({"delay": 1, "at": 5}, "at"),
        ({"at": datetime(2030, 1, 1)}, "at"),
        ({"priority": 9}, "priority"),
        ({"prioritty": 1}, "prioritty"),
        ({"cost": -1}, "cost"),
        ({"on_duplicate": "keep it", "key": "k"}, "on_duplicate"),
    ],
)
async def test_a_wrong_option_is_named_and_nothing_is_stored(app: App, options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.enqueue("emails", 1, **options)  # type: ignore[arg-type]
    assert refused.value.field == field
    assert (await app.storage.stats()).queues == {}


async def test_a_key_that_is_enqueued_again_may_change_the_priority(app: App) -> None:
    first = await app.enqueue("emails", Email("a"), key="a", priority=Priority.LOW)
    again = await app.enqueue("emails", Email("b"), key="a", priority=Priority.HIGH, on_duplicate="rerank")
    assert again == Enqueued(first.id, "kept")
    job = await app.find(first.id)
    assert job is not None
    assert (job.rank, b"b" in job.data) == (1.0, False)


async def test_an_aging_queue_ranks_by_time_and_level(app: App) -> None:
    @app.handler("old", policy="aging")
    async def old(n: int) -> None: ...

    job = (await app.storage.look(ById((await old.enqueue(1, priority=Priority.LOW)).id))).job
    assert job is not None
    assert job.rank == pytest.approx(job.created_at + 3_000_000, abs=2_000)


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"lease": 0},
        {"timeout": -1},
        {"max_attempts": 0},
        {"policy": "fair"},
        {"run_in": "moon"},
        {"bach": 3},
    ],
)
def test_a_wrong_option_of_a_handler_is_told_when_it_is_made(app: App, options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):

        @app.handler("emails", **options)  # type: ignore[arg-type]
        async def send(email: Email) -> None: ...


def test_a_queue_has_one_handler_and_a_handler_one_payload(app: App) -> None:
    @app.handler("emails")
    async def send(email: Email) -> None: ...

    with pytest.raises(InvalidInput, match="has a handler already"):

        @app.handler("emails")
        async def send_again(email: Email) -> None: ...

    with pytest.raises(InvalidInput, match="takes one payload, or one Batch"):

        @app.handler("two")
        async def two(a: int, b: int) -> None: ...


async def test_a_result_is_waited_for(app: App) -> None:
    @app.handler("sums", keep_for=60)
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    made = await add.enqueue([1, 2, 3])
    waiting = asyncio.create_task(app.result(made.id, timeout=5))
    await app.run_until_idle()
    assert await waiting == 6
    assert await app.result(made.id, type=float) == 6.0


async def test_a_result_that_cannot_come_is_told_at_once(app: App) -> None:
    @app.handler("sums")
    async def add(numbers: list[int]) -> int:
        raise BuryJob("cannot add")

    unkept = await add.enqueue([1])
    with pytest.raises(InvalidInput, match="keep_for"):
        await app.result(unkept.id, timeout=5)
    kept = await add.enqueue([1], keep_for=60)
    with pytest.raises(ResultTimeout, match="still ready"):
        await app.result(kept.id, timeout=0)
    await app.run_until_idle()
    with pytest.raises(JobFailed, match="cannot add"):
        await app.result(kept.id)
    with pytest.raises(JobNotFound):
        await app.result(10**9)


async def test_progress_is_told_from_inside_a_handler(app: App) -> None:
    @app.handler("long")
    async def long(n: int) -> None:
        await app.progress(0.5, "half of it")
        for _ in range(100):
            await app.progress(0.6)  # so soon after the first, not stored
        seen.append(await app.progress_of(app.current.id))
        await app.progress(1.0)

    seen: list[object] = []
    made = await long.enqueue(1)
    await app.run_until_idle()
    assert [(p.fraction, p.message) for p in seen] == [(0.5, "half of it")]  # type: ignore[attr-defined]
    last = await app.progress_of(made.id)
    assert last is not None
    assert last.fraction == 1.0
    with pytest.raises(InvalidInput, match="there is no job here"):
        await app.progress(0.1)


async def test_a_waiting_job_can_be_cancelled_and_an_ended_one_cannot(app: App) -> None:
    @app.handler("emails", keep_for=60)
    async def send(email: Email) -> None: ...

    first, second = await send.enqueue(Email("a")), await send.enqueue(Email("b"))
    assert await app.cancel(first.id)
    assert not await app.cancel(first.id)
    job = await app.find(first.id)
    assert job is not None and job.state == "cancelled"
    with pytest.raises(JobCancelled, match=f"job {first.id} was cancelled"):
        await app.result(first.id)
    assert await app.run_until_idle() == 1
    assert not await app.cancel(second.id)


async def test_follow_ups_are_stored_in_the_step_that_ends_the_job(app: App) -> None:
    @app.handler("first")
    async def first(n: int) -> None:
        app.current.enqueue("second", n + 1)
        if n < 0:
            raise BuryJob("no")

    @app.handler("batches")
    async def batches(batch: Batch[int]) -> None:
        batch.enqueue("second", sum(job.payload for job in batch))

    await first.enqueue(1)
    await first.enqueue(-5)
    await batches.enqueue_many([10, 20])
    await app.run_until_idle(["first", "batches"])
    jobs = await app.storage.browse("second", "ready")
    assert [msgspec.msgpack.decode(job.data) for job in jobs] == [2, 30]


async def test_a_batch_says_what_becomes_of_each_job(app: App) -> None:
    @app.handler("mixed", keep_for=60)
    async def mixed(batch: Batch[str]) -> None:
        for job in batch:
            match job.payload:
                case "done":
                    batch.done(job, "fine")
                case "retry":
                    batch.retry(job, delay=30, reason="later")
                case "bury":
                    batch.bury(job, "bad")

    ids = [made.id for made in await mixed.enqueue_many(["done", "retry", "bury", "silent"])]
    await app.run_until_idle()
    states = [job.state for id in ids if (job := await app.find(id)) is not None]
    assert states == ["done", "delayed", "dead", "done"]
    assert await app.result(ids[0]) == "fine"


async def test_what_a_batch_left_unsaid_is_retried_when_it_raises(app: App) -> None:
    @app.handler("mixed", retry=60)
    async def mixed(batch: Batch[int]) -> None:
        batch.done(batch[0])
        batch.enqueue("never", 1)
        raise ValueError("in the middle")

    ids = [made.id for made in await mixed.enqueue_many([1, 2, 3])]
    await app.run_until_idle()
    assert await app.find(ids[0]) is None
    for id in ids[1:]:
        job = await app.find(id)
        assert job is not None
        assert (job.state, job.attempts, job.reason) == ("delayed", 1, "ValueError: in the middle")
    assert "never" not in (await app.storage.stats()).queues


async def test_a_payload_that_does_not_decode_is_buried_alone(app: App) -> None:
    seen: list[str] = []

    @app.handler("emails")
    async def send(batch: Batch[Email]) -> None:
        seen.extend(job.payload.to for job in batch)

    plain = App("memory://")
    plain.connections = app.connections
    await plain.enqueue("emails", {"to": "anna"})
    bad = await plain.enqueue("emails", {"to": "ben", "user_id": "seven"})
    await plain.enqueue("emails", {"to": "carla"})
    await app.run_until_idle()
    assert seen == ["anna", "carla"]
    job = await app.find(bad.id)
    assert job is not None
    assert job.state == "dead"
    assert job.attempts == 0
    assert "user_id must be an integer" in (job.reason or "")


async def test_a_single_handler_steers_by_what_it_raises(app: App) -> None:
    @app.handler("numbers", retry=5, max_attempts=2)
    async def numbers(n: int) -> None:
        if n == 1:
            raise RetryLater("not now", delay=3600)
        if n == 2:
            raise BuryJob("never")
        raise KeyError(n)

    with app.testing() as trial:
        ids = [made.id for made in await numbers.enqueue_many([1, 2, 3])]
        await app.run_until_idle()
        states = [job.state for id in ids if (job := await app.find(id)) is not None]
        assert states == ["delayed", "dead", "delayed"]
        trial.advance(5)
        await app.run_until_idle()
        dead = trial.assert_dead("numbers", "failed 2 times, the last time with KeyError: 3")
        assert dead.id == ids[2]


async def test_a_revived_job_has_all_its_attempts_again(app: App) -> None:
    @app.handler("emails", retry=0, max_attempts=2)
    async def send(email: Email) -> None:
        raise ValueError("down")

    with app.testing() as trial:
        made = await send.enqueue(Email("a"))
        await app.run_until_idle()
        assert len(trial.runs()) == 2
        await app.storage.change([Revive(made.id)])
        await app.run_until_idle()
        assert [run.attempts for run in trial.runs()] == [0, 1, 2, 3]


async def test_middleware_goes_around_every_batch() -> None:
    told: list[object] = []

    async def outer(batch, run):  # type: ignore[no-untyped-def]
        told.append(("outer", batch.queue, len(batch)))
        await run(batch)
        told.append("outer after")

    async def inner(batch, run):  # type: ignore[no-untyped-def]
        told.append("inner")
        await run(batch)

    app = App("memory://", middleware=[outer, inner])

    @app.handler("emails")
    async def send(email: Email) -> None:
        told.append(email.to)

    await send.enqueue(Email("anna"))
    await app.run_until_idle()
    assert told == [("outer", "emails", 1), "inner", "anna", "outer after"]


async def test_a_middleware_that_raises_fails_the_batch(app: App) -> None:
    async def refuse(batch, run):  # type: ignore[no-untyped-def]
        raise RuntimeError("not today")

    app.middleware = (refuse,)

    @app.handler("emails", retry=60)
    async def send(email: Email) -> None:
        raise AssertionError("never called")

    made = await send.enqueue(Email("a"))
    await app.run_until_idle()
    job = await app.find(made.id)
    assert job is not None
    assert (job.state, job.reason) == ("delayed", "RuntimeError: not today")


def test_each_event_loop_gets_a_connection_of_its_own_and_memory_is_shared(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/jobs.db", "memory://"):
        app = App(url)

        async def once(app: App = app) -> int:
            made = await app.enqueue("emails", 1)
            await app.close()
            return made.id

        assert [asyncio.run(once()), asyncio.run(once())] == [1, 2]


async def test_the_first_callers_share_one_connection(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    stores = await asyncio.gather(*(app.connections.get() for _ in range(20)))
    assert len({id(store) for store in stores}) == 1
    await app.close()


def test_the_sync_face_does_the_same(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.handler("sums", keep_for=60)
    def add(numbers: list[int]) -> int:
        app.sync.progress(0.5)
        return sum(numbers)

    made = app.sync.enqueue("sums", [1, 2], priority=Priority.LOW)
    app.sync.enqueue_many("sums", [[3], [4]])
    assert app.sync.run_until_idle() == 3
    assert app.sync.result(made.id) == 3
    assert app.sync.progress_of(made.id) is not None
    assert app.sync.run(app.storage.stats()).queues["sums"].done == 3
    app.sync.close()
    assert app.sync.find(made.id) is not None  # it starts again
    app.sync.close()


def test_the_sync_face_raises_what_the_call_raised() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    app = App("memory://")
    with pytest.raises(InvalidInput, match="queue"):
        app.sync.enqueue("no name", 1)
    with pytest.raises(concurrent.futures.CancelledError):
        app.sync.run(cancelled())
    assert app.sync.enqueue("emails", 1).what == "created"
    app.sync.close()


def test_many_threads_share_the_sync_face_and_each_gets_its_own_answer() -> None:
    async def echo(number: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return number, who.get()

    def ask(number: int) -> tuple[int, str]:
        who.set(f"thread {number}")
        return app.sync.run(echo(number))

    who: ContextVar[str] = ContextVar("who")
    app = App("memory://")
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(200))) == [(number, f"thread {number}") for number in range(200)]
    app.sync.close()


def test_the_sync_face_runs_on_uvloop_where_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    app = App("memory://")
    assert isinstance(app.sync.run(loop()), uvloop.Loop)
    app.sync.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_sync_face_survives_a_fork(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.sync.enqueue("emails", 1)
    child = os.fork()
    if child == 0:
        try:
            app.sync.enqueue("emails", 2)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert app.sync.run(app.storage.stats()).queues["emails"].ready == 2
    app.sync.close()


async def test_a_caller_that_is_cancelled_does_not_cancel_the_others(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    first = asyncio.create_task(app.enqueue("emails", 1))
    second = asyncio.create_task(app.enqueue("emails", 2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).what == "created"
    await app.close()


async def test_a_store_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/folder/jobs.db")
    for _ in range(2):
        with pytest.raises(StorageError):
            await app.enqueue("emails", 1)
    (tmp_path / "folder").mkdir()
    assert (await app.enqueue("emails", 1)).id == 1
    await app.close()


async def test_the_storage_connects_on_first_use_and_has_only_its_verbs(app: App) -> None:
    assert (await app.storage.stats()).queues == {}
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        app.storage.frobnicate  # type: ignore[attr-defined]  # noqa: B018


_SAID: list[dict[str, Any]] = [
    {},
    {"priority": Priority.HIGH, "delay": 5, "cost": 3},
    {"at": 1_900_000_000_000, "keep_for": 60.0},
    {"name": "Report", "max_attempts": 2, "webhook": "https://example.com/end"},
]


@pytest.mark.parametrize("said", _SAID)
@pytest.mark.parametrize("made", [{}, {"policy": "aging", "cost": "pages", "keep_for": 9.0, "secret": ("card",)}])
async def test_jobs_enqueued_together_are_like_jobs_enqueued_one_by_one(
    said: dict[str, Any], made: dict[str, Any]
) -> None:
    app = App("memory://", clock=ManualClock())
    app.handler("reports", **made)(_read_report)
    payloads = [{"pages": n, "card": f"4111 {n}"} for n in range(3)]
    together = await app.enqueue_many("reports", payloads, **said)
    apart = [await app.enqueue("reports", payload, **said) for payload in payloads]
    async with app.storage as store:
        for one, other in zip(together, apart, strict=True):
            first, second = (await store.look(ById(one.id))).job, (await store.look(ById(other.id))).job
            assert first is not None and second is not None
            assert msgspec.structs.replace(first, id=second.id) == second


async def _read_report(report: dict[str, Any]) -> None:
    pass


async def test_the_payload_that_cannot_be_stored_is_named_wherever_it_stands() -> None:
    app = App("memory://")
    for wrong in (0, 1, 4):
        payloads: list[object] = [object() if n == wrong else n for n in range(5)]
        with pytest.raises(InvalidInput, match=rf"payloads\[{wrong}\]: cannot be stored.*none was enqueued"):
            await app.enqueue_many("emails", payloads)
    assert "emails" not in (await app.storage.stats()).queues
