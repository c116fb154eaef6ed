"""A Redis server, Sentinel set or Cluster: INFO, CONFIG GET and questions about its state. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, unquote

import hiredis
from msgspec import Struct

from accoda.errors import StorageError
from accoda.operations.doctor import reach
from accoda.operations.doctor.environment import numbers
from accoda.operations.doctor.findings import Finding, Looked, layout, may_open, note, ok, problem, warning
from accoda.storage.redis.client import Connection, ConnectionLost, Topology
from accoda.storage.redis.cluster import Cluster
from accoda.storage.redis.keys import SLOTS, Keys, slot_of
from accoda.storage.redis.open import LAYOUT, OLDEST_REDIS, Options, place_of, read_options, tls_context, topology_of
from accoda.storage.redis.replies import Address
from accoda.storage.redis.topology import Access, connect

NEARLY_FULL = 0.9
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
    topology = topology_of(parts, options)
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
        raise StorageError(f"Redis refuses INFO ({reply}); allow this user INFO: ACL SETUSER … +info")
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
        raise StorageError(f"Redis refuses TIME ({reply}); allow this user TIME: ACL SETUSER … +time")
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
    _, addresses = place_of(parts)
    tls = tls_context(options.ca) if options.tls else None
    findings: list[Finding] = []
    known = 0
    for address in addresses:
        one = await _sentinel(address, name, Access(tls=tls, timeout=2.0, silence=2.0))
        findings += one.findings
        known = max(known, one.known)
    if known and known < 3:
        advice = "with fewer than three no majority is left when one is lost: run three, on machines of their own"
        findings.append(warning("sentinels", f"{known} in all", advice))
    return findings


class _SentinelFindings(Struct, frozen=True):
    findings: Sequence[Finding]
    known: int = 0


async def _sentinel(address: Address, name: str, access: Access) -> _SentinelFindings:
    where = f"{address[0]}:{address[1]}"
    try:
        connection = await connect(address, access)
    except (ConnectionLost, StorageError) as error:
        return _SentinelFindings(
            [warning("sentinel", f"{where} cannot be reached: {error}", "start it, or take it out of the URL")]
        )
    try:
        quorum = await connection.send("SENTINEL", "CKQUORUM", name)
        facts = await connection.send("SENTINEL", "MASTER", name)
    except ConnectionLost as error:
        return _SentinelFindings([warning("sentinel", f"{where} does not answer: {error}", "see its log")])
    finally:
        connection.abort("asked")
        await connection.wait_closed()
    if isinstance(facts, hiredis.ReplyError) or not isinstance(facts, list):
        return _SentinelFindings(
            [problem("sentinel", f"{where} knows no master {name!r}", "correct the name at the URL's end")]
        )
    known = _listed(facts).get("num-other-sentinels", "0")
    count = 1 + int(known) if known.isdigit() else 1
    if isinstance(quorum, hiredis.ReplyError):
        advice = "no fail-over is possible: start the missing Sentinels, or lower the quorum in sentinel.conf"
        return _SentinelFindings([problem("sentinel", f"{where}: {quorum}", advice)], count)
    return _SentinelFindings([ok("sentinel", f"{where}: {_text(quorum)}")], count)


def _listed(flat: list[Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in zip(flat[::2], flat[1::2], strict=False)}


def _pairs(reply: Any) -> dict[str, str]:
    return dict(line.split(":", 1) for line in _text(reply).splitlines() if ":" in line)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# -- what one server says of itself: from INFO and CONFIG to findings; pure


class Server(Struct, frozen=True):
    """What a server says of itself. A setting that may not be read is missing. `name`: in a Cluster, which node."""

    info: dict[str, str]
    settings: dict[str, str] = {}
    name: str = ""

    def number(self, field: str) -> int:
        text = self.info.get(field, "0")
        return int(text) if text.isdigit() else 0


def check_server(server: Server, wait_replicas: int, several: bool) -> list[Finding]:
    """All findings about one server. `several`: Sentinels may put another in its place."""
    findings = [
        _version(server),
        *_role(server),
        _policy(server),
        *_evicted(server),
        *_memory(server),
        *_durability(server),
        *_trouble(server),
        *_replicas(server, wait_replicas, several),
        *_clients(server),
    ]
    if not server.name:
        return findings
    return [Finding(each.level, each.what, f"{server.name}: {each.found}", each.advice) for each in findings]


def _version(server: Server) -> Finding:
    found = server.info.get("redis_version", "?")
    if numbers(found) < OLDEST_REDIS:
        return problem("server", f"Redis {found}", "Accoda needs 6.2 or newer")
    valkey = server.info.get("valkey_version")
    return ok("server", f"Valkey {valkey} (as Redis {found})" if valkey else f"Redis {found}")


def _role(server: Server) -> list[Finding]:
    if server.info.get("role") == "slave":
        master = f"{server.info.get('master_host', '?')}:{server.info.get('master_port', '?')}"
        return [problem("role", "the server is a replica, which takes no writes", f"connect to its master, {master}")]
    return []


def _policy(server: Server) -> Finding:
    policy = server.info.get("maxmemory_policy") or server.settings.get("maxmemory-policy", "noeviction")
    if policy == "noeviction":
        return ok("maxmemory-policy", policy)
    advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
    if policy.startswith("allkeys") and server.number("maxmemory"):
        return problem("maxmemory-policy", f"{policy}: when memory is short, jobs are silently dropped", advice)
    return warning("maxmemory-policy", f"{policy}: when memory is short, Redis drops keys of ours", advice)


def _evicted(server: Server) -> list[Finding]:
    count = server.number("evicted_keys")
    if not count:
        return []
    advice = "jobs may be among them: compare with what enqueued them; CONFIG RESETSTAT sets the count to zero"
    return [warning("evicted keys", f"{count:,} were dropped for lack of memory since the server started", advice)]


def _memory(server: Server) -> list[Finding]:
    used, most, machine = (server.number(name) for name in ("used_memory", "maxmemory", "total_system_memory"))
    if most:
        share = used / most
        found = f"{_size(used)} of {_size(most)} (maxmemory) used"
        advice = f"CONFIG SET maxmemory {_size(2 * most)}, purge dead and done jobs, or let workers catch up"
        if share >= 1:
            return [problem("memory", f"{found}: nothing can be enqueued", advice)]
        return [warning("memory", found, advice) if share >= NEARLY_FULL else ok("memory", found)]
    if machine and used / machine >= NEARLY_FULL:
        advice = "the system may kill Redis: give the machine more memory, or CONFIG SET maxmemory to refuse in time"
        return [warning("memory", f"{_size(used)} of the machine's {_size(machine)} used", advice)]
    return [ok("memory", f"{_size(used)} used")] if used else []


def _durability(server: Server) -> list[Finding]:
    append = server.settings.get("appendonly") or ("yes" if server.info.get("aof_enabled") == "1" else "no")
    save, sync = server.settings.get("save"), server.settings.get("appendfsync")
    turn_on = "CONFIG SET appendonly yes, then CONFIG SET appendfsync everysec (or always); and both in redis.conf"
    if append != "yes" and save:
        found = f"appendonly no, save {save!r}: a crash loses all since the last snapshot"
        return [warning("durability", found, turn_on)]
    if append != "yes":
        found = "appendonly no" + (" and no snapshots: a restart loses every job" if save == "" else "")
        return [problem("durability", found, turn_on)]
    if sync == "no":
        found = "appendonly yes, appendfsync no: a power cut loses up to half a minute"
        return [warning("durability", found, "CONFIG SET appendfsync everysec, or always; and in redis.conf")]
    if sync == "everysec":
        found = "appendonly yes, appendfsync everysec: a power cut loses a second, at worst two"
        return [note("durability", found, "CONFIG SET appendfsync always, if not even that may be lost")]
    return [ok("durability", f"appendonly yes{f', appendfsync {sync}' if sync else ''}")]


def _trouble(server: Server) -> list[Finding]:
    findings = []
    if server.info.get("aof_last_write_status", "ok") != "ok":
        findings.append(problem("disk", "the last write of the append-only file failed", "see free space and its log"))
    if server.info.get("aof_last_bgrewrite_status", "ok") != "ok":
        findings.append(
            warning("disk", "the last rewrite of the append-only file failed", "see free space and its log")
        )
    if server.info.get("rdb_last_bgsave_status", "ok") != "ok":
        advice = "see free space, memory (vm.overcommit_memory=1) and its log; until then Redis may refuse writes"
        findings.append(warning("disk", "the last snapshot failed", advice))
    if server.info.get("loading") == "1":
        findings.append(warning("server", "is loading its data", "wait until it has started"))
    return findings


def _replicas(server: Server, wait_replicas: int, several: bool) -> list[Finding]:
    count = server.number("connected_slaves")
    least = server.settings.get("min-replicas-to-write", "0")
    if wait_replicas > count:
        found = f"the URL waits for {wait_replicas} replicas, and {count} are connected"
        return [problem("replicas", found, "every write waits in vain: start the replicas, or lower wait_replicas")]
    if not count:
        if several:
            advice = "nothing can take over: start a replica (replicaof HOST PORT in its redis.conf)"
            return [warning("replicas", "none is connected", advice)]
        return []
    if not wait_replicas:
        found = f"{count} connected; min-replicas-to-write {least}, wait_replicas 0"
        advice = "a fail-over may lose the last writes: add ?wait_replicas=1 to the URL"
        if least in ("", "0"):
            advice += ", and CONFIG SET min-replicas-to-write 1"
        return [note("replicas", found, advice)]
    return [ok("replicas", f"{count} connected, each write waits for {wait_replicas}")]


def _clients(server: Server) -> list[Finding]:
    now, most = server.number("connected_clients"), server.settings.get("maxclients", "")
    if most.isdigit() and int(most) and now / int(most) >= NEARLY_FULL:
        return [warning("connections", f"{now} of {most} (maxclients)", f"CONFIG SET maxclients {2 * int(most)}")]
    return []


def _size(count: int) -> str:
    for size, word in ((1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")):
        if count >= size:
            return (
                f"{count / size:.0f}{word}" if count >= 10 * size or count % size == 0 else f"{count / size:.1f}{word}"
            )
    return f"{count}b"
