"""Whether Redis would drop keys when its memory is short: looked at when a store is opened, and each minute after that.

The policy can be changed while the server runs (CONFIG SET), and then jobs vanish without an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from accoda.storage.redis.client import Client, ConnectionLost

log = logging.getLogger("accoda.storage.redis")
LOOK_EVERY = 60.0  # seconds
_ADVICE = "set it to noeviction: CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"


class Risk(Struct, frozen=True):
    """What the policy of a server puts at risk. `drops_jobs`: jobs themselves, else what protects repeated calls."""

    drops_jobs: bool
    text: str


def read_info(reply: bytes) -> dict[str, str]:
    """The fields of an answer to INFO."""
    return dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)


def eviction_risk(info: Mapping[str, str]) -> Risk | None:
    """What is at risk by this INFO; a server that does not tell its policy has the default, which drops nothing."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return None
    if policy.startswith("allkeys") and info.get("maxmemory", "0") != "0":
        return Risk(True, f"has maxmemory-policy {policy}: when memory is short it silently drops jobs; {_ADVICE}")
    return Risk(
        False,
        f"has maxmemory-policy {policy}; {_ADVICE}. When memory is short, it would drop what Accoda keeps for a while, "
        "such as the answers by which a repeated call is known, and jobs could be stored twice",
    )


class EvictionWatch:
    """Asks the servers that a client is connected to, and logs a risk once, until it changes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: dict[str, Risk | None] = {}  # by server
        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, risk: Risk | None) -> None:
        """Look each minute from now on. `risk` is that of the server that was asked when the store was opened."""
        for connection in self._client.open_connections():
            self._tell(connection.peer, risk)
        self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._tick)

    async def run_once(self) -> None:
        """Uses connections that are open, so a server that is away is not waited for."""
        for connection in self._client.open_connections():
            with suppress(ConnectionLost):
                reply = await connection.send("INFO", "memory")
                if isinstance(reply, bytes):  # else the user may not ask
                    self._tell(connection.peer, eviction_risk(read_info(reply)))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_EVERY, self._tick)
        # A connection gives up on a silent server long before the next look.
        self._looking = loop.create_task(self.run_once())

    def _tell(self, server: str, risk: Risk | None) -> None:
        before, self._told[server] = self._told.get(server), risk
        if risk == before:
            return
        if risk is None:
            log.info("Redis at %s has maxmemory-policy noeviction again", server)
        else:
            log.log(logging.ERROR if risk.drops_jobs else logging.WARNING, "Redis at %s %s", server, risk.text)
