"""Every error that Accoda raises on purpose.

    AccodaError
    ├── InvalidInput            what was passed in cannot be used (also a ValueError); carries `field`
    ├── VersionConflict         a document changed since it was read; carries `name`, `expected`, `found`
    └── StorageError            the store, not the call, is the trouble
        ├── MissingDriver       the storage needs an extra that is not installed
        ├── StorageUnavailable  cannot be reached, or stayed locked: nothing was changed, try again
        ├── StorageClosed       used after `close`, or in a process forked after it was opened
        ├── StorageFull         no space left: nothing was changed
        ├── StorageReadOnly     the file or its folder may not be written
        ├── NotADatabase        the file is no database, is damaged, or belongs to another program
        └── SchemaMismatch      the store was written by a newer or a too old Accoda

Driver errors are translated into these at the storage's edge, with `from`, so that nobody above has to know a driver.
"""

from __future__ import annotations


class AccodaError(Exception):
    """The root: `except AccodaError` catches everything that Accoda raises on purpose."""


class InvalidInput(AccodaError, ValueError):
    """An argument that cannot be used. `field` names it; the message says what to pass instead."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class VersionConflict(AccodaError):
    """The document is not at the version that the writer expected. Read it again, then decide anew."""

    def __init__(self, name: str, expected: int, found: int) -> None:
        state = f"is at version {found}" if found else "does not exist"
        super().__init__(f"document {name!r}: expected version {expected}, but it {state}; read it again and retry")
        self.name = name
        self.expected = expected
        self.found = found


class StorageError(AccodaError):
    """The store is the trouble. Nothing that was acknowledged is affected."""


class MissingDriver(StorageError):
    """The URL asks for a storage whose driver is an extra that is not installed."""


class StorageUnavailable(StorageError):
    """The store did not answer. The call may be repeated."""


class StorageClosed(StorageError):
    """The storage object was closed, or belongs to the parent of this forked process."""


class StorageFull(StorageError):
    """No space left on the device. The call changed nothing."""


class StorageReadOnly(StorageError):
    """The store may be read but not written, and a queue writes even when it reads."""


class NotADatabase(StorageError):
    """The file is not an Accoda store: another format, another program's, or damaged."""


class SchemaMismatch(StorageError):
    """The store's layout is not the one that this version of Accoda knows."""
