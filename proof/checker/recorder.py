"""Writes down what clients ask of a store and what they are told."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any, cast

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.errors import (
    InvalidInput,
    MissingDriver,
    NotADatabase,
    SchemaMismatch,
    StorageClosed,
    StorageFull,
    StorageReadOnly,
    VersionConflict,
)
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper
from proof.checker.facts import Stamp, answered, begun
from proof.checker.records import Certainty, Failed, Note
from proof.checker.sinks import Sink

# These say that nothing was changed. Every other error leaves open whether the call was carried out.
_REFUSALS = (
    InvalidInput,
    VersionConflict,
    StorageFull,
    StorageReadOnly,
    NotADatabase,
    SchemaMismatch,
    MissingDriver,
)


class Recorder:
    """Writes the records of one client: a process, or a handle in it. `client` is its name in the log.

    `now` gives nanoseconds. The monotonic clock is one for all processes of a machine, so that their records compare.
    """

    def __init__(self, client: str, sink: Sink, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.client = client
        self.sink = sink
        self.now = now
        self._pid = os.getpid()
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A new number for a call. Several threads may ask: `next` of a count is one step of the interpreter."""
        if os.getpid() != self._pid:
            # A forked child writes under the same name, perhaps to the same file: its numbers must not meet ours.
            self._pid = os.getpid()
            self._numbers = itertools.count((self._pid << 32) + 1)
        return next(self._numbers)

    def note(self, kind: str, **fields: Any) -> None:
        """Write down a fact from outside the store, for example `note("start", id=7, attempts=0)`.

        The rules know `start` and `end` (a run of a handler: id, attempts), `kill` (client), `server down`,
        `server up`, `damaged` (id: its record was spoilt from outside), `budget` and `spend`. A field `client` names
        another client than this one.
        """
        self.sink.put(Note(str(fields.pop("client", self.client)), self.now(), kind, fields))


class Recorded(Wrapper):
    """A `Store` that passes everything on and writes down each call when it starts and when it ends."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        self._store = store
        self.recorder = recorder
        self._closed = False

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        recorder, closed = self.recorder, self._closed
        client, number = recorder.client, recorder.number()
        # The record is with the kernel before the call is sent: whatever a killed process did is recorded, at least as
        # begun.
        recorder.sink.put(begun(Stamp(client, number, recorder.now()), verb, args, kwargs))
        try:
            answer = await getattr(self._store, verb)(*args, **kwargs)
        except BaseException as error:
            # A store that was closed meanwhile may have sent the call before.
            refused = isinstance(error, _REFUSALS) or (closed and isinstance(error, StorageClosed))
            certainty: Certainty = "refused" if refused else "unknown"
            text = f"{type(error).__name__}: {error}"[:200]
            recorder.sink.put(Failed(client, number, recorder.now(), certainty, text))
            raise
        recorder.sink.put(answered(Stamp(client, number, recorder.now()), verb, answer))
        self._closed = self._closed or verb == "close"
        return answer


def record(store: Store, recorder: Recorder) -> Store:
    """The same storage, with every call written down."""
    return cast(Store, Recorded(store, recorder))


class RecordedConnections(Connections):
    """An app's connections with every store recorded: `app.connections = RecordedConnections(url, recorder)`."""

    def __init__(self, url: str, recorder: Recorder, clock: Clock | None = None) -> None:
        super().__init__(url, clock)
        self.recorder = recorder

    async def open(self) -> Store:
        store = await super().open()
        if isinstance(store, Recorded):
            return store  # the shared one, in memory
        recorded = record(store, self.recorder)
        if self.in_memory:
            self._shared = recorded
        return recorded
