"""The manager that every worker has. One of them leads; the others follow.

    documents    manager/leader       the worker that leads, and its term; ends by itself if it is not renewed
                 manager/assignment   the leader's decision; ends by itself too, but workers go on as it said

Nothing depends on it for correctness: leases keep jobs safe, an assignment is advice about what to do first.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec import Struct

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput, VersionConflict
from accoda.model import Document
from accoda.payload import read_json
from accoda.runtime.heartbeat import read_heartbeats
from accoda.runtime.manager.learning import FleetView, Known, learn, remember, situation
from accoda.runtime.manager.rule import Assignment, Rule, assign, has_jobs
from accoda.storage.protocol import Storage

PREFIX = "manager/"
LEADER = PREFIX + "leader"
ASSIGNMENT = PREFIX + "assignment"

log = logging.getLogger("accoda.manager")
T = TypeVar("T")


class ManagerOptions(Struct, frozen=True, kw_only=True):
    """Seconds: between two calls of `run_once`, until a silent leader is replaced, until an assignment ends."""

    interval: float = 2.0
    leader_ttl: float = 6.0
    assignment_ttl: float = 10.0
    rule: Rule = Rule()

    def __post_init__(self) -> None:
        for field in ("leader_ttl", "assignment_ttl"):
            if getattr(self, field) < 2 * self.interval:
                raise InvalidInput(field, f"must be at least twice the interval of {self.interval:g} s, to be renewed")


class Leader(Struct, frozen=True):
    """The leader. `term` is the version that this document had when the leader took it; 0: the one it has now."""

    worker: str
    term: int = 0


class Manager:
    """Call `run_once` every `interval` seconds, and follow `current`."""

    def __init__(
        self, storage: Storage, worker_id: str, clock: Clock | None = None, options: ManagerOptions | None = None
    ) -> None:
        self.options = options or ManagerOptions()
        self._storage = storage
        self._id = worker_id
        self._clock = clock or SystemClock()
        self._assignment: Assignment | None = None
        self._leading = 0
        """The version of the leader's document while it is ours; 0: it is not."""
        self._renewed_at = 0
        self._written_at: int | None = None
        self._last: FleetView | None = None
        self._known: dict[str, Known] = {}

    @property
    def leads(self) -> bool:
        """Whether it led when it last looked."""
        return self._leading > 0

    @property
    def current(self) -> Assignment | None:
        """The last assignment that named this worker, however old it is; None: there was none, so go on round robin.

        It is safe to follow an old one: it only says which queues come first, and leaves no queue to workers that may
        have died (see `Rotation.leave_to_others`).
        """
        return self._assignment

    async def run_once(self) -> Assignment | None:
        """Read the assignment; lead if no other worker does; give `current`. Raises the storage's errors."""
        documents = {document.name: document for document in await self._storage.documents(PREFIX)}
        said = documents.get(ASSIGNMENT)
        self._keep(_decode(said, Assignment))
        term = await self._lead(documents.get(LEADER))
        if term is not None:
            await self._decide(term, said)
        return self.current

    async def close(self) -> None:
        """Give leadership up, so that another takes over at its next look. A second close does no harm."""
        seat, self._leading = self._leading, 0
        if seat:
            with suppress(VersionConflict):  # another worker has it by now
                await self._storage.write(LEADER, b"", version=seat, ttl=0)

    async def _lead(self, document: Document | None) -> int | None:
        """Take or renew leadership; the term, or None where another worker leads.

        Only one can hold the document: it is taken by compare-and-set where there is none, and renewed by
        compare-and-set from the version that was read. Whether it has ended is the store's clock to say, so clocks of
        workers that differ do no harm. What was read decides, not what this object remembers: a leader that slept
        finds another's name in it and steps down, one whose reply was lost finds its own and goes on.
        """
        leader = _decode(document, Leader)
        if document is not None and (leader is None or leader.worker != self._id):
            self._step_down()
            return None
        version, term = (document.version, leader.term or document.version) if document and leader else (0, 0)
        if version and self._within(self._renewed_at, self.options.leader_ttl / 3):
            self._leading = version
            return term
        value = msgspec.json.encode(Leader(self._id, term))
        try:
            self._leading = await self._storage.write(LEADER, value, version=version, ttl=self.options.leader_ttl)
        except VersionConflict:
            self._step_down()
            return None
        self._renewed_at = self._clock.now()
        if not version:
            log.info("this worker manages now, term %d", self._leading)
        return term or self._leading

    async def _decide(self, term: int, said: Document | None) -> None:
        """FleetView at everything and decide, and write it if that is new or the last assignment grows old."""
        last = _decode(said, Assignment)
        if last is not None and last.term > term:
            # The two documents are not read in one step: between them another worker took over and wrote. See `_write`.
            self._step_down()
            return
        look = FleetView(await self._storage.stats(), await read_heartbeats(self._storage), self._clock.now())
        self._known = learn(look, self._last, self._known or remember(last.plans if last else {}))
        self._last = look
        seen = situation(look, self._known)
        new = assign(seen, last, self.options.rule)
        if not any(has_jobs(queue) for queue in seen.queues.values()):
            return  # nothing to do anywhere: the last assignment may end
        changed = last is None or last.workers != new.workers
        if changed or self._written_at is None or not self._within(self._written_at, self.options.assignment_ttl / 3):
            await self._write(msgspec.structs.replace(new, term=term, leader=self._id, made_at=look.at), said)

    async def _write(self, assignment: Assignment, over: Document | None) -> None:
        """Write the assignment over the one that it was decided on, and over no other.

        This is the fence. A leader that was paused anywhere (SIGSTOP, a machine that slept) and leads no longer may
        still be on its way here. It cannot write over a later leader's assignment: either it read that one, whose term
        is higher than its own, and stopped in `_decide`; or it read an earlier one, and then the version no longer
        fits. So no assignment takes the place of one of a higher term. It can still write before the new leader does,
        or after that one's assignment has ended: then its own is the only one, and ends like any other.
        """
        try:
            version = over.version if over else 0
            await self._storage.write(
                ASSIGNMENT, msgspec.json.encode(assignment), version=version, ttl=self.options.assignment_ttl
            )
        except VersionConflict:
            log.info("another manager has written since; the next look shows which one leads")
            return
        self._written_at = self._clock.now()
        self._keep(assignment)

    def _keep(self, assignment: Assignment | None) -> None:
        """Follow it, if it says what this worker is to do; if it does not, the one before still holds."""
        if assignment is not None and self._id in assignment.workers:
            self._assignment = assignment

    def _step_down(self) -> None:
        """What was learned gets old while another leads; it goes on in that one's assignments."""
        self._leading, self._written_at, self._last, self._known = 0, None, None, {}

    def _within(self, since: int, seconds: float) -> bool:
        """Whether less than that has passed. A clock that was set back counts as long ago: better act too often."""
        return 0 <= self._clock.now() - since < seconds * 1000


def _decode(document: Document | None, kind: type[T]) -> T | None:
    """What a document says; None where there is none, or one of another version of Accoda that cannot be read."""
    return None if document is None else read_json(document.value, kind)
