"""The payloads of a demand's jobs: fetches, cached results, deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from accoda.demand.metrics import Counters
from accoda.demand.waiters import Entry
from accoda.envelope import MARK, unwrap
from accoda.errors import InvalidInput, VersionConflict
from accoda.limits import KEY
from accoda.model import Job, JobInfo, Lease, NewJob
from accoda.payload import Codec, UnreadablePayload
from accoda.storage.protocol import Store

HASHED = "sha256:"
"""What the stored form of a long key begins with."""


def stored_key(key: str) -> str:
    """The key under which the jobs of a result are stored: as it is, or hashed if it is longer than storages allow.

    A key that looks like a hash is hashed too, so that no two keys have the same stored form. The payloads have all of
    it.
    """
    try:
        data = key.encode() if type(key) is str else b""
    except UnicodeEncodeError:  # a lone surrogate
        data = b""
    if not data or b"\0" in data:
        raise InvalidInput("key", f"must be valid text of at least one character, without NUL, not {key!r:.60}")
    if len(key) <= KEY and not key.startswith(HASHED):
        return key
    return HASHED + sha256(data).hexdigest()


class FetchPayload(Struct, frozen=True, array_like=True, gc=False):
    """The payload of a fetch job. `prefetch`: it had no waiter when it was made; then a cached result can replace the
    call only if it was fetched after `fresh_after`."""

    key: str
    prefetch: bool = False
    fresh_after: int = 0


class Fetched(Struct, frozen=True, array_like=True):
    """What came of a fetch. `at` is when it began, by the storage's clock."""

    key: str
    at: int
    prefetch: bool
    source: Literal["call", "cache", "unwanted"]
    result: bytes = b""


class CachedResult(Struct, frozen=True, array_like=True, gc=False):
    """A result as msgpack, and the moment (by the storage's clock) at which its fetch began.

    Until the moment `open_until` its fetch has not ended: it serves new requests, as if they had joined the fetch.
    """

    fetched_at: int
    result: bytes
    open_until: int = 0
    key: str = ""


class DeliveryPayload(Struct, frozen=True, array_like=True, gc=False):
    """The payload of a delivery: to whom, and when the result must have been fetched at least.

    With `more` it is a bundle: its run delivers nothing, and is followed by one delivery for each waiter.
    """

    key: str
    to: Entry
    fetched_at: int
    more: tuple[Entry, ...] = ()


class DemandContext(Protocol):
    """What fetches, deliveries and prefetches need of their demand."""

    queue: str
    cache_queue: str
    fresh_ms: int
    counters: Counters

    def cost_of(self, key: str) -> int: ...
    def spent_nothing(self) -> None: ...
    def cache_job(self, fetched: Fetched, open_until: int = 0) -> NewJob: ...
    def follow_ups(self, fetched: Fetched, waiters: Iterable[Entry]) -> list[NewJob]: ...
    def join_again(self, delivery: DeliveryPayload) -> None: ...
    def unpack(self, bundle: DeliveryPayload) -> None: ...
    async def available(self) -> float | None: ...


SINGLY = 5_000
"""Up to this many deliveries are enqueued in the step that ends a fetch; for more, bundles of them are."""
_BUNDLE, _BUNDLE_BYTES = 500, 64 << 10
_PREPARED = 100_000
_NOT_PREPARED = UnreadablePayload("it was opened without the hooks of its demand")


def deliveries(key: str, entries: Sequence[Entry], fetched_at: int) -> list[DeliveryPayload]:
    """One delivery for each waiter; bundles for a huge crowd, so that the step that ends the fetch stays short."""
    if len(entries) <= SINGLY:
        return [DeliveryPayload(key, entry, fetched_at) for entry in entries]
    found: list[DeliveryPayload] = []
    bundle: list[Entry] = []
    size = 0
    for entry in entries:
        bundle.append(entry)
        size += len(entry.data) + len(entry.id) + 32
        if len(bundle) >= _BUNDLE or size >= _BUNDLE_BYTES:
            found.append(DeliveryPayload(key, bundle[0], fetched_at, tuple(bundle[1:])))
            bundle, size = [], 0
    return [*found, DeliveryPayload(key, bundle[0], fetched_at, tuple(bundle[1:]))] if bundle else found


class DemandCodec(Codec[Any]):
    """Reads the payloads of a demand's own jobs."""

    def encode(self, payload: object) -> bytes:
        return write(payload)

    def decode(self, data: bytes) -> Any:
        """The record. A demand writes no envelopes, so a payload in one was not made by a request."""
        if data and data[0] == MARK:
            schedule = unwrap(data)[0].schedule
            maker = "by other code" if schedule is None else f"by the schedule {schedule!r}"
            raise UnreadablePayload(
                f"this queue belongs to a demand, whose jobs are made by requests of a key; this one was made {maker}"
            )
        return super().decode(data)


class RunCodec(DemandCodec):
    """Turns a job into the run that its hooks have prepared for it, or raises the error that they found.

    The processors of a queue share the codec, so what they prepare is kept by lease.
    """

    def __init__(self, type: Any) -> None:
        super().__init__(type)
        self._prepared: dict[Lease, Any] = {}

    def prepare(self, lease: Lease, run: object) -> None:
        self._prepared[lease] = run
        if len(self._prepared) > _PREPARED:  # a job that is buried or lost before it runs is never opened
            del self._prepared[next(iter(self._prepared))]

    def open(self, job: Job) -> Any:
        run = self._prepared.pop(job.lease, _NOT_PREPARED)
        if isinstance(run, UnreadablePayload):
            raise run
        return run


def read_cached(job: JobInfo | None) -> CachedResult | None:
    """The result in a job of the cache. One that cannot be read counts as missing."""
    if job is None:
        return None
    try:
        return _cached.decode(job.data)  # type: ignore[no-any-return]
    except UnreadablePayload:
        return None


async def claim(store: Store, name: str, every: float) -> bool:
    """Whether this process does a periodic task now. One process does it at a time: the document expires shortly
    before the next round, and then the first process that writes it has the claim."""
    try:
        await store.write(name, b"", version=0, ttl=every * 0.9)
        return True
    except VersionConflict:
        return False


write = msgspec.msgpack.Encoder().encode
_cached = DemandCodec(CachedResult)
