"""Connections belong to one event loop and one process: calls from other loops are carried out in that loop."""

import asyncio
import os

import pytest

from accoda.errors import StorageClosed
from accoda.storage.common.loop_affinity import LoopAffinity, forks


async def _where() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_work_from_the_same_loop_runs_there() -> None:
    home = LoopAffinity()
    assert home.is_here() and home.reachable
    assert await home.run(_where()) is asyncio.get_running_loop()


async def test_work_from_another_thread_runs_in_the_loop_of_the_connections() -> None:
    home = LoopAffinity()
    assert await asyncio.to_thread(asyncio.run, home.run(_where())) is asyncio.get_running_loop()


async def test_work_for_a_closed_storage_is_refused() -> None:
    home = LoopAffinity("the storage x")
    home.closed = True
    assert not home.is_here()
    with pytest.raises(StorageClosed, match="the storage x was closed"):
        await home.run(_where())


def test_work_for_a_loop_that_has_ended_is_refused() -> None:
    async def make() -> LoopAffinity:
        return LoopAffinity()

    home = asyncio.run(make())
    assert not home.reachable
    with pytest.raises(StorageClosed, match=r"event loop .* has ended"):
        asyncio.run(home.run(_where()))


async def test_a_forked_child_is_told_to_open_its_own() -> None:
    home, before = LoopAffinity(), forks()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            home.check()
        except StorageClosed as error:
            os.write(writer, f"{forks() - before} {home.reachable} {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    told = os.read(reader, 1000).decode()
    os.close(reader)
    assert told.startswith("1 False ") and "before the process forked" in told
    assert forks() == before
