"""What tests of the runtime share."""

from collections.abc import Iterator
from typing import Any

import pytest
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

SERVERS: dict[str, Any] = {"redis": RedisServer, "postgres": PostgresServer, "tarantool": TarantoolServer}


@pytest.fixture(scope="module", params=["memory", "sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of each kind, for all tests of a module: they use queues of their own."""
    name: str = request.param
    if name == "memory":
        yield "memory://"
    elif name == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
    else:
        server = need(lambda: SERVERS[name]().start())
        try:
            yield server.url
        finally:
            server.stop()
