"""The processes that are killed, from outside: what they say, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from proof.chaos.fleet import python_path
from proof.chaos.transactions.forks import Role

PATIENCE = 30.0
"""Seconds after which a process that says nothing is a failure."""


class Said(NamedTuple):
    """A line of a process."""

    name: str
    what: str
    number: int = 0


class Forks:
    """Starts processes, and reads their lines one after the other."""

    def __init__(self, process: Process, errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._pids: dict[str, int] = {}

    async def start(self, role: Role) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(role) + b"\n")
        await self._process.stdin.drain()

    async def next(self) -> Said:
        """The next line of any process. One that fails ends the run."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                name, what, *number = (await self._process.stdout.readline()).decode().split()
        except (TimeoutError, ValueError):
            raise RuntimeError(f"no process says anything: {self._errors.read_text()[-3000:]}") from None
        said = Said(name, what, int(number[0]) if number else 0)
        if said.what == "failed":
            raise RuntimeError(f"{name} failed: {self._errors.read_text()[-3000:]}")
        if said.what == "started":
            self._pids[name] = said.number
        return said

    def runs(self, name: str) -> bool:
        """Whether it has not been killed: what it said before may be read later."""
        return name in self._pids

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone. What it had said can still be read."""
        pid = self._pids.pop(name)
        os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                await asyncio.sleep(0.001)

    async def kill_all(self) -> list[Said]:
        """Kill what still runs, and read what is left to read."""
        for name in list(self._pids):
            await self.kill(name)
        await self.start(Role(name="last", does="nothing"))
        found = []
        while (said := await self.next()) != Said("last", "ended"):
            found.append(said)
        self._pids.clear()
        return found


@asynccontextmanager
async def open_forks(folder: Path) -> AsyncIterator[Forks]:
    errors = folder / "errors"
    with errors.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proof.chaos.transactions.forks", stdin=PIPE, stdout=PIPE, stderr=file, cwd=folder,
            env={**os.environ, "PYTHONPATH": python_path()}, start_new_session=True,
        )  # fmt: skip
    try:
        forks = Forks(process, errors)
        await forks.next()
        yield forks
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
