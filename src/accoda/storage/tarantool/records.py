"""The server's answers as records. No I/O here.

Bytes: the server's Lua keeps bytes and text alike as strings and, in 2.x, gives both back as msgpack strings; 3.x gives
bytes back as such. So a field that holds bytes is decoded as `Raw`, and `bytes_of` cuts off its header.
Numbers: the server keeps whole numbers as integers, so ranks are decoded as floats; integers are exact up to 2**53.

Tuples that no Accoda wrote: the formats of the spaces keep most of them out. What they let through does not decode. The
`take` that meets such a job buries it; people see where it stands, and its tuple as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, MsgspecError, Raw, Struct
from msgspec.msgpack import Decoder, Encoder

from accoda.model import ENDED, STATES, Document, JobInfo, LaneInfo, Lanes, LanesInfo, QueueStats, State
from accoda.storage.tarantool.client import bytes_of

# The server's numbers for states: keep in step with 1_transaction.lua.
STATE_NUMBERS: dict[State, int] = {
    "held": -1,
    "ready": 0,
    "delayed": 1,
    "taken": 2,
    "dead": 3,
    "done": 4,
    "cancelled": 5,
}
_STATE_NAMES = {number: name for name, number in STATE_NUMBERS.items()}
assert set(STATES) == set(STATE_NUMBERS)

NIL = b"\xc0"
UNREADABLE = "unreadable record: no Accoda wrote it"
_PROBLEMS = (MsgspecError, UnicodeDecodeError, ValueError, OverflowError, KeyError)

Whole = Annotated[int, Meta(ge=0, le=2**62)]
StateNumber = Annotated[int, Meta(ge=-1, le=2**62)]


class JobRow(Struct, array_like=True, gc=False):
    """A job's tuple, up to what only the server needs: see install.lua."""

    id: Whole
    queue: Whole
    state: StateNumber
    data: Raw
    rank: float
    cost: Whole
    key: str | None
    attempts: Whole
    created_at: Whole
    start_time: Whole
    prev_start_time: Whole | None
    waiters: Whole
    keep_for: float
    worker: str | None
    taken_at: Whole | None
    sort: float
    ended_at: Whole | None
    reason: str | None
    result: Raw
    tries: Whole
    crashes: Whole
    lane: str | None


class _WaiterRow(Struct, array_like=True, gc=False):
    job: int
    n: int
    data: Raw


class _DocumentRow(Struct, array_like=True, gc=False):
    name: str
    value: Raw
    version: int
    expires_at: int


# What a function gives back is the only element of a list. See the headers of the Lua files.
ROWS: Decoder[Any] = Decoder(tuple[list[Raw]])
STATS: Decoder[Any] = Decoder(tuple[dict[str, QueueStats]])
LANES: Decoder[Any] = Decoder(tuple[tuple[Raw, list[tuple[Raw, int, int, int]], int]])

_job = Decoder(JobRow)
_fields = Decoder(list[Raw])
_a_number: Decoder[Any] = Decoder(int | float)
_waiters = Decoder(list[_WaiterRow])
_document = Decoder(_DocumentRow)
_rules = Decoder(Lanes)
encode_rules = Encoder(enc_hook=dict).encode


def undecodable(answer: bytes) -> tuple[list[JobRow], list[tuple[int, int, int]]]:
    """The jobs of an answer that does not decode as a whole, and the tokens of those that are to blame."""
    good, bad = [], []
    for raw in ROWS.decode(answer)[0]:
        try:
            good.append(_job.decode(raw))
        except _PROBLEMS:
            fields = _fields.decode(raw)
            id, attempts, taken_at = (_a_number.decode(fields[place]) for place in (0, 7, 14))
            bad.append((id, attempts, taken_at))
    return good, bad


def info_of(queue: str, raw: Raw) -> JobInfo:
    try:
        return _info(queue, _job.decode(raw))
    except _PROBLEMS:
        return _unreadable(queue, raw)


def _info(queue: str, row: JobRow) -> JobInfo:
    state = _STATE_NAMES[row.state]
    result = None if bytes(row.result) == NIL else bytes_of(row.result)
    return JobInfo(
        row.id, queue, state, bytes_of(row.data), row.rank, row.cost, row.key, row.attempts, row.created_at,
        row.start_time, row.prev_start_time, row.waiters, row.keep_for, row.worker, row.taken_at,
        int(row.sort) if state == "taken" else None, row.ended_at, row.reason, result, row.tries, row.crashes,
        row.lane, row.sort if state == "ready" and row.sort != row.rank else None,
    )  # fmt: skip


def _unreadable(queue: str, raw: Raw) -> JobInfo:
    """A job whose tuple does not decode: where it stands is told, and the whole tuple is its data."""
    fields = _fields.decode(raw)
    id, state_number, attempts = (_a_number.decode(fields[n]) for n in (0, 2, 7))  # of which the format is sure
    state = _STATE_NAMES.get(state_number, "dead")
    try:
        sort, moment = float(place := _a_number.decode(fields[15])), int(place)
    except _PROBLEMS:
        sort, moment = 0.0, 0
    return JobInfo(
        id, queue, state, bytes(raw), sort, 0, None, attempts, 0, moment, None, 0,
        lease_until=moment if state == "taken" else None,
        ended_at=moment if state in ENDED else None,
        reason=UNREADABLE,
    )  # fmt: skip


def waiters_of(job: int, raw: Raw) -> tuple[bytes, ...]:
    """The waiters of this job. One that cannot be read is still one, and counted as such."""
    return tuple(_waiter(row.data) for row in _waiters.decode(raw) if row.job == job)


def _waiter(raw: Raw) -> bytes:
    try:
        return bytes_of(raw)
    except ValueError:
        return bytes(raw)


def documents_of(rows: Iterable[Raw]) -> list[Document]:
    """Those that can be read; the next write of the name of another puts it right."""
    found = []
    for raw in rows:
        try:
            row = _document.decode(raw)
            found.append(Document(row.name, bytes_of(row.value), row.version, row.expires_at or None))
        except _PROBLEMS:
            continue
    return found


def lanes_info_of(rules: Raw, lanes: Iterable[tuple[Raw, int, int, int]], count: int) -> LanesInfo:
    found = tuple(LaneInfo(bytes_of(name).decode("utf-8", "replace"), *counts) for name, *counts in lanes)
    return LanesInfo(_rules_of(rules), found, count)


def _rules_of(raw: Raw) -> Lanes | None:
    """None also where they cannot be read: then the server has none, either."""
    try:
        return _rules.decode(bytes_of(raw))
    except _PROBLEMS:
        return None
