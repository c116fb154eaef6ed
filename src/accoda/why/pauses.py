"""Who paused a queue, and why: the document `pause/{queue}` beside the pause itself, which the storage keeps."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from accoda.model import clean
from accoda.payload import read_json
from accoda.storage.protocol import Storage

PREFIX = "pause/"
LONGEST = 500
"""Characters of a note."""


class PauseNote(Struct, frozen=True):
    """`who` paused the queue `at` this moment, `until` that one (None: until it is resumed), and what he said of it."""

    who: str = ""
    note: str = ""
    at: int = 0
    until: int | None = None


async def write_note(store: Storage, queue: str, note: PauseNote) -> None:
    """Say who pauses a queue. It goes by itself when the pause does."""
    short = PauseNote(clean(note.who[:LONGEST]), clean(note.note[:LONGEST]), note.at, note.until)
    ttl = None if note.until is None else max(1.0, (note.until - note.at) / 1000 + 1)
    await store.write(PREFIX + queue, msgspec.json.encode(short), ttl=ttl)


async def forget_note(store: Storage, queue: str) -> None:
    """The queue is resumed. Where there was no note, nothing is written."""
    if await store.read(PREFIX + queue) is not None:
        await store.write(PREFIX + queue, b"", ttl=0)


async def read_note(store: Storage, queue: str, until: int | None) -> PauseNote | None:
    """What was said of the pause that lasts until then; None: nothing, or of another pause.

    A pause may be ended and made anew by a program that leaves no notes. The end of the pause tells the two apart, but
    for two pauses without an end.
    """
    document = await store.read(PREFIX + queue)
    note = None if document is None else read_json(document.value, PauseNote)
    return note if note is not None and note.until == until else None
