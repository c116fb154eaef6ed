"""One queue in memory: its records by state, the orderings over them, and the moves between states.

Entries of the orderings are hints: an entry counts only if the record still says the same, so nothing is ever searched
for in a heap. Stale entries are dropped when they come to the top, or all at once when they are the majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, nlargest, nsmallest
from math import floor, inf

from msgspec import Struct

from accoda.model import (
    AHEAD_AT_MOST,
    ENDED,
    NEWCOMER,
    STATES,
    TURN,
    Cursor,
    Enqueued,
    Job,
    LaneInfo,
    Lanes,
    LanesInfo,
    Lease,
    NewJob,
    Order,
    QueueStats,
    Retry,
    State,
    clean,
)
from accoda.storage.memory.due import SLACK, Due


class Record(Struct, gc=False):
    id: int
    queue: MemoryQueue
    data: bytes
    rank: float
    cost: int
    key: str | None
    created_at: int
    start_time: int
    keep_for: float
    reports_to: str | None = None
    lane: str | None = None
    sort: float = 0.0  # ready: its turn in a fair line, else its rank
    state: State = "ready"
    due: int = 0  # delayed: start time; taken: end of the lease; done, cancelled: end of keeping
    attempts: int = 0
    prev_start_time: int | None = None
    waiters: list[bytes] | None = None
    worker: str | None = None
    taken_at: int | None = None
    ended_at: int | None = None
    reason: str | None = None
    result: bytes | None = None
    tries: int = 0
    crashes: int = 0

    @property
    def waiting(self) -> int:
        """How many waiters it has."""
        return len(self.waiters) if self.waiters else 0

    def give_back(self, start_time: int) -> None:
        """The job comes back: a new token, and the old start time remembered."""
        self.attempts += 1
        self.prev_start_time, self.start_time = self.start_time, start_time

    def begin_again(self) -> None:
        """What failed so far no longer counts. The attempts stay: they are the token."""
        self.tries = self.crashes = 0

    @property
    def place(self) -> tuple[float, int]:
        """What orders the jobs of a lane, and those of a line without turns."""
        return self.rank, self.id


class Lane(Struct, gc=False):
    """The jobs of a lane that are in the line, held or running."""

    ready: dict[int, Record] = {}
    held: dict[int, Record] = {}
    best: list[tuple[float, int]] = []  # heap of (rank, id) of held jobs
    worst: tuple[float, int] = (-inf, 0)  # no job of the lane in the line is behind this place
    taken: int = 0
    last: dict[float, list[tuple[float, int]]] = {}  # by level: (turn, id) in the order in which they came in

    @property
    def is_empty(self) -> bool:
        return not (self.ready or self.held or self.taken)

    def hold(self, record: Record) -> None:
        self.held[record.id] = record
        heappush(self.best, (record.rank, record.id))
        if len(self.best) > 2 * len(self.held) + SLACK:
            self.best = [(each.rank, id) for id, each in self.held.items()]
            heapify(self.best)

    def next_held(self) -> Record | None:
        while self.best:
            rank, id = self.best[0]
            record = self.held.get(id)
            if record is not None and record.rank == rank:
                return record
            heappop(self.best)
        return None

    def worse_than(self, place: tuple[float, int]) -> Record | None:
        """The worst job that it has in the line, if that is behind this place."""
        if self.worst < place:  # mostly, so they are seldom looked through
            return None
        worst = max(self.ready.values(), key=_place, default=None)
        self.worst = (-inf, 0) if worst is None else worst.place
        return worst if self.worst > place else None

    def note_turn(self, level: float, place: tuple[float, int]) -> None:
        stack = self.last.setdefault(level, [])
        stack.append(place)
        if len(stack) > 2 * len(self.ready) + SLACK:  # those that were taken are at the bottom
            self.last[level] = [(turn, id) for turn, id in stack if id in self.ready and self.ready[id].sort == turn]

    def last_ready(self, level: float) -> Record | None:
        """The last of its jobs in the line at this level: each turn is at least that of those before it."""
        stack = self.last.get(level)
        while stack:
            turn, id = stack[-1]
            record = self.ready.get(id)
            if record is not None and record.sort == turn:
                return record
            stack.pop()
        self.last.pop(level, None)
        return None


class LaneGroup:
    """The queues that share the limits of their lanes, in the order of their names; mostly one queue."""

    def __init__(self, *queues: MemoryQueue) -> None:
        self.queues = sorted(queues, key=lambda queue: queue.name)
        self.touched: set[str] = set()  # lanes that are to be balanced at the end of the step
        for queue in self.queues:
            queue.group = self
            self.touched |= queue.lanes.keys()

    def balance(self) -> None:
        """The end of a step: of each lane that it touched, as many jobs are in the line as the limit allows."""
        if not self.touched:
            return
        names, self.touched = sorted(self.touched), set()
        for name in names:
            self.balance_lane(name, [lane for queue in self.queues if (lane := queue.lanes.get(name)) is not None])
            for queue in self.queues:
                lane = queue.lanes.get(name)
                if lane is not None and lane.is_empty:
                    del queue.lanes[name]

    def balance_lane(self, name: str, lanes: list[Lane]) -> None:
        free = self.limit_of(name)
        for lane in lanes:
            free -= lane.taken + len(lane.ready)
        if free < 0:
            ready = (record for lane in lanes for record in lane.ready.values())
            for record in nlargest(int(-free), ready, key=_place):
                record.queue.hold_back(record)
                free += 1
        coming: list[Record] = []
        while (best := _best(lanes)) is not None:
            if free <= 0:
                worst = _worse(lanes, best.place)
                if worst is None:
                    break
                worst.queue.hold_back(worst)  # a worse job makes room for a better one
                free += 1
            best.queue.release(best)
            coming.append(best)
            free -= 1
        for record in coming:
            record.queue.let_in(record)

    def limit_of(self, lane: str) -> float:
        lowest = inf
        for queue in self.queues:
            limit = None if queue.rules is None else queue.rules.limit_of(lane)
            if limit is not None and limit < lowest:
                lowest = limit
        return lowest


class MemoryQueue:
    """The moves are called under the storage's lock, for records that are in the state that the move is for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: dict[State, dict[int, Record]] = {state: {} for state in STATES}
        self.ready = self.states["ready"]
        self.order: list[tuple[float, int]] = []  # heap of (sort, id) of ready jobs
        self.ages: list[int] = []  # heap of ids of ready jobs
        self.due = Due(self.states["delayed"], self.states["taken"])  # what becomes ready
        self.kept = Due(self.states["done"], self.states["cancelled"])  # apart, so that old results never delay a job
        self.keys: dict[str, Record] = {}
        self.counts = {"done": 0, "retried": 0, "buried": 0, "expired": 0, "cancelled": 0, "promoted": 0}
        self.paused = False
        self.paused_until: int | None = None
        self.rules: Lanes | None = None
        self.lanes: dict[str, Lane] = {}
        self.levels: dict[float, list[tuple[float, int]]] = {}  # of a fair line: heaps of (turn, id) of ready jobs
        self.group: LaneGroup  # whoever makes the queue puts it into one

    # -- moves

    def leave(self, record: Record) -> None:
        """The record is in no state any more."""
        del self.states[record.state][record.id]
        if record.lane is not None and record.state in ("ready", "held", "taken"):
            lane = self.lanes[record.lane]
            if record.state == "taken":
                lane.taken -= 1
            else:
                del (lane.ready if record.state == "ready" else lane.held)[record.id]
            self.group.touched.add(record.lane)

    def move(self, record: Record, state: State) -> None:
        self.leave(record)
        record.state = state
        self.states[state][record.id] = record

    def insert(self, record: Record, now: int) -> None:
        """A record that is in no state yet becomes ready, or delayed until its start time."""
        if record.start_time <= now:
            self.come_in(record)
        else:
            record.state = "delayed"
            self.states["delayed"][record.id] = record
            record.due = record.start_time
            self.due.watch(record.due, record.id)

    def come_in(self, record: Record) -> None:
        """A record that is in no state comes into the line, or is held until its lane is balanced."""
        if record.lane is None:
            self.line_up(record, record.rank)
        elif self.rules is None:
            self._line_up_in_lane(record, record.rank)
        else:
            record.state = "held"
            self.states["held"][record.id] = record
            self.lane_of(record).hold(record)
            self.group.touched.add(record.lane)

    def line_up(self, record: Record, sort: float) -> None:
        """Make a record ready, and put it into the orderings."""
        record.state, record.sort = "ready", sort
        self.ready[record.id] = record
        heappush(self.order, (sort, record.id))
        heappush(self.ages, record.id)
        if len(self.order) > 2 * len(self.ready) + SLACK:
            self.order = [(each.sort, id) for id, each in self.ready.items()]
            heapify(self.order)
        if len(self.ages) > 2 * len(self.ready) + SLACK:
            self.ages = sorted(self.ready)

    def start(self, record: Record) -> None:
        self.leave(record)
        self.come_in(record)

    # -- lanes

    def lane_of(self, record: Record) -> Lane:
        assert record.lane is not None, "only for jobs that have a lane"
        lane = self.lanes.get(record.lane)
        if lane is None:
            lane = self.lanes[record.lane] = Lane()
        return lane

    def set_lanes(self, rules: Lanes | None) -> None:
        """The lanes are to be balanced then, by the group that it belongs to."""
        self.rules = rules
        self.levels.clear()
        for lane in self.lanes.values():
            lane.last.clear()
            for record in sorted(lane.ready.values(), key=lambda each: (each.sort, each.id)):
                self._note_turn(record, lane)

    def hold_back(self, record: Record) -> None:
        """A job of a lane leaves the line and is held."""
        lane = self.lane_of(record)
        del self.ready[record.id], lane.ready[record.id]
        record.state = "held"
        self.states["held"][record.id] = record
        lane.hold(record)

    def release(self, record: Record) -> None:
        """A job is no longer held: `let_in` follows."""
        del self.states["held"][record.id], self.lane_of(record).held[record.id]

    def let_in(self, record: Record) -> None:
        """A job that is in no state comes into the line: in a fair one it has its turn."""
        fair = self.rules is not None and self.rules.fair
        self._line_up_in_lane(record, self._turn(record) if fair else record.rank)

    def _line_up_in_lane(self, record: Record, sort: float) -> None:
        lane = self.lane_of(record)
        lane.ready[record.id] = record
        if record.place > lane.worst:
            lane.worst = record.place
        self.line_up(record, sort)
        self._note_turn(record, lane)

    def _note_turn(self, record: Record, lane: Lane) -> None:
        """For those that come in later. Only a fair line asks."""
        if self.rules is not None and self.rules.fair:
            level, place = float(floor(record.sort)), (record.sort, record.id)
            heappush(self.levels.setdefault(level, []), place)
            lane.note_turn(level, place)

    def _turn(self, record: Record) -> float:
        """Where a job comes into a fair line: see `accoda.storage.protocol`."""
        assert self.rules is not None, "only where rules say that it is fair"
        level = float(floor(record.rank))
        length = self.rules.turn_of(record.lane or "", record.cost)
        last = self.lane_of(record).last_ready(level)
        if last is not None:
            turn = last.sort + length
        else:
            first = self._first_turn(level)
            turn = (level if first is None else first) + length * NEWCOMER
        if turn >= level + 1 > level:
            turn = level + 1 - TURN
        return turn

    def promote(self, record: Record) -> None:
        """The start time of a delayed job has come."""
        self.counts["promoted"] += 1
        self.start(record)

    def join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        """The new job's key is held by another."""
        if job.on_duplicate in ("keep", "rerank"):
            if job.on_duplicate == "rerank":
                self.rerank(held, job.rank)
            return Enqueued(held.id, "kept", held.waiting)
        if job.waiter is not None:
            if held.waiters is None:
                held.waiters = []
            held.waiters.append(job.waiter)
        if job.on_duplicate == "attach":
            return Enqueued(held.id, "attached", held.waiting)
        self.replace(held, job, start_time, now)
        return Enqueued(held.id, "replaced", held.waiting)

    def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
        self.leave(record)
        if record.state == "taken":
            # The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
            record.give_back(start_time)
        record.data, record.rank, record.cost, record.keep_for = job.data, float(job.rank), job.cost, job.keep_for
        record.start_time = start_time
        record.begin_again()
        self.insert(record, now)

    def end_lease(self, record: Record, now: int) -> None:
        record.give_back(now)
        record.crashes += 1
        self.counts["expired"] += 1
        self.start(record)

    def retry(self, record: Record, outcome: Retry, now: int) -> None:
        self.counts["retried"] += 1
        record.give_back(start_of(outcome.delay, outcome.at, now))
        record.tries += outcome.counts
        record.reason = clean(outcome.reason)
        if outcome.rank is not None:
            record.rank = float(outcome.rank)
        self.leave(record)
        self.insert(record, now)

    def bury(self, record: Record, reason: str, now: int) -> None:
        self.counts["buried"] += 1
        self.release_key(record)
        record.reason, record.ended_at = clean(reason), now
        self.move(record, "dead")

    def revive(self, record: Record, now: int) -> bool:
        """False: another job holds its key."""
        if record.key is not None and self.keys.setdefault(record.key, record) is not record:
            return False
        record.give_back(now)
        record.begin_again()
        record.ended_at = None
        self.start(record)
        return True

    def start_now(self, record: Record, now: int) -> None:
        """A delayed job does not come back from a run, so its token stays."""
        record.start_time = now
        self.start(record)

    def rerank(self, record: Record, rank: float) -> None:
        if record.state in ("ready", "held"):  # it leaves the line and comes in again
            self.leave(record)
            record.rank = float(rank)
            self.come_in(record)
        else:
            record.rank = float(rank)

    def keep(self, record: Record, state: State, now: int) -> None:
        """A finished job stays for people to look at."""
        record.ended_at = now
        record.due = now + round(record.keep_for * 1000)
        self.move(record, state)
        self.kept.watch(record.due, record.id)

    def release_key(self, record: Record) -> None:
        if record.key is not None and self.keys.get(record.key) is record:
            del self.keys[record.key]

    def pause(self, until: int | None, now: int) -> None:
        self.paused = until is None or until > now
        self.paused_until = until if self.paused else None

    def clear(self) -> None:
        """Let go of all records.

        They are not tracked by the garbage collector (a million of them would slow every collection down), so the
        cycle record -> queue -> record is broken by hand.
        """
        for records in self.states.values():
            records.clear()
        self.lanes.clear()
        self.keys.clear()

    # -- questions

    def is_paused(self, now: int) -> bool:
        if self.paused_until is not None:
            self.pause(self.paused_until, now)
        return self.paused

    def next_moment(self, now: int) -> int | None:
        """When something may be takable, once what is due was applied."""
        if self.is_paused(now):
            return self.paused_until
        if self.ready and self.free():
            return now
        # Also of queues that share limits: one of their leases may hold the place that a job of this one waits for. It
        # is not after now if one call's bound was reached: then something is still due.
        return min((moment for each in self.group.queues if (moment := each.due.next()) is not None), default=None)

    def free(self) -> float:
        """How many more jobs may run at once."""
        total = None if self.rules is None else self.rules.total
        return inf if total is None else max(0, total - len(self.states["taken"]))

    def head(self) -> Record | None:
        """The record that `take` would hand out first, if one more may run."""
        if not self.free():
            return None
        while self.order:
            sort, id = self.order[0]
            record = self.ready.get(id)
            if record is not None and record.sort == sort:
                return record
            heappop(self.order)
        return None

    def ahead_of(self, record: Record) -> tuple[int, int]:
        """How many jobs `take` would hand out before this one, and how many of them have a higher id."""
        own = (record.sort if record.state == "ready" else record.rank, record.id)
        before = [place for id, each in self.ready.items() if (place := (each.sort, id)) < own]
        newer = sum(id > record.id for _, id in nsmallest(AHEAD_AT_MOST, before))
        return min(len(before), AHEAD_AT_MOST + 1), newer

    def page(self, state: State, order: Order, after: Cursor | None, limit: int) -> list[Record]:
        records = self.states[state].values()
        if order == "id":
            return nsmallest(limit, (each for each in records if after is None or each.id > after.id), lambda r: r.id)
        begin = None if after is None else _place_in_line(state, after.sort, after.id)
        places = ((_place_in_line(state, _sort(each), each.id), each.id) for each in records)
        chosen = nsmallest(limit, (found for found in places if begin is None or found[0] > begin))
        return [self.states[state][id] for _, id in chosen]

    def purgeable(self, state: State, before: int | None, limit: int | None) -> list[int]:
        """The ids of records in a state since before a moment: ended ones by their end, others by id."""
        found = []
        for record in self.states[state].values():
            since = record.created_at if record.ended_at is None else record.ended_at
            if before is None or since < before:
                found.append((record.ended_at or 0, record.id))
        return [id for _, id in sorted(found)[:limit]]

    def stats(self, now: int) -> QueueStats:
        ages, ready, states = self.ages, self.ready, self.states
        while ages and ages[0] not in ready:
            heappop(ages)
        paused = self.is_paused(now)
        return QueueStats(
            total=sum(len(states[state]) for state in ("ready", "held", "taken", "delayed", "dead")),
            ready=len(ready),
            held=len(states["held"]),
            taken=len(states["taken"]),
            delayed=len(states["delayed"]),
            dead=len(states["dead"]),
            oldest_age=max(0, now - ready[ages[0]].created_at) / 1000 if ages else 0.0,
            paused=paused,
            paused_until=self.paused_until,
            **self.counts,
        )

    def lanes_info(self, limit: int) -> LanesInfo:
        counts = [LaneInfo(name, len(lane.ready), len(lane.held), lane.taken) for name, lane in self.lanes.items()]
        top = nsmallest(limit, counts, key=lambda each: (-each.ready - each.held, each.lane))
        return LanesInfo(self.rules, tuple(top), len(counts) if limit else 0)

    def _first_turn(self, level: float) -> float | None:
        """The lowest turn of the ready jobs of a level."""
        heap = self.levels.get(level, [])
        while heap:
            turn, id = heap[0]
            record = self.ready.get(id)
            if record is not None and record.sort == turn:
                return turn
            heappop(heap)
        self.levels.pop(level, None)
        return None

    # -- take

    def pick(self, count: float, max_cost: int | None) -> list[Record]:
        """Take the first ready records out of the line, in order, while their summed cost fits."""
        picked: list[Record] = []
        order, ready = self.order, self.ready
        if self.rules is not None:
            count = min(count, self.free())
        while order and len(picked) < count:
            sort, id = order[0]
            record = ready.get(id)
            if record is not None and record.sort == sort:
                if max_cost is not None:
                    if record.cost > max_cost:
                        break
                    max_cost -= record.cost
                del ready[id]  # so that a second hint at the same record is stale
                if record.lane is not None:
                    lane = self.lanes[record.lane]
                    del lane.ready[id]
                    lane.taken += 1
                picked.append(record)
            heappop(order)
        return picked

    def lease(self, records: Iterable[Record], now: int, until: int, worker: str) -> list[Job]:
        jobs = []
        taken = self.states["taken"]
        for record in records:
            record.state, record.due, record.worker, record.taken_at = "taken", until, worker, now
            taken[record.id] = record
            jobs.append(as_job(record))
        self.due.watch(until, *(job.id for job in jobs))
        return jobs


