"""Which peers are measured, and in which setting. The entries stand in `settings_redis` and `settings_sql`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers import settings_redis, settings_sql
from benchmarks.peers.peer import OURS, RAW, Peer

__all__ = ["CEILINGS", "DISTRIBUTIONS", "ENVIRONMENTS", "OURS", "PACKAGES", "PEERS", "STORAGES", "Peer", "chosen"]

STORAGES = ("redis", "postgres", "sqlite", "tarantool")
ENVIRONMENTS = {**settings_redis.ENVIRONMENTS, **settings_sql.ENVIRONMENTS}
PACKAGES = settings_redis.PACKAGES
DISTRIBUTIONS = {**settings_redis.DISTRIBUTIONS, **settings_sql.DISTRIBUTIONS}
PEERS = (*settings_redis.REDIS, *settings_sql.POSTGRES, *settings_sql.SQLITE, *settings_sql.TARANTOOL)


def _raw(storage: str, jobs: int, lanes: int) -> Peer:
    setting = f"Accoda's scripts by the leanest client, batches of 500, {lanes} connection{'s' if lanes > 1 else ''}"
    options = {"batch": 500, "lanes": lanes}
    return Peer(RAW, storage, "Bare engine", setting, jobs, options, measures=("drain1", "latency"))


# The ceilings, in turns with the peers.
CEILINGS = (
    _raw("redis", 400_000, 2),
    _raw("postgres", 100_000, 2),
    _raw("sqlite", 200_000, 1),
    _raw("tarantool", 100_000, 1),
)


def chosen(storages: Sequence[str], names: Sequence[str]) -> list[Peer]:
    """The peers of these storages, all or those named (by entry or by adapter); Accoda is always among them."""
    return [
        peer
        for peer in (*PEERS, *CEILINGS)
        if peer.storage in storages
        and (not names or peer.ours or peer.is_ceiling or {peer.name, peer.adapter} & set(names))
    ]
