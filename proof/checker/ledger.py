"""One pass over a call log: what happened to each job, gathered by its id, so that every rule is a look at one job.

`sure` means that the call was answered ok and that this very job was changed by it. What is not sure may have happened
at any time after its start, or never.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, field

from accoda.flows.model import LOG
from accoda.model import What
from proof.checker.call_log import Call, CallLog
from proof.checker.final import FinalState
from proof.checker.flow_logs import Replay, replay
from proof.checker.records import (
    Asked,
    Browse,
    Change,
    Changed,
    Enqueue,
    Extend,
    Kind,
    Look,
    LookEnd,
    Note,
    OfQueue,
    Seen,
    SetLanes,
    Settle,
    Take,
    Taken,
    Told,
    Write,
)

_NONE: Any = ()  # stands for an empty list: most lives need only two of theirs, and there may be millions


class Leased(Struct, gc=False, eq=False):
    """The job was handed out for `lease` seconds."""

    call: Call
    taken: Taken
    lease: float

    @property
    def attempts(self) -> int:
        return self.taken.attempts


class Outcome(Struct, gc=False, eq=False):
    """An outcome that was accepted (`sure`) or whose call is unknown."""

    call: Call
    told: Told
    sure: bool

    @property
    def kind(self) -> Kind:
        return self.told.kind

    @property
    def attempts(self) -> int:
        return self.told.attempts


class Extension(Struct, gc=False, eq=False):
    """A lease that was made to last until `lease` seconds after the call (`sure`), or perhaps was."""

    call: Call
    attempts: int
    lease: float
    sure: bool
    taken_at: int = 0


class Placing(Struct, gc=False, eq=False):
    """An enqueue, and what became of it: with the job `created`, `kept`, `replaced` or `attached`."""

    call: Call
    asked: Asked
    what: What
    waiters: int = 0


class Touch(Struct, gc=False, eq=False):
    """A change: a removal, a cancellation, a revival, an early start, a crash that was taken back, or a new rank."""

    call: Call
    change: Changed
    sure: bool


class Sight(Struct, gc=False, eq=False):
    """A look or a page that showed the job."""

    call: Call
    seen: Seen


class Life(Struct, gc=False, eq=False):
    """All that is known of one job. Lists are by the start of their calls; `placings` are those after the first.

    `removals` took the job away from its queue: it was removed or cancelled. `told_cancelled` are the calls that were
    refused because it was cancelled.
    """

    id: int
    queue: str = ""
    born: Placing | None = None
    final: Seen | None = None
    leases: list[Leased] = _NONE
    outcomes: list[Outcome] = _NONE
    extensions: list[Extension] = _NONE
    placings: list[Placing] = _NONE
    removals: list[Touch] = _NONE
    revivals: list[Touch] = _NONE
    early_starts: list[Touch] = _NONE
    not_crashed: list[Touch] = _NONE
    reranks: list[Touch] = _NONE
    told_cancelled: list[Call] = _NONE
    sights: list[Sight] = _NONE

    @property
    def there(self) -> bool:
        """Whether anything shows that there ever was such a job."""
        return bool(self.born or self.leases or self.final or self.sights or self.placings)

    @property
    def lane(self) -> str | None:
        """Which lane it is of: a job keeps its lane."""
        if self.born is not None:
            return self.born.asked.lane
        return self.leases[0].taken.lane if self.leases else self.final.lane if self.final is not None else None

    def content(self) -> tuple[str, int, int] | None:
        """Queue, size and checksum as they were first seen; None if they never were."""
        if self.born is not None:
            return self.born.asked.content
        seen = self.leases[0].taken if self.leases else self.sights[0].seen if self.sights else self.final
        return None if seen is None else (self.queue, seen.size, seen.check)


class Ledger(Struct):
    """The call log, by job and by queue."""

    log: CallLog
    final: FinalState | None
    lives: dict[int, Life] = field(default_factory=dict)
    takes: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))  # answered
    unknown_takes: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    maybe_asked: list[tuple[Call, Asked]] = field(default_factory=list)  # of unknown enqueues
    follow_ups: list[tuple[Call, Asked, bool]] = field(
        default_factory=list
    )  # of what was accepted (True) or is unknown
    maybe_replaced: dict[tuple[str, str | None], list[Placing]] = field(default_factory=lambda: defaultdict(list))
    maybe_reranked: set[tuple[str, str | None]] = field(default_factory=set)
    pauses: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    purges: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    rules: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))  # calls of `set_lanes`
    writes: list[Call] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)  # jobs whose records were spoilt from outside
    denied: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    flows: dict[str, Replay] = field(default_factory=dict)
    reporting: set[str] = field(default_factory=set)  # the flows that jobs report to

    def life(self, id: int) -> Life:
        found = self.lives.get(id)
        if found is None:
            found = self.lives[id] = Life(id)
        return found

    def notes(self, *kinds: str) -> Iterator[Note]:
        return (note for note in self.log.notes if note.kind in kinds)

    def replacements(self, life: Life) -> list[Placing]:
        """Those that replaced the job, or may have: unknown calls, and follow-ups, whose ids are not told."""
        known = [placing for placing in life.placings if placing.what == "replaced"]
        if not self.maybe_replaced or (life.born is not None and life.born.asked.key is None):
            return known
        key = None if life.born is None else life.born.asked.key
        return known + self.maybe_replaced.get((life.queue, key), [])

    def reranked(self, life: Life) -> bool:
        """Whether another enqueue under the key of the job gave it a new rank, or may have: as above."""
        asked = None if life.born is None else life.born.asked
        if asked is None or (asked.key is not None and (life.queue, asked.key) in self.maybe_reranked):
            return True
        return any(placing.asked.on_duplicate == "rerank" for placing in life.placings)


def gather(log: CallLog, final: FinalState | None = None) -> Ledger:
    """Sort the calls by job."""
    ledger = Ledger(log, final)
    ledger.damaged = {int(note.fields["id"]) for note in ledger.notes("damaged")}
    for call in log.calls:
        if not call.ok:
            if call.refused:
                continue
            ledger.unknown += type(call.start) in _CHANGING
        add = _ADD.get(type(call.start))
        if add is not None:
            add(ledger, call)
    for id, seen in final.jobs.items() if final is not None else ():
        life = ledger.life(id)
        life.final, life.queue = seen, life.queue or seen.queue
    if final is not None:
        in_parts = _flows_in_parts(ledger)
        ledger.flows = {id: replay(flow) for id, flow in final.flows.items() if id not in in_parts}
    return ledger


def _flows_in_parts(ledger: Ledger) -> set[str | None]:
    """Flows that were begun while the store was put back. The servers of a Cluster are put back one after another, so
    that of such a flow some jobs may be there and others not."""
    restored = max((note.at for note in ledger.notes("restored")), default=0)
    starts = [call.start for call in ledger.log.calls if call.started < restored]
    begun = [asked for start in starts if isinstance(start, Enqueue) for asked in start.jobs]
    return {asked.key for asked in begun if asked.queue == LOG}


def _enqueue(ledger: Ledger, call: Call) -> None:
    start: Enqueue = call.start
    if not call.ok:
        for asked in start.jobs:
            ledger.maybe_asked.append((call, asked))
            _may_replace(ledger, call, asked)
        return
    for asked, placed in zip(start.jobs, call.end.placed, strict=True):
        if asked.reports_to is not None:
            ledger.reporting.add(asked.reports_to)
        life = ledger.life(placed.id)
        life.queue = asked.queue
        placing = Placing(call, asked, placed.what, placed.waiters)
        if placed.what == "created" and life.born is None:
            life.born = placing
        else:
            life.placings = [*life.placings, placing]


def _may_replace(ledger: Ledger, call: Call, asked: Asked) -> None:
    if asked.reports_to is not None:
        ledger.reporting.add(asked.reports_to)
    if asked.on_duplicate == "rerank":
        ledger.maybe_reranked.add((asked.queue, asked.key))
    if asked.on_duplicate == "replace":
        placing = Placing(call, asked, "replaced")
        ledger.maybe_replaced[asked.queue, asked.key].append(placing)
        ledger.maybe_replaced[asked.queue, None].append(placing)  # for a job whose key is not known


def _take(ledger: Ledger, call: Call) -> None:
    start: Take = call.start
    if not call.ok:
        ledger.unknown_takes[start.queue].append(call)
        return
    ledger.takes[start.queue].append(call)
    for taken in call.end.taken:
        life = ledger.lives.get(taken.id) or ledger.life(taken.id)
        life.queue = start.queue
        leased = Leased(call, taken, start.lease)
        if life.leases:
            life.leases.append(leased)
        else:
            life.leases = [leased]


def _settle(ledger: Ledger, call: Call) -> None:
    start: Settle = call.start
    sure = call.ok
    outcomes: Any = start.outcomes
    if sure and call.end.denied:
        _note_denied(ledger, call)
        denied = Counter((each.id, each.attempts, each.taken_at, each.why) for each in call.end.denied)
        outcomes = _accepted(start.outcomes, denied)
    for told in outcomes:
        life = ledger.lives.get(told.id) or ledger.life(told.id)
        life.queue = life.queue or told.queue
        outcome = Outcome(call, told, sure)
        if life.outcomes:
            life.outcomes.append(outcome)
        else:
            life.outcomes = [outcome]
        for asked in told.then:
            ledger.follow_ups.append((call, asked, sure))
            _may_replace(ledger, call, asked)


def _note_denied(ledger: Ledger, call: Call) -> None:
    ledger.denied.update(each.why for each in call.end.denied)
    for each in call.end.denied:
        if each.why == "cancelled":
            life = ledger.life(each.id)
            life.told_cancelled = [*life.told_cancelled, call]


def _accepted(outcomes: tuple[Told, ...], denied: Counter[tuple[int, int, int, str]]) -> list[Told]:
    """Those that were not given back. If a call names a lease twice, those after an accepted one are lost; only a Done
    that tells how many waiters it saw can be refused as grown."""
    accepted = []
    for told in reversed(outcomes):
        token = (told.id, told.attempts, told.taken_at)
        whys = ("lost", "cancelled", "grown") if told.waiters is not None else ("lost", "cancelled")
        why = next((why for why in whys if denied[*token, why]), None)
        if why is None:
            accepted.append(told)
        else:
            denied[*token, why] -= 1
    return accepted[::-1]


def _extend(ledger: Ledger, call: Call) -> None:
    start: Extend = call.start
    denied: set[tuple[int, int, int]] = set()
    if call.ok and call.end.denied:
        denied = {(each.id, each.attempts, each.taken_at) for each in call.end.denied}
        _note_denied(ledger, call)
    for held in start.leases:
        if (held.id, held.attempts, held.taken_at) not in denied:
            life = ledger.life(held.id)
            life.extensions = [*life.extensions, Extension(call, held.attempts, start.lease, call.ok, held.taken_at)]


def _change(ledger: Ledger, call: Call) -> None:
    start: Change = call.start
    if call.ok and call.end.count == 0:
        return
    sure = call.ok and call.end.count == len(start.changes)
    for change in start.changes:
        life = ledger.life(change.id)
        life.queue = life.queue or change.queue or ""
        touch = Touch(call, change, sure)
        if change.kind in ("remove", "cancel"):
            life.removals = [*life.removals, touch]
        elif change.kind == "revive":
            life.revivals = [*life.revivals, touch]
        elif change.kind == "start now":
            life.early_starts = [*life.early_starts, touch]
        elif change.kind == "not crashed":
            life.not_crashed = [*life.not_crashed, touch]
        else:
            life.reranks = [*life.reranks, touch]


def _of_queue(ledger: Ledger, call: Call) -> None:
    start: OfQueue = call.start
    if start.verb == "pause":
        ledger.pauses[start.queue].append(call)
    elif start.verb == "purge" and (not call.ok or call.end.count):
        ledger.purges[start.queue].append(call)


def _set_lanes(ledger: Ledger, call: Call) -> None:
    ledger.rules[call.start.queue].append(call)


def _look(ledger: Ledger, call: Call) -> None:
    if isinstance(call.end, LookEnd):
        for seen in call.end.seen:
            life = ledger.life(seen.id)
            life.queue = life.queue or seen.queue
            life.sights = [*life.sights, Sight(call, seen)]


def _write(ledger: Ledger, call: Call) -> None:
    if call.ok:
        ledger.writes.append(call)


_ADD: dict[type, Callable[[Ledger, Call], None]] = {
    Enqueue: _enqueue,
    Take: _take,
    Settle: _settle,
    Extend: _extend,
    Change: _change,
    OfQueue: _of_queue,
    SetLanes: _set_lanes,
    Look: _look,
    Browse: _look,
    Write: _write,
}
_CHANGING = set(_ADD) - {Look, Browse}  # a look that failed leaves nothing in doubt
