"""Says in Accoda's words what PostgreSQL and asyncpg say in theirs, and what that means for the call."""

from __future__ import annotations

import asyncio

import asyncpg  # type: ignore[import-untyped]

from accoda.errors import (
    AccodaError,
    NotADatabase,
    SchemaMismatch,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)
from accoda.storage.postgres.pooler import SHARED

# The server ended the transaction and says so: nothing was changed, the same call may be sent again.
UNDONE: tuple[type[BaseException], ...] = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)

# There is no server behind the connection, or not yet.
LOST: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)

# Everything that a driver call may raise.
DRIVER: tuple[type[BaseException], ...] = (asyncpg.PostgresError, *LOST)


def is_lost(error: BaseException) -> bool:
    """Whether the server is the trouble. An InterfaceError that is a ValueError is about an argument."""
    return isinstance(error, LOST) and not isinstance(error, ValueError) and not _is_refused_parameter(error)


def is_unsent(error: BaseException) -> bool:
    """Whether the driver refused to send the call: the server has ended the session, and only its last message has
    been read yet, not the end of the connection."""
    return isinstance(error, asyncpg.InternalClientError) and str(error).startswith("cannot switch to state")


def _is_refused_parameter(error: BaseException) -> bool:
    """Whether PgBouncer does not take a connection because of a parameter of the URL."""
    return isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error)


def translate(error: BaseException, *, unsure: bool = False) -> BaseException:
    """The error that a caller should see. `unsure`: the call was sent, and its answer was lost."""
    match error:
        case AccodaError():
            return error
        case asyncpg.DiskFullError() | asyncpg.OutOfMemoryError():
            return StorageFull(f"PostgreSQL has no room left ({error}); free some and try again: nothing was changed")
        case asyncpg.ReadOnlySQLTransactionError():
            return StorageReadOnly(
                "this PostgreSQL is read-only, perhaps a standby; name the primary in the URL, or add "
                "target_session_attrs=read-write"
            )
        case asyncpg.InsufficientPrivilegeError():
            return StorageReadOnly(f"{error}; grant it to this user, or open the store once as the schema's owner")
        case asyncpg.InvalidAuthorizationSpecificationError():
            return StorageUnavailable(f"PostgreSQL refuses this user: {error}; check user and password of the URL")
        case asyncpg.InvalidCatalogNameError():
            return StorageUnavailable(f"{error}; create it (createdb), or name another database in the URL")
        case asyncpg.UndefinedFunctionError() | asyncpg.UndefinedTableError() | asyncpg.InvalidSchemaNameError():
            return SchemaMismatch(f"the store's schema is not what it was: {error}; open the storage again")
        case asyncpg.DuplicateTableError() | asyncpg.DuplicateObjectError() | asyncpg.DuplicateFunctionError():
            return NotADatabase(f"the schema belongs to another program ({error}); choose another with ?schema=")
        case _ if _is_refused_parameter(error):
            return StorageError(
                f"PgBouncer refuses a parameter of the URL ({error}); remove it, or name it in PgBouncer's "
                "ignore_startup_parameters and set it for the role: ALTER ROLE … SET …"
            )
        case asyncpg.InvalidSQLStatementNameError() | asyncpg.DuplicatePreparedStatementError():
            return StorageError(SHARED)
        case _ if is_lost(error):
            if unsure:
                return StorageUnavailable(
                    f"the connection to PostgreSQL was lost before the answer came ({_told(error)}): the call may have "
                    "been carried out or not; look before you repeat it",
                    unsure=True,
                )
            return StorageUnavailable(f"PostgreSQL does not answer ({_told(error)}); start it or check the URL")
        case asyncpg.QueryCanceledError():
            return StorageUnavailable(f"PostgreSQL ended the call ({error}): nothing was changed, try again")
        case asyncpg.PostgresError():
            return StorageError(f"PostgreSQL: {error}")
    return error


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
