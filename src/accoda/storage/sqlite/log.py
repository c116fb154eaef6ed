"""The write-ahead log of one connection: when the disk has it, what to do if a sync fails, and how it stays short.

SQLite would sync inside of a commit (`synchronous=FULL`), while no one else can write or see it. Here a commit is only
written (`NORMAL`), the lock is free and sleeping workers are woken; then the log is synced, and only then are the
callers answered. So processes write while others wait for the disk, one sync serves every commit that it finds in the
log, and a worker is awake, and may run the job, by the time its producer hears that it is stored.

What is acknowledged survives a power cut: a sync writes the log up to its end, so never something later without all
that was earlier. (Where the log was moved into the database meanwhile, that was synced first.) What can be seen before
it would survive a cut are calls that were not acknowledged yet. A call that builds on one of them is acknowledged after
a sync that includes both. A cut before that takes back both, and ends the processes that saw them, which are on this
machine; a client of the HTTP API may have seen a job for a moment whose producer was never told that it exists.

Not synced at all are looks, which change only what is due, and takes and extensions whose leases are held by a process
of this machine (`accoda.storage.common.lease_durability`): the cut ends that process too. Afterwards the store is as it
was before the take, or before a few of the latest takes:

- The job is ready, where its lease would have had to end first. Nothing of it is lost.
- Its id and attempts are given out once more, with another moment. The process that had the old token is dead, so it
  cannot use it against the new holder. What it had settled by then was synced, and the take before it.
- What a take or a look applies besides (a delayed job starts, a lease that is over gives `attempts + 1`) follows from
  what is stored and from the time, so the next call does it again. The lease that had ended was lost before and is lost
  after the cut: its end is compared with the clock.
- An extension that is forgotten leaves an earlier end to a lease that no process holds.

A process that is killed takes nothing with it: what it wrote is the kernel's.

A sync may fail, and a kernel may forget what it could not write and call the next sync a success. What was committed
is seen by every process and perhaps on no disk: what is synced after it would be behind a hole, and lost with the
power. So all of the log is written once more, at once; and if that fails too, before anything is added to it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial

import apsw

from accoda.storage.sqlite.connection import wait_for_lock

AFTER = 4000  # pages of log, 16 MB: measured, see docs/decisions/0002-sqlite.md
INSIST = 4  # times that; then readers are waited for
READER_PATIENCE = 0.5  # seconds; in that time no process can write

_HEADER, _FRAME_HEADER = 32, 24  # bytes
_PIECE = 1 << 16  # bytes that are written at once: SQLite's Unix layer counts those of one write with 17 bits
_SYSTEMS = ("unix", "win32")


class Log:
    """Belongs to the thread that writes. `sync` waits until the disk has all that is committed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.after = AFTER
        self.patience = READER_PATIENCE
        self.busy_handler = wait_for_lock()
        """What waits for a lock outside of a checkpoint."""
        self.in_doubt = False  # whether a sync has failed since all of the log was written
        self._insisted_at = 0  # pages, when readers were last waited for in this log
        self._connection = connection
        self._name = connection.db_filename("main") + "-wal"
        self._descriptor: int | None = None
        self.sync: Callable[[], None] = partial(self._with_file, _sync)
        # By the system's own call, which lets other threads run meanwhile; apsw's does not. What stands in for the
        # operating system has a call of its own.
        if connection.open_vfs in _SYSTEMS:
            # The file is there, and the same one, as long as we have the database open. It carries none of SQLite's
            # locks, which would end when a second descriptor is closed.
            self._descriptor = os.open(self._name, os.O_RDWR)
            self.sync = partial(getattr(os, "fdatasync", os.fsync), self._descriptor)

    def doubt(self, error: BaseException) -> None:
        """After an error of SQLite's: if it was a sync, the log cannot be trusted."""
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
            self.in_doubt = True

    def mend(self) -> None:
        """Write the log once more and sync it, after a sync that failed. Raises if that fails too.

        Frames of other processes are in it as well. They need not see to it themselves: the process whose sync fails
        writes all, and Linux tells a failure to each that has the file open, so none adds to the log in good faith.
        """
        # How many frames count: behind them is what a commit left that failed, which must not be made to last.
        frames, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        self._connection.execute("BEGIN IMMEDIATE")  # so that the log is neither extended nor begun anew meanwhile
        try:
            size = _HEADER + frames * (_FRAME_HEADER + int(self._connection.pragma("page_size")))
            self._with_file(lambda file: _write_again(file, size))
        finally:
            self._connection.execute("ROLLBACK")
        self.in_doubt = False

    def shorten(self, pages: int) -> None:
        """Move a log of so many pages into the database. Where that fails, the log is longer and nothing is lost.

        Called after the callers are answered: SQLite would do it inside a commit, and the callers of that one commit
        would wait for it. It would also never wait for readers, so that programs that read all the time, one after the
        other, could make the log grow for ever. The next commit comes here again: if the disk is the trouble, that
        commit's callers are told.
        """
        if self.in_doubt:
            with contextlib.suppress(apsw.Error):  # the next call that writes tries again, and is told
                self.mend()
        if pages < self.after or self.in_doubt:
            return
        if pages < self._insisted_at:  # the log has begun anew since
            self._insisted_at = 0
        try:
            # Not again before the log has grown by as much: a reader that stays may cost that time only so often.
            if pages >= max(self.after * INSIST, self._insisted_at + self.after):
                self._insisted_at = pages
                self._insist()
            else:
                # Takes what no reader needs any more. If that is all of it, the next commit begins the log anew.
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            self.doubt(error)

    def _insist(self) -> None:
        self._connection.set_busy_handler(wait_for_lock(lambda: self.patience))
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._connection.set_busy_handler(self.busy_handler)

    def close(self) -> None:
        """Close the connection. The last one to do so makes a checkpoint; not of a log that is in doubt."""
        try:
            if self.in_doubt:
                self.mend()
        except apsw.Error:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._connection.close()

    def _with_file(self, work: Callable[[apsw.VFSFile], None]) -> None:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
        file = apsw.VFSFile(self._connection.open_vfs, self._name, flags)
        try:
            work(file)
        finally:
            file.xClose()


def _write_again(file: apsw.VFSFile, size: int) -> None:
    size = min(size, file.xFileSize())
    for start in range(0, size, _PIECE):
        file.xWrite(file.xRead(min(_PIECE, size - start), start), start)
    _sync(file)


def _sync(file: apsw.VFSFile) -> None:
    file.xSync(apsw.SQLITE_SYNC_NORMAL)
