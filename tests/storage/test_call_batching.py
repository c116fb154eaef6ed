"""Calls that are sent together: which call goes when, and what each caller is told."""

import asyncio
import math

import pytest
import pytest_asyncio

from accoda.errors import StorageClosed, StorageError, StorageFull, StorageUnavailable
from accoda.storage.common import call_batching
from accoda.storage.common.call_batching import CallBatching
from accoda.storage.common.loop_affinity import LoopAffinity
from accoda.storage.common.reconnecting import limited_patience, patience_of


class Server:
    """Receives calls and answers when `open` is set; a call with an argument in `refused` raises."""

    def __init__(self) -> None:
        self.received: list[list[str]] = []
        self.patience: list[float] = []
        self.late: list[str] = []
        self.open = asyncio.Event()
        self.refused: dict[str, Exception] = {}
        self.calls: CallBatching[str, str, str] = CallBatching(self.many, lambda _, answer: self.late.append(answer))

    async def many(self, key: str, arguments: list[str]) -> list[str]:
        self.received.append(arguments)
        self.patience.append(patience_of(math.inf))
        await self.open.wait()
        for argument in arguments:
            if argument in self.refused:
                raise self.refused[argument]
        return [argument.upper() for argument in arguments]

    async def begin(self, *arguments: str, size: int = 1) -> list[asyncio.Task[str]]:
        """Each call in a task of its own, sent or collected when this returns."""
        tasks = [asyncio.create_task(self.calls.call("key", argument, size)) for argument in arguments]
        await turns()
        return tasks


async def turns() -> None:
    """A call becomes a task, which becomes another one that goes on when its caller is cancelled."""
    for _ in range(2):
        await asyncio.sleep(0)


@pytest_asyncio.fixture
async def server() -> Server:
    return Server()


async def test_the_first_call_goes_at_once_and_those_behind_it_go_together(server: Server) -> None:
    calls = await server.begin("a", "b", "c")
    assert server.received == [["a"]]
    server.open.set()
    assert await asyncio.gather(*calls) == ["A", "B", "C"]
    assert server.received == [["a"], ["b", "c"]]


async def test_callers_that_were_answered_together_go_together_again(server: Server) -> None:
    server.open.set()

    async def caller(name: str) -> None:
        for number in range(3):
            await server.calls.call("key", f"{name}{number}")

    await asyncio.gather(caller("a"), caller("b"), caller("c"))
    assert [len(arguments) for arguments in server.received] == [1, 3, 3, 2]


async def test_calls_with_other_keys_do_not_wait(server: Server) -> None:
    first = await server.begin("a")
    other = asyncio.create_task(server.calls.call("other", "b"))
    await turns()
    assert server.received == [["a"], ["b"]]
    server.open.set()
    await asyncio.gather(*first, other)


async def test_only_the_refused_call_of_a_batch_gets_the_error(server: Server) -> None:
    server.refused["c"] = StorageFull("no room")
    calls = await server.begin("a", "b", "c", "d")
    server.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers == ["A", "B", server.refused["c"], "D"]
    assert server.received == [["a"], ["b", "c", "d"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize("error", [StorageUnavailable("lost", unsure=True), RuntimeError("cannot be read")])
async def test_where_the_outcome_of_a_batch_is_unknown_all_callers_are_told_and_nothing_is_repeated(
    server: Server, error: Exception
) -> None:
    server.refused["c"] = error
    calls = await server.begin("a", "b", "c")
    server.open.set()
    assert await asyncio.gather(*calls, return_exceptions=True) == ["A", error, error]
    assert server.received == [["a"], ["b", "c"]]


async def test_a_call_cancelled_before_it_is_sent_is_left_out(server: Server) -> None:
    calls = await server.begin("a", "b", "c")
    calls[1].cancel()
    await asyncio.sleep(0)
    server.open.set()
    assert await asyncio.gather(calls[0], calls[2]) == ["A", "C"]
    assert calls[1].cancelled()
    assert server.received == [["a"], ["c"]]


async def test_the_answer_to_a_call_cancelled_on_the_way_goes_to_late(server: Server) -> None:
    server.open.set()
    calls = await server.begin("a", "b", "c", "d")
    server.open.clear()
    while len(server.received) < 2:
        await asyncio.sleep(0)
    calls[2].cancel()
    await asyncio.sleep(0)
    server.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, str)] == ["A", "B", "D"]
    assert calls[2].cancelled()
    assert server.late == ["C"]


