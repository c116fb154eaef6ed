"""Storages that go wrong with the limits of lanes: how many are in the line, who comes in, and when."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Literal

from msgspec.structs import replace

from accoda.model import Cancel, Change, Job, JobInfo, Lanes, LanesInfo, NewJob, QueueStats, Rerank, Retry, StartNow
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import Lane, LaneGroup, MemoryQueue, Record
from proof.mutants.mutant import BrokenQueue, lane_mutant

HOLD = "TestLaneLimit::test_of_each_lane_so_many_are_in_the_line_and_the_others_are_held"
SINGLE = "TestLaneLimit::test_limits_of_single_lanes_win"
ENDS = "TestPlaceInALane::test_whatever_ends_a_run_lets_the_next_in_with_the_same_step"
LEASE_END = "TestPlaceInALane::test_the_end_of_a_lease_does_too"
BEST = "TestPlaceInALane::test_the_best_held_job_comes_in"
SWAP = "TestPlaceInALane::test_a_better_job_takes_the_place_of_a_worse_one_in_the_line"
LOWER = "TestLaneLimit::test_a_lower_limit_holds_back_what_is_in_the_line"
KEY = "TestPlaceInALane::test_a_held_job_keeps_its_key"
CHANGED = "TestPlaceInALane::test_a_held_job_can_be_cancelled_and_removed"
TOTAL = "TestTotal::test_so_many_run_at_once_with_a_lane_or_without"
INFO = "TestLanesInfo::test_shows_the_rules_and_the_lanes_with_most_waiting_first"
SAYS = "TestLaneLimit::test_a_job_says_its_lane"
PLACE = "TestSharedLimits::test_a_place_is_taken_for_all_of_them"
LEASE_ELSEWHERE = "TestSharedLimits::test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue"
COUNTED = "TestLaneLimit::test_held_jobs_are_counted"


def by_rules(change: Callable[[Lanes], Lanes]) -> type[LaneGroup]:
    """Queues that are balanced by other rules than those that they were given and show."""

    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            rules = [queue.rules for queue in self.queues]
            for queue in self.queues:
                queue.rules = None if queue.rules is None else change(queue.rules)
            super().balance_lane(name, lanes)
            for queue, given in zip(self.queues, rules, strict=True):
                queue.rules = given

    return Group


# -- the limit


def _one_more(limit: int | None) -> int | None:
    return None if limit is None else limit + 1


def _none_for_zero(limit: int | None) -> int | None:
    return limit or None


def _all_limits(rules: Lanes, change: Callable[[int | None], int | None]) -> Lanes:
    limits = {lane: change(limit) for lane, limit in rules.limits.items()}
    return replace(rules, limit=change(rules.limit), limits=limits)


@lane_mutant("a limit lets one more in", HOLD, by_machine=True)
class LimitOffByOne(BrokenQueue):
    Group = by_rules(lambda rules: _all_limits(rules, _one_more))


@lane_mutant("a limit of zero is none", "TestLaneLimit::test_held_jobs_are_counted")
class LimitZeroIsNone(BrokenQueue):
    Group = by_rules(lambda rules: _all_limits(rules, _none_for_zero))


@lane_mutant("limits of single lanes are ignored", SINGLE)
class SingleLimitsIgnored(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, limits={}))


@lane_mutant("a single limit of None leaves the limit of all", SINGLE)
class LimitNotLifted(BrokenQueue):
    Group = by_rules(
        lambda rules: replace(rules, limits={lane: n for lane, n in rules.limits.items() if n is not None})
    )


@lane_mutant("the limit is one for each call, not for all that run", "TestLaneLimit::test_a_limit_holds_over_batches")
class LimitOfABatch(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            taken = [lane.taken for lane in lanes]
            for lane in lanes:
                lane.taken = 0
            super().balance_lane(name, lanes)
            for lane, count in zip(lanes, taken, strict=True):
                lane.taken = count

    class Queue(MemoryQueue):
        def pick(self, count: float, max_cost: int | None) -> list[Record]:
            picked = super().pick(count, max_cost)
            self.group.touched.update(each.lane for each in picked if each.lane is not None)
            self.group.balance()
            return picked


@lane_mutant("held jobs take places", BEST, by_machine=True)
class HeldCountAsTaken(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            held = [len(lane.held) for lane in lanes]
            for lane, count in zip(lanes, held, strict=True):
                lane.taken += count
            super().balance_lane(name, lanes)
            for lane, count in zip(lanes, held, strict=True):
                lane.taken -= count


@lane_mutant("a take that finds nothing gives held jobs", HOLD)
class HeldHandedOut(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, **options)
        found = self._queues.get(queue)
        if jobs or found is None:
            return jobs
        for record in list(found.states["held"].values()):
            found.release(record)
            found._line_up_in_lane(record, record.rank)
        return await super().take(queue, count, **options)


# -- who has the places


@lane_mutant("a better job does not push another out of the line", SWAP, by_machine=True)
class NoSwap(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            if sum(len(lane.ready) + lane.taken for lane in lanes) != self.limit_of(name):
                super().balance_lane(name, lanes)


@lane_mutant("a better job is not compared with those that came in", SWAP)
class WorstUnknown(BrokenQueue):
    class Queue(MemoryQueue):
        def let_in(self, record: Record) -> None:
            super().let_in(record)
            self.lane_of(record).worst = (-inf, 0)


@lane_mutant("the oldest held job comes in, whatever its rank", BEST)
class HeldByAge(BrokenQueue):
    class Oldest(Lane, gc=False):
        def next_held(self) -> Record | None:
            return self.held[min(self.held)] if self.held else None

    class Queue(MemoryQueue):
        def lane_of(self, record: Record) -> Lane:
            return self.lanes.setdefault(record.lane or "", HeldByAge.Oldest())


@lane_mutant("a lower limit holds nothing back", LOWER)
class LowerLimitHoldsNothing(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            if sum(len(lane.ready) + lane.taken for lane in lanes) <= self.limit_of(name):
                super().balance_lane(name, lanes)


@lane_mutant("new rules balance nothing", "TestLaneLimit::test_a_higher_limit_lets_in_at_once")
class RulesWithoutBalance(MemoryStorage):
    def _set_lanes(self, queue: MemoryQueue, rules: Lanes | None) -> list[str]:
        queue.set_lanes(rules)
        return [queue.name]


@lane_mutant("jobs that are due come in though their lane is full", "TestPlaceInALane::test_a_delayed_job_has_no_place")
class DueJobsPassTheLimit(BrokenQueue):
    class Queue(MemoryQueue):
        def promote(self, record: Record) -> None:
            super().promote(record)
            if record.lane is not None and record.state == "held":
                self.release(record)
                self._line_up_in_lane(record, record.rank)
                self.group.touched.discard(record.lane)


@lane_mutant(
    "a job that is revived comes in though its lane is full",
    "TestPlaceInALane::test_a_job_that_is_started_now_or_revived_may_be_held",
)
class RevivedPassTheLimit(BrokenQueue):
    class Queue(MemoryQueue):
        def revive(self, record: Record, now: int) -> bool:
            revived = super().revive(record, now)
            if record.lane is not None and record.state == "held":
                self.release(record)
                self._line_up_in_lane(record, record.rank)
                self.group.touched.discard(record.lane)
            return revived


# -- steps that free a place and give it to nobody


def _give_nobody(record: Record) -> None:
    record.queue.group.touched.discard(record.lane or "")


@lane_mutant("the end of a lease frees no place", LEASE_END, by_machine=True)
class PlaceLostAtALeaseEnd(BrokenQueue):
    class Queue(MemoryQueue):
        def end_lease(self, record: Record, now: int) -> None:
            super().end_lease(record, now)
            _give_nobody(record)


class EndsWithoutAPlace(MemoryStorage):
    how: Literal["done", "cancelled"]

    def _finish(self, record: Record, state: Literal["done", "cancelled"], now: int) -> None:
        super()._finish(record, state, now)
        if state == self.how:
            _give_nobody(record)


@lane_mutant("a job that is done frees no place", ENDS)
class PlaceLostAtDone(EndsWithoutAPlace):
    how = "done"


@lane_mutant("a job that is cancelled frees no place", ENDS)
class PlaceLostAtCancel(EndsWithoutAPlace):
    how = "cancelled"


@lane_mutant("a job that is buried frees no place", ENDS)
class PlaceLostAtBury(BrokenQueue):
    class Queue(MemoryQueue):
        def bury(self, record: Record, reason: str, now: int) -> None:
            super().bury(record, reason, now)
            _give_nobody(record)


@lane_mutant("a job that is retried later frees no place", ENDS)
class PlaceLostAtRetry(BrokenQueue):
    class Queue(MemoryQueue):
        def retry(self, record: Record, outcome: Retry, now: int) -> None:
            super().retry(record, outcome, now)
            if record.state == "delayed":
                _give_nobody(record)


@lane_mutant("a job that is replaced by a later one frees no place", ENDS)
class PlaceLostAtReplace(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            super().replace(record, job, start_time, now)
            if record.state == "delayed":
                _give_nobody(record)


class RemovesWithoutAPlace(MemoryStorage):
    """`purge` removes each job as `change` does."""

    by_purge: bool
    _purging = False

    async def purge(self, *args: Any, **options: Any) -> int:
        self._purging = True
        try:
            return await super().purge(*args, **options)
        finally:
            self._purging = False

    def _remove(self, record: Record, now: int) -> None:
        super()._remove(record, now)
        if self._purging == self.by_purge:
            _give_nobody(record)


@lane_mutant("a job that is removed frees no place", ENDS)
class PlaceLostAtRemove(RemovesWithoutAPlace):
    by_purge = False


@lane_mutant("a job that is purged frees no place", ENDS)
class PlaceLostAtPurge(RemovesWithoutAPlace):
    by_purge = True


# -- held jobs


@lane_mutant("a held job gives its key up", KEY)
class HeldHoldsNoKey(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            super().balance_lane(name, lanes)
            for record in (record for lane in lanes for record in lane.held.values()):
                record.queue.release_key(record)


@lane_mutant("a held job cannot be cancelled", CHANGED)
class HeldNotCancelled(MemoryStorage):
    async def change(self, changes: Any) -> int:
        return await super().change([each for each in changes if not self._is_refused(each)])

    def _is_refused(self, change: Change) -> bool:
        record = self._jobs.get(change.id)
        return isinstance(change, Cancel) and record is not None and record.state == "held"


@lane_mutant(
    "a held job keeps its rank whatever it is given",
    "TestPlaceInALane::test_a_new_rank_may_change_who_is_held",
)
class HeldNotReranked(MemoryStorage):
    async def change(self, changes: Any) -> int:
        held = {id for id, record in self._jobs.items() if record.state == "held"}
        return await super().change([each for each in changes if not (isinstance(each, Rerank) and each.id in held)])


@lane_mutant(
    "a held job can be started now",
    "TestPlaceInALane::test_a_job_that_is_started_now_or_revived_may_be_held",
)
class HeldStartsNow(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        record = self._jobs.get(change.id)
        if isinstance(change, StartNow) and record is not None and record.state == "held":
            record.start_time = now
            return record.queue.name
        return super()._change(change, now)


@lane_mutant(
    "wait is over though all that waits is held",
    "TestPlaceInALane::test_a_wait_is_no_waiting_for_what_is_held",
)
class WaitWakesForHeld(BrokenQueue):
    class Queue(MemoryQueue):
        def next_moment(self, now: int) -> int | None:
            return now if self.states["held"] and not self.is_paused(now) else super().next_moment(now)


@lane_mutant("stats leave held jobs out of the total", COUNTED)
class HeldNotInTotal(BrokenQueue):
    class Queue(MemoryQueue):
        def stats(self, now: int) -> QueueStats:
            stats = super().stats(now)
            return replace(stats, total=stats.total - stats.held)


@lane_mutant("stats count held jobs as ready", COUNTED)
class HeldCountedAsReady(BrokenQueue):
    class Queue(MemoryQueue):
        def stats(self, now: int) -> QueueStats:
            stats = super().stats(now)
            return replace(stats, ready=stats.ready + stats.held, held=0)


@lane_mutant("the oldest job may be a held one", COUNTED)
class OldestMayBeHeld(BrokenQueue):
    class Queue(MemoryQueue):
        def stats(self, now: int) -> QueueStats:
            born = min((each.created_at for each in self.states["held"].values()), default=now)
            stats = super().stats(now)
            return replace(stats, oldest_age=max(stats.oldest_age, (now - born) / 1000))


# -- limits that queues share


@lane_mutant("each queue has the places for itself", PLACE)
class SharedByNone(MemoryStorage):
    def _set_lanes(self, queue: MemoryQueue, rules: Lanes | None) -> list[str]:
        names = super()._set_lanes(queue, None if rules is None else replace(rules, shared=None))
        queue.rules = rules
        return names


@lane_mutant("jobs that run in another queue have no places", LEASE_ELSEWHERE)
class RunsElsewhereNotCounted(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            taken = [lane.taken for lane in lanes]
            for lane in lanes[1:]:
                lane.taken = 0
            super().balance_lane(name, lanes)
            for lane, count in zip(lanes, taken, strict=True):
                lane.taken = count


@lane_mutant(
    "of queues that share limits, the first comes first", "TestSharedLimits::test_the_best_job_of_all_of_them_comes_in"
)
class FirstQueueFirst(BrokenQueue):
    class Group(LaneGroup):
        def balance_lane(self, name: str, lanes: list[Lane]) -> None:
            for lane in lanes:
                others = [other for other in lanes if other is not lane]
                used = sum(len(other.ready) + other.taken for other in others)
                lane.taken += used
                super().balance_lane(name, [lane])
                lane.taken -= used


@lane_mutant("the highest limit holds", "TestSharedLimits::test_the_lowest_limit_holds")
class HighestLimit(BrokenQueue):
    class Group(LaneGroup):
        def limit_of(self, lane: str) -> float:
            given = [queue.rules.limit_of(lane) for queue in self.queues if queue.rules is not None]
            return max((limit for limit in given if limit is not None), default=inf)


@lane_mutant(
    "a queue that shares no more leaves its places behind", "TestSharedLimits::test_to_share_no_more_lets_in_at_once"
)
class PlacesStayBehind(BrokenQueue):
    class Group(LaneGroup):
        def __init__(self, *queues: MemoryQueue) -> None:
            super().__init__(*queues)
            if not any(queue.rules is not None and queue.rules.shared is None for queue in queues):
                self.touched.clear()


@lane_mutant(
    "a take does not see leases that ended in another queue",
    LEASE_ELSEWHERE,
)
class DueElsewhereNotSeen(MemoryStorage):
    def _current_group(self, name: str, now: int) -> MemoryQueue | None:
        return self._current_queue(name, now)


@lane_mutant(
    "a wait sleeps on while a lease of another queue ends",
    "TestSharedLimits::test_waiting_ends_with_the_lease_of_another_queue",
)
class MomentElsewhereNotSeen(BrokenQueue):
    class Queue(MemoryQueue):
        def next_moment(self, now: int) -> int | None:
            moment = super().next_moment(now)
            return moment if moment in (now, self.paused_until) else self.due.next()


# -- the lane of a job


@lane_mutant("a take does not say the lane", SAYS)
class TakeSaysNoLane(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        return [replace(job, lane=None) for job in await super().take(queue, count, **options)]


@lane_mutant("a job that is replaced changes its lane", KEY)
class LaneLostOnReplace(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            super().replace(record, job, start_time, now)
            self.leave(record)
            record.lane = job.lane
            self.insert(record, now)


# -- the total


@lane_mutant("a total is ignored", TOTAL)
class TotalIgnored(BrokenQueue):
    class Queue(MemoryQueue):
        def free(self) -> float:
            return float("inf")


@lane_mutant("a total lets one more run", TOTAL, by_machine=True)
class TotalOffByOne(BrokenQueue):
    class Queue(MemoryQueue):
        def free(self) -> float:
            free = super().free()
            return free + 1 if self.rules is not None and self.rules.total else free


@lane_mutant("a total is one for each take", TOTAL)
class TotalOfABatch(BrokenQueue):
    class Queue(MemoryQueue):
        def free(self) -> float:
            free = super().free()
            return free if not free or self.rules is None else self.rules.total or free


@lane_mutant("a total counts only jobs that have a lane", TOTAL)
class TotalOfLanes(BrokenQueue):
    class Queue(MemoryQueue):
        def free(self) -> float:
            alone = sum(each.lane is None for each in self.states["taken"].values())
            return super().free() + alone


@lane_mutant("wait is over though the total is reached", "TestTotal::test_a_wait_sleeps_until_one_has_ended")
class WaitIgnoresTotal(BrokenQueue):
    class Queue(MemoryQueue):
        def next_moment(self, now: int) -> int | None:
            return now if self.ready and not self.is_paused(now) else super().next_moment(now)


@lane_mutant("a look at the head shows a job though the total is reached", TOTAL)
class HeadIgnoresTotal(BrokenQueue):
    class Queue(MemoryQueue):
        def head(self) -> Record | None:
            return min(self.ready.values(), key=lambda each: (each.sort, each.id), default=None)


@lane_mutant("new rules wake nobody", "TestPlaceInALane::test_a_wait_hears_of_other_rules")
class RulesWakeNobody(MemoryStorage):
    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        wakeups, self._wakeups = self._wakeups, type(self._wakeups)()
        await super().set_lanes(queue, rules)
        self._wakeups = wakeups


# -- what people see


@lane_mutant("lanes are counted up to the limit of the page", INFO)
class InfoCountsThePage(MemoryStorage):
    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        found = await super().lanes(queue, limit=limit)
        return replace(found, count=len(found.lanes))


@lane_mutant("lanes are shown by name", INFO)
class InfoByName(MemoryStorage):
    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        found = await super().lanes(queue, limit=1 << 30)
        return replace(found, lanes=tuple(sorted(found.lanes, key=lambda each: each.lane))[:limit])


@lane_mutant("lanes are shown without those that run", INFO)
class InfoWithoutTaken(MemoryStorage):
    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        found = await super().lanes(queue, limit=limit)
        return replace(found, lanes=tuple(replace(each, taken=0) for each in found.lanes))


@lane_mutant("the rules of another queue are shown", INFO)
class InfoHasNoRules(MemoryStorage):
    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        return replace(await super().lanes(queue, limit=limit), rules=None)


@lane_mutant("delayed jobs make a lane", INFO)
class InfoCountsDelayed(MemoryStorage):
    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        found = await super().lanes(queue, limit=limit)
        queues = self._queues.get(queue)
        if queues is None:
            return found
        late = {each.lane for each in queues.states["delayed"].values() if each.lane} - set(queues.lanes)
        return replace(found, count=found.count + len(late))


def _without_turn(info: JobInfo) -> JobInfo:
    return replace(info, turn=None)


@lane_mutant("pages do not show turns", "TestFairLanes::test_a_turn_is_shown_and_orders_the_pages")
class TurnNotShown(MemoryStorage):
    async def browse(self, *args: Any, **options: Any) -> list[JobInfo]:
        return [_without_turn(info) for info in await super().browse(*args, **options)]
