"""`python -m proof.chaos.faults.storm KIND [CLIENTS] [SECONDS]`: a server comes back to very many clients.

Each client is a storage of its own, with connections of its own, in one of a few processes. While the server is away
each tries one call, again and again. Printed is how long after the server answers again they have all succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from accoda import NewJob, open_storage
from accoda.errors import StorageUnavailable
from accoda.storage.protocol import Store
from proof.servers.postgres import PostgresServer
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

PROCESSES = 4
AT_ONCE = 20  # storages that a process opens at the same time, in the beginning


@dataclass(frozen=True)
class Storm:
    """Seconds from the server's return to the first, the median and the last client's success; calls that failed."""

    clients: int
    first: float
    median: float
    last: float
    failed: int


async def storm(kind: str, clients: int = 1000, away_for: float = 20.0) -> Storm:
    with _server(kind, clients) as server:
        url = server.url + ("?pool=1" if kind == "postgres" else "")
        async with contextlib.AsyncExitStack() as stack:
            parts = [await _start(stack, url, clients // PROCESSES) for _ in range(PROCESSES)]
            for part in parts:
                await _line(part)
            await asyncio.to_thread(server.kill)
            for part in parts:
                assert part.stdin is not None
                part.stdin.write(b"go\n")
            await asyncio.sleep(away_for)
            await asyncio.to_thread(server.start)
            back_at = time.monotonic()
            answers = [await _line(part) for part in parts]
    moments = sorted(float(each) - back_at for answer in answers for each in answer.split()[1:])
    failed = sum(int(answer.split()[0]) for answer in answers)
    return Storm(len(moments), moments[0], moments[len(moments) // 2], moments[-1], failed)


def _server(kind: str, clients: int) -> RedisServer | PostgresServer | TarantoolServer:
    if kind == "redis":
        return RedisServer("everysec", "--maxclients", str(2 * clients + 100))
    if kind == "postgres":
        return PostgresServer(connections=clients + 50)
    if kind == "tarantool":
        return TarantoolServer()
    raise ValueError(f"there is no storm for {kind!r}; choose redis, postgres or tarantool")


async def _start(stack: contextlib.AsyncExitStack, url: str, count: int) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "proof.chaos.faults.storm", "--part", url, str(count))
    part = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**20)

    async def end() -> None:
        if part.returncode is None:
            part.kill()
        await part.wait()

    stack.push_async_callback(end)
    return part


async def _line(part: asyncio.subprocess.Process) -> str:
    assert part.stdout is not None
    line = await part.stdout.readline()
    if not line:
        raise RuntimeError("a process of the storm ended too early; its error is above")
    return line.decode()


async def take_part(url: str, count: int) -> None:
    """One process of the storm: its clients call as soon as they are told that the server is gone."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one() -> Store:
        async with gate:
            return await open_storage(url)

    stores = await asyncio.gather(*(open_one() for _ in range(count)))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    ends = await asyncio.gather(*(_succeed(store) for store in stores))
    print(sum(failed for _, failed in ends), *(f"{moment:.4f}" for moment, _ in ends), flush=True)
    await asyncio.gather(*(store.close() for store in stores))


async def _succeed(store: Store) -> tuple[float, int]:
    """Call until it is answered; when that was, and how many calls failed before."""
    failed = 0
    while True:
        try:
            await store.enqueue([NewJob("storm")])
            return time.monotonic(), failed
        except StorageUnavailable:
            failed += 1


def main(arguments: Sequence[str]) -> None:
    if arguments and arguments[0] == "--part":
        asyncio.run(take_part(arguments[1], int(arguments[2])))
        return
    kind, clients, away_for = (*arguments, *("redis", "1000", "20")[len(arguments) :])
    found = asyncio.run(storm(kind, int(clients), float(away_for)))
    print(
        f"{kind}: {found.clients} clients, server away for {away_for} s: first after {found.first:.2f} s, half after "
        f"{found.median:.2f} s, all after {found.last:.2f} s; {found.failed} calls had failed meanwhile"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
