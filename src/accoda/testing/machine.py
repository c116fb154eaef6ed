"""The same random commands for a storage and for the reference model; all that can be seen must be the same.

    TestMachine = machine_for(make_world)

Hypothesis shortens a run that shows a difference to the few commands that matter. `ACCODA_EXAMPLES` sets the number of
runs. The world must be exact: moments are compared to the millisecond.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from unittest import TestCase

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from accoda.model import Bury, Done, Lease, Outcome, Rank, Retry, State
from accoda.testing import drafts
from accoda.testing.pair import UNKNOWN, Pair
from accoda.testing.world import MakeWorld, World


def machine_for(make_world: MakeWorld, *, examples: int = 45, steps: int = 40) -> type[TestCase]:
    """A test case that compares the storage of `make_world` with the model."""
    case: type[TestCase] = state_machine(make_world).TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=int(os.environ.get("ACCODA_EXAMPLES", examples)),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return case


def state_machine(make_world: MakeWorld) -> type[StoreMachine]:
    """The machine itself, for those who run it with settings of their own."""

    class Machine(StoreMachine):
        def make_world(self) -> AbstractAsyncContextManager[World]:
            return make_world()

    return Machine


class StoreMachine(RuleBasedStateMachine):
    """Each rule is a verb. What is drawn is made concrete in the model's ids; `Pair` translates and compares."""

    def make_world(self) -> AbstractAsyncContextManager[World]:
        raise NotImplementedError("machine_for fills this in")

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.make_world())
        self.model = self.pair.model
        self.leases: list[Lease] = []  # every one ever given

    def teardown(self) -> None:
        self.pair.close()

    def lease(self, draft: drafts.DraftLease) -> Lease:
        held = self.leases if draft.trick == "old" else self.model.held()
        if not held or draft.trick == "unknown":
            return Lease("a", UNKNOWN, 0)
        lease = held[-1 - draft.pick % len(held)]
        shift = {"older": -1, "newer": 1}.get(draft.trick, 0)
        queue = "b" if draft.trick == "elsewhere" else lease.queue
        return Lease(queue, lease.id, max(0, lease.attempts + shift))

    def outcome(self, draft: drafts.DraftOutcome) -> Outcome:
        lease = self.lease(draft.lease)
        then = [job.at(self.model.now) for job in draft.then]
        if draft.kind == "done":
            return Done(lease, then, draft.result, draft.seen)
        if draft.kind == "bury":
            return Bury(lease, draft.reason, then)
        kind, length = draft.start
        if kind in ("at", "past"):
            return Retry(lease, at=self.model.now + (length if kind == "at" else -length), reason=draft.reason)
        return Retry(lease, delay=length / 1000 if kind == "delay" else 0.0, reason=draft.reason)

    def ids(self, picks: list[int]) -> list[int]:
        """Ids that were given so far, the latest first, or one that was not."""
        last = self.model.last_id
        return [last - pick if pick < last else UNKNOWN for pick in picks]

    # The verbs that move jobs have two rules each, so that they come up more often than those that look or clear away.

    @rule(jobs=st.lists(drafts.jobs, min_size=1, max_size=4))
    def enqueue(self, jobs: list[drafts.DraftJob]) -> None:
        self.pair.enqueue([job.at(self.model.now) for job in jobs])

    @rule(job=drafts.jobs)
    def enqueue_one(self, job: drafts.DraftJob) -> None:
        self.pair.enqueue([job.at(self.model.now)])

    @rule(
        queue=drafts.queues,
        count=st.sampled_from((1, 2, 4, 0)),
        lease=drafts.leases_for,
        max_cost=drafts.limits,
        worker=st.sampled_from(("", "w1", "wörker")),
    )
    def take(self, queue: str, count: int, lease: int, max_cost: int | None, worker: str) -> None:
        jobs = self.pair.take(queue, count, lease / 1000, max_cost, worker)
        self.leases += [job.lease for job in jobs]

    @rule(queue=drafts.queues, max_cost=st.sampled_from((None, 1, 2)))
    def take_all(self, queue: str, max_cost: int | None) -> None:
        self.leases += [job.lease for job in self.pair.take(queue, 100, 60.0, max_cost, "")]

    # Whole runs of a worker, since steps drawn one by one seldom follow each other as a job's life does.

    @rule(
        job=drafts.jobs,
        crashes=st.integers(0, 2),
        end=st.sampled_from(("none", "bury", "revive", "start now", "drop")),
    )
    def take_and_fail(self, job: drafts.DraftJob, crashes: int, end: str) -> None:
        """A job crashes, and may be buried in the end; then somebody does what is for the dead, or is not."""
        queue = job.queue
        self.pair.enqueue([job.at(self.model.now)])
        for _ in range(crashes):
            self.leases += [job.lease for job in self.pair.take(queue, 1, 0.5, None, "")]
            self.pair.advance(500)
        if end == "none":
            return
        leases = [job.lease for job in self.pair.take(queue, 1, 0.5, None, "")]
        self.leases += leases
        self.pair.settle([Bury(lease, end) for lease in leases])
        for lease in leases:
            if end == "revive":
                self.pair.revive([lease.id])
            elif end == "start now":
                self.pair.start_now([lease.id])
            elif end == "drop":
                self.pair.drop(queue, lease.id, 0)

    @rule(job=drafts.jobs, trick=drafts.tricks, extend=st.booleans())
    def take_and_mistake(self, job: drafts.DraftJob, trick: drafts.Trick, extend: bool) -> None:
        """Somebody comes with a lease that is almost the one that was given."""
        self.pair.enqueue([job.at(self.model.now)])
        self.leases += [taken.lease for taken in self.pair.take(job.queue, 1, 60.0, None, "")]
        lease = self.lease(drafts.DraftLease(0, trick))
        if extend:
            self.pair.extend([lease], 60.0)
        else:
            self.pair.settle([Done(lease)])

    @rule(first=drafts.jobs, second=drafts.jobs, before=drafts.befores, seen=st.sampled_from((0, 0, 1, None)))
    def take_and_join(self, first: drafts.DraftJob, second: drafts.DraftJob, before: str, seen: int | None) -> None:
        """Somebody comes with the key of a job that runs, has just crashed, or was just buried."""
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
        jobs=st.lists(drafts.jobs, min_size=1, max_size=2),
        max_cost=st.sampled_from((None, 1, 2)),
        then=st.lists(drafts.jobs, max_size=3),
        bury=st.sampled_from((False, False, True)),
    )
    def take_and_finish(
        self, jobs: list[drafts.DraftJob], max_cost: int | None, then: list[drafts.DraftJob], bury: bool
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
    @rule(outcomes=st.lists(drafts.outcomes, min_size=1, max_size=4))
    def settle(self, outcomes: list[drafts.DraftOutcome]) -> None:
        # One after the other, as a worker settles its batch; a lease twice is left to the tricks.
        batch = [draft._replace(lease=draft.lease._replace(pick=n)) for n, draft in enumerate(outcomes)]
        self.pair.settle([self.outcome(draft) for draft in batch])

    @precondition(lambda self: self.leases)
    @rule(outcome=drafts.outcomes)
    def settle_one(self, outcome: drafts.DraftOutcome) -> None:
        self.pair.settle([self.outcome(outcome)])

    @rule(length=st.sampled_from((1, 499, 500, 1000, 1001, 5000, 60_000)))
    def time_passes(self, length: int) -> None:
        self.pair.advance(length)

    @precondition(lambda self: self.leases)
    @rule(leases=st.lists(drafts.lease_drafts, min_size=1, max_size=3), length=drafts.leases_for)
    def extend(self, leases: list[drafts.DraftLease], length: int) -> None:
        self.pair.extend([self.lease(draft) for draft in leases], length / 1000)
        self.pair.waiters(self.lease(leases[0]))

    @precondition(lambda self: self.model.jobs)
    @rule(ranks=st.lists(st.tuples(drafts.picks, drafts.queues, drafts.ranks, drafts.limits), min_size=1, max_size=3))
    def rerank(self, ranks: list[tuple[int, str, float, int | None]]) -> None:
        wanted = []
        for pick, other, rank, seen in ranks:
            (id,) = self.ids([pick])
            job = self.model.jobs.get(id)
            queue = job.new.queue if job is not None and pick != 5 else other
            wanted.append(Rank(queue, id, rank, seen))
        self.pair.rerank(wanted)

    @rule(queue=drafts.queues, key=st.sampled_from((None, None, "k", "l")), after=st.sampled_from((None, 0, 1, 2)))
    def peek(self, queue: str, key: str | None, after: int | None) -> None:
        self.pair.peek(queue, key, after)

    @precondition(lambda self: self.model.jobs)
    @rule(pick=drafts.picks, other=drafts.queues, more=st.sampled_from((-1, 0, 0, 1)))
    def drop(self, pick: int, other: str, more: int) -> None:
        """Of a job that is there, seen with as many waiters as it has, or with fewer or more."""
        job = list(self.model.jobs.values())[-1 - pick % len(self.model.jobs)]
        self.pair.drop(job.new.queue if pick != 5 else other, job.id, max(0, len(job.waiters) + more))

    @rule(picks=st.lists(drafts.picks, min_size=1, max_size=2), most=st.sampled_from((1000, 1, 2)))
    def place(self, picks: list[int], most: int) -> None:
        """Of jobs in any state, and of one that waits, if there is any."""
        waiting = [job.id for job in self.model.jobs.values() if job.state in ("ready", "delayed")]
        for id in [*self.ids(picks), *waiting[-1:]]:
            self.pair.place(id, most)

    @rule(queue=drafts.queues, until=st.sampled_from((None, -1000, 0, 1, 500, 5000)), on=st.booleans())
    def pause(self, queue: str, until: int | None, on: bool) -> None:
        if on:
            self.pair.pause(queue, None if until is None else self.model.now + until)
        else:
            self.pair.resume(queue)
        self.pair.wait([queue])
        self.pair.peek(queue, None, None)

    @rule(picks=st.lists(drafts.picks, max_size=2))
    def remove(self, picks: list[int]) -> None:
        self.pair.remove(self.ids(picks))

    @precondition(lambda self: self.model.jobs)
    @rule(pick=drafts.picks, age=drafts.ages, limit=st.sampled_from((None, 0, 1, 1, 2)))
    def purge(self, pick: int, age: int | None, limit: int | None) -> None:
        """Of a queue and state in which there is something."""
        places = sorted({(job.new.queue, job.state) for job in self.model.jobs.values()})
        self.pair.purge(*places[pick % len(places)], None if age is None else self.model.now - age, limit)

    @rule(picks=st.lists(drafts.picks, max_size=3), queue=drafts.queues)
    def revive(self, picks: list[int], queue: str) -> None:
        dead = [job.id for job in self.model.browse(queue, "dead", None, 100)]
        self.pair.revive([*self.ids(picks), *dead])

    @rule(picks=st.lists(drafts.picks, max_size=2), job=drafts.jobs, most=st.integers(1, 2))
    def start_now(self, picks: list[int], job: drafts.DraftJob, most: int) -> None:
        """Of jobs in any state, and of the latest that are delayed, one of which just came; one may be named twice."""
        self.pair.enqueue([job._replace(start=("delay", 5000)).at(self.model.now)])
        delayed = [each.id for each in self.model.browse(job.queue, "delayed", None, 100)]
        self.pair.start_now([*self.ids(picks), *delayed[-most:]])
        self.pair.wait([job.queue])
        self.pair.peek(job.queue, None, None)

    @rule(queue=drafts.queues, state=drafts.states, after=drafts.picks, limit=st.integers(0, 3))
    def browse(self, queue: str, state: State, after: int, limit: int) -> None:
        (id,) = self.ids([after])
        self.pair.browse(queue, state, id, limit)
        self.pair.wait([queue, "b"])

    @rule(
        name=st.sampled_from(drafts.NAMES),
        value=drafts.payloads,
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
