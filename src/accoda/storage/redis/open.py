"""From a `redis://` URL, or one of its relatives, to a storage.

redis://[user:password@]host[:port][/db]                   one server
rediss://...                                               the same over TLS
redis+sentinel://[user:password@]host:port,host:port/name  the master that these Sentinels call `name`
redis+cluster://[user:password@]host:port,host:port        a Redis Cluster, found by any of these nodes
"""

from __future__ import annotations

import re
import ssl
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from msgspec import Struct

from accoda.clock import Clock
from accoda.errors import InvalidInput, SchemaMismatch, StorageError
from accoda.storage.redis.client import CallPolicy, Client, Topology
from accoda.storage.redis.cluster import Cluster
from accoda.storage.redis.eviction import Risk, eviction_risk, read_info
from accoda.storage.redis.keys import Keys, slot_of
from accoda.storage.redis.replies import Address
from accoda.storage.redis.storage import RedisStorage
from accoda.storage.redis.topology import Access, Sentinels, Single

LAYOUT = 3
OLDEST_REDIS = (6, 2)
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_COMMON = ("prefix", "wait_replicas", "ca")
_NUMBERS: dict[str, tuple[float, float, type]] = {
    "partitions": (1, 64, int),
    "wait_replicas": (0, 16, int),
    "db": (0, 1_000_000, int),
}


class Options(Struct, frozen=True):
    prefix: str = "accoda"
    wait_replicas: int = 0
    partitions: int = 1
    db: int = 0
    tls: bool = False
    ca: str | None = None


async def open_redis(parts: SplitResult, clock: Clock | None) -> RedisStorage:
    """Connect, look whether this server can be used, and note the layout there."""
    options = read_options(parts)
    topology = topology_of(parts, options)
    client = Client(topology, clock, CallPolicy(wait_replicas=options.wait_replicas))
    keys = Keys(options.prefix, topology.cluster)
    try:
        risk = _check_server(await client.command(slot_of(keys.layout), "INFO"), topology.cluster)
        await _check_layout(client, keys)
    except BaseException:
        for connection in topology.close():
            await connection.wait_closed()
        raise
    storage = RedisStorage(keys, client, clock, options.partitions)
    storage.eviction.start(risk)
    return storage


def read_options(parts: SplitResult) -> Options:
    kind = parts.scheme
    known = {
        "redis": _COMMON,
        "rediss": _COMMON,
        "redis+sentinel": (*_COMMON, "db", "tls"),
        "redis+cluster": (*_COMMON, "partitions", "tls"),
    }[kind]
    chosen: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise InvalidInput("url", f"{kind}:// has no option {name!r}; it takes {', '.join(sorted(known))}")
        chosen[name] = _option(name, value)
    return Options(**chosen)


def _option(name: str, value: str) -> Any:
    if name == "prefix" and not _PREFIX.match(value):
        raise InvalidInput("url", f"prefix must be 1 to 64 letters, digits, '_', '.', ':' or '-', not {value!r}")
    if name == "tls":
        if value not in ("true", "false"):
            raise InvalidInput("url", f"tls must be true or false, not {value!r}")
        return value == "true"
    return _number(name, value, *_NUMBERS[name]) if name in _NUMBERS else value


def _number(name: str, value: str, least: float, most: float, kind: type) -> Any:
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        raise InvalidInput("url", f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return number


def topology_of(parts: SplitResult, options: Options) -> Topology:
    credentials, addresses = place_of(parts)
    user, password = credentials
    tls = tls_context(options.ca) if parts.scheme == "rediss" or options.tls else None
    path = unquote(parts.path[1:])
    if parts.scheme == "redis+sentinel":
        if not path or "/" in path:
            raise InvalidInput("url", "name the master: redis+sentinel://host:26379,host:26379/mymaster")
        access = Access(user, password, options.db, tls)
        # Sentinels have a login of their own, which most leave open.
        sentinels = Sentinels(addresses, path, Access(tls=tls, timeout=1.0, silence=1.0))
        return Single(sentinels.master, access)
    if parts.scheme == "redis+cluster":
        if path:
            raise InvalidInput("url", "redis+cluster:// takes no path: a Cluster has one database only")
        return Cluster(addresses, Access(user, password, 0, tls))
    if len(addresses) > 1:
        raise InvalidInput(
            "url", f"{parts.scheme}:// takes one host; use redis+sentinel:// or redis+cluster:// for more"
        )
    db = _number("the database", path, *_NUMBERS["db"]) if path else 0

    async def here() -> Address:
        return addresses[0]

    return Single(here, Access(user, password, db, tls))


def place_of(parts: SplitResult) -> tuple[tuple[str | None, str | None], list[Address]]:
    login, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    credentials = (unquote(user) or None, unquote(password) if colon else None)
    usual = 26379 if parts.scheme == "redis+sentinel" else 6379
    return credentials, [_address(host, usual) for host in (hosts or "localhost").split(",")]


def _address(text: str, usual: int) -> Address:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text)
    if match is None:
        raise InvalidInput("url", f"cannot read the address {text!r}; write host:port")
    return match[1].strip("[]"), int(match[2] or usual)


def tls_context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("url", f"ca: cannot read certificates from {ca!r} ({error})") from error


def _check_server(reply: object, cluster: bool) -> Risk | None:
    """Raise where it cannot be used; else what its policy puts at risk."""
    if not isinstance(reply, bytes):
        raise StorageError(f"no Redis at the other end: it answers INFO with {reply!r:.80}")
    info = read_info(reply)
    version = info.get("redis_version", "0.0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise StorageError(f"this Redis is {version}; Accoda needs 6.2 or newer")
    if cluster and info.get("cluster_enabled") == "0":
        raise StorageError("this server is no Cluster node; open it with redis://")
    if not cluster and info.get("cluster_enabled") == "1":
        raise StorageError("this server is a node of a Redis Cluster; open it with redis+cluster://")
    risk = eviction_risk(info)
    if risk is not None and risk.drops_jobs:
        raise StorageError(f"this Redis {risk.text}")
    return risk


async def _check_layout(client: Client, keys: Keys) -> None:
    slot = slot_of(keys.layout)
    found = await client.command(slot, "GET", keys.layout)
    if found is None:
        reply = await client.command(slot, "SET", keys.layout, LAYOUT, "NX")
        found = str(LAYOUT).encode() if reply is not None else await client.command(slot, "GET", keys.layout)
    if not found.isdigit() or len(found) > 9:
        raise SchemaMismatch(
            f"the Redis key {keys.layout!r} holds {found[:20]!r} where the number of Accoda's layout belongs; choose "
            f"another prefix, or write it again: redis-cli SET {keys.layout} {LAYOUT}"
        )
    if int(found) != LAYOUT:
        older = int(found) < LAYOUT
        raise SchemaMismatch(
            f"the store under {keys.prefix!r} has layout {int(found)}, this Accoda knows {LAYOUT}; "
            + ("finish its jobs with the older Accoda first" if older else "upgrade with: pip install --upgrade accoda")
        )
