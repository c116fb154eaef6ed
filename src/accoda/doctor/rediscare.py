"""What one Redis server's own words mean for jobs: pure, from INFO and CONFIG to findings."""

from __future__ import annotations

from msgspec import Struct

from accoda.doctor.environment import numbers
from accoda.doctor.findings import Finding, note, ok, problem, warning
from accoda.storage.redis.open import OLDEST_REDIS

NEARLY_FULL = 0.9


class Server(Struct, frozen=True):
    """What a server says of itself. A setting that we may not read is missing. `name`: in a Cluster, which node."""

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
            advice = "nobody can take over: start a replica (replicaof HOST PORT in its redis.conf)"
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
