"""A Tarantool server: its log, its memory, may it be written, and the application in it. Nothing is installed."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult

from msgspec import Struct
from msgspec.msgpack import Decoder

from accoda.operations.doctor import reach
from accoda.operations.doctor.environment import numbers
from accoda.operations.doctor.findings import Finding, Looked, may_open, note, ok, problem, warning
from accoda.storage.common.urls import options
from accoda.storage.tarantool import application
from accoda.storage.tarantool.address import address_of
from accoda.storage.tarantool.client import Connection
from accoda.storage.tarantool.errors import ACCESS_DENIED, ConnectionLost, ServerError, translate
from accoda.storage.tarantool.open import connect

OLDEST = (2, 6)
NEARLY_FULL = 0.85
_LOST = (OSError, TimeoutError, ConnectionLost)

_FACTS = """
local slab = box.slab.info()
return {
    version = _TARANTOOL or box.info.version, ro = box.info.ro, status = box.info.status,
    wal_mode = box.cfg.wal_mode, memory = slab.quota_size, used = slab.quota_used,
    arena_used = slab.arena_used, mvcc = box.cfg.memtx_use_mvcc_engine or false,
}
"""
_CLOCK = "return math.floor(require('clock').time() * 1000)"


class Facts(Struct, frozen=True):
    """What a server says of itself."""

    version: str
    ro: bool
    status: str
    wal_mode: str
    memory: int
    used: int
    arena_used: int
    mvcc: bool = False


async def look(parts: SplitResult, url: str) -> Looked:
    options(parts, install=("yes", "no"))
    address = address_of(parts)
    try:
        connection = await connect(address)
    except _LOST as error:
        found = f"cannot be reached: {error or type(error).__name__}"
        return Looked([problem("store", found, "is it up? Are host, port and firewall right?")])
    except ServerError as error:
        return Looked([problem("store", str(translate(error, address)), "correct the URL")])
    try:
        findings = [*await _settings(connection), *await _application(connection, url)]
    except ServerError as error:
        findings = [problem("store", str(translate(error, address)), "see docs/tarantool.md")]
    except _LOST as error:
        findings = [problem("store", f"stopped answering: {error}", "see the server's log")]
    finally:
        connection.close()
    return Looked(findings, may_open(findings))


async def _settings(connection: Connection) -> list[Finding]:
    try:
        findings = await reach.measure(lambda: _ask_time(connection))
        facts: Facts = await connection.eval(_FACTS, (), _facts)
    except ServerError as error:
        if error.code != ACCESS_DENIED:
            raise
        advice = "examine it once with an account that may: accoda doctor --url tarantool://admin:…@host"
        return [note("settings", f"user {connection.address.user!r} may not look at them", advice)]
    return findings + judge(facts)


async def _ask_time(connection: Connection) -> int:
    return int(await connection.eval(_CLOCK, ()))


def judge(facts: Facts) -> list[Finding]:
    """What the server's own words mean for jobs."""
    findings = [ok("server", f"Tarantool {facts.version}")]
    if numbers(facts.version) < OLDEST:
        findings = [problem("server", f"Tarantool {facts.version}", "Accoda needs 2.6 or newer")]
    if facts.ro:
        advice = "connect to the master, or make it one: box.cfg{read_only = false}"
        findings.append(problem("role", "the server is read-only, perhaps a replica", advice))
    if facts.status != "running":
        findings.append(warning("server", f"its status is {facts.status}", "wait until it runs; see its log"))
    findings += [_log(facts.wal_mode), _memory(facts)]
    if facts.mvcc:
        advice = "leave memtx_use_mvcc_engine out of box.cfg: nothing here needs it, and it costs memory"
        findings.append(note("transactions", "the transaction manager is on", advice))
    return findings


def _log(mode: str) -> Finding:
    if mode == "none":
        found = "wal_mode none: a restart loses all since the last snapshot"
        return problem("durability", found, "wal_mode = 'fsync' (or 'write') in box.cfg, and restart")
    if mode == "write":
        found = "wal_mode write: survives a crash of the server; a power cut loses the last moments"
        return note("durability", found, "wal_mode = 'fsync' in box.cfg and restart, if not even that may be lost")
    return ok("durability", f"wal_mode {mode}")


def _memory(facts: Facts) -> Finding:
    # Of what was taken from the quota, the arena may still be partly free: what counts is what is used of it.
    share = facts.arena_used / facts.memory if facts.memory else 0.0
    found = f"{facts.arena_used >> 20} of {facts.memory >> 20} MiB (memtx_memory) used"
    advice = f"box.cfg{{memtx_memory = {2 * facts.memory}}}, purge dead and done jobs, or let workers catch up"
    if share >= 0.95:
        return problem("memory", f"{found}: nothing can be enqueued", advice)
    return warning("memory", found, advice) if share >= NEARLY_FULL else ok("memory", found)


async def _application(connection: Connection, url: str) -> list[Finding]:
    how = f"accoda migrate {url}, with an account that may install: admin or a super"
    try:
        version = await application.installed_version(connection)
    except ServerError as error:
        if error.code != ACCESS_DENIED:
            raise
        found = f"user {connection.address.user!r} may not call Accoda's functions, or they are not installed"
        advice = f"box.schema.user.grant('{connection.address.user}', 'execute', 'role', 'accoda'), or {how}"
        return [problem("application", found, advice)]
    if version is None:
        return [problem("application", "Accoda's functions are not installed", how)]
    if version > application.VERSION:
        found = f"version {version}, and this Accoda knows {application.VERSION}"
        return [problem("application", found, "pip install --upgrade accoda")]
    if version < application.VERSION:
        return [problem("application", f"version {version}, and this Accoda needs {application.VERSION}", how)]
    return [ok("application", f"version {version}, up to date")]


_facts: Decoder[Any] = Decoder(list[Facts])
