"""The processes under fire, and the service manager that starts a dead one anew. Nothing else is ever restarted."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proof.chaos.orders import Order
from proof.chaos.settings import Settings

ROOT = Path(__file__).parents[2]
WORKER = ("-m", "accoda", "worker", "proof.chaos.app:app", "-c", "2", "--grace", "5", "--log-level", "WARNING")
PRODUCER = ("-m", "proof.chaos.producer")
RESTART = 0.1
"""Seconds after which the service manager starts a dead process again."""
RESTART_FAILED = 0.5
"""The same, for one that ended by itself with an error: so that one that cannot start does not spin."""


@dataclass(frozen=True)
class Role:
    """One place in the fleet: what runs there, and what is special about it."""

    name: str
    arguments: Sequence[str]
    clock_off: float = 0.0
    drops: float = 0.0

    @property
    def works(self) -> bool:
        return self.arguments is not PRODUCER


@dataclass
class Site:
    """Where the processes run: the URL of the store, the folder of their files, and how they are to behave."""

    url: str
    folder: Path
    lease: float
    rate: float
    seed: int
    environment: Mapping[str, str] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)


class Member:
    """One role and the process that plays it at present."""

    def __init__(self, role: Role, site: Site) -> None:
        self.role = role
        self.site = site
        self.process: asyncio.subprocess.Process | None = None
        self.born = 0.0
        self.number = 0
        self.ended: Counter[int] = Counter()
        """Exit codes of its processes so far; -9 is a kill."""
        self.left: list[str] = []
        """Those of its processes that ended by themselves, by their names in the history."""

    @property
    def client(self) -> str:
        return f"{self.role.name}.{self.number}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def age(self) -> float:
        return time.monotonic() - self.born if self.alive else 0.0

    @property
    def log(self) -> Path:
        return self.site.folder / f"{self.client}.history"

    def has_begun(self) -> bool:
        """Whether its process has called the store."""
        return self.log.exists() and self.log.stat().st_size > 0

    @property
    def errors(self) -> Path:
        return self.site.folder / f"{self.role.name}.err"

    async def start(self) -> asyncio.subprocess.Process:
        self.number += 1
        self.born = time.monotonic()
        with self.errors.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.role.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                cwd=self.site.folder,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for the harness, which then ends them
            )
        return self.process

    def order(self, order: Order) -> None:
        """Tell the worker what to do to itself."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    def _environment(self) -> dict[str, str]:
        settings = Settings(
            client=self.client,
            log=str(self.log),
            lease=self.site.lease,
            clock_off=self.role.clock_off,
            seed=random.Random(f"{self.site.seed} {self.client}").getrandbits(32),
            rate=self.site.rate,
            since=self.site.since,
            drops=self.role.drops,
        )
        return {
            **os.environ,
            **self.site.environment,
            **settings.environment(),
            "ACCODA_URL": self.site.url,
            "PYTHONPATH": python_path(),
        }


def python_path() -> str:
    """Where a child finds the package `proof`."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


class Fleet:
    """Starts the members, and restarts those that die, until it is told to stop."""

    def __init__(self, roles: Sequence[Role], site: Site) -> None:
        self.members = [Member(role, site) for role in roles]
        self._stopping: set[Member] = set()
        self._tasks: dict[Member, asyncio.Task[None]] = {}

    @property
    def workers(self) -> list[Member]:
        return [member for member in self.members if member.role.works]

    @property
    def producers(self) -> list[Member]:
        return [member for member in self.members if not member.role.works]

    def start(self, members: Sequence[Member]) -> None:
        for member in members:
            self._tasks[member] = asyncio.create_task(self._keep(member))

    def victim(self, rng: random.Random, among: Sequence[Member], *, age: float) -> Member | None:
        """A member that is at work: it has called the store and has lived for some time."""
        fit = [member for member in among if member.alive and member.age >= age and member.has_begun()]
        return rng.choice(fit) if fit else None

    async def stop(self, members: Sequence[Member], patience: float = 15.0) -> list[Member]:
        """SIGTERM, as a service manager does; members that do not leave in time are killed, and returned."""
        self._stopping.update(members)
        for member in members:
            member.send(signal.SIGCONT)
            member.send(signal.SIGTERM)
        tasks = [self._tasks[member] for member in members if member in self._tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        late = [member for member in members if member.alive]
        await self.end(late)
        return late

    async def end(self, members: Sequence[Member] | None = None) -> None:
        """Kill them, for good."""
        chosen = self.members if members is None else members
        self._stopping.update(chosen)
        for member in chosen:
            member.send(signal.SIGKILL)
        await asyncio.gather(*(self._tasks[member] for member in chosen if member in self._tasks))

    async def _keep(self, member: Member) -> None:
        while member not in self._stopping:
            process = await member.start()
            if member in self._stopping:  # told to stop while it was being started
                member.send(signal.SIGKILL)
            code = await process.wait()
            if process.stdin is not None:
                process.stdin.close()
            if member in self._stopping:
                return
            member.ended[code] += 1
            if code != -signal.SIGKILL:
                member.left.append(member.client)
            await asyncio.sleep(RESTART if code == -signal.SIGKILL else RESTART_FAILED)
