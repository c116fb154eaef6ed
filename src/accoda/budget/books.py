"""The books: every budget's account in the one document `budgets`, changed by compare-and-set only.

    reserve, keep, settle, … ──► pending ──► read, unless known ──► apply all ──► write(version) ──► answers
                                                    ▲                                  │
                                                    └─ somebody else wrote, or the answer was lost

Nothing else in the store is touched, and nothing here decides: `ledger` does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from accoda.budget import ledger as book
from accoda.budget.clock import StorageClock
from accoda.budget.ledger import Desk, Ledger, Mark
from accoda.budget.model import Answer, Ask, Budget, BudgetView, Grant, Observation, Settlement, Spent
from accoda.errors import InvalidInput, StorageUnavailable, VersionConflict
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Storage

DOCUMENT = "budgets"
PATIENCE = 10.0
"""Seconds for which a change is tried."""

Change = Callable[[Ledger, Desk], tuple[Ledger, Any]]


class _Entry(Struct, eq=False, frozen=True):
    """A change that waits to be written, and who waits for it. `owed`: it is not given up when the store is away."""

    change: Change
    caller: asyncio.Future[Any]
    owed: bool


class _Try(Struct, frozen=True):
    """A write whose outcome is not known yet: what it would have applied, and with what answers."""

    entries: list[_Entry]
    answers: list[Any]


class Books:
    """Reserves and settles over all workers of all processes. One object for each event loop.

    The changes of all callers are applied in one write, those that come during a write in the next. The version that it
    gave is remembered, so a change is usually that one write; if somebody else wrote since, it conflicts, and the
    changes are applied anew to what is read then. `budgets` is looked at every time: more may be added later.

    Each change happens once, although a write whose answer is lost may or may not have been done. Every write bears the
    number of this writer's try, in the same document. Who reads the document after a lost answer sees from the number
    whether it, and all that it applied, is in. If it is not there, it can only come in before our next write, which
    then conflicts, and the number is looked at again; after our next write its version is over.
    """

    def __init__(
        self, store: Callable[[], Awaitable[Storage]], budgets: Mapping[str, Budget], clock: StorageClock
    ) -> None:
        self._store = store
        self._budgets = budgets
        self._clock = clock
        self._name = os.urandom(8).hex()
        self._number = 0  # of the last try to write
        self._grants = 0
        self._known: tuple[Ledger, int] | None = None
        self._pending: list[_Entry] = []
        self._tries: dict[int, _Try] = {}
        self._flusher: asyncio.Task[None] | None = None

    async def reserve(self, ask: Ask) -> Answer:
        """Reserve for a take in all its budgets together, or in none. Raises StorageError where the store is away."""
        self._grants += 1
        id = f"{self._name}-{self._grants}"
        return cast(Answer, await self._do(lambda ledger, desk: book.reserve(ledger, desk, ask, id)))

    async def keep(self, grant: Grant, jobs: int, cost: int) -> Grant:
        """Give back what was not taken: `jobs` of that summed `cost` were. No write where it fits exactly."""
        taken = Spent(jobs, cost)
        amounts = book.amounts(Desk(self._budgets, 0), grant.amounts, taken)
        kept = replace(grant, count=jobs, max_cost=None if grant.max_cost is None else cost, amounts=amounts)
        if not jobs or amounts != grant.amounts:
            await self._owe(lambda ledger, desk: book.keep(ledger, desk, grant, taken))
        return kept

    async def renew(self, grants: Sequence[Grant], lease: float) -> None:
        """Make reservations last `lease` seconds from now, as the leases of their jobs do."""
        if grants:
            await self._do(lambda ledger, desk: (book.renew(ledger, desk, grants, lease), True))

    async def settle(self, settlement: Settlement) -> bool:
        """Turn a reservation into what was really spent, once.

        False: the store is away; it is applied, still once, with the next change of this object that gets through.
        """
        return await self._owe(lambda ledger, desk: book.settle(ledger, desk, settlement))

    async def observe(self, *observed: Observation) -> bool:
        """Note the API's numbers outside any run: believed in full. False: as for `settle`."""
        return await self._owe(lambda ledger, desk: book.observe(ledger, desk, observed))

    async def close(self, budgets: Sequence[str], until: int) -> bool:
        """Reserve nothing of these budgets before `until`. False: as for `settle`."""
        return await self._owe(lambda ledger, desk: book.close(ledger, desk, budgets, until))

    async def reopen(self, budgets: Sequence[str]) -> bool:
        """End what `close` began. False: as for `settle`."""
        return await self._owe(lambda ledger, desk: book.reopen(ledger, desk, budgets))

    async def views(self) -> dict[str, BudgetView]:
        """All budgets of the code, and those that others have written, by name; read afresh."""
        ledger, _ = await self._read()
        return book.views(ledger, Desk(self._budgets, await self._clock.now()))

    async def flush(self) -> bool:
        """Try what is still owed to the store. True: nothing is."""
        return await self._owe(lambda ledger, desk: ledger) if self._pending else True

    async def _owe(self, change: Callable[[Ledger, Desk], Ledger]) -> bool:
        return bool(await self._do(lambda ledger, desk: (change(ledger, desk), True), owed=True))

    async def _do(self, change: Change, *, owed: bool = False) -> Any:
        entry = _Entry(change, asyncio.get_running_loop().create_future(), owed)
        self._pending.append(entry)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return await entry.caller

    async def _flush(self) -> None:
        backoff, give_up_at = Backoff(first=0.01, longest=0.5), time.monotonic() + PATIENCE
        while self._pending:
            try:
                await self._once()
                backoff, give_up_at = Backoff(first=0.01, longest=0.5), time.monotonic() + PATIENCE
            except (VersionConflict, StorageUnavailable) as error:
                self._known = None
                if time.monotonic() >= give_up_at:
                    return self._give_up(error)
                await backoff.nap()
            except Exception as error:
                self._known = None
                return self._give_up(error)
        return None

    async def _once(self) -> None:
        """Apply what is pending to what is known, or to what is read where nothing is; write it; answer."""
        afresh = self._known is None
        if self._known is None:
            self._known = await self._read()
            self._resolve(self._known[0])
        now = await self._clock.now()
        self._pending = [entry for entry in self._pending if entry.owed or not entry.caller.done()]
        entries, (ledger, version) = list(self._pending), self._known
        after, answers = _apply(entries, ledger, Desk(self._budgets, now))
        if after is ledger:
            if afresh:
                self._answer(entries, answers)
            self._known = None  # nothing to write, so nothing has proved what we know: it is read before it is told
            return
        self._number += 1
        after = replace(after, writers=after.writers | {self._name: Mark(self._number, now)})
        self._tries[self._number] = _Try(entries, answers)
        store = await self._store()
        self._known = after, await store.write(DOCUMENT, book.encode(after, now), version=version)
        self._tries.clear()  # the others needed an earlier version: they can no longer come in
        self._answer(entries, answers)

    async def _read(self) -> tuple[Ledger, int]:
        document = await (await self._store()).read(DOCUMENT)
        if document is None:
            return Ledger(), 0
        return book.decode(document.value, await self._clock.now()), document.version

    def _resolve(self, ledger: Ledger) -> None:
        """Answer those of a write whose answer was lost, if it is in the document."""
        mark = ledger.writers.get(self._name)
        done = self._tries.get(mark.number) if mark else None
        if done is not None:
            self._tries.clear()  # at most one of them fitted the version
            self._answer(done.entries, done.answers)

    def _answer(self, entries: list[_Entry], answers: list[Any]) -> None:
        done = {id(entry) for entry in entries}
        self._pending = [entry for entry in self._pending if id(entry) not in done]
        for entry, answer in zip(entries, answers, strict=True):
            if entry.caller.done():  # he was cancelled, or told that the store is away
                if isinstance(answer, Grant):
                    self._release(answer)
            elif isinstance(answer, InvalidInput):
                entry.caller.set_exception(answer)
            else:
                entry.caller.set_result(answer)

    def _release(self, grant: Grant) -> None:
        """Give back what was reserved for one who is no longer there."""
        caller: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append(_Entry(lambda ledger, desk: (book.keep(ledger, desk, grant, Spent()), True), caller, True))

    def _give_up(self, error: Exception) -> None:
        for entry in self._pending:
            if entry.caller.done():
                continue
            if entry.owed:
                entry.caller.set_result(False)
            else:
                entry.caller.set_exception(error)
        self._pending = [entry for entry in self._pending if entry.owed]


def _apply(entries: Sequence[_Entry], ledger: Ledger, desk: Desk) -> tuple[Ledger, list[Any]]:
    """All changes in order. One that cannot be made fails alone."""
    answers: list[Any] = []
    for entry in entries:
        try:
            ledger, answer = entry.change(ledger, desk)
        except InvalidInput as error:
            answer = error
        answers.append(answer)
    return ledger, answers
