"""The server's error codes, and what they are called here."""

from __future__ import annotations

from accoda.errors import (
    SchemaMismatch,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from accoda.storage.tarantool.address import Address

MEMORY_ISSUE = 2
READ_ONLY = 7
NO_SUCH_PROC = 33
WAL_IO = 40
ACCESS_DENIED = 42
NO_SUCH_USER = 45
PASSWORD_MISMATCH = 47
TRANSACTION_CONFLICT = 97
TUPLE_TOO_LARGE = 110
LOADING = 116

STARTING = (LOADING, READ_ONLY)


class ServerError(Exception):
    """An error answer of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class ConnectionLost(Exception):
    """The connection ended before the answer came: the request may or may not have been carried out."""


def translate(error: ServerError, address: Address) -> StorageError:
    """The error to raise for an answer of the server; the call changed nothing."""
    match error.code:
        case code if code in (NO_SUCH_USER, PASSWORD_MISMATCH):
            return StorageError(
                f"{address} refused user {address.user!r}: {error}; correct the user or password in the URL"
            )
        case code if code == ACCESS_DENIED:
            return StorageError(
                f"{address}: user {address.user!r} may not call Accoda's functions ({error}): either the application "
                "is not installed there, or the user lacks its role; run `accoda migrate URL` with an account that may "
                "install, then in the server "
                f"box.schema.user.grant('{address.user}', 'execute', 'role', 'accoda'); see docs/tarantool.md"
            )
        case code if code == NO_SUCH_PROC:
            return SchemaMismatch(
                f"{address} has no (complete) Accoda application: {error}; open it again to install it"
            )
        case code if code == READ_ONLY:
            return StorageReadOnly(f"{address} is read-only, perhaps a replica: {error}; connect to the master")
        case code if code == MEMORY_ISSUE:
            return StorageFull(
                f"{address} is out of memory: {error}; nothing was changed. Raise memtx_memory (box.cfg can, while it "
                "runs), let the workers catch up, or purge dead and done jobs; then try again"
            )
        case code if code == WAL_IO:
            return StorageFull(f"{address} cannot write its log: {error}; look at free space and health of its disk")
        case code if code == TUPLE_TOO_LARGE:
            return StorageFull(f"{address} takes no record as large as this: {error}; raise memtx_max_tuple_size")
        case code if code in (LOADING, TRANSACTION_CONFLICT):
            return StorageUnavailable(f"{address}: {error}; try again")
        case _:
            return StorageError(f"{address} answered with an error: {error}")
