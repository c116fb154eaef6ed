"""Goes through the records of all flows, part by part."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from accoda.flows.log import FAR, summary_of
from accoda.flows.model import FLOW_STATES, LOG, FlowState
from accoda.model import Cursor, JobInfo, State
from accoda.storage.protocol import Store

AT_ONCE = 1000
"""Records that one call reads."""
COUNTED = 10_000
"""Records that are counted at most."""


class Place(NamedTuple):
    """A place among the records: of those in a state, after a cursor."""

    state: State
    sort: float
    id: int


FIRST = Place("delayed", float(FAR), 0)
_PARTS = (FIRST, Place("delayed", 0.0, 0), Place("ready", -1.0, 0), Place("taken", 0.0, 0))
"""First the flows that wait for no moment: those that run without a deadline, and failed ones that may be revived. Then
those with a moment to come, and those whose moment has come while nobody saw to it."""


async def read_records(store: Store, place: Place = FIRST, limit: int = AT_ONCE) -> tuple[list[JobInfo], Place | None]:
    """The next records from a place on, and where to go on; None: these were the last."""
    records = await store.browse(LOG, place.state, after=Cursor(place.sort, place.id), limit=limit)
    part = _part_of(place)
    mine = [record for record in records if part != 1 or record.start_time < FAR]
    if len(mine) == limit:
        return mine, place_after(mine[-1])
    return mine, _PARTS[part + 1] if part + 1 < len(_PARTS) else None


def place_after(record: JobInfo) -> Place:
    """The place just after a record."""
    cursor = record.cursor()
    return Place(record.state, cursor.sort, cursor.id)


async def count_flows(store: Store) -> dict[FlowState, int]:
    """How many flows are in each state, of the first `COUNTED`."""
    counts: Counter[FlowState] = Counter()
    place: Place | None = FIRST
    read = 0
    while place is not None and read < COUNTED:
        records, place = await read_records(store, place, min(AT_ONCE, COUNTED - read))
        read += len(records)
        for record in records:
            try:
                counts[summary_of(record).state] += 1
            except ValueError:  # not one of ours
                continue
    return {state: counts[state] for state in FLOW_STATES}


def _part_of(place: Place) -> int:
    if place.state == "delayed":
        return 0 if place.sort >= FAR else 1
    return 2 if place.state == "ready" else 3