def start_of(delay: float | None, at: int | None, now: int) -> int:
    """The moment that a delay or a start moment means. One in the past is now."""
    if at is not None:
        return max(now, at)
    return now + round(delay * 1000) if delay else now


def _sort(record: Record) -> float:
    """What orders the jobs of a state: the same as in `JobInfo.cursor`."""
    if record.state == "ready":
        return record.sort
    if record.state == "held":
        return record.rank
    return record.due if record.ended_at is None else record.ended_at


def _place_in_line(state: State, sort: float, id: int) -> tuple[float, int]:
    return (-sort, -id) if state in ENDED else (sort, id)  # latest first


def as_job(record: Record) -> Job:
    name, id, attempts, taken_at = record.queue.name, record.id, record.attempts, record.taken_at or 0
    return Job(
        id,
        name,
        record.data,
        record.rank,
        record.cost,
        record.key,
        attempts,
        record.created_at,
        record.start_time,
        record.prev_start_time,
        record.waiting,
        Lease(name, id, attempts, taken_at),
        record.tries,
        record.crashes,
        record.lane,
    )


def _best(lanes: Iterable[Lane]) -> Record | None:
    """The best held job of a lane in all its queues."""
    best = None
    for lane in lanes:
        record = lane.next_held()
        if record is not None and (best is None or record.place < best.place):
            best = record
    return best


def _worse(lanes: Iterable[Lane], place: tuple[float, int]) -> Record | None:
    """The worst job that a lane has in the line, if that is behind this place."""
    worse = [record for lane in lanes if (record := lane.worse_than(place)) is not None]
    return max(worse, key=_place, default=None)


def _place(record: Record) -> tuple[float, int]:
    return record.place
