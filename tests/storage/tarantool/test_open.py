"""From a URL to a Tarantool storage: what is wrong with it, and what is wrong with the server behind it."""

import asyncio
import socket

import pytest
from proof.servers.process import free_port
from proof.servers.tarantool import TarantoolServer

from accoda import Done, NewJob, open_storage
from accoda.errors import InvalidInput, StorageError, StorageUnavailable


@pytest.mark.parametrize(
    "url", ["tarantool://", "tarantool://host:port", "tarantool://host/path", "tarantool://host?mode=fast"]
)
async def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        await open_storage(url)


@pytest.mark.parametrize("url", ["worker:wrong", "nobody:secret", "admin:"])
async def test_a_wrong_user_or_password_is_said_to_be_so(server: TarantoolServer, url: str) -> None:
    with pytest.raises(StorageError, match="correct the user or password") as caught:
        await open_storage(f"tarantool://{url}@127.0.0.1:{server.port}")
    assert "wrong" not in str(caught.value).replace("wrong user", ""), "a password must not be shown"


async def test_an_unreachable_port_is_said_to_be_so() -> None:
    port = free_port()
    with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{port} cannot be reached"):
        await open_storage(f"tarantool://admin:secret@127.0.0.1:{port}")


async def test_a_port_that_never_greets_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.storage.tarantool.client.HANDSHAKE_PATIENCE", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StorageUnavailable, match="cannot be reached"),
    ):
        await open_storage(f"tarantool://127.0.0.1:{silent.getsockname()[1]}")


async def test_it_works_on_uvloop_too(server: TarantoolServer) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def work() -> bytes:
        async with await open_storage(server.url) as store:
            await store.enqueue([NewJob("uv", b"x" * 250_000)])
            (job,) = await store.take("uv", 1)
            assert await store.settle([Done(job.lease)]) == []
            return job.data

    def run() -> bytes:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work())

    assert await asyncio.to_thread(run) == b"x" * 250_000
