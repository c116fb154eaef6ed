"""How a flow is stored: a record whose waiters are its log, and an inbox whose waiters are what is new.

    accoda.flows.log    one job for each flow, under its id: a summary as data, the log as waiters. It is delayed until
                        the flow's deadline, then until it need not be kept any longer, and is not run otherwise
    accoda.flows        one job for each flow that something happened to, under the same id: the reports of its jobs
                        (`model.Report`) and the notes of others. The coordinator takes it, and moves what it read to
                        the log

Waiters are only ever added, so both are logs, and what was read before need not be read again. A note or a round that
is larger than a waiter may be is cut into frames, which are stored in one step and so follow each other.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from accoda.flows.graph import FlowGraph, NodeSpec
from accoda.flows.model import KEEP_FOR, LOG, FlowState, FlowSummary
from accoda.limits import allowed
from accoda.model import REPORTS, JobInfo, NewJob, OnDuplicate, Report

log = logging.getLogger("accoda.flows")

FAR = 253_402_300_799_000
"""The year 9999: the start time of a record that waits for nothing."""
NIL = b"\xc0"
"""None, encoded."""
_MORE, _LAST = b"\x01", b"\x00"
FRAME = 60_000
"""Bytes of a frame, unless the limit for waiters is lower."""


class Add(Struct, frozen=True, array_like=True, tag="add"):
    """More nodes: at the start, for a batch, or by a running node."""

    nodes: tuple[NodeSpec, ...]
    added_by: str | None = None


class Start(Struct, frozen=True, array_like=True, tag="start"):
    """The flow with this mark is to begin."""

    mark: str


class Close(Struct, frozen=True, array_like=True, tag="close"):
    """A batch gets no more members."""


class Stop(Struct, frozen=True, array_like=True, tag="stop"):
    """The flow is cancelled, or its deadline has come."""

    expired: bool = False


Note = Add | Start | Close | Stop


class Round(Struct, frozen=True, array_like=True):
    """What one step of the coordinator did: the events that it read, as they were, and the nodes that it started.

    `inbox` and `read` say of which job of the inbox, and how many of its waiters were read by then. `mark` makes each
    round unlike every other, so that a reader can tell whether the log still is the one that it knows.
    """

    at: int
    mark: bytes
    inbox: int
    read: int
    events: tuple[bytes, ...]
    started: tuple[int, ...] = ()


class Summary(Struct, frozen=True, omit_defaults=True):
    """The data of a record: what lists show. `mark` tells two flows apart that were started under the same id."""

    name: str
    mark: str
    state: FlowState = "running"
    ended_at: int | None = None
    deadline: int | None = None
    expires_in: float | None = None
    """Seconds from the start, by the store's clock: the other way to give a deadline."""
    keep_for: float = KEEP_FOR
    counts: dict[str, int] = {}
    progress: tuple[int, int] = (0, 0)
    open: bool = False

    def deadline_at(self, created_at: int) -> int | None:
        """When a flow that began then expires."""
        return self.deadline if self.expires_in is None else created_at + round(self.expires_in * 1000)

    def public(self, id: str, created_at: int) -> FlowSummary:
        return FlowSummary(
            id=id,
            name=self.name,
            state=self.state,
            created_at=created_at,
            ended_at=self.ended_at,
            deadline=self.deadline_at(created_at),
            counts=self.counts,
            progress=self.progress,
            open=self.open,
        )


_encode = msgspec.msgpack.encode
_read_note = msgspec.msgpack.Decoder(Note).decode
_read_round = msgspec.msgpack.Decoder(Round).decode
_read_summary = msgspec.msgpack.Decoder(Summary).decode


def frames(data: bytes) -> list[bytes]:
    """Bytes as waiters of at most the allowed length."""
    size = min(FRAME, allowed.waiter - 1)
    parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
    return [_MORE + part for part in parts[:-1]] + [_LAST + parts[-1]]


def notes(id: str, *given: Note) -> list[NewJob]:
    """What tells a flow something: jobs that attach to its inbox."""
    return [_attach(REPORTS, id, frame) for note in given for frame in frames(_encode(note))]


