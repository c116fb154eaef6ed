"""Toy queues that are broken on purpose, each in one way. A checker that never failed is not known to work.

python -m accoda.testing.history.mutants      # the right toy must pass, and each mutant must be caught by its rule
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accoda.model import Bury, Done, Enqueued, Job, Lease, NewJob, Outcome, Peek, QueueStats, Refused, Retry
from accoda.testing.history.mutants_bury import EnqueuesThoughRefused, LosesFollowUpsOfTheDead
from accoda.testing.history.mutants_tokens import ForgetsCrashes, StartsWithAnotherToken
from accoda.testing.history.toy import Toy
from accoda.testing.history.trial import Client, Plan, Run, judge
from accoda.testing.reference import Record, Reference


class LosesAJob(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        placed = super()._create(new)
        if placed.id % 20 == 0:
            del self.jobs[placed.id]
        return placed


class LosesFollowUps(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, then=()) if isinstance(each, Done) else each for each in outcomes])


class LosesDeadLetters(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Bury):
            self.jobs.pop(job.id, None)


class LosesOnExpiry(Reference):
    def advance(self, milliseconds: int) -> None:
        over = self.now + milliseconds
        late = [
            j.id for j in self.jobs.values() if j.lease_until is not None and j.lease_until <= over and j.id % 3 == 0
        ]
        super().advance(milliseconds)
        self.remove(late)


class MakesJobsUp(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        if self.last_id % 10 == 0:
            super()._create(NewJob(queue, b"out of thin air"))
        return super().take(queue, count, **options)


class StoresTwice(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        if self.last_id % 10 == 0 and new.key is None:
            super()._create(new)
        return super()._create(new)


class LeasesTwice(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        taken = super().take(queue, count, **options)
        for job in taken[:1]:
            if job.id % 5 == 0:
                self.jobs[job.id].state = "ready"
        return taken


class EndsLeasesSoon(Reference):
    def take(self, queue: str, count: int, *, lease: float, **options: Any) -> list[Job]:
        return super().take(queue, count, lease=lease / 2, **options)


class ForgetsExtensions(Reference):
    def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        return [Refused(each, "lost") for each in leases if self._held(each) is None]


class CountsFromZero(Reference):
    def advance(self, milliseconds: int) -> None:
        before = {job.id: job.attempts for job in self.jobs.values()}
        super().advance(milliseconds)
        for job in self.jobs.values():
            if job.attempts > before[job.id] and job.attempts > 1:
                job.attempts = 0


class TakesAnyToken(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state == "taken" else None


class TakesTheDeadsWord(Reference):
    def _held(self, lease: Lease) -> Record | None:
        """It checks the token, not the state."""
        job = self.jobs.get(lease.id)
        return job if job is not None and job.lease == lease else None


class SettlesKeptJobsAgain(Reference):
    def _held(self, lease: Lease) -> Record | None:
        job = self.jobs.get(lease.id)
        return job if job is not None and job.state in ("taken", "done") and job.lease == lease else None


class BringsDoneJobsBack(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Done) and job.id % 7 == 0:
            self.jobs[job.id] = job
            job.come_back(self.now, self.now)


class WakesTheDead(Reference):
    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        for job in self._of("a", "dead"):
            if job.ended_at is not None and job.ended_at + 2000 < self.now:
                job.come_back(self.now, self.now)


class RemovesNothing(Reference):
    def remove(self, ids: Sequence[int]) -> int:
        return sum(id in self.jobs for id in ids)


class GrowsByTwo(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        if isinstance(outcome, Retry):
            job.attempts += 1
        super()._apply(job, outcome)


class DoesNotGrow(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Retry):
            job.attempts -= 1


class IgnoresDelays(Reference):
    def _start(self, delay: float | None, moment: int | None) -> int:
        return super()._start(0.0 if delay and delay > 1 else delay, moment)


class IgnoresMoments(Reference):
    def _start(self, delay: float | None, moment: int | None) -> int:
        return self.now if moment is not None else super()._start(delay, None)


class PassesOver(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        first = sorted(self._of(queue, "ready"), key=lambda job: (job.rank, job.id))[:1]
        for job in first:
            job.state = "delayed"
        taken = super().take(queue, count, **options)
        for job in first:
            job.state = "ready"
        return taken


class IgnoresRanks(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        waiting = self._of(queue, "ready")
        ranks = {job.id: job.rank for job in waiting}
        for job in waiting:
            job.rank = 0.0
        taken = super().take(queue, count, **options)
        for job in waiting:
            job.rank = ranks[job.id]
        return [replace(job, rank=ranks[job.id]) for job in taken]


class GivesTooLittle(Reference):
    def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        return super().take(queue, min(count, 2), **options)


class ForgetsWaiters(Reference):
    def _enqueue_one(self, new: NewJob) -> Enqueued:
        placed = super()._enqueue_one(new)
        job = self.jobs[placed.id]
        if placed.what == "attached" and len(job.waiters) > 2:
            job.waiters.pop()
        return placed


class OverlooksLateWaiters(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, waiters=None) if isinstance(each, Done) else each for each in outcomes])


class DropsBlindly(Reference):
    def drop(self, queue: str, id: int, waiters: int) -> bool:
        return super().drop(queue, id, waiters + 9)


class NamesTooFew(Reference):
    def peek(self, queue: str, key: str | None, after: int | None) -> Peek:
        found = super().peek(queue, key, after)
        return replace(found, waiters=found.waiters[:1])


class DropsNothing(Reference):
    def drop(self, queue: str, id: int, waiters: int) -> bool:
        job = self.jobs.get(id)
        return job is not None and job.state != "dead" and len(job.waiters) <= waiters


class Overspends(Reference):
    def take(self, queue: str, count: int, *, max_cost: int | None, **options: Any) -> list[Job]:
        return super().take(queue, count, max_cost=None if max_cost is None else max_cost + 2, **options)


class MiscountsDone(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Done) and job.id % 10 == 0:
            self.counts[job.new.queue]["done"] += 1


class MiscountsExpired(Reference):
    def advance(self, milliseconds: int) -> None:
        before = {queue: counts["expired"] for queue, counts in self.counts.items()}
        super().advance(milliseconds)
        for queue, count in before.items():
            self.counts[queue]["expired"] = min(self.counts[queue]["expired"], count + 1)


class MiscountsReady(Reference):
    def _stats_of(self, queue: str) -> QueueStats:
        stats = super()._stats_of(queue)
        return replace(stats, total=stats.total + 1, ready=stats.ready + 1)


class MixesDataUp(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        placed = super()._create(new)
        other = self.jobs.get(placed.id - 1)
        if other is not None and placed.id % 20 == 0 and other.state != "taken":
            self.jobs[placed.id].new, other.new = other.new, self.jobs[placed.id].new
        return placed


class RetriesAtTheEnd(Reference):
    def _apply(self, job: Record, outcome: Outcome) -> None:
        super()._apply(job, outcome)
        if isinstance(outcome, Retry):
            job.rank = 99.0


class ReusesIds(Reference):
    def _create(self, new: NewJob) -> Enqueued:
        self.last_id = next((id for id in range(self.last_id) if id + 1 not in self.jobs), self.last_id)
        placed = super()._create(new)
        self.last_id = max(self.last_id, *self.jobs)
        return placed


class WritesBlindly(Reference):
    def write(self, name: str, value: bytes, *, version: int | None, ttl: float | None) -> int:
        made = super().write(name, value, version=version, ttl=ttl)
        if made % 5 == 0:
            self.pages[name].version = made - 1
        return made


class ForgetsTakes(Toy):  # what the lost answer named is lost with it, though the lease has not ended
    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        return [] if first else act()


class TakesAnew(Toy):  # a take that is sent again takes others
    def take_again(self, first: list[Job], act: Callable[[], list[Job]]) -> list[Job]:
        return act()


def run_twice(client: Client, job: Job) -> None:
    client.run_once(job)
    if job.id % 10 == 0:
        client.run_once(job)


def run_of_another(client: Client, job: Job) -> None:
    client.run_once(job)
    if job.id % 10 == 0:
        client.recorder.note("start", id=job.id, attempts=job.attempts + 1)


def run_elsewhere(client: Client, job: Job) -> None:
    who = "p1" if job.id % 10 == 0 else client.name
    client.recorder.note("start", id=job.id, attempts=job.attempts, client=who)


class Mutant(Struct, frozen=True):
    """A broken queue, or a broken worker, and the rule that must catch it."""

    rule: str
    model: Callable[[int], Reference] = Reference
    run: Run | None = None
    toy: type[Toy] | None = None

    @property
    def name(self) -> str:
        return getattr(self.run or self.toy or self.model, "__name__", "")

    def plan(self, seed: int) -> Plan:
        """A toy of its own says what a take answers that is sent again."""
        return Plan(seed, model=self.model, run=self.run, toy=self.toy or Toy, again=0.2 if self.toy else 0.0)


MUTANTS = (
    Mutant("lost", LosesAJob),
    Mutant("lost", LosesFollowUps),
    Mutant("lost", LosesFollowUpsOfTheDead),
    Mutant("lost", LosesDeadLetters),
    Mutant("lost", LosesOnExpiry),
    Mutant("from nowhere", MakesJobsUp),
    Mutant("from nowhere", StoresTwice),
    Mutant("from nowhere", EnqueuesThoughRefused),
    Mutant("double lease", LeasesTwice),
    Mutant("double lease", EndsLeasesSoon),
    Mutant("double lease", ForgetsExtensions),
    Mutant("tokens grow", CountsFromZero),
    Mutant("stale token", TakesAnyToken),
    Mutant("stale token", TakesTheDeadsWord),
    Mutant("done twice", SettlesKeptJobsAgain),
    Mutant("resurrected", BringsDoneJobsBack),
    Mutant("resurrected", WakesTheDead),
    Mutant("resurrected", RemovesNothing),
    Mutant("resurrected", DropsNothing),
    Mutant("attempts", GrowsByTwo),
    Mutant("attempts", DoesNotGrow),
    Mutant("attempts", ForgetsCrashes),
    Mutant("attempts", StartsWithAnotherToken),
    Mutant("attempts", toy=ForgetsTakes),
    Mutant("attempts", toy=TakesAnew),
    Mutant("early", IgnoresDelays),
    Mutant("early", IgnoresMoments),
    Mutant("order", PassesOver),
    Mutant("order", IgnoresRanks),
    Mutant("order", GivesTooLittle),
    Mutant("waiters", ForgetsWaiters),
    Mutant("waiters", OverlooksLateWaiters),
    Mutant("waiters", DropsBlindly),
    Mutant("waiters", NamesTooFew),
    Mutant("budget", Overspends),
    Mutant("counters", MiscountsDone),
    Mutant("counters", MiscountsExpired),
    Mutant("counters", MiscountsReady),
    Mutant("runs", run=run_twice),
    Mutant("runs", run=run_of_another),
    Mutant("runs", run=run_elsewhere),
    Mutant("content", MixesDataUp),
    Mutant("content", RetriesAtTheEnd),
    Mutant("ids", ReusesIds),
    Mutant("versions", WritesBlindly),
)


def catch(mutant: Mutant, seeds: int = 20) -> int | None:
    """The first seed with which the mutant's own rule finds it out; None if there is none."""
    for seed in range(seeds):
        verdict = judge(mutant.plan(seed))
        if any(violation.rule == mutant.rule for violation in verdict.violations):
            return seed
    return None


def main() -> int:
    """Print what the rules say of the right toy and of each mutant. 0: all as it should be."""
    alarms = sum(not judge(Plan(seed, loss=0.1, kills=2, again=0.1)).ok for seed in range(20))
    sys.stdout.write(f"the right toy: {alarms} false alarms in 20 seeds\n")
    missed = 0
    for mutant in MUTANTS:
        seed = catch(mutant)
        missed += seed is None
        found = "NOT CAUGHT" if seed is None else f"caught with seed {seed}"
        sys.stdout.write(f"{mutant.rule:14} {mutant.name:22} {found}\n")
    sys.stdout.write(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants caught\n")
    return 1 if missed or alarms else 0


if __name__ == "__main__":
    raise SystemExit(main())
