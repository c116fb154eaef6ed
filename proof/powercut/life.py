"""The life of one store: it works, the power is cut, it is opened again and examined, and works on."""

from __future__ import annotations

import copy
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import apsw

from accoda.errors import StorageError, VersionConflict
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.testing.reference import Reference
from proof.powercut.check import damage, differences, same_answer
from proof.powercut.disk import Disk, Fuse
from proof.powercut.lockstep import Handle, HeldClock, Time
from proof.powercut.machine import FILE, Machine
from proof.powercut.workload import MARK, Round, StoreCall, Workload

MODES = {"default": "full", "fast": "fast"}  # what the storage calls them in its URL
MUTANTS: dict[str, frozenset[str]] = {  # which syncs the disk forgets
    "none": frozenset(),
    "no-sync": frozenset(),  # and SQLite asks for none
    "lying-disk": frozenset({"log", "database", "names"}),
    "lying-about-the-log": frozenset({"log"}),
    "lying-about-the-database": frozenset({"database"}),
    "lying-about-names": frozenset({"names"}),
}


Answers = list[Any] | None  # None: the round was not acknowledged


@dataclass(frozen=True)
class Plan:
    """Which life: all that happens in it follows from this."""

    seed: int
    mode: str = "default"
    mutant: str = "none"
    cuts: int = 4


@dataclass
class Findings:
    """What the cuts of a life, or of many, have shown."""

    cuts: int = 0
    acknowledged: int = 0  # calls
    lost: int = 0  # calls that were acknowledged and are not there
    fleeting: int = 0  # rounds of takes that were acknowledged and, as they may, are not there
    corrupt: int = 0  # cuts after which the store was damaged, or was in a state that never was
    told: list[str] = field(default_factory=list)
    where: Counter[str] = field(default_factory=Counter)
    traces: list[str] = field(default_factory=list)  # of a single life: a digest for each cut

    def add(self, other: Findings) -> None:
        self.cuts += other.cuts
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.fleeting += other.fleeting
        self.corrupt += other.corrupt
        self.told += other.told
        self.where += other.where


