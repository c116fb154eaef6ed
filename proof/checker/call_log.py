"""The log of a store: all calls of all clients, and the notes, put together from their records."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from msgspec import Struct, field

from proof.checker.records import AnyEnd, End, Failed, Note, Record, Start
from proof.checker.sinks import MemorySink, read_file


class Call(Struct, eq=False, gc=False):
    """One call: it took effect at one moment between `started` and `ended`, in nanoseconds.

    What is `unknown` (the reply was lost, the caller was killed) may take effect at any time after it started, or
    never: its `ended` is infinite. What was `refused` changed nothing.
    """

    number: int
    start: Any  # AnyStart; the rules know by the verb which one
    end: Any = None  # AnyEnd, or None for a caller that was killed
    started: int = 0
    ended: float = inf

    @property
    def client(self) -> str:
        return str(self.start.client)

    @property
    def verb(self) -> str:
        return str(self.start.name)

    @property
    def ok(self) -> bool:
        return isinstance(self.end, End)

    @property
    def refused(self) -> bool:
        return isinstance(self.end, Failed) and self.end.certainty == "refused"

    @property
    def unknown(self) -> bool:
        return not self.ok and not self.refused

    def __str__(self) -> str:
        state = "ok" if self.ok else "refused" if self.refused else "unknown"
        return f"#{self.number} {self.verb} of {self.client} at {self.started / 1e9:.6f} ({state})"


class CallLog(Struct):
    """`calls` by their start, `notes` by their time. `torn` counts places where a killed writer left half a record."""

    calls: list[Call] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    torn: int = 0

    @classmethod
    def of(cls, *files: MemorySink | Iterable[Record | None]) -> CallLog:
        """From records: each file, or sink, on its own, so that clients of different files may share a name."""
        log = cls()
        for file in files:
            log._add(file.records if isinstance(file, MemorySink) else file)
        log.calls.sort(key=lambda call: call.started)
        log.notes.sort(key=lambda note: note.at)
        for number, call in enumerate(log.calls):
            call.number = number
        return log

    def lives(self) -> list[CallLog]:
        """The log of each life of the store: it begins anew, empty, where the notes say that it was put back.

        The notes `restoring` and `restored` are before and after that. A call that was under way between them may have
        happened in either life, or in both if it was sent again: it is unknown in both. A run belongs to the life in
        which its job was taken.
        """
        ends = [note.at for note in self.notes if note.kind == "restored"]
        if not ends:
            return [self]
        begins = [note.at for note in self.notes if note.kind == "restoring"]
        spans = list(zip([0, *ends], [*begins, inf], strict=True))
        around = list(zip([0, *begins], [*ends, inf], strict=True))
        return [self._part(span, wider) for span, wider in zip(spans, around, strict=True)]

    def _part(self, span: tuple[int, float], wider: tuple[int, float]) -> CallLog:
        """`wider` has the time in which the store was put back, before and after: it may be there for some moments
        before the note says so."""
        part, (since, until) = CallLog(torn=self.torn), span
        for call in self.calls:
            over = call.end.at if isinstance(call.end, Failed) else call.ended
            if call.started >= since and over <= until:
                part.calls.append(call)
            elif call.started < wider[1] and over > wider[0] and not call.refused:
                part.calls.append(Call(call.number, call.start, None, call.started))
        tokens = {
            (job.id, job.attempts, job.taken_at)
            for call in part.calls if call.verb == "take" and call.ok for job in call.end.taken
        }  # fmt: skip
        for note in self.notes:
            run = note.kind in ("start", "end")
            token = tuple(note.fields.get(name) for name in ("id", "attempts", "taken_at"))
            if token in tokens if run else since <= note.at < until:
                part.notes.append(note)
        return part

    def _add(self, file: Iterable[Record | None]) -> None:
        begun: dict[tuple[str, int], Call] = {}
        for record in file:
            if record is None:
                self.torn += 1
            elif isinstance(record, Note):
                self.notes.append(record)
            elif isinstance(record, Start):
                # A client that began anew under its old name may use a number again: the older call never ended.
                call = begun[record.client, record.number] = Call(0, record, None, record.at)
                self.calls.append(call)
            else:
                _finish(begun.pop((record.client, record.number), None), record)


def _finish(call: Call | None, end: AnyEnd) -> None:
    if call is not None:  # its start may have been torn: then nothing is known of it but that it was
        call.end = end
        if not isinstance(end, Failed) or end.certainty == "refused":
            call.ended = end.at


def load(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> CallLog:
    """The log in these files, of all clients together."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    with no_collection():
        return CallLog.of(*map(read_file, paths))


@contextmanager
def no_collection() -> Iterator[None]:
    """Millions of small objects without cycles: to look for garbage among them costs more than the work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
