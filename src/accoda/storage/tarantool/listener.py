"""Hears the server's bells: one long poll for a whole storage, only while somebody waits.

The long poll takes nothing. If this process dies, the server ends it and nothing is swallowed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from accoda.storage.signal import Signal
from accoda.storage.tarantool.client import Client
from accoda.storage.tarantool.errors import ServerError, translate
from accoda.storage.tarantool.rows import HEARD

POLL_FOR = 30.0  # seconds that the server holds a poll in which nothing rings
_FILLED = "+"  # before a queue's name: a job is ready there. No name begins so.


class Listener:
    """`want` and `poll` run in the client's home loop, `forget` in any thread."""

    def __init__(self, client: Client, signal: Signal) -> None:
        self.filled: Counter[str] = Counter()  # how often it was heard of each queue that a job became ready
        self.changed: Counter[str] = Counter()  # how often anything was heard of it
        self._client = client
        self._signal = signal
        self._wanted: dict[object, Sequence[str]] = {}  # for each who waits, his queues
        self._poll: asyncio.Future[Any] | None = None
        self._heard_by_poll: frozenset[str] = frozenset()
        self._seen: int | None = None
        self._problem: ServerError | None = None

    def want(self, who: object, queues: Sequence[str]) -> None:
        """Somebody waits for these queues. The poll is on its way when this returns, if it was not before."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise translate(problem, self._client.address) from problem
        self._wanted[who] = queues
        self.poll()

    def forget(self, who: object) -> None:
        self._wanted.pop(who, None)

    def poll(self) -> None:
        wanted = frozenset().union(*list(self._wanted.values()))
        if not wanted or (self._poll is not None and self._heard_by_poll >= wanted):
            return
        # A poll that is under way for fewer queues is ended by the server when this one comes. No bell is missed:
        # `seen` is what the last answered poll had seen, and the server answers at once if anything rang since.
        self._heard_by_poll = wanted
        self._poll = self._client.send("listen", (list(wanted), self._seen, POLL_FOR), HEARD)
        self._poll.add_done_callback(self._heard)

    def _heard(self, poll: asyncio.Future[Any]) -> None:
        current = poll is self._poll
        if current:
            self._poll = None
        problem = None if poll.cancelled() else poll.exception()
        if poll.cancelled() or problem is not None:
            # The connection is lost, and with it the count of its server. Everybody looks again, which reconnects. If
            # the server refuses to be listened to, the next who looks is told: who cannot be woken must not sleep.
            if current:
                self._seen = None
                self._problem = problem if isinstance(problem, ServerError) else None
                self._signal.ring()
            return
        count, rung = poll.result()
        self._seen = count if self._seen is None else max(self._seen, count)
        queues = [name for name in rung if not name.startswith(_FILLED)]
        self.changed.update(queues)
        self.filled.update(name.removeprefix(_FILLED) for name in rung if name.startswith(_FILLED))
        self._signal.ring(queues)
        self.poll()
