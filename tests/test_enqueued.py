"""What `enqueue` gives: it knows where its result comes from, and as which type it is read."""

import pytest
from msgspec import Struct

from accoda import App, Batch, Enqueued, InvalidInput, ResultTimeout, SyncEnqueued


class Report(Struct):
    pages: int


app = App("memory://")


@app.handler("reports", keep_for=60)
async def report(month: str) -> Report:
    assert report.current.payload == month
    return Report(len(month))


@app.handler("work", type="sum", keep_for=60)
def add(numbers: list[int]) -> tuple[int, ...]:
    return (sum(numbers),)


@app.handler("work", type="many", keep_for=60)
async def many(batch: Batch[int]) -> None:
    for job in batch:
        batch.done(job, {"n": job.payload})


async def test_the_result_is_read_as_the_handler_says_that_it_returns() -> None:
    with app.testing():
        handle = await report.enqueue("2030-01")
        [same] = await report.enqueue_many(["2030"])
        await app.run_until_idle(["reports"])
        assert await handle.result(timeout=5) == Report(7) == await app.result(handle)
        assert await same.result() == Report(4)
        assert await app.result(handle.id) == {"pages": 7}
        assert await app.result(handle.id, type=Report) == Report(7)


def test_without_await_it_is_the_same() -> None:
    with app.testing():
        handle = report.sync.enqueue("2030-01")
        [other] = report.sync.enqueue_many(["2030"])
        assert isinstance(handle, SyncEnqueued) and handle.what == "created"
        with pytest.raises(ResultTimeout):
            handle.result(timeout=0)
        app.sync.run_until_idle(["reports"])
        assert handle.result(timeout=5) == Report(7) == app.sync.result(handle)
        assert other.result() == Report(4)
        assert app.sync.enqueue("reports", "x").result_type is Report


async def test_each_type_of_a_queue_has_its_own_result() -> None:
    assert (await add.enqueue([1])).result_type == tuple[int, ...]
    assert (await app.enqueue("work", [1], type="sum")).result_type == tuple[int, ...]
    assert (await many.enqueue(1)).result_type is not None  # of a batch, each job has what was said of it
    assert str((await app.enqueue("work", [1], type="elsewhere")).result_type) == "typing.Any"


async def test_one_that_a_storage_gave_says_whom_to_ask() -> None:
    assert (await report.enqueue("a")) == Enqueued((await report.enqueue("b")).id - 1, "created", 0)
    with pytest.raises(InvalidInput, match=r"result: a storage does not know it; use app\.result\(7\)"):
        await Enqueued(7, "created").result()


async def test_sync_calls_are_refused_where_a_loop_runs() -> None:
    with pytest.raises(InvalidInput, match="sync: would block the event loop that runs here; await the call itself"):
        app.sync.enqueue("reports", "2030-01")
    with pytest.raises(InvalidInput, match="sync: would block"):
        app.sync.find(1)


def test_what_is_no_function_is_refused_as_a_handler() -> None:
    with pytest.raises(InvalidInput, match=r"handler: @app\.handler decorates a function, not 3"):
        App("memory://").handler("x")(3)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match=r"current: no job of <handler report of queue reports> runs here"):
        _ = report.current
