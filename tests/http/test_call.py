"""`Call.poll`: waiting on behalf of a caller that may hang up, in a service that may stop."""

import asyncio
from typing import Any

import pytest

from accoda import App
from accoda.http.call import Call, ClientGone
from accoda.http.long_polls import LongPolls
from accoda.http.options import ServiceOptions


class Line:
    """A connection whose client hangs up when told."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}


def a_call(line: Line, polls: LongPolls) -> Call[Any, Any, Any]:
    return Call(App("memory://"), ServiceOptions(), polls, {"headers": [(b"a", b"1"), (b"a", b"2")]}, line.receive)


async def forever(seen: list[str]) -> int:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    return 1


async def test_what_is_waited_for_is_given() -> None:
    polls = LongPolls()
    assert await a_call(Line(), polls).poll(asyncio.sleep(0, 7)) == 7
    assert len(polls) == 0


async def test_what_the_wait_raises_is_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await a_call(Line(), LongPolls()).poll(fail())


async def test_a_caller_that_hangs_up_ends_the_wait() -> None:
    line, polls, seen = Line(), LongPolls(), list[str]()
    waiting = asyncio.ensure_future(a_call(line, polls).poll(forever(seen)))
    while not len(polls):
        await asyncio.sleep(0)
    line.hung_up.set()
    with pytest.raises(ClientGone):
        await waiting
    assert (seen, len(polls)) == (["cancelled"], 0)


async def test_a_result_that_comes_after_the_caller_hung_up_is_dropped() -> None:
    line = Line()
    line.hung_up.set()
    with pytest.raises(ClientGone):
        await a_call(line, LongPolls()).poll(asyncio.sleep(0, 7))


async def test_a_service_that_leaves_ends_every_wait_and_lets_none_begin() -> None:
    polls, seen = LongPolls(), list[str]()
    waiting = [asyncio.ensure_future(a_call(Line(), polls).poll(forever(seen))) for _ in range(3)]
    while len(polls) < 3:
        await asyncio.sleep(0)
    polls.close()
    polls.close()
    assert await asyncio.gather(*waiting) == [None] * 3
    assert await a_call(Line(), polls).poll(forever(seen)) is None
    polls.open()
    assert await a_call(Line(), polls).poll(asyncio.sleep(0, 7)) == 7


async def test_a_request_that_is_cancelled_leaves_no_wait_behind() -> None:
    polls, seen = LongPolls(), list[str]()
    waiting = asyncio.ensure_future(a_call(Line(), polls).poll(forever(seen)))
    while not len(polls):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (seen, len(polls)) == (["cancelled"], 0)


def test_of_a_header_that_came_twice_the_first_counts() -> None:
    call = Call[Any, Any, Any](
        App("memory://"), ServiceOptions(), LongPolls(), {"headers": [(b"a", b"1"), (b"a", b"2")]}, None
    )
    assert (call.header("A"), call.header("b")) == ("1", None)