async def test_cancelling_the_first_call_does_not_stop_those_behind_it(server: Server) -> None:
    calls = await server.begin("a", "b")
    calls[0].cancel()
    server.open.set()
    assert await calls[1] == "B"


async def test_a_call_that_hangs_is_passed_by_those_behind_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_batching, "HELD_UP_FOR", 0.001)
    calls = await server.begin("a", "b", "c")
    while len(server.received) < 2:
        await asyncio.sleep(0.001)
    assert server.received == [["a"], ["b", "c"]]
    server.open.set()
    assert await asyncio.gather(*calls) == ["A", "B", "C"]


async def test_a_large_call_goes_alone_and_a_batch_has_a_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_batching, "MOST", 4)
    calls = await server.begin("a", "b", "c", "d", size=2)
    calls += await server.begin("large", size=call_batching.SMALL + 1)
    assert server.received == [["a"], ["large"]]
    server.open.set()
    await asyncio.gather(*calls)
    assert server.received == [["a"], ["large"], ["b", "c"], ["d"]]


async def test_callers_with_less_patience_have_batches_of_their_own(server: Server) -> None:
    calls = await server.begin("a", "b", "c")
    with limited_patience(2.0):
        calls += await server.begin("d", "e", "f")
    server.open.set()
    await asyncio.gather(*calls)
    assert dict(zip(map(tuple, server.received), server.patience, strict=True)) == {
        ("a",): math.inf,
        ("d",): 2.0,
        ("b", "c"): math.inf,
        ("e", "f"): 2.0,
    }


async def test_nothing_is_remembered_of_a_quiet_lane(server: Server) -> None:
    server.open.set()
    for _ in range(3):
        await asyncio.gather(*await server.begin("a", "b"))
    await asyncio.sleep(0)
    assert not server.calls._traffic
    assert len(server.calls._busy_since) <= 1
    assert not server.calls._tasks


async def test_the_error_of_a_call_sent_alone_is_its_own(server: Server) -> None:
    server.refused["a"] = StorageError("no")
    calls = await server.begin("a", "b")
    server.open.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers == [server.refused["a"], "B"]


async def test_an_answer_may_be_an_error_for_one_caller() -> None:
    async def many(_: None, arguments: list[int]) -> list[int | BaseException]:
        return [KeyError(each) if each % 2 else each for each in arguments]

    calls: CallBatching[None, int, int] = CallBatching(many)
    answers = await asyncio.gather(*(calls.call(None, each) for each in (1, 2, 3, 4)), return_exceptions=True)
    assert list(map(repr, answers)) == ["KeyError(1)", "2", "KeyError(3)", "4"]


async def test_finish_waits_for_batches_on_their_way(server: Server) -> None:
    server.open.set()
    calls = await server.begin("a", "b", "c")
    server.open.clear()
    while len(server.received) < 2:
        await asyncio.sleep(0)
    finishing = asyncio.create_task(server.calls.finish(10.0))
    await asyncio.sleep(0)
    assert not finishing.done()
    server.open.set()
    await finishing
    assert await asyncio.gather(*calls) == ["A", "B", "C"]


async def test_the_answer_to_a_lone_call_that_was_cancelled_goes_to_late(server: Server) -> None:
    (call,) = await server.begin("a")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert server.late == []
    server.open.set()
    await server.calls.finish(10.0)
    await asyncio.sleep(0)
    assert call.cancelled() and server.late == ["A"]


async def test_calls_from_another_thread_are_made_in_the_loop_of_the_storage() -> None:
    loops = []

    async def many(_: None, arguments: list[int]) -> list[int]:
        loops.append(asyncio.get_running_loop())
        return arguments

    home = LoopAffinity()
    calls: CallBatching[None, int, int] = CallBatching(many, home=home)
    assert await asyncio.to_thread(lambda: asyncio.run(calls.call(None, 7))) == 7
    assert loops == [asyncio.get_running_loop()]
    home.closed = True
    with pytest.raises(StorageClosed):
        await calls.call(None, 7)
