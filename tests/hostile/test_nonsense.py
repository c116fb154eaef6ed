"""URLs that are none, and servers that talk nonsense: a clear error, in time, and nothing left behind."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from accoda import InvalidInput, StorageError, open_storage

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\n" + b"Bad Request\n" * 20
RANDOM = Random(5).randbytes(4096)
GREETING = b"Tarantool".ljust(128)
REDIS = {
    "http": HTTP,
    "random": RANDOM,
    "zeros": bytes(4096),
    "four billion replies": b"*4294967295\r\n",
    "numbers": b":1\r\n" * 50,
    "lists": b"*1\r\n:1\r\n" * 20,
}
TARANTOOL = {
    "http": HTTP,
    "random": RANDOM,
    "zeros": bytes(4096),
    "a packet of four gigabytes": GREETING + b"\xce\xff\xff\xff\xff" + b"x" * 100,
    "packets without a header": GREETING + b"\xce\x00\x00\x00\x00" * 10,
    "headers of nonsense": GREETING + b"\xce\x00\x00\x00\x05\xff\xff\xff\xff\xff" * 10,
}


def cases() -> Iterator[Any]:
    for scheme, url, kinds in (
        ("redis", "redis://127.0.0.1:{}/?timeout=0.2", REDIS),
        ("tarantool", "tarantool://127.0.0.1:{}", TARANTOOL),
    ):
        for kind, words in kinds.items():
            yield pytest.param(url, words, id=f"{scheme}: {kind}")


@asynccontextmanager
async def talker(words: bytes) -> AsyncIterator[int]:
    """A server that sends the same bytes to every client, whatever it asks, and waits."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            writer.write(words)
            while await reader.read(65536):
                writer.write(words)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in open_ones:
            writer.transport.abort()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "url", ["redis://[::1", "redis://a\ud800", "sqlite:///a%00b", "sqlite:///a\0b", "postgresql://u@[x]/d", "x" * 9, 5]
)
async def test_a_url_that_cannot_be_read_is_told_from_a_store_that_cannot_be_reached(url: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        await open_storage(url)


@pytest.mark.parametrize(("url", "words"), list(cases()))
async def test_opening_a_store_on_it_fails_with_a_clear_error(
    url: str, words: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with talker(words) as port, asyncio.timeout(20):
        with pytest.raises(StorageError) as caught:
            await open_storage(url.format(port))
    assert str(caught.value)
