"""The same random commands for a storage and for the reference model; all that can be seen must be the same.

    TestMachine = machine_for(make_fixture)

Hypothesis shortens a run that shows a difference to the few commands that matter. `ACCODA_EXAMPLES` sets the number of
runs. The fixture must be exact: moments are compared to the millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from itertools import cycle
from unittest import TestCase

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from accoda.model import (
    STATES,
    Bury,
    ById,
    ByKey,
    Cancel,
    Change,
    Done,
    Head,
    Lanes,
    Lease,
    NotCrashed,
    Order,
    Outcome,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
    Target,
)
from accoda.testing import commands
from accoda.testing.model_pair import UNKNOWN, Pair
from accoda.testing.store_fixture import MakeFixture, StoreFixture


def machine_for(make_fixture: MakeFixture, *, examples: int = 30, steps: int = 40) -> type[TestCase]:
    """A test case that compares the storage of `make_fixture` with the model."""
    case: type[TestCase] = state_machine(make_fixture).TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=int(os.environ.get("ACCODA_EXAMPLES", examples)),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


def state_machine(make_fixture: MakeFixture) -> type[StoreMachine]:
    """The machine itself, to be run with other settings."""

    class Machine(StoreMachine):
        def make_fixture(self) -> AbstractAsyncContextManager[StoreFixture]:
            return make_fixture()

    return Machine


def _bury(lease: Lease) -> Outcome:
    return Bury(lease, "broken")


class StoreMachine(RuleBasedStateMachine):
    """Each rule is a verb. What is drawn is made concrete in the model's ids; `Pair` translates and compares."""

    def make_fixture(self) -> AbstractAsyncContextManager[StoreFixture]:
        raise NotImplementedError("machine_for fills this in")

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.make_fixture())
        self.model = self.pair.model
        self.leases: list[Lease] = []  # every one ever given

    def teardown(self) -> None:
        self.pair.close()

    def lease(self, draft: commands.DraftLease) -> Lease:
        held = self.leases if draft.trick == "old" else self.model.held()
        if not held or draft.trick == "unknown":
            return Lease("a", UNKNOWN, 0, 0)
        lease = held[-1 - draft.pick % len(held)]
        shift = {"older": -1, "newer": 1}.get(draft.trick, 0)
        queue = "b" if draft.trick == "elsewhere" else lease.queue
        moment = lease.taken_at + (1 if draft.trick == "another moment" else 0)
        return Lease(queue, lease.id, max(0, lease.attempts + shift), moment)

    def outcome(self, draft: commands.DraftOutcome) -> Outcome:
        lease = self.lease(draft.lease)
        then = [job.at(self.model.now) for job in draft.then]
        if draft.kind == "done":
            result = None if draft.result is None else bytes(draft.result)
            return Done(lease, then, result, draft.seen)
        if draft.kind == "bury":
            return Bury(lease, draft.reason, then)
        kind, length = draft.start
        at = self.model.now + (length if kind == "at" else -length) if kind in ("at", "past") else None
        delay = length / 1000 if kind == "delay" else 0.0
        return Retry(lease, delay, at, draft.reason, draft.rank, draft.counts, then)

    def change_of(self, draft: commands.DraftChange) -> Change:
        (id,) = self.ids([draft.pick])
        job = self.model.jobs.get(id)
        own = job.new.queue if job is not None else "a"
        queue = {"none": None, "right": own, "other": "b"}[draft.queue]
        seen = None if draft.seen is None else max(0, draft.seen + (len(job.waiters) if job is not None else 0))
        if draft.kind == "rerank":
            return Rerank(id, draft.rank, seen, queue)
        kinds: dict[str, type[Remove | Revive | StartNow | NotCrashed]] = {
            "remove": Remove,
            "revive": Revive,
            "start now": StartNow,
            "not crashed": NotCrashed,
        }
        return kinds[draft.kind](id, seen, queue)

    def ids(self, picks: list[int]) -> list[int]:
        """Ids that were given so far, the latest first, or one that was not."""
        last = self.model.last_id
        return [last - pick if pick < last else UNKNOWN for pick in picks]

    # The verbs that move jobs have two rules each, so that they come up more often than those that look or clear away.

    @rule(jobs=st.lists(commands.jobs, min_size=1, max_size=4))
    def enqueue(self, jobs: list[commands.DraftJob]) -> None:
        self.pair.enqueue([job.at(self.model.now) for job in jobs])

    @rule(job=commands.jobs)
    def enqueue_one(self, job: commands.DraftJob) -> None:
        self.pair.enqueue([job.at(self.model.now)])

    @rule(
        queue=commands.queues,
        count=st.sampled_from((1, 2, 4, 0)),
        lease=commands.leases_for,
        max_cost=commands.limits,
        worker=st.sampled_from(("", "w1", "wörker")),
    )
    def take(self, queue: str, count: int, lease: int, max_cost: int | None, worker: str) -> None:
        jobs = self.pair.take(queue, count, lease / 1000, max_cost, worker)
        self.leases += [job.lease for job in jobs]

    @rule(queue=commands.queues, max_cost=st.sampled_from((None, 1, 2)))
    def take_all(self, queue: str, max_cost: int | None) -> None:
        self.leases += [job.lease for job in self.pair.take(queue, 100, 60.0, max_cost, "")]

    # Whole runs of a worker, since steps drawn one by one seldom follow each other as a job's life does.

    @rule(
        job=commands.jobs,
        failures=st.lists(st.sampled_from(("crash", "retry", "rank")), max_size=2),
        end=st.sampled_from(("none", "bury", "revive", "start now", "not crashed", "remove")),
    )
    def take_and_fail(self, job: commands.DraftJob, failures: list[str], end: str) -> None:
        """A job fails, and may be buried in the end; then comes a change that is for dead jobs, or is not."""
        queue = job.queue
        self.pair.enqueue([job.at(self.model.now)])
        for failure in failures:
            leases = [job.lease for job in self.pair.take(queue, 1, 0.5, None, "")]
            self.leases += leases
            if failure == "crash":
                self.pair.advance(500)
            else:
                rank = 7.5 if failure == "rank" else None
                self.pair.settle([Retry(lease, rank=rank) for lease in leases])
                self.pair.look(ById(self.model.last_id))
        if end == "none":
            return
        if end == "not crashed":
            last = self.model.last_id
            self.pair.change([NotCrashed(last), NotCrashed(last)])
            return
        leases = [job.lease for job in self.pair.take(queue, 1, 0.5, None, "")]
        self.leases += leases
        self.pair.settle([Bury(lease, end) for lease in leases])
        for lease in leases:
            if end == "revive":
                self.pair.change([Revive(lease.id)])
            elif end == "start now":
                self.pair.change([StartNow(lease.id)])
            elif end == "remove":
                self.pair.change([Remove(lease.id, waiters=0)])

    @rule(
        jobs=st.lists(commands.jobs, min_size=1, max_size=2),
        more=st.sampled_from((-1, 0, 0, 1)),
        wait=st.sampled_from((0, 500, 59_999, 60_000)),
        then=commands.jobs,
    )
    def take_and_cancel(self, jobs: list[commands.DraftJob], more: int, wait: int, then: commands.DraftJob) -> None:
        """Running jobs are cancelled, their keys are used again, and then their workers come back."""
        queue = jobs[0].queue
        self.pair.enqueue([job._replace(queue=queue).at(self.model.now) for job in jobs])
        leases = [job.lease for job in self.pair.take(queue, 4, 5.0, None, "")]
        self.leases += leases
        running = [self.model.jobs[lease.id] for lease in leases]
        self.pair.change([Cancel(job.id, max(0, len(job.waiters) + more)) for job in running])
        again = [then._replace(queue=queue, key=job.new.key) for job in running]
        self.pair.enqueue([draft.at(self.model.now) for draft in again])
        self.pair.advance(wait)
        self.pair.extend(leases, 60.0)
        self.pair.settle([Done(lease, [then.at(self.model.now)]) for lease in leases])

    @rule(job=commands.jobs, trick=commands.tricks, extend=st.booleans())
    def take_and_mistake(self, job: commands.DraftJob, trick: commands.Trick, extend: bool) -> None:
        """Use a lease that is almost the one that was given."""
        self.pair.enqueue([job.at(self.model.now)])
        self.leases += [taken.lease for taken in self.pair.take(job.queue, 1, 60.0, None, "")]
        lease = self.lease(commands.DraftLease(0, trick))
        if extend:
            self.pair.extend([lease], 60.0)
        else:
            self.pair.settle([Done(lease)])

    @rule(first=commands.jobs, second=commands.jobs, before=commands.befores, seen=st.sampled_from((0, 0, 1, None)))
    def take_and_join(self, first: commands.DraftJob, second: commands.DraftJob, before: str, seen: int | None) -> None:
        """Enqueue under the key of a job that runs, has just crashed, or was just buried."""
        queue = first.queue
        self.pair.enqueue([first.at(self.model.now)])
        leases = [taken.lease for taken in self.pair.take(queue, 4, 0.5, None, "")]
        self.leases += leases
        keys = [key for lease in leases if (key := self.model.jobs[lease.id].new.key)]
        if before == "crash":
            self.pair.advance(500)
        elif before == "bury":
            self.pair.settle([Bury(lease, before) for lease in leases])
        self.pair.enqueue([second._replace(queue=queue, key=key).at(self.model.now) for key in keys])
        self.pair.settle([Done(lease, waiters=seen) for lease in leases])

    @rule(
        jobs=st.lists(commands.jobs, min_size=1, max_size=2),
        max_cost=st.sampled_from((None, 1, 2)),
        then=st.lists(commands.jobs, max_size=3),
        bury=st.sampled_from((False, False, True)),
    )
    def take_and_finish(
        self, jobs: list[commands.DraftJob], max_cost: int | None, then: list[commands.DraftJob], bury: bool
    ) -> None:
        queue = jobs[0].queue
        self.pair.enqueue([job._replace(queue=queue).at(self.model.now) for job in jobs])
        leases = [job.lease for job in self.pair.take(queue, 4, 60.0, max_cost, "")]
        self.leases += leases
        if leases and then:  # the first follows under the key of the batch's last, which must be free by then
            then = [then[0]._replace(queue=queue, key=self.model.jobs[leases[-1].id].new.key), *then[1:]]
        follow_ups = [job.at(self.model.now) for job in then]
        ends: list[Outcome] = [Done(lease) for lease in leases]
        if leases:
            ends[0] = Bury(leases[0], "x", follow_ups) if bury else Done(leases[0], follow_ups)
        self.pair.settle(ends)

    @precondition(lambda self: self.leases)
    @rule(outcomes=st.lists(commands.outcomes, min_size=1, max_size=4))
    def settle(self, outcomes: list[commands.DraftOutcome]) -> None:
        # One after the other, as a worker settles its batch; a lease twice is left to the tricks.
        batch = [draft._replace(lease=draft.lease._replace(pick=n)) for n, draft in enumerate(outcomes)]
        self.pair.settle([self.outcome(draft) for draft in batch])

    @precondition(lambda self: self.leases)
    @rule(outcome=commands.outcomes)
    def settle_one(self, outcome: commands.DraftOutcome) -> None:
        self.pair.settle([self.outcome(outcome)])

    @rule(length=st.sampled_from((1, 499, 500, 1000, 1001, 5000, 60_000)))
    def time_passes(self, length: int) -> None:
        self.pair.advance(length)

    @precondition(lambda self: self.leases)
    @rule(leases=st.lists(commands.lease_drafts, min_size=1, max_size=3), length=commands.leases_for)
    def extend(self, leases: list[commands.DraftLease], length: int) -> None:
        self.pair.extend([self.lease(draft) for draft in leases], length / 1000)
        self.pair.look(ById(self.lease(leases[0]).id), 0)

    @precondition(lambda self: self.model.jobs)
    @rule(changes=st.lists(commands.changes, min_size=1, max_size=3))
    def change(self, changes: list[commands.DraftChange]) -> None:
        self.pair.change([self.change_of(draft) for draft in changes])

    @precondition(lambda self: self.model.jobs)
    @rule(pick=commands.picks, more=st.sampled_from((-1, 0, 0, 1)), kind=st.sampled_from((Remove, Cancel, Rerank)))
    def remove(self, pick: int, more: int, kind: type[Remove | Cancel | Rerank]) -> None:
        """Or cancel, or rerank: a job that is there, seen with as many waiters as it has, or with fewer or more."""
        job = list(self.model.jobs.values())[-1 - pick % len(self.model.jobs)]
        seen = max(0, len(job.waiters) + more)
        self.pair.change([Rerank(job.id, 7.5, seen) if kind is Rerank else kind(job.id, seen)])
        self.pair.look(ById(job.id))

    @rule(
        queue=commands.queues,
        key=st.sampled_from((None, None, *commands.KEYS)),
        after=st.sampled_from((None, 0, 1, 2)),
        ahead=st.booleans(),
    )
    def look(self, queue: str, key: str | None, after: int | None, ahead: bool) -> None:
        target: Target = Head(queue) if key is None else ByKey(queue, key)
        self.pair.look(target, after, ahead)

    @rule(picks=st.lists(commands.picks, min_size=1, max_size=2), after=st.sampled_from((None, 0, 1)))
    def look_by_id(self, picks: list[int], after: int | None) -> None:
        """At jobs in any state, and at one that waits, if there is any."""
        waiting = [job.id for job in self.model.jobs.values() if job.state in ("ready", "delayed")]
        for id in [*self.ids(picks), *waiting[-1:]]:
            self.pair.look(ById(id), after, ahead=True)

    @rule(queue=commands.queues, until=st.sampled_from((None, None, "epoch", -1000, 0, 1, 500, 5000)))
    def pause(self, queue: str, until: int | str | None) -> None:
        self.pair.pause(queue, 0 if isinstance(until, str) else None if until is None else self.model.now + until)
        self.pair.wait([queue])
        self.pair.look(Head(queue))

    @rule(queue=commands.queues, rules=commands.rules, limit=st.sampled_from((100, 1, 0)))
    def set_lanes(self, queue: str, rules: Lanes | None, limit: int) -> None:
        if rules is not None and queue not in commands.SHARING:
            rules = replace(rules, shared=None)
        self.pair.set_lanes(queue, rules)
        self.pair.lanes(queue, limit)

    @rule(
        rules=commands.rules,
        jobs=st.lists(commands.jobs, min_size=2, max_size=6),
        count=st.sampled_from((1, 2, 100)),
        ends=st.lists(st.sampled_from(("done", "retry", "bury", "crash", "cancel", "remove")), min_size=3, max_size=3),
    )
    def run_in_lanes(self, rules: Lanes | None, jobs: list[commands.DraftJob], count: int, ends: list[str]) -> None:
        """Jobs of a queue with rules, or of two that share limits, come, run, and end in different ways."""
        shares = rules is not None and rules.shared is not None
        queues = commands.SHARING if shares else (jobs[0].queue,)
        for queue in queues:
            self.pair.set_lanes(queue, rules)
        for job, queue in zip(jobs, cycle(queues), strict=False):
            self.pair.enqueue([job._replace(queue=queue, start=("none", 0)).at(self.model.now)])
        for end in ends:
            runs = [[job.lease for job in self.pair.take(queue, count, 0.5, None, "")] for queue in queues]
            for leases in runs:  # one after the other, while the others run
                self.leases += leases
                self._end(end, leases)
        self.pair.lanes(queues[0], 100)
        self.pair.look(Head(queues[0]))

    def _end(self, end: str, leases: list[Lease]) -> None:
        if end == "crash":
            self.pair.advance(500)
        elif end in ("cancel", "remove"):
            self.pair.change([Cancel(lease.id) if end == "cancel" else Remove(lease.id) for lease in leases])
        else:
            ways: dict[str, Callable[[Lease], Outcome]] = {"done": Done, "retry": Retry, "bury": _bury}
            self.pair.settle([ways[end](lease) for lease in leases])

    @precondition(lambda self: self.model.jobs)
    @rule(pick=commands.picks, age=commands.ages, limit=st.sampled_from((None, 0, 1, 1, 2)))
    def purge(self, pick: int, age: int | None, limit: int | None) -> None:
        """Of a queue and state in which there is something."""
        places = sorted({(job.new.queue, job.state) for job in self.model.jobs.values()})
        self.pair.purge(*places[pick % len(places)], None if age is None else self.model.now - age, limit)

    @rule(picks=st.lists(commands.picks, max_size=3), queue=commands.queues)
    def revive(self, picks: list[int], queue: str) -> None:
        dead = [job.id for job in self.model.browse(queue, "dead")]
        self.pair.change([Revive(id) for id in [*self.ids(picks), *dead]])

    @rule(picks=st.lists(commands.picks, max_size=2), job=commands.jobs, most=st.integers(1, 2))
    def start_now(self, picks: list[int], job: commands.DraftJob, most: int) -> None:
        """Jobs in any state, and the latest that are delayed, one of which just came; one may be named twice."""
        self.pair.enqueue([job._replace(start=("delay", 5000)).at(self.model.now)])
        delayed = [each.id for each in self.model.browse(job.queue, "delayed", order="id")]
        self.pair.change([StartNow(id) for id in [*self.ids(picks), *delayed[-most:]]])
        self.pair.wait([job.queue])
        self.pair.look(Head(job.queue))

    @precondition(lambda self: self.model.jobs)
    @rule(
        pick=commands.picks,
        order=commands.orders,
        after=st.none() | commands.picks,
        elsewhere=st.sampled_from((False, False, True)),
        limit=st.integers(0, 3),
    )
    def browse(self, pick: int, order: Order, after: int | None, elsewhere: bool, limit: int) -> None:
        """Of a queue and state in which there is something, after one of its jobs or any other job of the queue."""
        places = sorted({(job.new.queue, job.state) for job in self.model.jobs.values()})
        queue, state = places[pick % len(places)]
        known = [job for each in STATES if elsewhere or each == state for job in self.model.browse(queue, each)]
        begin = None if after is None else known[after % len(known)].cursor(order)
        self.pair.browse(queue, state, order, begin, limit)
        self.pair.wait([queue, "b"])

    @rule(
        name=st.sampled_from(commands.NAMES),
        value=commands.payloads,
        version=st.sampled_from((None, "right", 0, 1, 2)),
        ttl=st.sampled_from((None, 0, 0.5, 1)),
        prefix=st.sampled_from(("", "x", "x/", "x/%", "x_", "X", "é")),
    )
    def write(self, name: str, value: bytes, version: int | str | None, ttl: float | None, prefix: str) -> None:
        if isinstance(version, str):
            found = self.model.read(name)
            version = found.version if found is not None else 0
        self.pair.write(name, value, version, ttl)
        self.pair.documents(prefix)
