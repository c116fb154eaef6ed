"""One PostgreSQL for all of these tests, and queues of their own for each."""

import itertools
from collections.abc import Iterator

import psycopg
import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False, settings=["synchronous_commit=off"], connections=200)) as running:
        yield running


@pytest.fixture(scope="package")
def database(server: PostgresServer) -> str:
    """The URL of a database with a table `orders`: what a caller has."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    url = server.url.rpartition("/")[0] + "/shop"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, item text)")
    return url


@pytest.fixture
def queue() -> str:
    """One that no other test uses."""
    return f"orders-{next(_numbers)}"
