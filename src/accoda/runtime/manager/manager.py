"""The manager that every worker carries. One of them leads; the others listen.

    documents    manager/leader       who leads, and since which term; ends by itself if it is not renewed
                 manager/assignment   the leader's word; ends by itself too, and workers then go on round robin

Nothing depends on it for correctness: leases keep jobs safe, an assignment is advice about who does what first.
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
from accoda.runtime.manager.learning import Known, Look, learn, remember, situation
from accoda.runtime.manager.rule import Assignment, Rule, assign, has_jobs
from accoda.storage.protocol import Storage

PREFIX = "manager/"
LEADER = PREFIX + "leader"
ASSIGNMENT = PREFIX + "assignment"

log = logging.getLogger("accoda.manager")
T = TypeVar("T")


class ManagerOptions(Struct, frozen=True, kw_only=True):
    """Seconds: between two calls of `run_once`, until a silent leader is replaced, until a silent word ends."""

    interval: float = 2.0
    leader_ttl: float = 6.0
    assignment_ttl: float = 10.0
    rule: Rule = Rule()

    def __post_init__(self) -> None:
        for field in ("leader_ttl", "assignment_ttl"):
            if getattr(self, field) < 2 * self.interval:
                raise InvalidInput(field, f"must be at least twice the interval of {self.interval:g} s, to be renewed")


class Leader(Struct, frozen=True):
    """Who leads. `term` is the version that this document had when the leader took it; 0: the one it has now."""

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
        self._word: Assignment | None = None
        self._heard_at = 0
        self._seat = 0
        """The version of the leader's document while it is ours; 0: it is not."""
        self._renewed_at = 0
        self._written_at: int | None = None
        self._last: Look | None = None
        self._known: dict[str, Known] = {}

    @property
    def leads(self) -> bool:
        """Whether it led when it last looked."""
        return self._seat > 0

    @property
    def current(self) -> Assignment | None:
        """The last word that was heard, while it is valid; None: nobody speaks, go on round robin."""
        # By this process's own clock on both sides, so it also ends while the store cannot be reached.
        if self._word is None or not self._within(self._heard_at, self.options.assignment_ttl):
            return None
        return self._word

    async def run_once(self) -> Assignment | None:
        """Listen; lead if nobody else does; give `current`. A storage's error is the caller's to handle."""
        documents = {document.name: document for document in await self._storage.documents(PREFIX)}
        said = documents.get(ASSIGNMENT)
        self._hear(_decode(said, Assignment))
        term = await self._lead(documents.get(LEADER))
        if term is not None:
            await self._decide(term, said)
        return self.current

    async def close(self) -> None:
        """Give leadership up, so that another takes over at its next look. A second close does no harm."""
        seat, self._seat = self._seat, 0
        if seat:
            with suppress(VersionConflict):  # it is somebody else's by now
                await self._storage.write(LEADER, b"", version=seat, ttl=0)

    async def _lead(self, document: Document | None) -> int | None:
        """Take or renew leadership; the term, or None where somebody else leads.

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
            self._seat = version
            return term
        value = msgspec.json.encode(Leader(self._id, term))
        try:
            self._seat = await self._storage.write(LEADER, value, version=version, ttl=self.options.leader_ttl)
        except VersionConflict:
            self._step_down()
            return None
        self._renewed_at = self._clock.now()
        if not version:
            log.info("this worker manages now, term %d", self._seat)
        return term or self._seat

    async def _decide(self, term: int, said: Document | None) -> None:
        """Look at everything and say who does what, if that is news or the last word grows old."""
        word = _decode(said, Assignment)
        if word is not None and word.term > term:
            # The two documents are not read in one step: between them another took over and spoke. See `_say`.
            self._step_down()
            return
        look = Look(await self._storage.stats(), await read_heartbeats(self._storage), self._clock.now())
        self._known = learn(look, self._last, self._known or remember(word.plans if word else {}))
        self._last = look
        seen = situation(look, self._known)
        new = assign(seen, word, self.options.rule)
        if not any(has_jobs(queue) for queue in seen.queues.values()):
            return  # nothing to do anywhere: the last word may end, and nobody writes
        changed = word is None or word.workers != new.workers
        if changed or self._written_at is None or not self._within(self._written_at, self.options.assignment_ttl / 3):
            await self._say(msgspec.structs.replace(new, term=term, leader=self._id, made_at=look.at), said)

    async def _say(self, word: Assignment, over: Document | None) -> None:
        """Write the word over the one that it was decided on, and over no other.

        This is the fence. A leader that was paused anywhere (SIGSTOP, a machine that slept) and wakes as no leader at
        all may still be on its way here. It cannot write over a later leader's word: either it read that word, whose
        term is higher than its own, and stopped in `_decide`; or it read an earlier one, and then the version no longer
        fits. So no word ever takes the place of one of a higher term. What it can do is to speak before the new leader
        has, or after that one's word has ended: then its word is the only one, and ends like any other.
        """
        try:
            version = over.version if over else 0
            await self._storage.write(
                ASSIGNMENT, msgspec.json.encode(word), version=version, ttl=self.options.assignment_ttl
            )
        except VersionConflict:
            log.info("another manager has spoken since; the next look shows who leads")
            return
        self._written_at = self._clock.now()
        self._hear(word)

    def _hear(self, word: Assignment | None) -> None:
        self._word, self._heard_at = word, self._clock.now()

    def _step_down(self) -> None:
        """What was learned ages while another leads; that one's word carries it on."""
        self._seat, self._written_at, self._last, self._known = 0, None, None, {}

    def _within(self, since: int, seconds: float) -> bool:
        """Whether less than that has passed. A clock that was set back counts as long ago: better act too often."""
        return 0 <= self._clock.now() - since < seconds * 1000


def _decode(document: Document | None, kind: type[T]) -> T | None:
    """What a document says; None where there is none, or one of another version of Accoda that cannot be read."""
    return None if document is None else read_json(document.value, kind)
