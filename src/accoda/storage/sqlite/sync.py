"""Waits until the disk has what was committed, after everybody can see it.

SQLite would do so inside of a commit (`synchronous=FULL`), while nobody else can write or see it. Here a commit is only
written (`NORMAL`), the lock is free and those who wait for jobs are called; then the log is synced, and only then are
the callers answered. So processes write while others wait for the disk, one sync serves all whose commits it finds in
the log, and a worker is awake, and may run the job, by the time its producer hears that it is stored.

What is acknowledged survives a power cut: a sync writes the log up to its end, so never something later without all
that was earlier. (Where the log was moved into the database meanwhile, that was synced first.) What can be seen before
it would survive one are calls that nobody has been told of. Whoever builds on one of them is told of his own call after
a sync that includes it. A cut before that takes back both, and ends the processes that saw it, which are of this
machine; who asks over HTTP may have seen a job for a moment whose producer was never told that it exists.

Not waited for at all are looks, which change nothing but what is due, and takes and extensions whose leases are held by
a process of this machine (`accoda.storage.holding`): the cut ends that process too. Afterwards the store is as it was
before the take, or before a few of the latest takes:

- The job is ready, where its lease would have had to end first. Nothing of it is lost.
- Its token, made of id and attempts, is given out once more. Who had it is dead, so nobody can use it against the new
  holder. What he had settled by then was synced, and the take before it.
- What a take or a look applies besides (a delayed job starts, a lease that is over gives `attempts + 1`, an unreadable
  record is set aside) follows from what is stored and from the time, so the next call does it again. The lease that had
  ended was lost before and is lost after the cut: its end is compared with the clock.
- An extension that is forgotten leaves an earlier end to a lease that nobody holds.

A process that is killed takes nothing with it: what it wrote is the kernel's.

A sync may fail, and a kernel may forget what it could not write and call the next sync a success. What was committed
is seen by everybody and perhaps on no disk: what is synced after it would be behind a hole, and lost with the power. So
all of the log is written once more, at once; and if that fails too, before anything is added to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import apsw

_HEADER, _FRAME_HEADER = 32, 24  # bytes
_PIECE = 1 << 16  # bytes that are written at once: SQLite's Unix layer counts those of one write with 17 bits
_SYSTEMS = ("unix", "win32")
_sync_data = getattr(os, "fdatasync", os.fsync)


class Sync:
    """The log of one connection. Belongs to the thread that writes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.in_doubt = False  # whether a sync has failed since all of the log was written
        self._connection = connection
        self._name = connection.db_filename("main") + "-wal"
        self._descriptor: int | None = None

    def wait(self) -> None:
        """Until the disk has all that is committed. Raises if the disk fails: then nobody knows."""
        try:
            # By the system's own call, which lets other threads run meanwhile; apsw's does not. What stands in for the
            # operating system has a call of its own.
            if self._connection.open_vfs in _SYSTEMS:
                _sync_data(self._opened())
            else:
                self._with_file(_sync)
        except (OSError, apsw.Error):
            self.in_doubt = True
            self.mend()

    def doubt(self, error: BaseException) -> None:
        """After an error of SQLite's: if it was a sync, the log cannot be trusted."""
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
            self.in_doubt = True

    def mend(self) -> None:
        """Write the log once more, if it is in doubt, and sync it. Raises if that fails too.

        Frames of other processes are in it as well. They need not see to it themselves: whoever's sync fails writes
        all, and Linux tells a failure to each who has the file open, so nobody adds to the log in good faith.
        """
        if not self.in_doubt:
            return
        # How many frames count: behind them is what a commit left that failed, which must not be made to last.
        frames, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        self._connection.execute("BEGIN IMMEDIATE")  # nobody adds to the log, or begins it anew, meanwhile
        try:
            size = _HEADER + frames * (_FRAME_HEADER + int(self._connection.pragma("page_size")))
            self._with_file(lambda file: _write_again(file, size))
        finally:
            self._connection.execute("ROLLBACK")
        self.in_doubt = False

    def close(self) -> None:
        """Close the connection. The last one to do so makes a checkpoint; not of a log that is in doubt."""
        try:
            self.mend()
        except apsw.Error:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._connection.close()

    def _opened(self) -> int:
        """The log's file: there, and the same one, as long as we have the database open. It carries none of SQLite's
        locks, which would end when a second descriptor is closed."""
        if self._descriptor is None:
            self._descriptor = os.open(self._name, os.O_RDWR)
        return self._descriptor

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
