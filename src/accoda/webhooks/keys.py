"""The keys that sign messages, and the signature of a message (Standard Webhooks).

They are one document of the store, created on first use. After a rotation both the new key and the old one sign for a
day, so that receivers can change theirs at any time of that day without missing a message.
"""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from accoda.errors import StorageError, VersionConflict
from accoda.payload import read_json
from accoda.storage.protocol import Storage

DOCUMENT = "webhooks/keys"
PREFIX = "whsec_"
KEY_BYTES = 32
BOTH_FOR = 24 * 3600 * 1000
"""Milliseconds for which an old key goes on signing."""
OLD_KEYS = 4
"""How many old keys sign at most."""


class OldKey(Struct, frozen=True):
    """A key that was replaced, and until when it still signs."""

    key: str
    until: int


class Keys(Struct, frozen=True):
    """The key that signs since `since`, and the old ones, newest first."""

    current: str
    since: int
    previous: tuple[OldKey, ...] = ()

    def signing(self, now: int) -> tuple[str, ...]:
        """The keys that sign at a moment."""
        return (self.current, *(old.key for old in self.previous if now < old.until))


def new_key() -> str:
    """A key as receivers get it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


async def show(store: Storage, now: int) -> Keys:
    """The keys of the store, created now if there are none."""
    return (await _read(store, now))[0]


async def rotate(store: Storage, now: int) -> Keys:
    """Replace the current key, which goes on signing for a day."""
    while True:
        keys, version = await _read(store, now)
        old = [OldKey(keys.current, now + BOTH_FOR), *(one for one in keys.previous if now < one.until)]
        new = Keys(new_key(), now, tuple(old[:OLD_KEYS]))
        try:
            await store.write(DOCUMENT, msgspec.json.encode(new), version=version)
            return new
        except VersionConflict:  # another process rotated in between: its key is the one to replace
            continue


async def _read(store: Storage, now: int) -> tuple[Keys, int]:
    """The keys and their version. If two processes find none, `version=0` lets one of them write, and the other reads
    what it wrote: no message is signed with a key that is not in the store."""
    while True:
        document = await store.read(DOCUMENT)
        if document is not None:
            keys = read_json(document.value, Keys)
            if keys is None:
                raise StorageError(f"document {DOCUMENT} cannot be read: it was written by a newer Accoda, or damaged")
            return keys, document.version
        keys = Keys(new_key(), now)
        try:
            return keys, await store.write(DOCUMENT, msgspec.json.encode(keys), version=0)
        except VersionConflict:
            continue


def headers(keys: Keys, message: str, body: bytes, now: int) -> dict[str, str]:
    """The headers by which a receiver verifies a message.

    The timestamp is that of the try, not of the job's end: receivers refuse messages that are some minutes old.
    """
    from standardwebhooks import Webhook

    at = datetime.fromtimestamp(now // 1000, UTC)
    text = body.decode()
    return {
        "webhook-id": message,
        "webhook-timestamp": str(now // 1000),
        "webhook-signature": " ".join(Webhook(key).sign(message, at, text) for key in keys.signing(now)),
    }
