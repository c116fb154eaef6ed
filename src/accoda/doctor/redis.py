"""A Redis server, Sentinel set or Cluster: INFO, CONFIG GET and questions about its state. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote

import hiredis
from msgspec import Struct

from accoda.doctor import reach
from accoda.doctor.findings import Finding, Looked, may_open, note, ok, problem, warning
from accoda.doctor.rediscare import Server, check_server
from accoda.doctor.sqlite import layout
from accoda.errors import StorageError
from accoda.storage.redis.address import Access, Address, connect
from accoda.storage.redis.cluster import Cluster
from accoda.storage.redis.connection import Connection, ConnectionLost
from accoda.storage.redis.keys import SLOTS, Keys, slot_of
from accoda.storage.redis.open import LAYOUT, Options, _place, _tls, _topology, read_options
from accoda.storage.redis.topology import Topology

SETTINGS = (
    "maxmemory-policy",
    "maxmemory",
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "maxclients",
)


async def look(parts: SplitResult, url: str) -> Looked:
    options = read_options(parts)
    topology = _topology(parts, options)
    try:
        findings = await _look(parts, options, topology, url)
    except ConnectionLost as error:
        findings = [problem("store", f"cannot be reached: {error}", "is it up? Are host, port and firewall right?")]
    finally:
        for connection in topology.close():
            await connection.wait_closed()
    if parts.scheme == "redis+sentinel":
        findings += await _sentinels(parts, options)
    return Looked(findings, may_open(findings))


async def _look(parts: SplitResult, options: Options, topology: Topology, url: str) -> list[Finding]:
    keys = Keys(options.prefix)
    connection = await topology.open(slot_of(keys.layout))
    first = await _server(connection)
    findings = await reach.measure(lambda: _time(connection))
    if (mismatch := _kind(first, topology.cluster)) is not None:
        return [*findings, mismatch]
    several = parts.scheme != "redis" and parts.scheme != "rediss"
    if isinstance(topology, Cluster):
        findings += await _cluster(connection, topology, options)
    else:
        findings += check_server(first, options.wait_replicas, several)
    return [*findings, await _layout(connection, keys, url)]


def _kind(server: Server, cluster: bool) -> Finding | None:
    enabled = server.info.get("cluster_enabled") == "1"
    if enabled and not cluster:
        return problem("store", "the server is a node of a Redis Cluster", "open it with redis+cluster://")
    if cluster and not enabled:
        return problem("store", "the server is no node of a Cluster", "open it with redis://")
    return None


async def _server(connection: Connection, name: str = "") -> Server:
    reply = await connection.send("INFO")
    if isinstance(reply, hiredis.ReplyError):
        raise StorageError(f"Redis does not tell of itself ({reply}); allow this user INFO: ACL SETUSER … +info")
    if not isinstance(reply, bytes):
        raise StorageError(f"no Redis at the other end: it answers INFO with {reply!r:.80}")
    lines = reply.decode(errors="replace").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    settings: dict[str, str] = {}
    for setting in SETTINGS:
        answer = await connection.send("CONFIG", "GET", setting)
        if isinstance(answer, list) and len(answer) == 2:
            settings[setting] = answer[1].decode(errors="replace")
    return Server(info, settings, name)


async def _time(connection: Connection) -> int:
    reply = await connection.send("TIME")
    if isinstance(reply, hiredis.ReplyError):
        raise StorageError(f"Redis does not tell the time ({reply}); allow this user TIME: ACL SETUSER … +time")
    seconds, micros = reply
    return int(seconds) * 1000 + int(micros) // 1000


async def _layout(connection: Connection, keys: Keys, url: str) -> Finding:
    found = await connection.send("GET", keys.layout)
    if isinstance(found, hiredis.ReplyError):
        return problem("layout", f"cannot be read: {found}", f"allow this user the keys {keys.prefix}:*, and GET")
    if found is None:
        advice = "nothing to do: the first worker or producer notes the layout; check prefix and database in the URL"
        return note("layout", f"nothing is stored under {keys.prefix!r} yet", advice)
    if not found.isdigit() or len(found) > 9:
        advice = f"choose another prefix, or redis-cli SET {keys.layout} {LAYOUT}"
        return problem("layout", f"{keys.layout} holds {found[:20]!r}", advice)
    return layout(int(found), LAYOUT, url)


async def _cluster(connection: Connection, topology: Cluster, options: Options) -> list[Finding]:
    reply = await connection.send("CLUSTER", "INFO")
    info = _pairs(reply)
    findings = [_state(info)]
    nodes = _nodes(await connection.send("CLUSTER", "NODES"))
    masters = [node for node in nodes if "master" in node.flags]
    replicated = {node.master for node in nodes if "slave" in node.flags and "fail" not in node.flags}
    lone = [node for node in masters if node.slots and node.id not in replicated]
    if lone:
        names = ", ".join(f"{node.address[0]}:{node.address[1]}" for node in lone)
        advice = "its jobs stand still when it fails: add a replica (redis-cli --cluster add-node … --cluster-slave)"
        findings.append(warning("replicas", f"no replica of {names}", advice))
    for node in masters:
        name = f"{node.address[0]}:{node.address[1]}"
        try:
            server = await _server(await topology.at(node.address), name)
        except ConnectionLost as error:
            advice = "see that the node is up, and that this machine reaches it by the address that it announces"
            findings.append(problem("node", f"{name} cannot be reached: {error}", advice))
            continue
        findings += check_server(server, options.wait_replicas, several=False)
    return findings


def _state(info: dict[str, str]) -> Finding:
    slots = info.get("cluster_slots_ok", "?")
    if info.get("cluster_state") != "ok" or slots != str(SLOTS):
        advice = "redis-cli --cluster check HOST:PORT, then --cluster fix"
        return problem("cluster", f"{info.get('cluster_state', '?')}, {slots} of {SLOTS} slots served", advice)
    return ok("cluster", f"ok, {info.get('cluster_size', '?')} masters")


class _Node(Struct, frozen=True):
    id: str
    address: Address
    flags: tuple[str, ...]
    master: str
    slots: bool


def _nodes(reply: Any) -> list[_Node]:
    nodes = []
    for line in reply.decode(errors="replace").splitlines() if isinstance(reply, bytes) else []:
        fields = line.split()
        host, _, port = fields[1].partition("@")[0].rpartition(":")
        if host and port.isdigit():
            nodes.append(_Node(fields[0], (host, int(port)), tuple(fields[2].split(",")), fields[3], len(fields) > 8))
    return nodes


async def _sentinels(parts: SplitResult, options: Options) -> list[Finding]:
    name = unquote(parts.path[1:])
    _, addresses = _place(parts)
    tls = _tls(options.ca) if options.tls else None
    findings: list[Finding] = []
    known = 0
    for address in addresses:
        told = await _sentinel(address, name, Access(tls=tls, timeout=2.0, silence=2.0))
        findings += told.findings
        known = max(known, told.known)
    if known and known < 3:
        advice = "with fewer than three no majority is left when one is lost: run three, on machines of their own"
        findings.append(warning("sentinels", f"{known} in all", advice))
    return findings


class _Told(Struct, frozen=True):
    findings: Sequence[Finding]
    known: int = 0


async def _sentinel(address: Address, name: str, access: Access) -> _Told:
    where = f"{address[0]}:{address[1]}"
    try:
        connection = await connect(address, access)
    except (ConnectionLost, StorageError) as error:
        return _Told(
            [warning("sentinel", f"{where} cannot be reached: {error}", "start it, or take it out of the URL")]
        )
    try:
        quorum = await connection.send("SENTINEL", "CKQUORUM", name)
        facts = await connection.send("SENTINEL", "MASTER", name)
    except ConnectionLost as error:
        return _Told([warning("sentinel", f"{where} does not answer: {error}", "see its log")])
    finally:
        connection.abort("asked")
        await connection.wait_closed()
    if isinstance(facts, hiredis.ReplyError) or not isinstance(facts, list):
        return _Told([problem("sentinel", f"{where} knows no master {name!r}", "correct the name at the URL's end")])
    known = _listed(facts).get("num-other-sentinels", "0")
    count = 1 + int(known) if known.isdigit() else 1
    if isinstance(quorum, hiredis.ReplyError):
        advice = "no fail-over is possible: start the missing Sentinels, or lower the quorum in sentinel.conf"
        return _Told([problem("sentinel", f"{where}: {quorum}", advice)], count)
    return _Told([ok("sentinel", f"{where}: {_text(quorum)}")], count)


def _listed(flat: list[Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in zip(flat[::2], flat[1::2], strict=False)}


def _pairs(reply: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
