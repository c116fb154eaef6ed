"""One thread that owns the connection. Calls that wait at the same moment share one transaction, and one sync.

A sync takes its time, however many calls share it: while one is under way, the calls that arrive wait together and go
into the next transaction. No call waits for others to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from accoda.clock import Clock
from accoda.errors import AccodaError, StorageClosed, StorageUnavailable
from accoda.storage.common.reconnecting import patience_limit
from accoda.storage.common.wakeups import WakeUps
from accoda.storage.sqlite.clock_steps import NOTICED, HostClock, apply_step
from accoda.storage.sqlite.connection import LOCK_PATIENCE, translate, unsynced, wait_for_lock
from accoda.storage.sqlite.log import Log
from accoda.storage.sqlite.transaction import QueueInfo, Transaction
from accoda.storage.sqlite.watch import shared_file

T = TypeVar("T")
MOST_CALLS = 1000  # in one transaction, so that the first of them does not wait for ever


class PendingCall:
    """One step for the thread, and where its answer goes."""

    __slots__ = ("args", "error", "future", "lasts", "loop", "patience", "result", "step", "undo", "writes")

    def __init__(self, step: Callable[..., Any], args: tuple[Any, ...], writes: bool) -> None:
        self.step = step
        self.args = args
        self.writes = writes
        self.lasts = writes  # whether it must survive a power cut
        self.patience = patience_limit.get()  # seconds for which its caller waits for the lock
        self.undo: Callable[..., Any] | None = None
        self.future: asyncio.Future[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    def __init__(
        self, connection: apsw.Connection, path: Path, clock: Clock, wakeups: WakeUps, *, durable: bool
    ) -> None:
        self.log = Log(connection)
        self.durable = durable
        self._connection = connection
        self._cursor = connection.cursor()
        self._path = path
        self._name = str(path)
        self._inode = path.stat().st_ino
        self._shared_file = str(shared_file(path))
        self._clock = clock
        # A machine's clock, if a step of it can be noticed.
        self._host = clock if isinstance(clock, HostClock) and clock.boot_id else None
        self._offset: int | None = None  # ns, of that clock, as the file has it
        self._wakeups = wakeups
        self._queues: dict[str | int, QueueInfo] = {}  # by name and by number, as of the version below
        self._version = 0  # of the file's content, after our latest commit
        self._log_pages = 0  # as of the latest commit
        self._calls: SimpleQueue[PendingCall | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = ""  # why, once it is
        self._patience = math.inf  # of the least patient of the calls that are being served
        self.log.busy_handler = wait_for_lock(lambda: min(LOCK_PATIENCE, self._patience))
        connection.set_busy_handler(self.log.busy_handler)
        connection.set_wal_hook(self._note_log)
        self._thread = threading.Thread(target=self._work, name=f"accoda {path.name}", daemon=True)
        self._thread.start()
        _writers.add(self)

    async def run(
        self,
        step: Callable[..., T],
        *args: Any,
        writes: bool = True,
        lasts: bool = True,
        undo: Callable[..., Any] | None = None,
    ) -> T:
        """Run `step(transaction, *args)` and give its answer once it is committed.

        Unless it `lasts`, a power cut may take it back: see `log.py`.
        `undo(transaction, answer)` runs if the caller was cancelled before the answer could reach it.
        """
        self.check_open()
        call = PendingCall(step, args, writes)
        call.lasts = writes and lasts
        call.undo = undo
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self._submit(call)
        return await call.future  # type: ignore[no-any-return]

    def check_open(self) -> None:
        if self._closed:
            raise StorageClosed(self._closed)

    async def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = "this SQLite storage was closed; open it again"
                self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def abandon(self) -> None:
        """In a forked child: its thread is gone, and its connection belongs to the parent."""
        self._closed = "this SQLite storage was opened before the process forked; open it again in the child"

    def _submit(self, call: PendingCall) -> None:
        # Under the lock, nothing is put behind the None that ends the thread: it would never be answered.
        with self._gate:
            self.check_open()
            self._calls.put(call)

    # -- in the thread

    def _work(self) -> None:
        while calls := self._gather():
            live = [call for call in calls if call.future is None or not call.future.cancelled()]
            if not live:
                continue
            self._serve(live)
            self._answer(live)
            pages, self._log_pages = self._log_pages, 0
            if pages >= self.log.after or self.log.in_doubt:
                self.log.shorten(pages)
        # The last one to close makes a checkpoint. If that fails, the log stays, and is read at the next open.
        with contextlib.suppress(apsw.Error):
            self.log.close()

    def _gather(self) -> list[PendingCall]:
        """Wait for a call, then take along all that are there. None: it is time to close."""
        calls: list[PendingCall] = []
        call = self._calls.get()
        while call is not None:
            calls.append(call)
            if len(calls) == MOST_CALLS:
                return calls
            try:
                call = self._calls.get_nowait()
            except Empty:
                return calls
        if calls:
            self._calls.put(None)  # after these
        return calls

    def _serve(self, calls: list[PendingCall]) -> None:
        patience = self._patience = min(call.patience for call in calls)
        try:
            touched = self._transact(calls)
        except Exception as error:
            if len(calls) > 1 and not isinstance(error, apsw.BusyError):
                # One of them failed and took the others with it: each on its own, so that only the culprit gets the
                # error. Nothing was committed, so nothing happens twice.
                for call in calls:
                    self._serve([call])
                return
            more_patient = [call for call in calls if call.patience > patience]
            for call in calls:  # of a lock: they have waited long enough, not each of them once more
                if call.patience <= patience:
                    call.error = translate(error, self._path)
            if more_patient:
                self._serve(more_patient)
            return
        if touched:
            with contextlib.suppress(OSError):
                os.utime(self._shared_file)  # tells other processes; a hint, see `watch.py`
            if self._wakeups.sleepers:
                self._wakeups.wake(touched)
        if self.durable:
            self._make_last([call for call in calls if call.lasts])

    def _make_last(self, calls: list[PendingCall]) -> None:
        """Wait for the disk. Every process sees the commit already: see `log.py`."""
        if not calls:
            return
        try:
            try:
                self.log.sync()
            except (OSError, apsw.Error):
                self.log.in_doubt = True
                self.log.mend()
        except (OSError, apsw.Error) as error:
            for call in calls:
                call.error = call.error or unsynced(error, self._path)

    def _transact(self, calls: list[PendingCall]) -> set[str]:
        cursor = self._cursor
        self._check_file()
        # After a step of the clock a look writes too: what it waits for may have to be moved.
        writes = any(call.writes for call in calls) or (self._offset is not None and self._read_clock()[1])
        if writes and self.log.in_doubt:
            self.log.mend()
        # A transaction that will write must say so at its begin: one that begins as a reader can be refused later.
        cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            now, is_off = self._read_clock()  # not before: it may have waited for the lock
            # Another connection has written: it may have put a backup back, in which a number is another queue's. (A
            # transaction that reads has no snapshot yet, so it cannot tell, and looks its queues up.)
            if writes and self._connection.data_version() != self._version:
                self._queues.clear()
            tx = Transaction(cursor, now, self._queues if writes else {}, writes)
            offset = self._offset
            if is_off and writes and self._host is not None:
                offset = apply_step(tx, self._host, self._path)
            for call in calls:
                call.result = call.error = None  # what a transaction that failed has said counts no longer
                try:
                    call.result = call.step(tx, *call.args)
                except AccodaError as error:  # a refusal, made before anything was changed
                    call.error = error
            tx.finish()
            cursor.execute("COMMIT")
        except BaseException as error:
            self.log.doubt(error)
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        if writes:
            self._offset = offset
            self._version = self._connection.data_version()
            self._queues.update(tx.new_queues)  # only now: a queue made by a transaction that failed has no number
        return tx.touched

    def _read_clock(self) -> tuple[int, bool]:
        """The present moment, and whether the clock may have been set since the file was last asked."""
        host = self._host
        if host is None:
            return self._clock.now(), False
        wall = host.wall()
        return wall // 1_000_000, self._offset is None or abs(wall - host.boot() - self._offset) > NOTICED

    def _check_file(self) -> None:
        """A file that was deleted or replaced under us would take every job with it, and SQLite would not say so."""
        try:
            same = os.stat(self._name).st_ino == self._inode  # noqa: PTH116 - before each transaction: half the time
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageUnavailable(f"{self._path} was removed or replaced while it was open; open the storage again")

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _answer(self, calls: list[PendingCall]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[PendingCall]] = {}
        for call in calls:
            if call.loop is not None:
                loops.setdefault(call.loop, []).append(call)
        for loop, waiting in loops.items():
            try:
                loop.call_soon_threadsafe(self._resolve, waiting)
            except RuntimeError:  # that loop was closed: its callers are gone
                self._undo(waiting)

    # -- in the callers' loops

    def _resolve(self, calls: list[PendingCall]) -> None:
        unseen = []
        for call in calls:
            assert call.future is not None
            if call.future.done():  # cancelled while the thread was at it
                unseen.append(call)
            elif call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)
        self._undo(unseen)

    def _undo(self, calls: list[PendingCall]) -> None:
        for call in calls:
            if call.undo is not None and call.result:
                with contextlib.suppress(StorageClosed):
                    self._submit(PendingCall(call.undo, (call.result,), writes=True))


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
_inherited: list[Writer] = []


def _after_fork() -> None:
    for writer in _writers:
        writer.abandon()
        _inherited.append(writer)  # never collected, so that the child never closes the parent's connection


os.register_at_fork(after_in_child=_after_fork)
