"""An app's budgets, and the books that keep their accounts: one for each event loop that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

from accoda.budget import Books, Budget, StorageClock
from accoda.clock import Clock
from accoda.errors import InvalidInput
from accoda.storage.protocol import Store


class StoreSource(Protocol):
    """Where the books find this event loop's store."""

    clock: Clock | None

    async def get(self) -> Store: ...


class BudgetRegistry:
    """The budgets that the code declares, by name, and where they are accounted for."""

    def __init__(self, source: Callable[[], StoreSource]) -> None:
        self.budgets: dict[str, Budget] = {}
        self._source = source
        self._books: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[StoreSource, Books]] = WeakKeyDictionary()

    def add(self, budget: Budget) -> Budget:
        """Declare a budget."""
        if budget.name in self.budgets:
            raise InvalidInput("budget", f"{budget.name!r} is declared already: {self.budgets[budget.name]!r}")
        self.budgets[budget.name] = budget
        return budget

    @property
    def books(self) -> Books:
        """This event loop's. A test may put another source in place, and then has books of its own."""
        loop, source = asyncio.get_running_loop(), self._source()
        found = self._books.get(loop)
        if found is None or found[0] is not source:
            found = self._books[loop] = (
                source,
                Books(source.get, self.budgets, StorageClock(source.get, source.clock)),
            )
        return found[1]
