"""A disk that fails now and then, under a store that goes on: an error changes nothing, or says that it may have.

Rounds of the same workload; in some of them one operation of the disk fails. Each call that was answered is applied to
the model, and each that was made but could not be synced (its error is unsure); one that raised otherwise is not. After
the round store and model must agree. At the end the power is cut, in the middle of a commit or a checkpoint, and they
must agree once more.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import apsw

from accoda.errors import StorageError, StorageFull, StorageUnavailable
from accoda.storage.protocol import Store
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.testing.reference import Reference
from proof.powercut.check import damage, differences, same_answer
from proof.powercut.disk import Disk, Fuse, Operation, SyncFailed
from proof.powercut.lockstep import Handle, HeldClock, Time
from proof.powercut.machine import Machine
from proof.powercut.workload import MARK, Round, Workload


@dataclass
class FaultFindings:
    """How many operations failed, what callers were told, and what was wrong."""

    faults: Counter[str] = field(default_factory=Counter)
    errors: Counter[type[BaseException]] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)


class OneFault:
    """Fails the n-th operation of a kind, `times` times in a row."""

    def __init__(self, kind: str, after: int, times: int, make: Callable[[], BaseException]) -> None:
        self.kind = kind
        self.hits = 0
        self._after = after
        self._times = times
        self._make = make

    def __call__(self, operation: Operation) -> None:
        if operation.kind != self.kind:
            return
        self._after -= 1
        if self._after < 0 and self.hits < self._times:
            self.hits += 1
            raise self._make()


_FAULTS: tuple[tuple[str, Callable[[], BaseException]], ...] = (
    ("sync", SyncFailed),
    ("sync", lambda: SyncFailed(kept=True)),
    ("write", lambda: apsw.exception_for(apsw.SQLITE_IOERR_WRITE)),
    ("write", lambda: apsw.exception_for(apsw.SQLITE_FULL)),
    ("read", lambda: apsw.exception_for(apsw.SQLITE_IOERR_READ)),
    ("truncate", lambda: apsw.exception_for(apsw.SQLITE_IOERR_TRUNCATE)),
)


class FaultyLife:
    def __init__(self, seed: int, machine: Machine) -> None:
        self._seed = seed
        self._rng = random.Random(f"faults {seed}")
        self._machine = machine
        self._time = Time()
        self._model = Reference(self._time.now)
        self._workload = Workload(self._rng)
        self._before_unsynced: list[Reference] = []  # what a cut may bring back: before what no sync has followed
        self.findings = FaultFindings()

    async def live(self, rounds: int = 13) -> FaultFindings:
        disk = self._machine.insert(Disk())
        handle = await self._open()
        for number in range(rounds):
            if not await self._round(handle, disk, faulty=number % 2 == 1):
                break
        possible = await self._round_with_cut(handle, disk)
        await handle.close()
        self._machine.insert(disk.survivor(self._rng))
        handle = await self._open()
        self._tell("after the cut", damage(self._machine.path))
        found = [await differences(handle, model) for model in possible]
        if all(found):
            self._tell("after the cut", found[-1])
        await handle.close()
        return self.findings

    async def _round_with_cut(self, handle: Handle, disk: Disk) -> list[Reference]:
        """The power goes in a commit or in a checkpoint. Gives what the store may be like afterwards."""
        before = copy.deepcopy(self._model)
        round = self._workload.draw(self._time.now, time_passed=True)
        disk.fuse = Fuse(self._rng.randrange(40))
        answers = await handle.run(round.calls)
        disk.cut()
        for call in round.calls:
            call.on_model(self._model)
        if round.is_fleeting or any(isinstance(answer, StorageError) for answer in answers):
            return [*self._before_unsynced, before, self._model]
        return [self._model]

    async def _open(self) -> Handle:
        clock = HeldClock(self._time)
        store = await self._machine.open(clock)
        store._writer.log.after = self._rng.choice((1, 20))
        store._writer.log.patience = 0.0
        handle = Handle(store, clock)
        await handle.hold()
        return handle

    async def _round(self, handle: Handle, disk: Disk, faulty: bool) -> bool:
        """Whether store and model agree after it."""
        if self._rng.random() < 0.3:
            self._time.now += self._rng.choice((10, 400, 2500))
        fault = self._draw_fault(handle.store) if faulty else None
        round = self._workload.draw(self._time.now, time_passed=True)
        disk.trouble = fault
        answers = await handle.run(round.calls)
        disk.trouble = None
        if fault is not None:
            self.findings.faults[fault.kind] += fault.hits
        self._apply(round, answers)
        wrong = await differences(handle, self._model)
        self._tell(f"round {round.number}", wrong)
        self._workload.begin(self._model)
        return not wrong

    def _draw_fault(self, store: Store) -> OneFault:
        kind, make = self._rng.choice(_FAULTS)
        if kind == "read":
            _forget_pages(store)
        most = 4 if kind in ("sync", "truncate") else 30
        return OneFault(kind, self._rng.randrange(most), self._rng.choice((1, 1, 2, 100)), make)

    def _apply(self, round: Round, answers: list[Any]) -> None:
        self._model.advance(round.now - self._model.now)
        self._before_unsynced.append(copy.deepcopy(self._model))
        for call, answer in zip(round.calls, answers, strict=True):
            if isinstance(answer, StorageError):
                self._judge(answer)
                if _is_unsure(answer):
                    call.on_model(self._model)
                continue
            expected = call.on_model(self._model)
            if not same_answer(call, answer, expected):
                self._tell(f"answer of {call.verb}", [f"{answer} instead of {expected}"])
            if call.args[:1] == (MARK,):
                self._before_unsynced.clear()

    def _judge(self, error: StorageError) -> None:
        self.findings.errors[type(error)] += 1
        if not isinstance(error, StorageUnavailable | StorageFull) or "try again" not in str(error):
            self._tell("an error", [f"says too little: {error!r}"])

    def _tell(self, when: str, wrong: list[str]) -> None:
        if wrong:
            self.findings.told.append(f"seed {self._seed}, {when}: {'; '.join(wrong[:3]):.600}")


def _is_unsure(error: StorageError) -> bool:
    return isinstance(error, StorageUnavailable) and error.unsure


def _forget_pages(store: Store) -> None:
    """SQLite has most pages in memory; without them it must read."""
    assert isinstance(store, SqliteStorage)
    store._writer._connection.release_memory()
