"""Calls that come while one is on its way go together in the next."""

import asyncio

import pytest

from accoda.demand.sharing import MOST, Sharing


class Line:
    """Answers when it is told to, and remembers what went together."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()
        self.fails = 0

    async def run(self, arguments: list[int]) -> list[int]:
        self.calls.append(arguments)
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise OSError("away")
        return [argument * 10 for argument in arguments]


async def asked(sharing: Sharing[int, int], *arguments: int, key: str = "k") -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(sharing.call(key, argument)) for argument in arguments]
    await asyncio.sleep(0)
    return tasks


async def test_the_first_goes_at_once_and_the_others_share_the_next() -> None:
    line = Line()
    sharing = Sharing(line.run)
    tasks = await asked(sharing, 1, 2, 3)
    assert line.calls == [[1]]
    line.gate.set()
    assert await asyncio.gather(*tasks) == [10, 20, 30]
    assert line.calls == [[1], [2, 3]]
    assert await sharing.call("k", 4) == 40
    assert line.calls[2:] == [[4]]


async def test_a_herd_goes_together_from_the_start_where_that_is_wanted() -> None:
    line = Line()
    line.gate.set()
    sharing = Sharing(line.run, at_once=False)
    assert await asyncio.gather(*(sharing.call("k", one) for one in (1, 2, 3))) == [10, 20, 30]
    assert line.calls == [[1, 2, 3]]


async def test_different_keys_do_not_wait_for_each_other() -> None:
    line = Line()
    sharing = Sharing(line.run)
    tasks = [*await asked(sharing, 1, key="a"), *await asked(sharing, 2, key="b")]
    assert line.calls == [[1], [2]]
    line.gate.set()
    assert await asyncio.gather(*tasks) == [10, 20]


async def test_who_is_cancelled_takes_nobody_with_him() -> None:
    line = Line()
    sharing = Sharing(line.run)
    first, second, third = await asked(sharing, 1, 2, 3)
    first.cancel()  # the one that is on its way
    second.cancel()  # one that waits
    await asyncio.wait([first, second])
    line.gate.set()
    assert await third == 30
    assert line.calls == [[1], [3]]
    assert await sharing.call("k", 4) == 40


async def test_an_error_is_told_to_all_who_were_in_that_call_and_to_no_other() -> None:
    line = Line()
    line.fails = 2
    sharing = Sharing(line.run)
    tasks = await asked(sharing, 1, 2, 3)
    line.gate.set()
    for task in tasks:
        with pytest.raises(OSError, match="away"):
            await task
    assert await sharing.call("k", 4) == 40


async def test_no_call_is_without_bounds() -> None:
    line = Line()
    sharing = Sharing(line.run)
    tasks = await asked(sharing, *range(2 * MOST + 2))
    line.gate.set()
    assert await asyncio.gather(*tasks) == [10 * one for one in range(2 * MOST + 2)]
    assert [len(call) for call in line.calls] == [1, MOST, MOST, 1]
