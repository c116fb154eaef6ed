"""Which way jobs go that are enqueued with a caller's connection, and the steps of each.

The steps are a generator: it asks for statements on the caller's connection and gets their rows. So what is done is
written once, and `enqueue` and `enqueue_blocking` only run it, one with and one without `await`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from accoda.clock import Clock
from accoda.errors import InvalidInput
from accoda.model import Enqueued, NewJob
from accoda.storage.common.caller_connection import Caller, Statement, fetch, fetch_async, recognize
from accoda.storage.open import read_url, split_timeout
from accoda.storage.protocol import Store
from accoda.transactions.outbox import WHICH_FILE, insert, new_id, read_outbox


class ByStore(NamedTuple):
    """A call of the app's own store."""

    call: Callable[[Store], Awaitable[Any]]


Steps = Generator[Statement | ByStore, Any, list[Enqueued]]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the loop thread of `app.sync`, and waits for it."""


class Connections(Protocol):
    """What is needed of an app's connections."""

    url: str
    clock: Clock | None
    in_trial: bool

    async def get(self) -> Store: ...


class Transactions:
    """The ways of an app's jobs into a caller's transaction."""

    def __init__(self, connections: Callable[[], Connections], outbox: str | None = None) -> None:
        self._connections = connections
        self._checked: str | None = None
        """The URL of the store that was seen in a caller's database. Schemas do not go away."""
        self.outbox = None if outbox is None else read_outbox(outbox)
        if self.outbox is not None:
            _check_outbox(connections().url, self.outbox.url)

    async def enqueue(self, connection: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue in the transaction that is open on an async connection."""
        caller = recognize(connection)
        if caller.blocking:
            raise InvalidInput(
                "connection",
                f"a {caller.library} connection of this kind blocks: use app.sync.enqueue(…, connection=…)",
            )
        steps, answer = self._steps(caller, jobs), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            if isinstance(step, Statement):
                answer = await fetch_async(caller, step)
            else:
                answer = await step.call(await self._connections().get())

    def enqueue_blocking(
        self, connection: object, jobs: Sequence[NewJob], run: Run, row: str | None = None
    ) -> list[Enqueued]:
        """Enqueue in the transaction that is open on a connection whose calls block, in this thread.

        `row` is the id of the row in the outbox, a `new_id()` of a caller who has to know it before.
        """
        caller = recognize(connection)
        if not caller.blocking:
            raise InvalidInput(
                "connection", f"this {caller.library} connection is async: use await app.enqueue(…, connection=…)"
            )
        steps, answer = self._steps(caller, jobs, row), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            answer = fetch(caller, step) if isinstance(step, Statement) else run(self._by_store(step))

    async def _by_store(self, step: ByStore) -> Any:
        return await step.call(await self._connections().get())

    def _steps(self, caller: Caller, jobs: Sequence[NewJob], row: str | None = None) -> Steps:
        connections = self._connections()
        scheme = read_url(connections.url).scheme
        if not jobs:
            return []
        if connections.in_trial:  # nothing leaves the process
            return (yield ByStore(lambda store: store.enqueue(jobs)))  # type: ignore[no-any-return]
        if self.outbox is not None and caller.engine == self.outbox.engine and caller.library != "apsw":
            return (yield from self._into_outbox(caller, jobs, row or new_id()))
        if scheme == caller.engine == "postgresql":
            return (yield from self._into_postgres(connections, jobs))
        if scheme == "sqlite" and caller.library == "apsw":
            return _into_sqlite(caller, connections, jobs)
        _refuse(caller, scheme, self.outbox is not None)

    def _into_postgres(self, connections: Connections, jobs: Sequence[NewJob]) -> Steps:
        from accoda.storage.postgres.caller_transaction import enqueue_statement, enqueued, store_check
        from accoda.storage.postgres.open import place_of

        url = connections.url
        schema = place_of(read_url(split_timeout(url)[0])).schema
        if self._checked != url:
            if not (yield store_check(schema))[0]:
                yield ByStore(_opened)  # which makes the schema
                if not (yield store_check(schema, again=True))[0]:
                    raise InvalidInput(
                        "connection",
                        f"its database has no schema {schema!r} of Accoda, so it is not the one of the app's store. "
                        'Connect to that one, or give the app an outbox: App(url, outbox="postgresql://…")',
                    )
            self._checked = url
        at = None if connections.clock is None else connections.clock.now()
        return enqueued((yield enqueue_statement(schema, at, jobs)))

    def _into_outbox(self, caller: Caller, jobs: Sequence[NewJob], id: str) -> Steps:
        outbox = self.outbox
        assert outbox is not None
        if outbox.path is not None:
            file = (yield WHICH_FILE)[0]
            if not file or not outbox.path.exists() or not outbox.path.samefile(file):
                raise InvalidInput(
                    "connection",
                    f"is to {file or 'a database in memory'}, but the app's outbox is {outbox.path}; nothing relays "
                    "jobs from another file",
                )
        yield insert(caller.engine, id, jobs)
        return [Enqueued(0, "outbox").in_row(id) for _ in jobs]


def _into_sqlite(caller: Caller, connections: Connections, jobs: Sequence[NewJob]) -> list[Enqueued]:
    from accoda.storage.sqlite.caller_transaction import enqueue_on
    from accoda.storage.sqlite.open import file_of

    path = file_of(read_url(split_timeout(connections.url)[0]))
    return enqueue_on(caller.connection, path, connections.clock, jobs)


async def _opened(store: Store) -> None:
    """Nothing more: it is open."""


def _check_outbox(store: str, outbox: str) -> None:
    """Refuse an outbox in the store's own database. PostgreSQL needs none there; for SQLite see `_refuse`."""
    ours, theirs = read_url(split_timeout(store)[0]), read_url(outbox)
    if ours.scheme == theirs.scheme == "sqlite":
        from accoda.storage.sqlite.open import file_of

        if file_of(ours).resolve() == file_of(theirs).resolve():
            raise InvalidInput("outbox", "is the file of the store itself; name the file with your own tables")
    places = [(url.scheme, url.hostname, url.port, url.path) for url in (ours, theirs)]
    if ours.scheme == "postgresql" and places[0] == places[1]:
        raise InvalidInput("outbox", "is the database of the store itself; leave it out: connection=… needs none there")


def _refuse(caller: Caller, scheme: str, has_outbox: bool) -> NoReturn:
    example = "postgresql://…" if caller.engine == "postgresql" else "sqlite:///app.db"
    if caller.library == "apsw":
        problem = "an apsw connection can be used if the store is SQLite: apsw has a copy of the library of its own"
    elif has_outbox:
        problem = f"is to {caller.engine}, and there this app has neither its store nor its outbox"
    elif scheme == "sqlite" and caller.engine == "sqlite":
        problem = (
            f"{caller.library} and the store use two copies of the SQLite library, which can damage a file that both "
            "have open in one process. Keep the store in a file of its own, and give the app an outbox in yours: "
            f'App(url, outbox="{example}")'
        )
    else:
        problem = (
            f"the store ({scheme}://) is not in the database of this connection, so the app needs an outbox there: "
            f'App(url, outbox="{example}")'
        )
    raise InvalidInput("connection", problem)
