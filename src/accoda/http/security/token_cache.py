"""The tokens as a running service knows them: never older than five seconds.

All tokens are kept, not only those that were shown: so a guess costs the store nothing, and whether any token exists at
all is known by the same look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from hashlib import sha256

from accoda.clock import Clock, SystemClock
from accoda.errors import AccodaError, StorageUnavailable
from accoda.http.security.identity import Identity
from accoda.http.security.tokens import PREFIX, Token, note_use, read, recognise
from accoda.storage.protocol import Storage

log = logging.getLogger("accoda.http")

FRESH_FOR = 2.0
"""Seconds after which the tokens are read again, beside the requests."""
KNOWN_FOR = 5.0
"""Seconds after which nothing is served before they have been read again: a revoked token ends within this time."""
COARSE = 600_000
"""Milliseconds: a token's last use is noted at most this often, or each request would be a write."""
MOST_SEEN = 10_000


class TokenCache:
    """Tokens by id, read again as time passes. One for each service; belongs to one event loop."""

    def __init__(
        self, store: Storage, clock: Clock | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._monotonic = monotonic
        self._tokens: dict[str, Token] = {}
        self._seen: dict[bytes, tuple[Identity, int | None]] = {}
        self._noted: dict[str, int] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._notes: set[asyncio.Task[None]] = set()

    def is_fresh(self, now: float) -> bool:
        """Whether the tokens may be used as they are, with nothing to do."""
        return now - self._read_at < FRESH_FOR

    @property
    def is_empty(self) -> bool:
        """Whether there is no token at all, expired ones included: an expired token does not open the doors."""
        return not self._tokens

    async def refresh(self) -> None:
        """See to it that the tokens are at most five seconds old. Raises the store's error where that cannot be."""
        if self._reading is None or self._reading.done():
            # No await between the look and the entry: requests that come meanwhile share one read.
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._was_read)
        if self._monotonic() - self._read_at >= KNOWN_FOR:
            # Shielded: a client that goes away must not cancel the read that others wait for.
            await asyncio.shield(self._reading)
            # The age counts from before the read. An answer that took too long is not news any more.
            if self._monotonic() - self._read_at >= KNOWN_FOR:
                raise StorageUnavailable(f"the tokens could not be read within {KNOWN_FOR:g} s")

    def recognise(self, text: bytes) -> Identity | None:
        """The identity behind this token, if it is valid now."""
        # By the digest, so that no secret is kept. A look into a dict compares keys only where their random-seeded
        # hashes are equal, so its time tells nothing about how much of a guess was right.
        now, digest = self._clock.now(), sha256(text).digest()
        seen = self._seen.get(digest)
        if seen is not None and (seen[1] is None or now < seen[1]):
            return seen[0]
        token = recognise(self._tokens, text, now)
        if token is None:
            return None
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[digest] = (token.identity, token.expires_at)
        self._note(token.id, now)
        return token.identity

    async def close(self) -> None:
        """Let go of what runs beside the requests."""
        running = [task for task in (self._reading, *self._notes) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _read(self) -> None:
        # From before the read: what is revoked while it goes on may or may not be in it.
        began = self._monotonic()
        tokens = read(await self._store.documents(PREFIX))
        if tokens != self._tokens:
            log.debug("the service knows %d tokens", len(tokens))
        # What was recognised before is looked at anew, against the tokens as they are now. That is also when the use
        # of a token is noted: here, once in a while, and not for each request.
        self._tokens, self._seen, self._read_at = tokens, {}, began

    def _was_read(self, task: asyncio.Task[None]) -> None:
        if self._reading is task:
            self._reading = None
        if not task.cancelled() and task.exception() is not None:
            log.warning("the tokens cannot be read: %s", task.exception())

    def _note(self, id: str, now: int) -> None:
        if now - self._noted.get(id, -COARSE) < COARSE:
            return
        self._noted[id] = now
        task = asyncio.get_running_loop().create_task(self._write_note(id, now))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _write_note(self, id: str, now: int) -> None:
        try:
            await note_use(self._store, id, now)
        except AccodaError as error:
            self._noted.pop(id, None)
            log.debug("the use of token %s is not noted: %s", id, error)
