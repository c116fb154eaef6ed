"""Calls of many callers that go together: who goes when, and what each is told."""

import asyncio
import math

import pytest
import pytest_asyncio

from accoda.errors import StorageError, StorageFull, StorageUnavailable
from accoda.storage import joining
from accoda.storage.joining import Joining
from accoda.storage.patience import at_most, patience_of


class Place:
    """Where calls arrive. Each waits until `open` is set; what is in `refused` raises when it comes."""

    def __init__(self) -> None:
        self.came: list[list[str]] = []
        self.patience: list[float] = []
        self.late: list[str] = []
        self.open = asyncio.Event()
        self.refused: dict[str, Exception] = {}
        self.joining: Joining[str, str, str] = Joining(self.one, self.many, lambda _, answer: self.late.append(answer))

    async def one(self, key: str, argument: str) -> str:
        (answer,) = await self.many(key, [argument])
        return answer

    async def many(self, key: str, arguments: list[str]) -> list[str]:
        self.came.append(arguments)
        self.patience.append(patience_of(math.inf))
        await self.open.wait()
        for argument in arguments:
            if argument in self.refused:
                raise self.refused[argument]
        return [argument.upper() for argument in arguments]

    async def begin(self, *arguments: str, size: int = 1) -> list[asyncio.Task[str]]:
        """Each in a task of its own, on its way or waiting when this returns."""
        tasks = [asyncio.create_task(self.joining.call("key", argument, size)) for argument in arguments]
        await asyncio.sleep(0)
        return tasks


@pytest_asyncio.fixture
async def place() -> Place:
    return Place()


async def test_the_first_goes_at_once_and_those_behind_it_together(place: Place) -> None:
    calls = await place.begin("a", "b", "c")
    assert place.came == [["a"]]
    place.open.set()
    assert await asyncio.gather(*calls) == ["A", "B", "C"]
    assert place.came == [["a"], ["b", "c"]]


async def test_those_who_were_answered_together_come_together_again(place: Place) -> None:
    place.open.set()

    async def caller(name: str) -> None:
        for number in range(3):
            await place.joining.call("key", f"{name}{number}")

    await asyncio.gather(caller("a"), caller("b"), caller("c"))
    assert [len(arguments) for arguments in place.came] == [1, 3, 3, 2]


async def test_other_keys_do_not_wait(place: Place) -> None:
    first = await place.begin("a")
    other = asyncio.create_task(place.joining.call("other", "b"))
    await asyncio.sleep(0)
    assert place.came == [["a"], ["b"]]
    place.open.set()
    await asyncio.gather(*first, other)


async def test_who_is_refused_is_refused_alone(place: Place) -> None:
    place.refused["c"] = StorageFull("no room")
    calls = await place.begin("a", "b", "c", "d")
    place.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers == ["A", "B", place.refused["c"], "D"]
    assert place.came == [["a"], ["b", "c", "d"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("error", [StorageUnavailable("lost", unsure=True), RuntimeError("cannot be read")])
async def test_where_it_is_not_known_what_happened_all_are_told_and_nothing_is_repeated(
    place: Place, error: Exception
) -> None:
    place.refused["c"] = error
    calls = await place.begin("a", "b", "c")
    place.open.set()
    assert await asyncio.gather(*calls, return_exceptions=True) == ["A", error, error]
    assert place.came == [["a"], ["b", "c"]]


async def test_who_is_cancelled_before_it_goes_is_left_out(place: Place) -> None:
    calls = await place.begin("a", "b", "c")
    calls[1].cancel()
    await asyncio.sleep(0)
    place.open.set()
    assert await asyncio.gather(calls[0], calls[2]) == ["A", "C"]
    assert calls[1].cancelled()
    assert place.came == [["a"], ["c"]]


async def test_who_is_cancelled_on_the_way_leaves_the_others_alone_and_his_answer_behind(place: Place) -> None:
    place.open.set()
    calls = await place.begin("a", "b", "c", "d")
    place.open.clear()
    while len(place.came) < 2:
        await asyncio.sleep(0)
    calls[2].cancel()
    await asyncio.sleep(0)
    place.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, str)] == ["A", "B", "D"]
    assert calls[2].cancelled()
    assert place.late == ["C"]


async def test_the_first_cancelled_does_not_stop_those_behind_it(place: Place) -> None:
    calls = await place.begin("a", "b")
    calls[0].cancel()
    place.open.set()
    assert await calls[1] == "B"


async def test_a_call_that_hangs_is_gone_past(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "HELD_UP_FOR", 0.001)
    calls = await place.begin("a", "b", "c")
    while len(place.came) < 2:
        await asyncio.sleep(0.001)
    assert place.came == [["a"], ["b", "c"]]
    place.open.set()
    assert await asyncio.gather(*calls) == ["A", "B", "C"]


async def test_a_large_call_goes_alone_and_a_joined_one_has_a_bound(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MOST", 4)
    calls = await place.begin("a", "b", "c", "d", size=2)
    calls += await place.begin("large", size=joining.SMALL + 1)
    assert place.came == [["a"], ["large"]]
    place.open.set()
    await asyncio.gather(*calls)
    assert place.came == [["a"], ["large"], ["b", "c"], ["d"]]


async def test_those_with_less_time_do_not_hurry_the_others(place: Place) -> None:
    calls = await place.begin("a", "b", "c")
    with at_most(2.0):
        calls += await place.begin("d", "e", "f")
    place.open.set()
    await asyncio.gather(*calls)
    assert dict(zip(map(tuple, place.came), place.patience, strict=True)) == {
        ("a",): math.inf,
        ("d",): 2.0,
        ("b", "c"): math.inf,
        ("e", "f"): 2.0,
    }


async def test_nothing_is_kept_of_a_quiet_line(place: Place) -> None:
    place.open.set()
    for _ in range(3):
        await asyncio.gather(*await place.begin("a", "b"))
    await asyncio.sleep(0)
    assert not place.joining._lanes
    assert len(place.joining._crowds) <= 1
    assert not place.joining._tasks


async def test_a_refusal_of_a_single_one_is_his_own(place: Place) -> None:
    place.refused["a"] = StorageError("no")
    calls = await place.begin("a", "b")
    place.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers == [place.refused["a"], "B"]
