"""An app's budgets, and the books that keep their accounts: one for each event loop that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from msgspec import Struct

from accoda.budget import Books, Budget, Observation, StorageClock
from accoda.connections import Connections
from accoda.errors import InvalidInput


class OpenBooks(Books):
    """Books whose readers in this process hear of tokens that somebody here made available beside all jobs."""

    def __init__(self, connections: Connections, budgets: Mapping[str, Budget], clock: StorageClock) -> None:
        super().__init__(connections.get, budgets, clock)
        self.readers: set[Callable[[Sequence[str]], None]] = set()

    async def observe(self, *observed: Observation) -> bool:
        done = await super().observe(*observed)
        self._tell([seen.budget for seen in observed])
        return done

    async def reopen(self, budgets: Sequence[str]) -> bool:
        done = await super().reopen(budgets)
        self._tell(budgets)
        return done

    def _tell(self, budgets: Sequence[str]) -> None:
        for reader in tuple(self.readers):
            reader(budgets)


class Office(Struct, frozen=True, eq=False):
    """What one event loop uses: the books, and the storage's clock by which they go."""

    books: OpenBooks
    clock: StorageClock
    connections: Connections


class Accounts:
    """The budgets that the code declares, by name, and where they are accounted for."""

    def __init__(self, connections: Callable[[], Connections]) -> None:
        self.budgets: dict[str, Budget] = {}
        self._connections = connections
        self._offices: WeakKeyDictionary[asyncio.AbstractEventLoop, Office] = WeakKeyDictionary()

    def add(self, budget: Budget) -> Budget:
        """Declare a budget."""
        if budget.name in self.budgets:
            raise InvalidInput("budget", f"{budget.name!r} is declared already: {self.budgets[budget.name]!r}")
        self.budgets[budget.name] = budget
        return budget

    @property
    def office(self) -> Office:
        """This event loop's. A trial puts other connections in place, and has books of its own."""
        loop, connections = asyncio.get_running_loop(), self._connections()
        office = self._offices.get(loop)
        if office is None or office.connections is not connections:
            clock = StorageClock(connections.get, connections.clock)
            office = Office(OpenBooks(connections, self.budgets, clock), clock, connections)
            self._offices[loop] = office
        return office
