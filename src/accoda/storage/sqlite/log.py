"""Keeps SQLite's write-ahead log short: moves it into the database when it has grown, after the callers are answered.

SQLite would do so inside a commit, and the callers of that one commit would wait for it. It would also never wait for
readers, so that programs that read all the time, one after the other, could make the log grow for ever.

And makes good for a sync that failed. A kernel may forget what it could not write and call the next sync a success. The
commit that failed is written anew by the next one. But commits before it that were not flushed by themselves (takes,
see `flush.py`, and all of the fast mode) are in the log, seen by everybody, and perhaps on no disk: what is flushed
after them would be behind a hole, and lost with the power. So all of the log is written once more before anything is
added to it.
"""

from __future__ import annotations

import contextlib

import apsw

from accoda.storage.sqlite.connection import wait_for_lock

_HEADER, _FRAME_HEADER = 32, 24  # bytes
_PIECE = 1 << 16  # bytes that are written at once: SQLite's Unix layer counts those of one write with 17 bits
AFTER = 4000  # pages of log, 16 MB: measured, see docs/decisions/0002-sqlite.md
INSIST = 4  # times that; then readers are waited for
READER_PATIENCE = 0.5  # seconds; in that time nobody can write


class Log:
    """The log of one connection. Everything here happens in the thread that owns it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.after = AFTER
        self.patience = READER_PATIENCE
        self._connection = connection
        self._in_doubt = False  # whether a sync has failed since all of the log was written
        self._pages = 0  # in the log, as of a commit that was not looked at yet
        self._insisted_at = 0  # pages, when readers were last waited for in this log
        connection.set_wal_hook(self._note)

    def _note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def shorten(self) -> None:
        """Make a checkpoint if it is time for one. Where it fails, the log is longer and nothing is lost.

        The next commit comes here again: if the disk is the trouble, that commit's callers are told.
        """
        with contextlib.suppress(apsw.Error):  # whoever writes next tries again, and is told
            self.mend()
        pages, self._pages = self._pages, 0
        if not pages or self._in_doubt:
            return
        if pages < self.after:
            self._insisted_at = 0
            return
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
        self._connection.set_busy_handler(wait_for_lock(self.patience))
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._connection.set_busy_handler(wait_for_lock())

    def doubt(self, error: BaseException) -> None:
        """After an error: if it was a sync, the log cannot be trusted."""
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_FSYNC:
            self._in_doubt = True

    def mend(self) -> None:
        """Write the log once more, if it is in doubt, and sync it. Raises if that fails too.

        Frames of other processes are in it as well. They need not see to it themselves: whoever's sync fails writes
        all, and Linux tells a failure to each who has the file open, so nobody adds to the log in good faith.
        """
        if not self._in_doubt:
            return
        # How many frames count: behind them is what the failed commit left, which must not be made to last.
        frames, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        self._connection.execute("BEGIN IMMEDIATE")  # nobody adds to the log, or begins it anew, meanwhile
        try:
            self._write_again(_HEADER + frames * (_FRAME_HEADER + int(self._connection.pragma("page_size"))))
        finally:
            self._connection.execute("ROLLBACK")
        self._in_doubt = False

    def _write_again(self, size: int) -> None:
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
        file = apsw.VFSFile(self._connection.open_vfs, self._connection.db_filename("main") + "-wal", flags)
        try:
            size = min(size, file.xFileSize())
            for start in range(0, size, _PIECE):
                file.xWrite(file.xRead(min(_PIECE, size - start), start), start)
            file.xSync(apsw.SQLITE_SYNC_NORMAL)
        finally:
            file.xClose()

    def close(self) -> None:
        """Close the connection. The last one to do so makes a checkpoint; not of a log that is in doubt."""
        try:
            self.mend()
        except apsw.Error:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.close()
