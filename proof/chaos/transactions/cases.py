"""Every driver with every way in which its jobs can reach a store."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql

from accoda.transactions import outbox_schema
from proof.chaos.transactions.callers import POSTGRES, SQLITE
from proof.servers.postgres import PostgresServer
from proof.servers.redis import RedisServer

ORDERS = "CREATE TABLE orders (number integer NOT NULL PRIMARY KEY, shared text)"


class Case(NamedTuple):
    """A driver, and where its jobs go: "postgresql" or "sqlite" by its own connection, or an outbox."""

    driver: str
    store: str

    @property
    def engine(self) -> str:
        """The database of the caller."""
        return "postgresql" if self.store.startswith("postgresql") else "sqlite"

    @property
    def has_outbox(self) -> bool:
        return self.store.endswith("redis")

    def __str__(self) -> str:
        return f"{self.driver}, {self.store}"


IN_POSTGRES, IN_SQLITE = "postgresql", "sqlite"
BY_POSTGRES, BY_SQLITE = "postgresql outbox, redis", "sqlite outbox, redis"

CASES = (
    *(Case(driver, IN_POSTGRES) for driver in POSTGRES),
    Case("apsw", IN_SQLITE),
    *(Case(driver, BY_POSTGRES) for driver in POSTGRES),
    *(Case(driver, BY_SQLITE) for driver in SQLITE),
)


class Place(NamedTuple):
    """The caller's database, which has a table `orders`, and the URLs that the app is given."""

    database: str
    store: str
    outbox: str | None


class Servers:
    """Makes places: new databases on one PostgreSQL, new files, one Redis that is emptied for each."""

    def __init__(self, postgres: PostgresServer, redis: RedisServer, folder: Path) -> None:
        self._postgres = postgres
        self._redis = redis
        self._folder = folder
        self._made = 0

    def new_place(self, case: Case) -> Place:
        self._made += 1
        self._redis.ask("FLUSHALL")
        database = self._new_database() if case.engine == "postgresql" else self._new_file(case)
        return Place(database, self._redis.url, database) if case.has_outbox else Place(database, database, None)

    def _new_database(self) -> str:
        name = f"kills_{self._made}"
        with psycopg.connect(self._postgres.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        url = f"{self._postgres.url.rpartition('/')[0]}/{name}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(ORDERS)
            connection.execute(outbox_schema("postgresql").encode())
        return url

    def _new_file(self, case: Case) -> str:
        path = self._folder / f"kills-{self._made}.db"
        if case.has_outbox:
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.executescript(f"PRAGMA journal_mode = wal; {ORDERS}; {outbox_schema('sqlite')}")
        return f"sqlite:///{path}"  # the store's own file is made with the store


@contextmanager
def running_servers(folder: Path) -> Iterator[Servers]:
    """What all cases need. Whether a commit survives a power cut is not the question here."""
    with ExitStack() as stack:
        postgres = stack.enter_context(
            PostgresServer(durable=False, settings=["synchronous_commit=off"], connections=200)
        )
        yield Servers(postgres, stack.enter_context(RedisServer()), folder)


def read_orders(place: Place) -> Sequence[tuple[int, str | None]]:
    """The orders that were committed. Waits until the server has ended the transactions of the callers it lost."""
    query = "SELECT number, shared FROM orders"
    if not place.database.startswith("postgresql"):
        import apsw  # not sqlite3: for the store's file there may be one copy of the library only

        reader = apsw.Connection if place.outbox is None else sqlite3.connect
        with contextlib.closing(reader(place.database.removeprefix("sqlite:///"))) as connection:
            return [tuple(row) for row in connection.execute(query)]
    with psycopg.connect(place.database, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def callers_left(place: Place) -> int:
    """How many sessions the server still has in this database, beside the one that asks."""
    if not place.database.startswith("postgresql"):
        return 0
    with psycopg.connect(place.database, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        ).fetchone()
        assert row is not None
        return int(row[0])
