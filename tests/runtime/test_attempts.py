"""Notes of failed runs: for people, bounded, without secrets, and nothing waits for them."""

import msgspec
import pytest

from accoda import App, Batch, BuryJob, ManualClock, RetryLater, Worker, WorkerOptions
from accoda.errors import InvalidInput, JobNotFound, StorageUnavailable
from accoda.masking import Mask
from accoda.model import ById
from accoda.operations import jobs
from accoda.operations.new_jobs import NewJobRequest
from accoda.runtime.attempts import A_SECOND, BUFFER, LONGEST, MOST, PREFIX, read_attempts, trace_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(clock):
    async with App("memory://", clock=clock) as app:
        yield app


async def test_a_failed_run_is_noted_with_its_traceback(app, clock):
    @app.handler("a", retry=5)
    async def a(payload: dict) -> None:
        deep(payload["n"])

    def deep(n):
        raise ValueError(f"no user {n}")

    made = await a.enqueue({"n": 7})
    await app.run_until_idle()
    [run] = await jobs.failed_runs(app, made.id)
    assert (run.attempt, run.attempt_text) == (0, "attempt 1")
    assert (run.outcome, run.error) == ("retry", "ValueError: no user 7")
    assert run.worker and run.started_at <= run.ended_at and run.ran_for >= 0
    assert run.traceback.startswith("Traceback") and "in deep" in run.traceback
    assert run.traceback.endswith("ValueError: no user 7\n") and "runners" not in run.traceback


async def test_the_last_ten_runs_are_kept(app, clock):
    @app.handler("a", retry=1, max_attempts=13)
    async def a() -> None:
        raise KeyError("x")

    made = await a.enqueue()
    for _ in range(13):
        await app.run_until_idle()
        clock.advance(2)
    found = await jobs.failed_runs(app, made.id)
    assert [run.attempt for run in found] == list(range(3, 13)) and len(found) == MOST
    assert [run.outcome for run in found] == ["retry"] * 9 + ["bury"]
    assert found[-1].error.startswith("failed 13 times")


async def test_a_job_that_is_done_leaves_no_note(app):
    @app.handler("a")
    async def a() -> None: ...

    made = await a.enqueue(keep_for=60)
    await app.run_until_idle()
    assert await jobs.failed_runs(app, made.id) == [] == await app.storage.documents(PREFIX)


async def test_what_was_said_and_not_raised_has_no_traceback(app):
    @app.handler("a")
    async def a(batch: Batch) -> None:
        batch.bury(batch[0], "of no use")

    @app.handler("b")
    async def b() -> None:
        raise RetryLater("not yet", delay=9)

    first, second = await app.enqueue("a"), await app.enqueue("b")
    await app.run_until_idle()
    [said], [raised] = await jobs.failed_runs(app, first.id), await jobs.failed_runs(app, second.id)
    assert (said.outcome, said.error, said.traceback) == ("bury", "of no use", "")
    assert raised.outcome == "retry" and "RetryLater" in raised.traceback


async def test_nothing_secret_is_noted(app):
    class Card(msgspec.Struct, array_like=True):
        number: str
        pin: str

    @app.handler("a", secret=("number",))
    async def a(card: Card) -> None:
        raise ValueError(f"card {card.number} with {card.pin} refused")

    @app.handler("b")
    async def b(payload: dict) -> None:
        raise ValueError(f"key {payload['token']} refused")

    made = await a.enqueue(Card("4111 1111 1111 1111", "98765"))
    [other] = await jobs.create(
        app, [NewJobRequest(queue="b", payload={"token": "sesame-open"}, secret_fields=("token",))]
    )
    await app.run_until_idle()
    stored = b"".join([document.value for document in await app.storage.documents(PREFIX)])
    assert b"4111" not in stored and b"sesame" not in stored and b"98765" in stored
    [run], [second] = await jobs.failed_runs(app, made.id), await jobs.failed_runs(app, other.id)
    assert "card ••• with 98765" in run.traceback and "key ••• refused" in second.error


async def test_a_storm_of_failures_is_cut_short(app, clock):
    @app.handler("a", retry=60, batch=100)
    async def a() -> None:
        raise ValueError("no")

    await app.enqueue_many("a", [None] * (BUFFER + 500))
    worker = Worker(app, WorkerOptions(burst=True, managed=False))
    await worker.run()
    assert worker._ready_context().attempts.dropped >= 500 - 3 * A_SECOND
    assert A_SECOND <= len(await app.storage.documents(PREFIX)) <= 5 * A_SECOND


async def test_a_very_long_error_is_cut(app):
    @app.handler("a", retry=60)
    async def a() -> None:
        raise ValueError("x" * 100_000)

    made = await a.enqueue()
    await app.run_until_idle()
    [long] = await jobs.failed_runs(app, made.id)
    assert len(long.traceback) == LONGEST and len(long.error) <= LONGEST


def test_an_error_that_cannot_be_shown_has_a_trace_all_the_same():
    class Rude(Exception):
        def __str__(self):
            raise SystemError("I am not to be shown")

    try:
        raise Rude
    except Rude as error:
        assert "Rude" in trace_of(error)


async def test_a_store_that_is_away_drops_notes_and_stops_nothing(app, monkeypatch):
    @app.handler("a", retry=60)
    async def a() -> None:
        raise ValueError("no")

    made = await a.enqueue()
    store = await app.connections.get()
    write = store.write

    async def away(name, value, **more):
        if name.startswith(PREFIX):
            raise StorageUnavailable("away")
        return await write(name, value, **more)

    store.write = away
    await app.run_until_idle()
    store.write = write
    job = (await store.look(ById(made.id))).job
    assert job is not None and job.state == "delayed" and await read_attempts(store, made.id) == []


async def test_runs_of_a_job_that_is_gone_are_still_there(app):
    @app.handler("a")
    async def a() -> None:
        raise BuryJob("no use")

    made = await a.enqueue()
    await app.run_until_idle()
    await jobs.delete(app, made.id)
    assert len(await jobs.failed_runs(app, made.id)) == 1
    with pytest.raises(JobNotFound):
        await jobs.failed_runs(app, 999)
    with pytest.raises(InvalidInput):
        await jobs.failed_runs(app, -1)


async def test_damaged_notes_are_none(app):
    made = await app.enqueue("a")
    await app.storage.write(f"{PREFIX}{made.id}", b"\xff{")
    assert await jobs.failed_runs(app, made.id) == []


def test_a_secret_at_the_cut_is_not_half_shown():
    def fail():
        raise ValueError("sesame-open" * 2000)

    try:
        fail()
    except ValueError as error:
        text = trace_of(error, Mask.of("sesame-open"))
    assert "sesame" not in text and "open" not in text.replace("sesame-open", "") and len(text) == LONGEST
