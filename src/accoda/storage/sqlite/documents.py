"""Documents inside a transaction: compare-and-set, time to live, list by prefix."""

from __future__ import annotations

from accoda.errors import VersionConflict
from accoda.model import Document
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.aside import LOST_COUNT
from accoda.storage.sqlite.transaction import FAR, Transaction

TOMBSTONE_FOR = 24 * 3600 * 1000  # ms that an expired document is remembered, so that its versions go on
_AFTER_ALL = "\U0010ffff"  # not printable, so no name has it; in UTF-8 it sorts after every other character


def read(tx: Transaction, name: str) -> Document | None:
    found = tx.row("read_document", name)
    if found is None or (found[2] is not None and found[2] <= tx.now):
        return None
    return _readable(name, *found)


def _readable(name: str, value: bytes, version: int, expires_at: int | None) -> Document | None:
    """The document, unless its numbers are none that were ever written: then it counts as none."""
    if not 0 < version < FAR or (expires_at is not None and not 0 <= expires_at < FAR):
        return None
    return Document(name, value, version, expires_at)


def write(tx: Transaction, name: str, value: bytes, version: int | None, ttl: float | None) -> int:
    live = read(tx, name)
    found = live.version if live else 0
    if version is not None and version != found:
        raise VersionConflict(name, version, found)
    last = tx.row("read_document", name)  # perhaps a tombstone
    new = _next_version(last[1]) if last else 1
    tx.run("write_document", name, value, new, None if ttl is None else tx.now + round(ttl * 1000))
    tx.run("forget_documents", tx.now - TOMBSTONE_FOR, DUE_AT_ONCE)
    return new


def _next_version(last: int) -> int:
    """One that nobody has seen, also where the last cannot be read."""
    return last + 1 if 0 < last < FAR else LOST_COUNT


def documents(tx: Transaction, prefix: str) -> list[Document]:
    found = []
    for raw, *rest in tx.rows("list_documents", prefix, prefix + _AFTER_ALL, tx.now):
        name = raw.decode("utf-8", "replace")
        document = _readable(name, *rest) if name.encode() == raw else None
        if document is not None:
            found.append(document)
    return found
