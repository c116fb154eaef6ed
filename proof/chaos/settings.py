"""What the harness tells a worker or producer process, through its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

VARIABLE = "CHAOS"
LEASE = 2.0
"""Seconds that a lease lasts under fire."""
QUEUES = ("work", "chain", "flaky", "keyed", "poison", "steps", "failing", "lanes", "lanes.more")
FLAKY_BURY = -1
POISON = -2
POISON_CRASHES = 2
"""How many times a poison job may take its process down before it is buried."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`client` names the process in the history, whose part it writes to the file `log`.

    `rate` (jobs a second) and `since` (`time.monotonic`) are for producers: how many jobs there should be by now.
    `pool`: several processes have these settings, so each adds its number to both names; they get no orders.
    `drops` makes a producer's store lie: it acknowledges that share of its batches and drops them.
    """

    client: str
    log: str
    lease: float = LEASE
    clock_off: float = 0.0
    seed: int = 0
    rate: float = 700.0
    since: float = 0.0
    drops: float = 0.0
    pool: bool = False

    @classmethod
    def of_environment(cls) -> Settings:
        settings = msgspec.json.decode(os.environ[VARIABLE], type=cls)
        if settings.pool:
            pid = os.getpid()
            name, log = f"{settings.client}-{pid}", f"{settings.log.removesuffix('.history')}-{pid}.history"
            settings = msgspec.structs.replace(settings, client=name, log=log)
        return settings

    def environment(self) -> Mapping[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}
