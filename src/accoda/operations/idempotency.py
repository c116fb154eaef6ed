"""One request, sent twice, is one request: what the header `Idempotency-Key` promises.

    nothing ──write(version=0)──► pending ──enqueue──► (jobs) ──write(version)──► answered, for 24 h
                                     │ older than 30 s: its process is taken for dead
                                     └──write(version)──► pending, repeated by the next request

**Guaranteed**, for 24 hours, for the same caller (`who`) and key:

- The same content again gets the same answer, and no second job. Other content is refused (`KeyReused`).
- Of two at the same time one is carried out; the other is refused (`InFlight`) and may be sent again.
- If the process was killed, or lost the store, at any point: a request that is sent again, after 30 s at most, gets the
  jobs stored and the answer. The jobs have keys of their own (`once/…/n`, where they brought none), so a job of the
  first try that still waits or runs is found, and is not stored twice.

**Not guaranteed**: the process is killed after its jobs were stored and before its answer was, *and* a job has ended
before the request is sent again. A key is held only until its job ends, so this job is stored, and runs, once more. The
same holds for a process that stands still for more than 30 s at that point. Jobs that bring a key of their own are told
apart by that key alone: as always, another job may hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import InFlight, InvalidInput, KeyReused, StorageError, VersionConflict
from accoda.model import Document, Enqueued, NewJob
from accoda.operations.moments import now_of
from accoda.payload import read_json
from accoda.storage.protocol import Store

PREFIX = "idempotency/"
KEPT = 86_400.0
DEAD_AFTER = 30_000
"""Milliseconds after which the process of a pending request is taken for dead."""
LONGEST_KEY = 255
MOST_JOBS = 10_000
"""Jobs of one request with a key: the answer to them is one document."""
_TRIES = 5


class Once(Struct, frozen=True):
    """A request to be carried out once: its key as the caller wrote it, its name in the store, its content's hash."""

    key: str
    name: str
    content: str

    @classmethod
    def of(cls, who: str, key: str, content: object) -> Once:
        if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
            raise InvalidInput("Idempotency-Key", f"must be 1 to {LONGEST_KEY} printable characters, not {key!r:.80}")
        # Lengths are part of it, so that no two pairs of caller and key are the same text.
        name = sha256(f"{len(who)}:{who}{key}".encode()).hexdigest()
        return cls(key, name, sha256(msgspec.msgpack.encode(content, order="deterministic")).hexdigest())


class Note(Struct, frozen=True, omit_defaults=True):
    """The document: what is asked for, since when, and the answer once there is one. `since` 0: it failed."""

    content: str
    state: Literal["pending", "answered"]
    since: int
    answer: tuple[Enqueued, ...] = ()


class OnceAnswer(Struct, frozen=True):
    """What became of the jobs. `replayed`: it is the answer that was given before."""

    items: list[Enqueued]
    replayed: bool = False


async def enqueue_once(store: Store, jobs: Sequence[NewJob], once: Once) -> OnceAnswer:
    """Enqueue, or give the answer that was given before."""
    if len(jobs) > MOST_JOBS:
        raise InvalidInput("jobs", f"with an idempotency key at most {MOST_JOBS:,} jobs go into one request")
    for _ in range(_TRIES):
        document = await store.read(PREFIX + once.name)
        now = await now_of(store)
        note = _read(document)
        if note is not None and note.content != once.content:
            raise KeyReused(once.key)
        if note is not None and note.state == "answered":
            return OnceAnswer([*note.answer], replayed=True)
        if note is not None and now - note.since < DEAD_AFTER:
            break
        try:
            # Of all requests that read the same version one gets through and goes on; the others look again.
            mine = Note(once.content, "pending", now)
            version = await _write(store, once, mine, 0 if document is None else document.version)
        except VersionConflict:
            continue
        return OnceAnswer(await _do(store, jobs, once, version))
    raise InFlight(once.key)


async def _do(store: Store, jobs: Sequence[NewJob], once: Once, version: int) -> list[Enqueued]:
    try:
        answer = [_as_ours(job, said) for job, said in zip(jobs, await store.enqueue(_keyed(jobs, once)), strict=True)]
    except StorageError:
        await _give_up(store, once, version)
        raise
    try:
        await _write(store, once, Note(once.content, "answered", 0, tuple(answer)), version)
    except VersionConflict:
        # We were so slow that another request took us for dead and did it as well. Its answer is the answer.
        note = _read(await store.read(PREFIX + once.name))
        if note is not None and note.content == once.content and note.state == "answered":
            return [*note.answer]
    return answer


async def _give_up(store: Store, once: Once, version: int) -> None:
    """Let the next try begin at once, if the store can be reached. The jobs' keys find what may have been stored."""
    try:
        await _write(store, once, Note(once.content, "pending", 0), version)
    except (StorageError, VersionConflict):
        return


async def _write(store: Store, once: Once, note: Note, version: int) -> int:
    return await store.write(PREFIX + once.name, msgspec.json.encode(note), version=version, ttl=KEPT)


def _read(document: Document | None) -> Note | None:
    """A note that cannot be read is ignored, and written over."""
    return None if document is None else read_json(document.value, Note)


def _keyed(jobs: Sequence[NewJob], once: Once) -> list[NewJob]:
    return [
        job if job.key is not None else replace(job, key=f"once/{once.name[:32]}/{number}")
        for number, job in enumerate(jobs)
    ]


def _as_ours(job: NewJob, said: Enqueued) -> Enqueued:
    """A job that is found by the key that we gave it was created by an earlier try of this request."""
    return replace(said, what="created") if job.key is None and said.what == "kept" else said
