"""What was begun goes on when its caller is cancelled, and is not felt where he is not."""

import asyncio

import pytest

from accoda.storage.postgres.kept import Kept


class Work:
    """Waits for each of its futures in turn, then gives their results, or raises their error."""

    def __init__(self, waits: int) -> None:
        self.futures = [asyncio.get_running_loop().create_future() for _ in range(waits)]
        self.tasks: list[asyncio.Task[object] | None] = []

    async def run(self) -> list[int]:
        self.tasks.append(asyncio.current_task())
        found = []
        for future in self.futures:
            found.append(await future)
            self.tasks.append(asyncio.current_task())
        return found


async def begin(work: Work) -> tuple[Kept[list[int]], asyncio.Task[list[int]]]:
    kept = Kept(work.run())

    async def wait() -> list[int]:
        return await kept

    caller = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return kept, caller


@pytest.mark.parametrize("waits", [0, 1, 2, 3])
async def test_the_result_comes_after_any_number_of_waits(waits: int) -> None:
    work = Work(waits)
    _, caller = await begin(work)
    for number, future in enumerate(work.futures):
        await asyncio.sleep(0)
        future.set_result(number)
    assert await caller == list(range(waits))


async def test_up_to_the_second_wait_it_runs_in_the_task_of_its_caller() -> None:
    work = Work(2)
    kept, caller = await begin(work)
    assert work.tasks == [caller]
    work.futures[0].set_result(0)
    work.futures[1].set_result(1)
    assert await caller == [0, 1]
    assert work.tasks == [caller] * 3
    assert kept.rest is None


@pytest.mark.parametrize("fails", [0, 1])
async def test_its_error_reaches_the_caller(fails: int) -> None:
    work = Work(2)
    _, caller = await begin(work)
    for future in work.futures[:fails]:
        future.set_result(0)
        await asyncio.sleep(0)
    work.futures[fails].set_exception(LookupError("gone"))
    with pytest.raises(LookupError):
        await caller


@pytest.mark.parametrize("done", [0, 1])
async def test_it_goes_on_when_the_caller_is_cancelled(done: int) -> None:
    work = Work(2)
    kept, caller = await begin(work)
    for future in work.futures[:done]:
        future.set_result(0)
        for _ in range(3):
            await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    for number, future in enumerate(work.futures[done:], done):
        assert not future.done()
        future.set_result(number)
        await asyncio.sleep(0)
    assert kept.rest is not None
    assert await kept.rest == [0, 1]


async def test_an_error_after_the_caller_has_left_is_found_in_the_rest() -> None:
    work = Work(1)
    kept, caller = await begin(work)
    caller.cancel()
    await asyncio.wait({caller})
    work.futures[0].set_exception(LookupError("gone"))
    assert kept.rest is not None
    with pytest.raises(LookupError):
        await kept.rest


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_result_that_comes_in_the_moment_of_the_cancellation_is_not_lost(turns: int) -> None:
    work = Work(1)
    kept, caller = await begin(work)
    work.futures[0].set_result(7)
    for _ in range(turns):
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    assert caller.cancelled()
    assert kept.rest is not None
    assert await kept.rest == [7]


async def test_a_turn_of_the_loop_is_a_wait_as_well() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    assert await Kept(work()) == "done"
