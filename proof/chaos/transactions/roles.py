"""What the processes do that are killed: a caller with transactions, and a relay."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from accoda import App, Store
from accoda.transactions import relay
from proof.chaos.transactions.callers import POSTGRES, SQLITE, Caller, apsw
from proof.chaos.transactions.forks import Role, say

QUEUE = "orders"
LEASE = 0.5
"""Of a relay: the next one goes on that long after a kill."""
MOMENT = 0.004
"""Seconds between the last write and the commit, at most. A kill comes at any time within twice that."""
BLOCK = 100_000
"""Numbers that each process has for itself."""
SHARED = 10
"""So many orders in a row, of all writers, share a key."""


def open_caller(role: Role) -> Awaitable[Caller]:
    openers = POSTGRES if role.database.startswith("postgresql") else {**SQLITE, "apsw": apsw}
    return openers[role.driver](role.database)


async def write(role: Role) -> None:
    """Transactions without end. Each has an order and its job; before it says "written", nothing is committed."""
    app, caller, rng = App(role.store, outbox=role.outbox), await open_caller(role), random.Random(role.seed)
    for number in itertools.count(role.first):
        shared = f"shared-{number % BLOCK // SHARED}" if rng.random() < 0.3 else None
        if rng.random() < 0.3:
            await caller.execute(insert(-number, None))  # its job must go with it
            await caller.execute("SAVEPOINT s")
            await caller.execute(insert(number, shared))
            await enqueue(app, caller, role, number, shared)
            await caller.execute("ROLLBACK TO SAVEPOINT s")
            await enqueue(app, caller, role, -number, None)
            await caller.execute("SAVEPOINT t")
            await caller.execute(insert(number, shared))
            await enqueue(app, caller, role, number, shared)
            await caller.execute("RELEASE SAVEPOINT t")
        else:
            await caller.execute(insert(number, shared))
            await enqueue(app, caller, role, number, shared)
        say(role, "written", number)
        await asyncio.sleep(rng.uniform(0, MOMENT))
        if rng.random() < 0.2:
            await caller.rollback()
        else:
            await caller.commit()
            say(role, "committed", number)


async def feed(role: Role) -> None:
    """Orders in a row, of one to three jobs each, some rolled back; without a key that could hide a second job."""
    app, caller, rng = App(role.store, outbox=role.outbox), await open_caller(role), random.Random(role.seed)
    number = role.first
    while True:
        numbers = range(number, number + rng.choice((1, 1, 1, 2, 3)))
        for each in numbers:
            await caller.execute(insert(each, None))
        await caller.enqueue_many(app, QUEUE, [[each, None] for each in numbers])
        if rng.random() < 0.1:
            await caller.rollback()
        else:
            await caller.commit()
            say(role, "committed", numbers[-1])
        number = numbers[-1] + 1
        await asyncio.sleep(role.pause)


class Announcing:
    """A store that says when a relay takes its step, and pauses before and after it: a kill may come in each pause."""

    def __init__(self, store: Store, role: Role) -> None:
        self._store = store
        self._role = role
        self._random = random.Random(role.seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, outcomes: Sequence[Any]) -> Any:
        say(self._role, "settles")
        await self._pause()
        refused = await self._store.settle(outcomes)
        await self._pause()
        return refused

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0, MOMENT))


async def relay_rows(role: Role) -> None:
    relay.LEASE = LEASE
    app = App(role.store, outbox=role.outbox)
    assert app.transactions.outbox is not None
    async with app:
        store: Any = Announcing(await app.connections.get(), role)
        await relay.Relay(app.transactions.outbox).run(store)


async def nothing(role: Role) -> None:
    """Its lines come after those of all that were killed before."""


def insert(number: int, shared: str | None) -> str:
    return f"INSERT INTO orders (number, shared) VALUES ({number}, {'NULL' if shared is None else repr(shared)})"


async def enqueue(app: App, caller: Caller, role: Role, number: int, shared: str | None) -> None:
    if role.broken:
        await app.enqueue(QUEUE, [number, shared], key=shared)
    else:
        await caller.enqueue(app, QUEUE, [number, shared], key=shared)


ROLES: dict[str, Callable[[Role], Coroutine[Any, Any, None]]] = {
    "write": write,
    "feed": feed,
    "relay": relay_rows,
    "nothing": nothing,
}
