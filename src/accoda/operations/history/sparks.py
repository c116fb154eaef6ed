"""The last quarter of an hour of every queue that was active in it, in one document: for a page of many queues."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accoda.operations.history.plan import TOTAL, RingWrite
from accoda.operations.history.ring import QUEUE, STEP, Values

DOCUMENT = "history/sparks"
LENGTH = 60
MOST = 1000
"""Queues in the document."""


class Spark(Struct, frozen=True):
    """Jobs done a second, and runs that failed a second (retried, buried, lost): the last value of each is now."""

    done: list[float]
    failed: list[float]


class Sparks(Struct, array_like=True):
    """The document: by queue, how many were done and failed in each slot up to `slot`."""

    slot: int = 0
    queues: dict[str, tuple[list[int], list[int]]] = {}


def read(value: bytes | None) -> Sparks:
    """The lines in a document; none if it is damaged."""
    try:
        found = Sparks() if value is None else _decoder.decode(value)
    except (ValueError, RecursionError):
        return Sparks()
    good = all(len(line) == LENGTH for lines in found.queues.values() for line in lines)
    return found if good else Sparks()


def lines_at(sparks: Sparks, slot: int) -> dict[str, Spark]:
    """The lines as of a slot."""
    moved = _moved(sparks, slot)
    a_second = 1000 / STEP
    return {
        name: Spark([count * a_second for count in done], [count * a_second for count in failed])
        for name, (done, failed) in moved.items()
    }


def update(value: bytes | None, slot: int, writes: Sequence[RingWrite]) -> bytes:
    """The document after a round that ended `slot`. Pure."""
    lines = _moved(read(value), slot)
    for write in writes:
        if write.layout is QUEUE and write.name != TOTAL:
            line = lines.setdefault(write.name, ([0] * LENGTH, [0] * LENGTH))
            for at, values in write.slots:
                if 0 <= slot - at < LENGTH:
                    line[0][at - slot - 1], line[1][at - slot - 1] = _ends(values)
    awake = [name for name in sorted(lines) if any(lines[name][0]) or any(lines[name][1])]
    return _encoder.encode(Sparks(slot, {name: lines[name] for name in awake[:MOST]}))


def _ends(values: Values) -> tuple[int, int]:
    done, retried, buried, expired = values[:4]
    return int(done), int(retried + buried + expired)


def _moved(sparks: Sparks, slot: int) -> dict[str, tuple[list[int], list[int]]]:
    """The lines with the slots since then, in which nothing is known to have happened."""
    by = slot - sparks.slot
    if not 0 <= by < LENGTH:
        return {}
    none = [0] * by
    return {name: (done[by:] + none, failed[by:] + none) for name, (done, failed) in sparks.queues.items()}


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Sparks)