def new_record(id: str, summary: Summary, nodes: Sequence[NodeSpec]) -> list[NewJob]:
    """What starts a flow: its record, its nodes as the first round of its log, and the note that it is to begin.

    Two that start a flow under the same id at once both write their rounds; the one whose mark the record has counts.
    """
    first = Round(0, summary.mark.encode(), 0, 0, (_encode(Add(tuple(nodes))),))
    start = None if summary.expires_in is not None else FAR if summary.deadline is None else summary.deadline
    record = NewJob(LOG, _encode(summary), key=id, start_at=start, delay=summary.expires_in)
    return [record, *(_attach(LOG, id, frame) for frame in frames(_encode(first))), *notes(id, Start(summary.mark))]


def round_jobs(id: str, round: Round, summary: Summary, wake_at: int) -> list[NewJob]:
    """What adds a round to the log and renews the summary."""
    *first, last = frames(_encode(round))
    renewed = NewJob(LOG, _encode(summary), key=id, on_duplicate="replace", waiter=last, start_at=wake_at)
    return [*(_attach(LOG, id, frame) for frame in first), renewed]


def new_mark() -> str:
    return secrets.token_hex(8)


def summary_of(info: JobInfo) -> Summary:
    """The summary of a flow's record; raises `ValueError` where it cannot be read."""
    return _read_summary(info.data)


def unframed(waiters: Iterable[bytes]) -> Iterable[tuple[int, bytes]]:
    """What was stored, each with the number of waiters up to its end; reports are as they are."""
    parts: list[bytes] = []
    for count, waiter in enumerate(waiters, 1):
        if waiter[:1] not in (_MORE, _LAST):
            yield count, waiter
            continue
        parts.append(waiter[1:])
        if waiter[:1] == _LAST:
            yield count, b"".join(parts)
            parts = []


def is_report(event: bytes) -> bool:
    """Whether an event is a report of the store; else it is a note (an array, by its first byte)."""
    return event[:1].isalpha()


class FlowLog:
    """A flow as its log tells it, up to the round that was read last."""

    def __init__(self, id: str, record: JobInfo) -> None:
        self.id = id
        self.record = record.id
        """The job that is its record."""
        self.created_at = record.created_at
        self.summary = summary_of(record)
        self.graph = FlowGraph()
        self.length = 0
        """How many waiters of the record were read."""
        self.last = b""
        """The last of them."""
        self.inbox = (0, 0)
        """The inbox that was read last, and how many of its waiters."""
        self.begun = False
        """The first round, with the nodes, was read."""

    def read(self, waiters: Sequence[bytes]) -> None:
        """More of the record's waiters."""
        for _, data in unframed(waiters):
            self.apply(_read_round(data))
        if waiters:
            self.length += len(waiters)
            self.last = waiters[-1]

    def apply(self, round: Round) -> None:
        """What a round did. The one that a second starter of the same flow wrote does not count."""
        if not round.at:
            if round.mark != self.summary.mark.encode():
                return
            self.begun = True
        else:
            self.inbox = (round.inbox, round.read)
        for event in round.events:
            self.take(event, round.at or self.created_at)
        self.graph.start(round.started, round.at)

    def take(self, event: bytes, at: int) -> None:
        """One event. What cannot be read changes nothing."""
        graph = self.graph
        try:
            if is_report(event):
                report = Report.read(event)
                graph.report(report, node_of(self.id, report.key), at)
                return
            note = _read_note(event)
        except (ValueError, msgspec.MsgspecError) as error:
            log.error("flow %s: an event cannot be read and is passed over: %s", self.id, error)
            return
        if isinstance(note, Add):
            graph.add(note.nodes, note.added_by, at)
        elif isinstance(note, Close):
            graph.close(at)
        elif isinstance(note, Stop):
            graph.stop("expired" if note.expired else "cancelled", at)

    def read_of(self, inbox: int) -> int:
        """How many waiters of an inbox the log has."""
        return self.inbox[1] if self.inbox[0] == inbox else 0

    def new_events(self, inbox: int, after: int, waiters: Sequence[bytes]) -> list[bytes]:
        """What an inbox has that the log has not. `waiters` are those after the first `after`."""
        known = self.read_of(inbox)
        return [event for count, event in unframed(waiters) if after + count > known]


def key_of(id: str, node: str) -> str:
    """The key of a node's job."""
    return f"{id}/{node}"


def node_of(id: str, key: str) -> str:
    """The node whose job has this key."""
    return key.removeprefix(f"{id}/")


def _attach(queue: str, key: str, waiter: bytes, way: OnDuplicate = "attach") -> NewJob:
    return NewJob(queue, key=key, on_duplicate=way, waiter=waiter)
