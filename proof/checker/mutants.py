"""Fake stores that are broken on purpose, each in one way. A checker that never failed is not known to work.

python -m proof.checker.mutants      # the right store must pass, and each mutant must be caught by its rule
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from accoda.model import (
    Bury,
    Cancel,
    Change,
    Done,
    Enqueued,
    Job,
    Lanes,
    Lease,
    Look,
    NewJob,
    Outcome,
    QueueStats,
    Refused,
    Remove,
    Retry,
    Revive,
    StartNow,
    Target,
)
from accoda.testing.reference import Record, Reference
from proof.checker.fake_store import FakeStore
from proof.checker.flow_mutants import FLOW_MUTANTS, FlowMutant, catch_flow, judge_flows
from proof.checker.trial import Client, Plan, Run, judge

Breakage = TypeVar("Breakage", bound=Callable[..., Any])


class Mutant(Struct, frozen=True):
    """A broken queue, a broken connection to it or a broken worker, and the rule that must catch it."""

    rule: str
    model: Callable[[int], Reference] = Reference
    run: Run | None = None
    store: type[FakeStore] | None = None

    @property
    def name(self) -> str:
        return getattr(self.run or self.store or self.model, "__name__", "")

    def plan(self, seed: int) -> Plan:
        """A store of its own says what a take is given that is sent again."""
        again = 0.2 if self.store else 0.0
        return Plan(seed, model=self.model, run=self.run, store=self.store or FakeStore, again=again)


MUTANTS: list[Mutant] = []


def mutant(rule: str) -> Callable[[Breakage], Breakage]:
    """Registers a broken model, store or run."""

    def register(breakage: Breakage) -> Breakage:
        broken: Any = breakage
        if not isinstance(broken, type):
            MUTANTS.append(Mutant(rule, run=broken))
        elif issubclass(broken, FakeStore):
            MUTANTS.append(Mutant(rule, store=broken))
        else:
            MUTANTS.append(Mutant(rule, cast("type[Reference]", broken)))
        return breakage

    return register


@mutant("lost")
class LosesAJob(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        placed = super()._create(new)
        if placed.id % 20 == 0:
            del self.jobs[placed.id]
        return placed


@mutant("lost")
class LosesFollowUps(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, then=()) if isinstance(each, Done) else each for each in outcomes])


@mutant("lost")
class LosesFollowUpsOfTheDead(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, then=()) if isinstance(each, Bury) else each for each in outcomes])


@mutant("lost")
class LosesDeadLetters(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Bury):
            self.jobs.pop(job.id, None)


@mutant("lost")
class LosesOnExpiry(Reference):
    def advance(self, milliseconds: int) -> None:
        over = self.now + milliseconds
        late = [
            j.id for j in self.jobs.values() if j.lease_until is not None and j.lease_until <= over and j.id % 3 == 0
        ]
        super().advance(milliseconds)
        self.change([Remove(id) for id in late])


@mutant("from nowhere")
class MakesJobsUp(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        if self.last_id % 10 == 0:
            super()._create(NewJob(queue, b"out of thin air"))
        return super().take(queue, count, **options)


@mutant("from nowhere")
class StoresTwice(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        if self.last_id % 10 == 0 and new.key is None:
            super()._create(new)
        return super()._create(new)


@mutant("from nowhere")
class EnqueuesThoughRefused(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        """A Bury whose lease is lost leaves its job alone, but what follows is enqueued."""
        refused = super().settle(outcomes)
        lost = {each.lease for each in refused}
        self.enqueue([job for each in outcomes if isinstance(each, Bury) and each.lease in lost for job in each.then])
        return refused


@mutant("double lease")
class LeasesTwice(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        taken = super().take(queue, count, **options)
        for job in taken[:1]:
            if job.id % 5 == 0:
                self.jobs[job.id].state = "ready"
        return taken


@mutant("double lease")
class EndsLeasesSoon(Reference):
    def take(self, queue: str, count: int, *, lease: float = 60.0, **options: Any) -> list[Job]:
        return super().take(queue, count, lease=lease / 2, **options)


@mutant("double lease")
class ForgetsExtensions(Reference):
    def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        return [Refused(each, "lost") for each in leases if self._held(each) is None]


@mutant("tokens grow")
class CountsFromZero(Reference):
    def advance(self, milliseconds: int) -> None:
        before = {job.id: job.attempts for job in self.jobs.values()}
        super().advance(milliseconds)
        for job in self.jobs.values():
            if job.attempts > before[job.id] and job.attempts > 1:
                job.attempts = 0


@mutant("stale token")
class TakesAnyToken(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state == "taken" else None


@mutant("stale token")
class TakesTheDeadsWord(Reference):
    def _held(self, lease: Lease) -> Record | None:
        """It checks the token, not the state."""
        job = self.jobs.get(lease.id)
        return job if job is not None and job.attempts == lease.attempts else None


@mutant("stale token")
class AcceptsALateDoneOfACancelledJob(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.cancelled == lease else super()._held(lease)


@mutant("cancelled")
class SaysCancelledOfWhatIsLost(Reference):
    def _lost(self, lease: Lease) -> Refused:
        return Refused(lease, "cancelled")


@mutant("resurrected")
class CancelsNothing(Reference):
    def change(self, changes: Sequence[Change]) -> int:
        there = [each for each in changes if isinstance(each, Cancel) and each.id in self.jobs]
        return len(there) + super().change([each for each in changes if each not in there])


@mutant("own lease")
class AcceptsAnyMoment(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return None if job is None else super()._held(replace(lease, taken_at=job.taken_at or 0))


@mutant("done twice")
class SettlesKeptJobsAgain(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state in ("taken", "done") and job.attempts == lease.attempts else None


@mutant("resurrected")
class BringsDoneJobsBack(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Done) and job.id % 7 == 0:
            self.jobs[job.id] = job
            job.come_back(self.now, self.now)


@mutant("resurrected")
class WakesTheDead(Reference):
    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        for job in self._of("a", "dead"):
            if job.ended_at is not None and job.ended_at + 2000 < self.now:
                job.come_back(self.now, self.now)


@mutant("resurrected")
class RemovesNothing(Reference):
    def change(self, changes: Sequence[Change]) -> int:
        there = [each for each in changes if isinstance(each, Remove) and each.waiters is None and each.id in self.jobs]
        return len(there) + super().change([each for each in changes if each not in there])


@mutant("resurrected")
class RemovesNothingWithAFence(Reference):
    def change(self, changes: Sequence[Change]) -> int:
        fenced = [each for each in changes if isinstance(each, Remove) and each.waiters is not None]
        there = [job for each in fenced if (job := self.jobs.get(each.id)) and len(job.waiters) <= (each.waiters or 0)]
        return len(there) + super().change([each for each in changes if each not in fenced])


@mutant("attempts")
class GrowsByTwo(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        if isinstance(outcome, Retry):
            job.attempts += 1
        super()._apply(job, outcome)


@mutant("attempts")
class DoesNotGrow(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Retry):
            job.attempts -= 1


@mutant("attempts")
class ForgetsCrashes(Reference):
    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        for job in self.jobs.values():
            job.crashes = min(job.crashes, 1)


@mutant("attempts")
class ForgetsTries(Reference):
    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        for job in self.jobs.values():
            job.tries = 0


@mutant("attempts")
class CountsEveryRetry(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, counts=True) if isinstance(each, Retry) else each for each in outcomes])


@mutant("attempts")
class RevivesWithOldCounts(Reference):
    def _change_one(self, change: Change) -> bool:
        job = self.jobs.get(change.id)
        before = (job.tries, job.crashes) if job is not None else (0, 0)
        changed = super()._change_one(change)
        if job is not None and isinstance(change, Revive):
            job.tries, job.crashes = before
        return changed


@mutant("attempts")
class StartsWithAnotherToken(Reference):
    def _change_one(self, change: Change) -> bool:
        """A job that is started early counts as one that came back."""
        started = super()._change_one(change)
        if started and isinstance(change, StartNow):
            self.jobs[change.id].attempts += 1
        return started


@mutant("early")
class IgnoresDelays(Reference):
    def _start(self, delay: float | None, moment: int | None) -> int:
        return super()._start(0.0 if delay and delay > 1 else delay, moment)


@mutant("early")
class IgnoresMoments(Reference):
    def _start(self, delay: float | None, moment: int | None) -> int:
        return self.now if moment is not None else super()._start(delay, None)


@mutant("order")
class PassesOver(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        first = sorted(self._of(queue, "ready"), key=lambda job: (job.sort, job.id))[:1]
        for job in first:
            job.state = "delayed"
        taken = super().take(queue, count, **options)
        for job in first:
            job.state = "ready"
        return taken


@mutant("order")
class IgnoresRanks(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        waiting = self._of(queue, "ready")
        places = {job.id: job.sort for job in waiting}
        for job in waiting:
            job.sort = 0.0
        taken = super().take(queue, count, **options)
        for job in waiting:
            job.sort = places[job.id]
        return taken


@mutant("order")
class GivesTooLittle(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        return super().take(queue, min(count, 2), **options)


@mutant("waiters")
class ForgetsWaiters(Reference):
    def _enqueue_one(self, new: NewJob) -> Enqueued:
        placed = super()._enqueue_one(new)
        job = self.jobs[placed.id]
        if placed.what == "attached" and len(job.waiters) > 2:
            job.waiters.pop()
        return placed


@mutant("waiters")
class OverlooksLateWaiters(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, waiters=None) if isinstance(each, Done) else each for each in outcomes])


@mutant("waiters")
class RemovesBlindly(Reference):
    def _change_one(self, change: Change) -> bool:
        return super()._change_one(change if change.waiters is None else replace(change, waiters=change.waiters + 9))


@mutant("waiters")
class NamesTooFew(Reference):
    def look(self, target: Target, **options: Any) -> Look:
        found = super().look(target, **options)
        return replace(found, waiters=found.waiters[:1])


class OtherLanes(Reference):
    """Goes by other rules for lanes than it was given."""

    def change_rules(self, rules: Lanes) -> Lanes:
        raise NotImplementedError

    def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        super().set_lanes(queue, None if rules is None else self.change_rules(rules))


@mutant("lanes")
class AllowsOneMore(OtherLanes):
    def change_rules(self, rules: Lanes) -> Lanes:
        return replace(rules, limit=None if rules.limit is None else rules.limit + 1)


@mutant("lanes")
class IgnoresSingleLimits(OtherLanes):
    def change_rules(self, rules: Lanes) -> Lanes:
        return replace(rules, limits={})


@mutant("shared lanes")
class SharesNothing(OtherLanes):
    def change_rules(self, rules: Lanes) -> Lanes:
        return replace(rules, shared=None)


@mutant("lanes")
class HandsOutHeldJobs(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        for job in self._of(queue, "held"):
            job.state, job.sort = "ready", job.rank
        return super().take(queue, count, **options)


@mutant("total")
class IgnoresTheTotal(OtherLanes):
    def change_rules(self, rules: Lanes) -> Lanes:
        return replace(rules, total=None)


@mutant("total")
class TotalIsForEachTake(Reference):
    def _gives(self, queue: str) -> bool:
        rules = self.rules.get(queue)
        return super()._gives(queue) or (rules is not None and len(self._of(queue, "taken")) == rules.total)


@mutant("held")
class HoldsForEver(Reference):
    """Some of the jobs that come back are held whatever room their lane has."""

    def _balance(self) -> None:
        held = {job.id for job in self.jobs.values() if job.state == "held" and job.attempts and job.id % 3 == 0}
        super()._balance()
        for job in self.jobs.values():
            if job.id in held and job.state == "ready" and job.new.lane is not None:
                job.state = "held"


@mutant("content")
class ForgetsLanes(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        return super()._create(replace(new, lane=None) if self.last_id % 5 == 0 else new)


@mutant("content")
class ReplacesLanes(Reference):
    def _enqueue_one(self, new: NewJob) -> Enqueued:
        placed = super()._enqueue_one(new)
        if placed.what == "replaced":
            self.jobs[placed.id].new = replace(self.jobs[placed.id].new, lane=new.lane)
        return placed


@mutant("budget")
class Overspends(Reference):
    def take(self, queue: str, count: int, *, max_cost: int | None = None, **options: Any) -> list[Job]:
        return super().take(queue, count, max_cost=None if max_cost is None else max_cost + 2, **options)


@mutant("counters")
class MiscountsDone(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Done) and job.id % 10 == 0:
            self.counts[job.new.queue]["done"] += 1


@mutant("counters")
class MiscountsExpired(Reference):
    def advance(self, milliseconds: int) -> None:
        before = {queue: counts["expired"] for queue, counts in self.counts.items()}
        super().advance(milliseconds)
        for queue, count in before.items():
            self.counts[queue]["expired"] = min(self.counts[queue]["expired"], count + 1)


@mutant("counters")
class MiscountsReady(Reference):
    def _stats_of(self, queue: str) -> QueueStats:
        stats = super()._stats_of(queue)
        return replace(stats, total=stats.total + 1, ready=stats.ready + 1)


@mutant("content")
class MixesDataUp(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        placed = super()._create(new)
        other = self.jobs.get(placed.id - 1)
        if other is not None and placed.id % 20 == 0 and other.state != "taken":
            self.jobs[placed.id].new, other.new = other.new, self.jobs[placed.id].new
        return placed


@mutant("content")
class RetriesAtTheEnd(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Retry):
            job.rank = 99.0


@mutant("ids")
class ReusesIds(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        self.last_id = next((id for id in range(self.last_id) if id + 1 not in self.jobs), self.last_id)
        placed = super()._create(new)
        self.last_id = max(self.last_id, *self.jobs)
        return placed


@mutant("versions")
class WritesBlindly(Reference):
    def write(self, name: str, value: bytes, **options: Any) -> int:
        made = super().write(name, value, **options)
        if made % 5 == 0:
            self.pages[name].version = made - 1
        return made


@mutant("attempts")
class ForgetsTakes(FakeStore):  # what the lost answer named is lost with it, though the lease has not ended
    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        return [] if first else act()


@mutant("attempts")
class TakesAnew(FakeStore):  # a take that is sent again takes others
    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        return act()


@mutant("runs")
def run_twice(client: Client, job: Job) -> None:
    client.run_once(job)
    if job.id % 10 == 0:
        client.run_once(job)


@mutant("runs")
def run_of_another(client: Client, job: Job) -> None:
    client.run_once(job)
    if job.id % 10 == 0:
        client.recorder.note("start", id=job.id, attempts=job.attempts + 1)


@mutant("runs")
def run_elsewhere(client: Client, job: Job) -> None:
    name = "p1" if job.id % 10 == 0 else client.name
    client.recorder.note("start", id=job.id, attempts=job.attempts, client=name)


def catch(mutant: Mutant, seeds: int = 20) -> int | None:
    """The first seed with which the mutant's own rule finds it out; None if there is none."""
    for seed in range(seeds):
        verdict = judge(mutant.plan(seed))
        if any(violation.rule == mutant.rule for violation in verdict.violations):
            return seed
    return None


def main() -> int:
    """Print what the rules say of the right store and of each mutant. 0: all as it should be."""
    alarms = sum(not judge(Plan(seed, loss=0.1, kills=2, again=0.1)).ok for seed in range(20))
    alarms += sum(not judge_flows(seed).ok for seed in range(20))
    sys.stdout.write(f"the right store: {alarms} false alarms in 40 seeds\n")
    missed = 0
    every: list[Mutant | FlowMutant] = [*MUTANTS, *FLOW_MUTANTS]
    for mutant in every:
        seed = catch_flow(mutant) if isinstance(mutant, FlowMutant) else catch(mutant)
        missed += seed is None
        found = "NOT CAUGHT" if seed is None else f"caught with seed {seed}"
        sys.stdout.write(f"{mutant.rule:14} {mutant.name:22} {found}\n")
    sys.stdout.write(f"{len(every) - missed} of {len(every)} mutants caught\n")
    return 1 if missed or alarms else 0


if __name__ == "__main__":
    raise SystemExit(main())
