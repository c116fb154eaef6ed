"""What a recorder must remember from round to round, to tell what happened in between. It travels in its job.

The job that ends a round enqueues the next one with it, in one atomic step. So whoever does the next round, in whatever
process, goes on from exactly what was recorded, and a round that is repeated after a crash writes the same again.
"""

from __future__ import annotations

import zlib

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.limits import allowed

MOST_BYTES = 16 << 20
"""What a memory is unpacked to at most, whatever somebody stored."""

MOST_QUEUES = 5000

Sums = tuple[int, float, float]
"""Jobs, the seconds that they ran, and that they waited."""


class Known(Struct, array_like=True):
    """A queue (or a budget) as of the end of `slot`.

    `counts` are its counters, `levels` what it held. `written` is the last slot in its ring, `rolled` the last coarse
    slots (by span) that were made of it. `sums` were measured and are not written yet.
    """

    slot: int
    counts: tuple[float, ...]
    levels: tuple[float, ...]
    written: int = 0
    rolled: tuple[int, ...] = (0, 0)
    sums: Sums = (0, 0.0, 0.0)


class Memory(Struct, array_like=True):
    """All of it. `slot` is the last one that a round has ended; `workers` has each worker's sums by queue. Of more
    queues than `most`, the first by name have a history."""

    slot: int = 0
    queues: dict[str, Known] = {}
    budgets: dict[str, Known] = {}
    workers: dict[str, dict[str, Sums]] = {}
    total: Known | None = None
    most: int = MOST_QUEUES


def pack(memory: Memory) -> bytes:
    """As a job's data. If it does not fit, because names are long or limits low, fewer queues have a history."""
    while True:
        data = zlib.compress(_encoder.encode(memory), 1)
        if len(data) <= allowed.payload or not (memory.queues or memory.workers):
            return data
        half = sorted(memory.queues)[: len(memory.queues) // 2]
        memory = replace(memory, queues={name: memory.queues[name] for name in half}, workers={}, most=len(half))


def unpack(data: bytes) -> Memory | None:
    """What a job brought; None where it is the first one, or cannot be read: then the history goes on from now."""
    try:
        opened = zlib.decompressobj()
        raw = opened.decompress(data, MOST_BYTES)
        return _decoder.decode(raw) if opened.eof else None
    except (zlib.error, ValueError, RecursionError):  # msgspec's and Unicode's are ValueErrors
        return None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Memory)