class Life:
    def __init__(self, plan: Plan, machine: Machine) -> None:
        self._plan = plan
        self._rng = random.Random(f"{plan.seed} {plan.mode}")
        self._machine = machine
        self._time = Time()
        self._model = Reference(self._time.now)
        self._workload = Workload(self._rng)
        self._rounds: list[Round] = []  # since the store was last examined
        self._answers: list[Answers] = []  # to each of them
        self._handles: list[Handle] = []
        self._outsider: apsw.Connection | None = None  # another program that reads or makes checkpoints
        self.findings = Findings()

    async def live(self) -> Findings:
        disk = self._insert(Disk() if self._rng.random() < 0.1 else Disk(await _new_store(self._machine)))
        for _ in range(self._plan.cuts):
            if not await self._until_cut(disk):
                return self.findings
            disk = self._insert(disk.survivor(self._rng))
        await self._start(disk)
        await self._stop()
        return self.findings

    def _insert(self, disk: Disk) -> Disk:
        disk.lies = MUTANTS[self._plan.mutant]
        return self._machine.insert(disk)

    async def _until_cut(self, disk: Disk) -> bool:
        """One stretch of work. False: what was found at its start is beyond repair."""
        rng = self._rng
        if rng.random() < 0.2:
            disk.fuse = Fuse(rng.randint(0, 40))  # perhaps while it is opened
        try:
            if not await self._start(disk):
                return False
            if disk.fuse is None:
                disk.fuse = _draw_fuse(rng)
            await self._work(disk)
            if not disk.off and rng.random() < 0.5:
                disk.cut()  # between two operations, with nothing under way
        finally:
            await self._stop()  # or while it is closed
        disk.cut()
        self._tell_cut(disk)
        return True

    # -- the store

    async def _start(self, disk: Disk) -> bool:
        """Open the store and examine it. False: it cannot be used."""
        try:
            self._handles = [await self._open()]
        except StorageError as error:
            return disk.off or self._corrupt(f"cannot be opened: {error}")
        fuse, disk.fuse = disk.fuse, None
        good = await self._examine(self._handles[0])
        # To look is a write too, of what was due by then, and not synced: the model has it, so the disk must.
        if self._plan.mode == "fast":
            disk.write_back()
        else:
            self._handles[0].sync()
        disk.fuse = fuse
        return good

    async def _open(self) -> Handle:
        clock = HeldClock(self._time)
        store = await self._machine.open(clock, MODES[self._plan.mode])
        self._tune(store)
        handle = Handle(store, clock)
        await handle.hold()
        return handle

    def _tune(self, store: SqliteStorage) -> None:
        # As in earnest, but for the size of things: a checkpoint after some 10 pages instead of 4,000, so that a short
        # life has many, and no patience with a reader that will not go away meanwhile.
        connection, log = store._writer._connection, store._writer.log
        log.after, log.patience = self._rng.choice((1, 5, 20, 60)), 0.0
        if self._rng.random() < 0.3:
            connection.execute("PRAGMA journal_size_limit = 0")
        if self._plan.mutant == "no-sync":
            connection.execute("PRAGMA synchronous = OFF")
            store._writer.durable = False

    async def _stop(self) -> None:
        if self._outsider is not None:
            self._outsider.close()
            self._outsider = None
        for handle in self._handles:
            await handle.close()
        self._handles = []

    # -- work

    async def _work(self, disk: Disk) -> None:
        rng = self._rng
        if not disk.off and rng.random() < 0.4:
            try:
                self._handles.append(await self._open())
            except StorageError:
                assert disk.off
        for _ in range(rng.randint(2, 14)):
            if disk.off:
                return
            await self._round()
            if not disk.off and rng.random() < 0.3:
                self._interfere(disk)

    async def _round(self) -> None:
        rng = self._rng
        passed = rng.random() < 0.3
        if passed:
            self._time.now += rng.choice((10, 400, 2500))
        round = self._workload.draw(self._time.now, passed)
        self._rounds.append(round)
        answers = await rng.choice(self._handles).run(round.calls)
        acknowledged = all(_is_answer(each) for each in answers)
        self._answers.append(answers if acknowledged else None)
        if acknowledged:
            self.findings.acknowledged += len(round.calls)
            self._workload.learn(round, answers)

    def _interfere(self, disk: Disk) -> None:
        """Another program reads for a while, which keeps the log from being emptied, or makes a checkpoint itself."""
        try:
            if self._outsider is None:
                self._outsider = apsw.Connection(str(self._machine.path))
            if self._outsider.in_transaction:
                self._outsider.execute("COMMIT")
            elif self._rng.random() < 0.5:
                self._outsider.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
            else:
                mode = self._rng.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE"))
                self._outsider.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except apsw.Error:
            if not disk.off:
                raise

    # -- what is left

    async def _examine(self, handle: Handle) -> bool:
        """Compare what is there with what was acknowledged. The model then stands where the store stands."""
        [mark] = await handle.run([StoreCall("read", (MARK,))])
        if isinstance(mark, BaseException):
            return self._corrupt(f"cannot be read: {mark}")
        rounds, answers = self._rounds, self._answers
        self._rounds, self._answers = [], []
        there = 0 if mark is None or not rounds else int(mark.value) - rounds[0].number + 1
        if not 0 <= there <= len(rounds):
            return self._corrupt(f"{len(rounds)} rounds from {rounds[0].number} on ran, but it says {mark.value!r}")
        wrong = damage(self._machine.path) or await self._recognise(handle, rounds, answers, there)
        if wrong:
            return self._corrupt("; ".join(wrong[:3]))
        self._workload.begin(self._model)
        return True

    async def _recognise(self, handle: Handle, rounds: list[Round], answers: list[Answers], there: int) -> list[str]:
        """Find out which rounds are there: those up to the mark, and perhaps some fleeting ones behind it."""
        most = there + len(list(takewhile(lambda round: round.is_fleeting, rounds[there:])))
        before = self._model
        wrong: list[str] = []
        for count in range(there, most + 1):
            self._model = before if count == most else copy.deepcopy(before)
            found = self._replay(rounds[:count], answers[:count]) + await differences(handle, self._model)
            if not found:
                pairs = zip(rounds[count:], answers[count:], strict=True)
                self._note_lost([round for round, answer in pairs if answer is not None])
                return []
            wrong = wrong or found
        return wrong

    def _note_lost(self, rounds: list[Round]) -> None:
        """Rounds that were acknowledged and are not there. In the default mode only the last may be fleeting."""
        if self._plan.mode == "default":
            self.findings.fleeting += sum(round.is_fleeting for round in rounds)
            rounds = [] if all(round.is_fleeting for round in rounds) else rounds
        lost = sum(len(round.calls) for round in rounds)
        self.findings.lost += lost
        if lost and self._plan.mode == "default":
            self._tell(f"{lost} acknowledged calls of {len(rounds)} rounds are gone")

    def _replay(self, rounds: list[Round], answers: list[Answers]) -> list[str]:
        """Bring the model to where the store is. Tells which acknowledged answers it would not have given."""
        wrong = []
        for round, told in zip(rounds, answers, strict=True):
            self._model.advance(round.now - self._model.now)
            for number, call in enumerate(round.calls):
                expected = call.on_model(self._model)
                if told is not None and not same_answer(call, told[number], expected):
                    wrong.append(f"{call.verb} was answered {told[number]}, not {expected}")
        self._model.advance(self._time.now - self._model.now)
        return wrong

    def _corrupt(self, text: str) -> bool:
        self.findings.corrupt += 1
        self._tell(text)
        return False

    def _tell(self, text: str) -> None:
        plan = self._plan
        self.findings.told.append(f"seed {plan.seed} {plan.mode}, cut {self.findings.cuts}: {text:.600}")

    def _tell_cut(self, disk: Disk) -> None:
        self.findings.cuts += 1
        at = disk.cut_at
        kind = "at rest" if at is None else f"{at.kind} {at.name.removeprefix(FILE) or 'database'}"
        self.findings.where[kind] += 1
        self.findings.traces.append(disk.trace)


def _draw_fuse(rng: random.Random) -> Fuse:
    """At any operation; but most write the log, so that others are picked out."""
    match rng.randrange(5):
        case 0:
            return Fuse(rng.randint(0, 8), lambda operation: operation.kind == "sync")
        case 1:
            return Fuse(rng.randint(0, 25), lambda operation: operation.name == FILE)  # in a checkpoint
        case 2:
            return Fuse(rng.randint(0, 1), lambda operation: operation.kind in ("truncate", "delete", "create"))
    return Fuse(rng.randint(0, rng.choice((10, 100, 300))))


def _is_answer(answer: Any) -> bool:
    return not isinstance(answer, BaseException) or isinstance(answer, VersionConflict)


_template: dict[str, bytes] = {}


async def _new_store(machine: Machine) -> dict[str, bytes]:
    """An empty store, as files. Made once: most lives begin with it, the others make their own under the cuts."""
    if not _template:
        disk = machine.insert(Disk())
        await (await machine.open()).close()
        _template.update(disk.image())
    return _template
