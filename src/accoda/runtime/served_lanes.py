"""How many jobs of each lane were run in the last hour: the documents `served/{queue}/{worker id}`.

Each worker counts for itself, in slots of five minutes by the store's clock, and writes its document when something has
changed; readers add the documents up. So no two processes write the same one, and nothing has to be deleted: a document
ends an hour after it was last written. For people only: a worker that is killed takes up to 15 seconds of counts with
it, and of the lanes of a slot only the largest are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accoda.limits import allowed
from accoda.model import Head, Outcome
from accoda.payload import read_json
from accoda.runtime.heartbeat import Total
from accoda.storage.protocol import Store

PREFIX = "served/"
EVERY = 15.0
"""Seconds between two writes at least."""
STEP = 300_000
"""The length of a slot in milliseconds."""
SLOTS = 12
MOST = 100
"""Lanes of a slot in a document."""
KEPT = 1000
"""Lanes of a slot that a worker remembers: one that is small now may be among the largest later."""


class Slot(Struct):
    """The jobs of five minutes: all of the queue, and those of each lane. Moment // `STEP` is its number."""

    number: Annotated[int, Meta(ge=0)]
    jobs: Total = 0
    lanes: dict[str, Total] = {}


class Served(Struct, frozen=True):
    """The last hour of a queue: all runs, and those of each lane."""

    jobs: int = 0
    lanes: Mapping[str, int] = {}


class ServedLanes:
    """The counts of one worker for one queue. Belongs to its event loop.

    A queue is written if its code declares rules for lanes, or if it had jobs of lanes in the last hour.
    """

    def __init__(self, queue: str, declared: bool) -> None:
        self._queue = queue
        self._declared = declared
        self._new: dict[str, int] = {}
        """What was counted since the last write."""
        self._jobs = 0
        """All jobs up to the last write."""
        self._slots: dict[int, Slot] = {}

    def count(self, lanes: Mapping[int, str], ended: Iterable[Outcome]) -> None:
        """Count jobs that have ended. `lanes` has the lane of each job by its id, if it has one."""
        new = self._new
        for outcome in ended:
            lane = lanes.get(outcome.lease.id)
            if lane is not None:
                new[lane] = new.get(lane, 0) + 1

    async def write(self, store: Store, worker: str, jobs: int) -> None:
        """Write what has changed. `jobs` is how many of the queue the worker has ended so far."""
        if jobs == self._jobs or not (self._new or self._slots or self._declared):
            self._jobs = jobs
            return
        slot = (await store.look(Head(self._queue))).at // STEP
        new, self._new = self._new, {}
        self._slots = {number: each for number, each in self._slots.items() if slot - SLOTS < number <= slot}
        present = self._slots.setdefault(slot, Slot(slot))
        present.jobs += max(0, jobs - self._jobs)
        self._jobs = jobs
        present.lanes = _largest(Counter(present.lanes) + Counter(new), KEPT)
        if self._declared or any(each.lanes for each in self._slots.values()):
            await store.write(f"{PREFIX}{self._queue}/{worker}", self._encode(), ttl=SLOTS * STEP / 1000)
        else:
            self._slots = {}

    def _encode(self) -> bytes:
        """The document; with fewer lanes where long names would make it too large."""
        most = MOST
        while True:
            value = msgspec.json.encode([replace(s, lanes=_largest(s.lanes, most)) for s in self._slots.values()])
            if len(value) <= allowed.document or not most:
                return value
            most //= 2


async def read_served(store: Store, queue: str) -> Served:
    """What all workers did for a queue in the last hour, those that have left since included."""
    documents = await store.documents(f"{PREFIX}{queue}/")
    if not documents:
        return Served()
    slot = (await store.look(Head(queue))).at // STEP
    jobs, lanes = 0, Counter[str]()
    for document in documents:
        for each in read_json(document.value, list[Slot]) or ():
            if slot - SLOTS < each.number <= slot:
                jobs += each.jobs
                lanes.update(each.lanes)
    return Served(jobs, lanes)


def _largest(lanes: dict[str, int], most: int) -> dict[str, int]:
    return lanes if len(lanes) <= most else dict(nlargest(most, lanes.items(), key=lambda each: each[1]))
