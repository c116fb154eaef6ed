"""What a demand stores beside its fetch jobs: the payload of a fetch, a cached result, a delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from accoda.demand.waiters import Entry
from accoda.envelope import MARK, unwrap
from accoda.model import JobInfo
from accoda.payload import Codec, UnreadablePayload

T = TypeVar("T", bound=Struct)


class Errand(Struct, frozen=True, array_like=True, gc=False):
    """The payload of a fetch job. `prefetch`: nobody had asked for it when it was made; `fresh_after`: what is cached
    must be of that moment at least to do instead."""

    key: str
    prefetch: bool = False
    fresh_after: int = 0


class Cached(Struct, frozen=True, array_like=True, gc=False):
    """A result, as msgpack, and the moment (by the storage's clock) at which its fetch began.

    Until the moment `open_until` its fetch has not ended: it serves whoever asks, as it would if they joined it.
    """

    fetched_at: int
    result: bytes
    open_until: int = 0


class Delivery(Struct, frozen=True, array_like=True, gc=False):
    """The payload of a delivery: to whom, and of when the result must be at least.

    With `more` it is a bundle: its run delivers nothing, and is followed by a delivery for each.
    """

    key: str
    to: Entry
    fetched_at: int
    more: tuple[Entry, ...] = ()


SINGLY = 5_000
"""So many deliveries are enqueued in the step that ends a fetch; for more, bundles of them are."""
_BUNDLE, _BUNDLE_BYTES = 500, 64 << 10


def deliveries(key: str, entries: Sequence[Entry], fetched_at: int) -> list[Delivery]:
    """One delivery for each; of a huge crowd, bundles, so that no store stands still for the step that ends a fetch."""
    if len(entries) <= SINGLY:
        return [Delivery(key, entry, fetched_at) for entry in entries]
    found: list[Delivery] = []
    bundle: list[Entry] = []
    size = 0
    for entry in entries:
        bundle.append(entry)
        size += len(entry.data) + len(entry.id) + 32
        if len(bundle) >= _BUNDLE or size >= _BUNDLE_BYTES:
            found.append(Delivery(key, bundle[0], fetched_at, tuple(bundle[1:])))
            bundle, size = [], 0
    return [*found, Delivery(key, bundle[0], fetched_at, tuple(bundle[1:]))] if bundle else found


def write(record: Struct) -> bytes:
    return _encode(record)


class RecordCodec(Codec[Any]):
    """Reads records of ours, which a user never sees."""

    def encode(self, payload: object) -> bytes:
        return _encode(payload)

    def decode(self, data: bytes) -> Any:
        """The record. One in an envelope was made by somebody else: a demand puts nothing in envelopes."""
        if data and data[0] == MARK:
            extras, _ = unwrap(data)
            whose = "by somebody else" if extras.schedule is None else f"by the schedule {extras.schedule!r}"
            raise UnreadablePayload(
                f"this queue belongs to a demand, whose jobs are made by requests of a key; this one was made {whose}"
            )
        return super().decode(data)


def read_cached(job: JobInfo | None) -> Cached | None:
    """What a look into the cache found. A record that cannot be read is none."""
    if job is None:
        return None
    try:
        return _cached.decode(job.data)  # type: ignore[no-any-return]
    except UnreadablePayload:
        return None


_encode = msgspec.msgpack.Encoder().encode
_cached = RecordCodec(Cached)
