"""Private Redis servers: one alone, a master with replicas and Sentinels, a Cluster of three masters with replicas."""

from __future__ import annotations

import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, cast

import hiredis

from accoda.storage.open import open_storage
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture
from proof.servers.disk import Disk
from proof.servers.process import Process, find_program, free_port, wait_until

SAVING = {
    "none": ("--appendonly", "no"),
    "everysec": ("--appendonly", "yes", "--appendfsync", "everysec"),
    "always": ("--appendonly", "yes", "--appendfsync", "always"),
}


def ask(port: int, *command: str | int, timeout: float = 5.0) -> Any:
    """Send one command to a server on this machine and give its reply; an error reply is given too, not raised."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
        connection.sendall(hiredis.pack_command(cast(Any, command)))
        reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        while (reply := reader.gets()) is False:
            data = connection.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            reader.feed(data)
        return reply


def ask_role(server: RedisServer) -> str:
    """What a server says of its part in the replication; nothing while it cannot answer."""
    try:
        return str(server.ask("INFO", "replication"))
    except OSError:
        return ""


class RedisServer(Process):
    """`saving` is "none", "everysec" or "always": when the append-only file is written to disk."""

    def __init__(self, saving: str = "none", *extra: str, disk: Disk | None = None) -> None:
        super().__init__(disk)
        self._program = find_program("redis-server")
        self._options = (*SAVING[saving], *extra)

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """The same, through another port that leads here."""
        return f"redis://127.0.0.1:{port}/0"

    def command(self) -> Sequence[str]:
        place = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder))
        return (self._program, *place, "--save", "", "--daemonize", "no", *self._options)

    def is_up(self) -> bool:
        try:
            return bool(ask(self.port, "PING") == "PONG")
        except OSError:
            return False

    def ask(self, *command: str | int) -> Any:
        return ask(self.port, *command)


class Sentinel(RedisServer):
    """One Sentinel. Its configuration is a file that it rewrites itself."""

    def __init__(self, master: RedisServer, name: str, quorum: int, down_after_ms: int) -> None:
        super().__init__()
        self._file = self.folder / "sentinel.conf"
        self._file.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {name} 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {name} {down_after_ms}\n"
            f"sentinel failover-timeout {name} 4000\nsentinel parallel-syncs {name} 1\n"
        )

    def command(self) -> Sequence[str]:
        return (self._program, str(self._file), "--sentinel")


class Servers:
    """Several processes as one: started together, stopped together."""

    def __init__(self) -> None:
        self.all: list[RedisServer] = []

    @property
    def data_servers(self) -> Sequence[RedisServer]:
        """Those that hold data."""
        return self.all

    def start(self) -> Self:
        raise NotImplementedError

    def current_masters(self) -> list[RedisServer]:
        """Those that take writes at this moment, after any number of fail-overs."""
        raise NotImplementedError

    def wait_for_heir(self, lost: RedisServer) -> None:
        """Return when another server has taken the place of a master that was lost."""
        before = len(self.current_masters())
        wait_until(lambda: self._has_heir(lost, before), lambda: "no replica took over")

    def wait_until_in_order(self) -> None:
        """Return when all servers are there and every replica follows its master."""
        wait_until(self._is_in_order, lambda: "the replicas do not follow their masters")

    def _has_heir(self, lost: RedisServer, before: int) -> bool:
        masters = self.current_masters()
        return lost not in masters and len(masters) == before

    def _is_in_order(self) -> bool:
        masters = self.current_masters()
        return all("master_link_status:up" in ask_role(each) for each in self.data_servers if each not in masters)

    def close(self) -> None:
        for server in reversed(self.all):
            server.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SentinelSet(Servers):
    """A master, its replicas, and three Sentinels of which two must agree."""

    name = "jobs"

    def __init__(self, replicas: int = 1, down_after_ms: int = 600) -> None:
        super().__init__()
        quick = ("--repl-diskless-sync-delay", "0")
        self.master = RedisServer("everysec", *quick)
        self.replicas = [
            RedisServer("everysec", "--replicaof", f"127.0.0.1 {self.master.port}", *quick) for _ in range(replicas)
        ]
        self.sentinels = [Sentinel(self.master, self.name, 2, down_after_ms) for _ in range(3)]
        self.all = [self.master, *self.replicas, *self.sentinels]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.name}?db=0"

    @property
    def data_servers(self) -> Sequence[RedisServer]:
        return [self.master, *self.replicas]

    def current_masters(self) -> list[RedisServer]:
        """The one that the Sentinels name."""
        _, port = self.sentinels[0].ask("SENTINEL", "get-master-addr-by-name", self.name)
        return [server for server in self.data_servers if server.port == int(port)]

    def start(self) -> Self:
        for server in self.all:
            server.start()
        wait_until(self._in_order, lambda: "the Sentinels do not know each other and the replicas")
        return self

    def _in_order(self) -> bool:
        for sentinel in self.sentinels:
            reply = sentinel.ask("SENTINEL", "master", self.name)
            known = dict(zip(reply[::2], reply[1::2], strict=True))
            if (known["num-slaves"], known["num-other-sentinels"]) != (str(len(self.replicas)), "2"):
                return False
        return all("master_link_status:up" in replica.ask("INFO", "replication") for replica in self.replicas)


class ClusterSet(Servers):
    """Three masters with a replica each. `masters[n]` begins as the master of `replicas[n]`."""

    def __init__(self, saving: str = "none", node_timeout_ms: int = 1000) -> None:
        super().__init__()
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms))
        quick = ("--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0")
        self.masters, self.replicas = (
            [RedisServer(saving, *options, *quick, "--cluster-port", str(free_port())) for _ in range(3)]
            for _ in range(2)
        )
        self.all = [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.masters)

    def start(self) -> Self:
        for server in self.all:
            server.start()
        first = self.masters[0]
        for number, master in enumerate(self.masters):
            low, high = 16384 * number // 3, 16384 * (number + 1) // 3 - 1
            master.ask("CLUSTER", "ADDSLOTSRANGE", low, high)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in self.all[1:]:
            bus = server.command()[server.command().index("--cluster-port") + 1]
            first.ask("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        wait_until(lambda: all(self._knows_all(server) for server in self.all), lambda: "the nodes have not met")
        for master, replica in zip(self.masters, self.replicas, strict=True):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        wait_until(self._in_order, lambda: "the Cluster did not come up")
        return self

    def current_masters(self) -> list[RedisServer]:
        """Those that own slots by the map of the first node that answers."""
        for server in self.all:
            with suppress(OSError):
                ports = {port for _, _, (_, port, *_), *_ in server.ask("CLUSTER", "SLOTS")}
                return [each for each in self.all if each.port in ports]
        return []

    def _is_in_order(self) -> bool:
        return super()._is_in_order() and all("cluster_state:ok" in each.ask("CLUSTER", "INFO") for each in self.all)

    def owner(self, slot: int) -> RedisServer:
        """The master that owns a slot by the map of the first node."""
        for low, high, (_, port, *_), *_ in self.masters[0].ask("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return next(server for server in self.all if server.port == port)
        raise LookupError(f"no node owns slot {slot}")

    def _knows_all(self, server: RedisServer) -> bool:
        return "cluster_known_nodes:6" in server.ask("CLUSTER", "INFO")

    def _in_order(self) -> bool:
        ok = all("cluster_state:ok" in server.ask("CLUSTER", "INFO") for server in self.all)
        return ok and all(
            "master_link_status:up" in replica.ask("INFO", "replication") and len(replica.ask("CLUSTER", "SLOTS")) == 3
            for replica in self.replicas
        )


class RedisFixtures:
    """Fresh stores for tests, each under a prefix of its own, on one server that all tests of a file share."""

    def __init__(self, start: Callable[[], RedisServer | SentinelSet | ClusterSet]) -> None:
        self._start = start
        self._prefixes = itertools.count()
        self._server: RedisServer | SentinelSet | ClusterSet | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._server = self._start()
        try:
            yield
        finally:
            self._server.close()

    @asynccontextmanager
    async def make(self) -> AsyncIterator[StoreFixture]:
        assert self._server is not None
        mark = "&" if "?" in self._server.url else "?"
        url = f"{self._server.url}{mark}prefix=t{next(self._prefixes)}"
        yield ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)
