"""The books: every budget's account in the one document `budgets`, changed by compare-and-set only.

    reserve, keep, settle, … ──► pending ──► read, unless known ──► apply all ──► write(version) ──► answers
                                                    ▲                                  │
                                                    └─ another worker wrote, or the answer was lost

Nothing else in the store is touched, and nothing here decides: `ledger` does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from accoda.budget import ledger as book
from accoda.budget.clock import StorageClock
from accoda.budget.ledger import Basis, Ledger, Mark
from accoda.budget.model import Ask, Budget, BudgetView, Grant, Observation, ReserveResult, Settlement, Spent
from accoda.errors import InvalidInput, StorageUnavailable, VersionConflict
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

log = logging.getLogger("accoda.budget")

DOCUMENT = "budgets"
BELIEVED = 60.0
"""Seconds up to which every `refill_in` is believed."""
PATIENCE = 10.0
"""Seconds for which a change is tried."""

Change = Callable[[Ledger, Basis], tuple[Ledger, Any]]


class _Entry(Struct, eq=False, frozen=True):
    """A change that waits to be written, and its caller. `owed`: it is not given up when the store is away."""

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
    gave is remembered, so a change is usually that one write; if another worker wrote since, it conflicts, and the
    changes are applied anew to what is read then. `budgets` is looked at every time: more may be added later.

    Each change happens once, although a write whose answer is lost may or may not have been done. Every write bears the
    number of this writer's try, in the same document. After a lost answer, the number in the document tells whether the
    write, and all that it applied, is in. If it is not there, it can only come in before our next write, which
    then conflicts, and the number is looked at again; after our next write its version is over.
    """

    def __init__(
        self, store: Callable[[], Awaitable[Store]], budgets: Mapping[str, Budget], clock: StorageClock
    ) -> None:
        self._store = store
        self.budgets = budgets
        self.clock = clock
        self._name = os.urandom(8).hex()
        self._number = 0  # of the last try to write
        self._grants = 0
        self._warned: set[str] = set()
        self._known: tuple[Ledger, int] | None = None
        self._pending: list[_Entry] = []
        self._tries: dict[int, _Try] = {}
        self._flusher: asyncio.Task[None] | None = None
        self.listeners: set[Callable[[Sequence[str]], None]] = set()
        """Told the budgets in which this process made tokens available outside any run."""

    async def reserve(self, ask: Ask) -> ReserveResult:
        """Reserve for a take in all its budgets together, or in none. Raises StorageError where the store is away."""
        self._grants += 1
        id = f"{self._name}-{self._grants}"
        return cast(ReserveResult, await self._do(lambda ledger, basis: book.reserve(ledger, basis, ask, id)))

    async def can_afford(self, ask: Ask) -> bool:
        """Whether `reserve` would reserve now; read afresh, and nothing is written."""
        ledger, _ = await self._read()
        return book.can_afford(ledger, Basis(self.budgets, await self.clock.now()), ask)

    async def withdraw(self, ask: Ask) -> bool:
        """The head no longer waits: its claim ends. False: as for `settle`."""
        return await self._owe(lambda ledger, basis: book.withdraw(ledger, basis, ask))

    async def keep(self, grant: Grant, jobs: int, cost: int) -> Grant:
        """Give back what was not taken: `jobs` of that summed `cost` were. No write where it fits exactly."""
        taken = Spent(jobs, cost)
        amounts = book.amounts(Basis(self.budgets, 0), grant.amounts, taken)
        kept = replace(grant, count=jobs, max_cost=None if grant.max_cost is None else cost, amounts=amounts)
        if not jobs or amounts != grant.amounts:
            await self._owe(lambda ledger, basis: book.keep(ledger, basis, grant, taken))
        return kept

    async def renew(self, grants: Sequence[Grant], lease: float) -> None:
        """Make reservations last `lease` seconds from now, as the leases of their jobs do."""
        if grants:
            await self._do(lambda ledger, basis: (book.renew(ledger, basis, grants, lease), True))

    async def settle(self, settlement: Settlement) -> bool:
        """Turn a reservation into what was really spent, once.

        False: the store is away; it is applied, still once, with the next change of this object that gets through.
        """
        told = replace(settlement, observed=tuple(map(self._checked, settlement.observed)))
        return await self._owe(lambda ledger, basis: book.settle(ledger, basis, told))

    async def observe(self, *observed: Observation) -> bool:
        """Note the API's numbers outside any run: believed in full. False: as for `settle`."""
        told = [self._checked(seen) for seen in observed]
        done = await self._owe(lambda ledger, basis: book.observe(ledger, basis, told))
        self._tell([seen.budget for seen in observed])
        return done

    async def close(self, budgets: Sequence[str], until: int) -> bool:
        """Reserve nothing of these budgets before `until`. False: as for `settle`."""
        return await self._owe(lambda ledger, basis: book.close(ledger, basis, budgets, until))

    async def reopen(self, budgets: Sequence[str]) -> bool:
        """End what `close` began. False: as for `settle`."""
        done = await self._owe(lambda ledger, basis: book.reopen(ledger, basis, budgets))
        self._tell(budgets)
        return done

    async def views(self) -> dict[str, BudgetView]:
        """All budgets of the code, and those that others have written, by name; read afresh."""
        ledger, _ = await self._read()
        return book.views(ledger, Basis(self.budgets, await self.clock.now()))

    async def flush(self) -> bool:
        """Try what is still owed to the store. True: nothing is."""
        return await self._owe(lambda ledger, basis: ledger) if self._pending else True

    def _checked(self, seen: Observation) -> Observation:
        """The next step is at most `per` seconds away. A `refill_in` of more than twice that, and more than a minute,
        is most likely in milliseconds: it is passed over, since to believe it would let the queues wait for hours."""
        budget = self.budgets.get(seen.budget)
        if budget is None or seen.refill_in is None or seen.refill_in <= max(2 * budget.per, BELIEVED):
            return seen
        if seen.budget not in self._warned:
            self._warned.add(seen.budget)
            log.warning(
                "budget %r: refill_in=%g is passed over, because it is refilled every %g s; refill_in is in seconds "
                "(divide milliseconds by 1000); if the API really refills so rarely, declare it: app.budget(…, per=…)",
                seen.budget,
                seen.refill_in,
                budget.per,
            )
        return replace(seen, refill_in=None)

    def _tell(self, budgets: Sequence[str]) -> None:
        for listener in tuple(self.listeners):
            listener(budgets)

    async def _owe(self, change: Callable[[Ledger, Basis], Ledger]) -> bool:
        return bool(await self._do(lambda ledger, basis: (change(ledger, basis), True), owed=True))

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
        now = await self.clock.now()
        self._pending = [entry for entry in self._pending if entry.owed or not entry.caller.done()]
        entries, (ledger, version) = list(self._pending), self._known
        after, answers = _apply(entries, ledger, Basis(self.budgets, now))
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
        return book.decode(document.value, await self.clock.now()), document.version

    def _resolve(self, ledger: Ledger) -> None:
        """ReserveResult those of a write whose answer was lost, if it is in the document."""
        mark = ledger.writers.get(self._name)
        done = self._tries.get(mark.number) if mark else None
        if done is not None:
            self._tries.clear()  # at most one of them fitted the version
            self._answer(done.entries, done.answers)

    def _answer(self, entries: list[_Entry], answers: list[Any]) -> None:
        done = {id(entry) for entry in entries}
        self._pending = [entry for entry in self._pending if id(entry) not in done]
        for entry, answer in zip(entries, answers, strict=True):
            if entry.caller.done():  # cancelled, or told that the store is away
                if isinstance(answer, Grant):
                    self._release(answer)
            elif isinstance(answer, InvalidInput):
                entry.caller.set_exception(answer)
            else:
                entry.caller.set_result(answer)

    def _release(self, grant: Grant) -> None:
        """Give back what was reserved for a caller that is no longer there."""
        caller: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append(
            _Entry(lambda ledger, basis: (book.keep(ledger, basis, grant, Spent()), True), caller, True)
        )

    def _give_up(self, error: Exception) -> None:
        for entry in self._pending:
            if entry.caller.done():
                continue
            if entry.owed:
                entry.caller.set_result(False)
            else:
                entry.caller.set_exception(error)
        self._pending = [entry for entry in self._pending if entry.owed]


def _apply(entries: Sequence[_Entry], ledger: Ledger, basis: Basis) -> tuple[Ledger, list[Any]]:
    """All changes in order. One that cannot be made fails alone."""
    answers: list[Any] = []
    for entry in entries:
        try:
            ledger, answer = entry.change(ledger, basis)
        except InvalidInput as error:
            answer = error
        answers.append(answer)
    return ledger, answers
