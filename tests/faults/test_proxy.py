"""The proxy itself: what it promises to do to connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from proof.proxy import BLACK_HOLE, REPLIES_VANISH, NetworkConditions, Proxy


class Echo:
    """A server that sends back what it gets, twice."""

    def __init__(self) -> None:
        self.got = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.got += data
                writer.write(data * 2)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the test is over
        finally:
            writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> Iterator[Proxy]:  # type: ignore[misc]
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    with Proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()


async def dial(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def test_in_sunshine_everything_passes(proxy: Proxy) -> None:
    reader, writer = await dial(proxy)
    writer.write(b"hello")
    assert await reader.readexactly(10) == b"hellohello"
    assert (proxy.connections, proxy.accepted) == (1, 1)
    writer.close()


async def test_a_cut_resets_connections_and_refuses_new_ones_until_it_is_over(proxy: Proxy) -> None:
    reader, writer = await dial(proxy)
    writer.write(b"a")
    await reader.readexactly(2)
    for _ in range(3):
        with proxy.during(cut=True), pytest.raises(ConnectionRefusedError):
            await dial(proxy)
        new_reader, new_writer = await dial(proxy)
        new_writer.write(b"b")
        assert await new_reader.readexactly(2) == b"bb"
        new_writer.close()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()


async def test_a_black_hole_swallows_both_ways_and_keeps_connections_open(proxy: Proxy, echo: Echo) -> None:
    reader, writer = await dial(proxy)
    with proxy.during(BLACK_HOLE):
        writer.write(b"lost")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        new_reader, new_writer = await dial(proxy)  # is accepted, and silent too
        new_writer.write(b"lost")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(new_reader.read(1), 0.1)
    assert echo.got == b""
    writer.write(b"late")
    with pytest.raises(TimeoutError):  # it lost bytes, and so stays silent for ever
        await asyncio.wait_for(reader.read(1), 0.1)
    for each in (writer, new_writer):
        each.close()


async def test_replies_vanish_while_requests_arrive(proxy: Proxy, echo: Echo) -> None:
    reader, writer = await dial(proxy)
    with proxy.during(REPLIES_VANISH):
        writer.write(b"first")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        writer.write(b"second")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
    assert echo.got == b"firstsecond"
    writer.close()


async def test_what_is_held_back_arrives_later(proxy: Proxy) -> None:
    reader, writer = await dial(proxy)
    with proxy.during(hold=True):
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
    assert await asyncio.wait_for(reader.readexactly(2), 10) == b"xx"
    writer.close()


@pytest.mark.parametrize(("after", "passed"), [(0, 0), (3, 3), (100, 9)])
async def test_a_torn_reply_passes_in_part_and_breaks_the_connection(proxy: Proxy, after: int, passed: int) -> None:
    reader, writer = await dial(proxy)
    proxy.tear_next_reply(after)
    writer.write(b"hello")
    got = b""
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        while True:
            got += await reader.readexactly(1)
    assert len(got) <= passed  # a reset may overtake the last bytes
    assert proxy.torn == 1
    writer.close()


async def test_delay_and_bandwidth_take_their_time(proxy: Proxy) -> None:
    reader, writer = await dial(proxy)
    began = time.monotonic()
    with proxy.during(NetworkConditions(delay=(0.1, 0.1))):
        writer.write(b"x")
        await reader.readexactly(2)
    assert time.monotonic() - began >= 0.2  # there and back
    began = time.monotonic()
    with proxy.during(NetworkConditions(bandwidth=10_000)):
        writer.write(b"x" * 1000)
        await reader.readexactly(2000)
    assert time.monotonic() - began >= 0.15  # a fifth of a second, less the last piece
    writer.close()


async def test_a_server_that_is_away_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    # The reset may come at any moment, even before we are let in.
    with Proxy(port) as proxy, contextlib.suppress(ConnectionResetError):
        reader, writer = await dial(proxy)
        with contextlib.closing(writer):
            assert await reader.read(1) == b""


def test_closing_twice_does_no_harm() -> None:
    proxy = Proxy(1).start()
    proxy.close()
    proxy.close()


async def test_a_connection_that_is_reset_in_the_moment_in_which_it_comes_is_closed(proxy: Proxy) -> None:
    async def connect_and_reset() -> socket.socket:
        client = socket.create_connection(("127.0.0.1", proxy.port), 5)  # nothing else runs in the proxy meanwhile
        assert proxy._listener is not None
        proxy._accept(proxy._listener)
        await proxy._reset()
        return client

    with await asyncio.to_thread(proxy._run, connect_and_reset()) as client, contextlib.suppress(ConnectionResetError):
        assert await asyncio.to_thread(client.recv, 1) == b""
