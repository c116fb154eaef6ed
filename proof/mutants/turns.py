"""Storages in which lanes take turns, but not fairly."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from math import floor

from msgspec.structs import replace

from accoda.model import TURN, Change, Lanes, NewJob
from accoda.storage.memory.queue import LaneGroup, MemoryQueue, Record
from proof.mutants.lanes import by_rules
from proof.mutants.mutant import BrokenQueue, lane_mutant

TURNS = "TestFairLanes::test_lanes_take_turns"
LATER = "TestFairLanes::test_a_lane_that_comes_waits_for_one_turn_of_each"
IDLE = "TestFairLanes::test_jobs_of_a_lane_that_is_idle_for_a_while_do_not_come_first_for_long"
LEVELS = "TestFairLanes::test_levels_stay_above_turns"
WEIGHT = "TestFairLanes::test_a_heavy_lane_has_more_turns"
COST = "TestFairLanes::test_a_turn_may_be_as_long_as_the_cost"
FAILS = "TestFairLanes::test_a_job_that_fails_at_once_and_again_starves_nobody"
STAY = "TestFairLanes::test_jobs_that_are_there_keep_their_place_when_turns_begin"


@lane_mutant("a fair line goes by rank alone", TURNS, by_machine=True)
class FairIgnored(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, fair=False))


@lane_mutant("a line that is not fair takes turns", "TestFairLanes::test_a_line_that_is_not_fair_goes_by_rank")
class AlwaysFair(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, fair=True))


@lane_mutant("a lane's next job does not come after its last", TURNS, by_machine=True)
class TurnForgetsTheLast(BrokenQueue):
    class Queue(MemoryQueue):
        def _turn(self, record: Record) -> float:
            self.lane_of(record).last.clear()
            return super()._turn(record)


@lane_mutant("a lane that comes begins at the level, before all that are there", IDLE)
class TurnForgetsTheLine(BrokenQueue):
    class Queue(MemoryQueue):
        def _first_turn(self, level: float) -> float | None:
            return None


@lane_mutant("a lane that comes begins behind all that are there", LATER)
class TurnBehindAll(BrokenQueue):
    class Queue(MemoryQueue):
        def _first_turn(self, level: float) -> float | None:
            turns = [each.sort for each in self.ready.values() if each.lane is not None and floor(each.sort) == level]
            return max(turns, default=None)


@lane_mutant("a heavy lane has fewer turns", WEIGHT)
class WeightInverted(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, weights={lane: 1 / weight for lane, weight in rules.weights.items()}))


@lane_mutant("weights are ignored", WEIGHT)
class WeightIgnored(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, weights={}))


@lane_mutant("a turn is one long whatever the cost", COST)
class CostIgnored(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, by_cost=False))


@lane_mutant(
    "a turn is as long as the cost though it should not", "TestFairLanes::test_a_turn_is_one_long_without_by_cost"
)
class CostAlways(BrokenQueue):
    Group = by_rules(lambda rules: replace(rules, by_cost=True))


@lane_mutant("a turn is as long as the cost of the job before it", "TestFairLanes::test_a_turn_is_exact")
class CostOfTheLast(BrokenQueue):
    class Queue(MemoryQueue):
        def _turn(self, record: Record) -> float:
            last = self.lane_of(record).last_ready(float(floor(record.rank)))
            if last is None:
                return super()._turn(record)
            cost, record.cost = record.cost, last.cost
            turn = super()._turn(record)
            record.cost = cost
            return turn


class Newcomers(MemoryQueue):
    """Where the first job of a lane comes in: so much of its turn after the lowest of all."""

    share: float

    def _turn(self, record: Record) -> float:
        level = float(floor(record.rank))
        if self.rules is None or self.lane_of(record).last_ready(level) is not None:
            return super()._turn(record)
        first = self._first_turn(level)
        turn = self.rules.turn_of(record.lane or "", record.cost) * self.share
        return min((level if first is None else first) + turn, max(level + 1 - TURN, level))


@lane_mutant("a lane that comes in does not wait at all", FAILS)
class NewcomersFirst(BrokenQueue):
    class Queue(Newcomers):
        share = 0.0


@lane_mutant("a lane that comes in waits for a whole turn", "TestFairLanes::test_a_turn_is_exact")
class NewcomersLast(BrokenQueue):
    class Queue(Newcomers):
        share = 1.0


@lane_mutant("turns are over all levels", LEVELS)
class LevelLeaks(BrokenQueue):
    class Queue(MemoryQueue):
        def _turn(self, record: Record) -> float:
            rank, record.rank = record.rank, 0.0
            turn = super()._turn(record)
            record.rank = rank
            return turn


@lane_mutant("a turn goes on into the next level", "TestFairLanes::test_a_turn_never_leaves_its_level")
class TurnLeavesItsLevel(BrokenQueue):
    class Queue(MemoryQueue):
        def _turn(self, record: Record) -> float:
            turn, level = super()._turn(record), float(floor(record.rank))
            last = self.lane_of(record).last_ready(level)
            if last is None or turn != level + 1 - TURN or self.rules is None:
                return turn
            return last.sort + self.rules.turn_of(record.lane or "", record.cost)


@lane_mutant(
    "jobs without a lane count among those that take turns", "TestFairLanes::test_a_turn_is_exact", by_machine=False
)
class TurnsOfJobsWithoutALane(BrokenQueue):
    class Queue(MemoryQueue):
        def line_up(self, record: Record, sort: float) -> None:
            super().line_up(record, sort)
            if record.lane is None:
                heappush(self.levels.setdefault(float(floor(sort)), []), (sort, record.id))


@lane_mutant("a job that comes back has its old turn", FAILS, by_machine=True)
class RetryKeepsItsTurn(BrokenQueue):
    class Queue(MemoryQueue):
        def _turn(self, record: Record) -> float:
            return record.sort if record.attempts else super()._turn(record)


@lane_mutant(
    "a job in the line that is given a rank keeps its turn",
    "TestPlaceInALane::test_each_change_is_a_step",
)
class RerankKeepsTheTurn(BrokenQueue):
    class Queue(MemoryQueue):
        def rerank(self, record: Record, rank: float) -> None:
            if record.state == "ready" and record.lane is not None and floor(rank) == floor(record.rank):
                record.rank = float(rank)
                self.group.touched.add(record.lane)
            else:
                super().rerank(record, rank)


@lane_mutant("a job in the line that is replaced keeps its turn", "TestFairLanes::test_a_replaced_job_has_another_turn")
class ReplaceKeepsTheTurn(BrokenQueue):
    class Queue(MemoryQueue):
        old: tuple[int, float] | None = None

        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            self.old = (record.id, record.sort) if record.state == "ready" else None
            super().replace(record, job, start_time, now)

        def _turn(self, record: Record) -> float:
            old, self.old = self.old, None
            return old[1] if old is not None and old[0] == record.id else super()._turn(record)


@lane_mutant("what is in the line when turns begin counts for nothing", STAY)
class TurnsBeginWithoutTheLine(BrokenQueue):
    class Queue(MemoryQueue):
        def set_lanes(self, rules: Lanes | None) -> None:
            super().set_lanes(rules)
            self.levels.clear()
            for lane in self.lanes.values():
                lane.last.clear()


@lane_mutant("new rules give all jobs in the line new turns", STAY)
class RulesGiveNewTurns(BrokenQueue):
    class Queue(MemoryQueue):
        def set_lanes(self, rules: Lanes | None) -> None:
            super().set_lanes(rules)
            for record in [each for each in self.ready.values() if each.lane is not None]:
                self.start(record)


@lane_mutant(
    "lanes of a step are balanced from the last to the first",
    "TestFairLanes::test_the_lanes_of_a_step_come_by_name",
)
class LanesInAnyOrder(BrokenQueue):
    class Group(LaneGroup):
        def balance(self) -> None:
            names, self.touched = sorted(self.touched, reverse=True), set()
            for name in names:
                self.touched = {name}
                super().balance()


@lane_mutant(
    "each job of a call comes in before the next is there", "TestFairLanes::test_a_call_is_one_step", by_machine=False
)
class BalancesTooSoon(BrokenQueue):
    class Queue(MemoryQueue):
        def insert(self, record: Record, now: int) -> None:
            super().insert(record, now)
            self.group.balance()


@lane_mutant("the changes of a call are one step", "TestPlaceInALane::test_each_change_is_a_step")
class ChangesBalancedOnce(BrokenQueue):
    class Group(LaneGroup):
        changing = False

        def balance(self) -> None:
            if not self.changing:
                super().balance()

    async def change(self, changes: Sequence[Change]) -> int:
        self._set_changing(True)
        try:
            count = await super().change(changes)
        finally:
            self._set_changing(False)
        self._balance(self._queues)
        return count

    def _set_changing(self, changing: bool) -> None:
        for queue in self._queues.values():
            queue.group.changing = changing  # type: ignore[attr-defined]
