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


class Undecodable(Exception):
    """An answer that is not what it should be: the client that asked looks at it piece by piece."""

    def __init__(self, answer: bytes) -> None:
        super().__init__("the server's answer does not decode")
        self.answer = answer


_WORDS: dict[int, tuple[type[StorageError], str]] = {
    NO_SUCH_USER: (StorageError, "refused user {user!r}: {error}; correct the user or password in the URL"),
    PASSWORD_MISMATCH: (StorageError, "refused user {user!r}: {error}; correct the user or password in the URL"),
    ACCESS_DENIED: (
        StorageError,
        "does not let user {user!r} call Accoda's functions ({error}): either the application is not installed, or "
        "the user lacks its role; run `accoda migrate URL` with an account that may install, then in the server "
        "box.schema.user.grant('{user}', 'execute', 'role', 'accoda'); see docs/tarantool.md",
    ),
    NO_SUCH_PROC: (SchemaMismatch, "has no (complete) Accoda application: {error}; open it again to install it"),
    READ_ONLY: (StorageReadOnly, "is read-only, perhaps a replica: {error}; connect to the master"),
    MEMORY_ISSUE: (
        StorageFull,
        "is out of memory: {error}; nothing was changed. Raise memtx_memory (box.cfg can, while it runs), let the "
        "workers catch up, or purge dead and done jobs; then try again",
    ),
    WAL_IO: (StorageFull, "cannot write its log: {error}; look at free space and health of its disk"),
    TUPLE_TOO_LARGE: (StorageFull, "takes no record as large as this: {error}; raise memtx_max_tuple_size"),
    LOADING: (StorageUnavailable, "is not ready: {error}; try again"),
    TRANSACTION_CONFLICT: (StorageUnavailable, "is not ready: {error}; try again"),
}


def translate(error: ServerError, address: Address) -> StorageError:
    """The error to raise for an answer of the server; the call changed nothing."""
    kind, words = _WORDS.get(error.code, (StorageError, "answered with an error: {error}"))
    return kind(f"{address} {words.format(error=error, user=address.user)}")


def unreachable(address: Address, problem: Exception) -> StorageUnavailable:
    what = str(problem) or type(problem).__name__
    return StorageUnavailable(f"{address} cannot be reached: {what}; look whether the server runs and listens there")
