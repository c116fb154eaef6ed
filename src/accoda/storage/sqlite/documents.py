"""Documents inside a transaction: compare-and-set, time to live, list by prefix."""

from __future__ import annotations

from accoda.errors import VersionConflict
from accoda.model import Document
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.transaction import Transaction

TOMBSTONE_FOR = 24 * 3600 * 1000  # ms that an expired document is remembered, so that its versions go on
_AFTER_ALL = "\U0010ffff"  # not printable, so no name has it; in UTF-8 it sorts after every other character


def read(tx: Transaction, name: str) -> Document | None:
    found = tx.row("read_document", name)
    if found is None or (found[2] is not None and found[2] <= tx.now):
        return None
    return Document(name, *found)


def write(tx: Transaction, name: str, value: bytes, version: int | None, ttl: float | None) -> int:
    live = read(tx, name)
    found = live.version if live else 0
    if version is not None and version != found:
        raise VersionConflict(name, version, found)
    last = tx.row("read_document", name)  # perhaps a tombstone
    new: int = last[1] + 1 if last else 1
    tx.run("write_document", name, value, new, None if ttl is None else tx.now + round(ttl * 1000))
    tx.run("forget_documents", tx.now - TOMBSTONE_FOR, DUE_AT_ONCE)
    return new


def documents(tx: Transaction, prefix: str) -> list[Document]:
    found = []
    for name, *rest in tx.rows("list_documents", prefix, prefix + _AFTER_ALL, tx.now):
        try:
            found.append(Document(name.decode(), *rest))
        except UnicodeDecodeError:  # a damaged file: no caller can name it
            continue
    return found
