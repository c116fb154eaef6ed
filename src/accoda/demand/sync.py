"""A demand without `await`: `deals.sync.request(…)`, for Django, Flask and scripts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from accoda.demand.options import Answer, Host, Left
from accoda.demand.waiters import Waiter
from accoda.model import Enqueued, NewJob

V = TypeVar("V")
G = TypeVar("G", covariant=True)


class DemandCalls(Protocol[G]):
    """A demand, as far as it is needed here."""

    host: Host

    @property
    def request(self) -> Callable[..., Coroutine[Any, Any, Answer]]: ...
    @property
    def withdraw(self) -> Callable[[str, str], Coroutine[Any, Any, Left]]: ...
    @property
    def get(self) -> Callable[..., Coroutine[Any, Any, G]]: ...
    async def ask(self, key: str, waiter: Waiter[Any], fresh_after: datetime | int | None, lane: str | None) -> Any: ...
    def jobs_of(self, asked: Any) -> list[NewJob]: ...
    async def answer(self, asked: Any, told: Sequence[Enqueued]) -> Answer: ...


class SyncDemand(Generic[V]):
    """The calls of a demand, on the thread of `app.sync`."""

    def __init__(self, demand: DemandCalls[V]) -> None:
        self._demand = demand

    def request(
        self,
        key: str,
        waiter: Waiter[Any],
        *,
        fresh_after: datetime | int | None = None,
        lane: str | None = None,
        connection: object = None,
    ) -> Answer:
        """Let a waiter have the result of a key: see `Demand.request`.

        With `connection`, a connection to a database whose calls block, the request is part of the transaction that is
        open there. The cache is looked up by the store, and what follows is written in this thread.
        """
        demand, host = self._demand, self._demand.host
        if connection is None:
            return host.sync.run(demand.request(key, waiter, fresh_after=fresh_after, lane=lane))
        asked = host.sync.run(demand.ask(key, waiter, fresh_after, lane))
        told = host.transactions.enqueue_blocking(connection, demand.jobs_of(asked), host.sync.run)
        return host.sync.run(demand.answer(asked, told))

    def withdraw(self, key: str, waiter_id: str) -> Left:
        """Let a waiter leave: see `Demand.withdraw`."""
        return self._demand.host.sync.run(self._demand.withdraw(key, waiter_id))

    def get(self, key: str, **options: Any) -> V:
        """The result of a key: see `Demand.get`, which has the options."""
        return self._demand.host.sync.run(self._demand.get(key, **options))
