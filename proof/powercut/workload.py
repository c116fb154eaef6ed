"""What goes on when the power is cut: rounds of calls, drawn by a seed, each round one transaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from accoda.errors import VersionConflict
from accoda.model import (
    REPORTS,
    Bury,
    Cancel,
    Change,
    Done,
    Enqueued,
    Job,
    Lease,
    NewJob,
    Outcome,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
)
from accoda.storage.common.lease_durability import held_here
from accoda.storage.protocol import Store
from accoda.testing.reference import Reference

QUEUES = ("mail", "mail.deliver", "report", REPORTS)
MARK = "powercut/round"  # a document written in every round: after a cut it tells which rounds are there
_DOCUMENTS = ("settings", "budget/a", "budget/b", "heartbeat")
_KEYS = ("k1", "k2", "k3")
_FLOWS = ("k1", "flow")


@dataclass(frozen=True)
class StoreCall:
    """A verb with its arguments, for a storage and for the model alike."""

    verb: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    here: bool = False  # leases of this machine: a cut that ends their holder may take them back

    async def __call__(self, store: Store) -> Any:
        with held_here() if self.here else nullcontext():
            return await getattr(store, self.verb)(*self.args, **self.options)

    def on_model(self, model: Reference) -> Any:
        try:
            return getattr(model, self.verb)(*self.args, **self.options)
        except VersionConflict as conflict:
            return conflict


@dataclass(frozen=True)
class Round:
    """Calls that arrive together, at a moment."""

    number: int
    now: int
    calls: tuple[StoreCall, ...]

    @property
    def is_fleeting(self) -> bool:
        """Whether a cut may take it back though it was acknowledged."""
        return all(call.here for call in self.calls)


class Workload:
    """Draws rounds; learns leases, ids and versions from the answers, as a worker would."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0
        self._mark_version = 0
        self._leases: list[Lease] = []
        self._ids: list[tuple[str, int]] = []
        self._versions: dict[str, int] = {}
        self._verbs: tuple[tuple[Callable[[], StoreCall], int], ...] = (
            (self._enqueue_one, 4),
            (self._enqueue_batch, 3),
            (self._take, 5),
            (self._settle, 6),
            (self._extend, 1),
            (self._write, 3),
            (self._change, 4),
        )

    def begin(self, model: Reference) -> None:
        """After a cut: forget what was only hoped for, and go on from what is there."""
        mark = model.read(MARK)
        self._number = int(mark.value) if mark else 0
        self._mark_version = mark.version if mark else 0
        self._leases = model.held()
        self._ids = [(job.new.queue, job.id) for job in model.jobs.values()]
        self._versions = {document.name: document.version for document in model.documents("")}

    def draw(self, now: int, time_passed: bool) -> Round:
        rng = self._rng
        self._number += 1
        if rng.random() < 0.3:
            return Round(self._number, now, tuple(self._fleeting(time_passed)))
        verbs, weights = zip(*self._verbs, strict=True)
        calls = [verb() for verb in rng.choices(verbs, weights, k=rng.choice((1, 1, 2, 3, 6, 12)))]
        mark = StoreCall("write", (MARK, b"%d" % self._number), {"version": self._mark_version, "ttl": None})
        calls.insert(rng.randint(0, len(calls)), mark)
        if time_passed:  # at once, so that what is due is applied at this moment, as the model does
            calls.insert(0, StoreCall("stats"))
        return Round(self._number, now, tuple(calls))

    def _fleeting(self, time_passed: bool) -> list[StoreCall]:
        """What a worker of this machine does between two settlements."""
        verbs = self._rng.choices((self._take, self._extend), (4, 1), k=self._rng.choice((1, 1, 2, 3)))
        calls = [replace(verb(), here=True) for verb in verbs]
        # What is due is applied by the takes themselves, and in all queues at this moment, as the model does.
        options = {"lease": 1.0, "max_cost": None, "worker": "w"}
        looks = [StoreCall("take", (queue, 0), options, here=True) for queue in QUEUES] if time_passed else []
        return looks + calls

    def learn(self, round: Round, answers: list[Any]) -> None:
        self._mark_version += not round.is_fleeting
        for call, answer in zip(round.calls, answers, strict=True):
            if isinstance(answer, VersionConflict):
                self._versions[answer.name] = answer.found
            elif call.verb == "write":
                self._versions[call.args[0]] = answer
            elif call.verb == "take":
                self._leases += [job.lease for job in answer if isinstance(job, Job)]
            elif call.verb == "enqueue":
                pairs = zip(call.args[0], answer, strict=True)
                self._ids += [(new.queue, one.id) for new, one in pairs if isinstance(one, Enqueued)]
        del self._ids[:-50]

    # The verbs

    def _new_job(self) -> NewJob:
        rng = self._rng
        size = rng.choice((0, 20, 20, 100, 100, 700, 5000))
        return NewJob(
            rng.choice(QUEUES),
            rng.randbytes(size),
            rank=float(rng.randrange(4)),
            delay=rng.choice((None, None, None, 0.3, 2.0)),
            keep_for=rng.choice((0.0, 0.0, 0.0, 1.5)),
            **self._keyed(),
        )

    def _keyed(self) -> dict[str, Any]:
        rng = self._rng
        kind = rng.choice(("plain", "plain", "plain", "member", "shared"))
        if kind == "plain":
            return {}
        flow = rng.choice(_FLOWS)
        if kind == "member":
            return {"key": f"member {rng.getrandbits(32)}", "reports_to": flow}
        how, waiter = rng.choice(("keep", "rerank", "replace", "attach")), rng.choice((None, b"w"))
        return {"key": rng.choice(_KEYS), "on_duplicate": how, "waiter": waiter, "reports_to": rng.choice((None, flow))}

    def _enqueue_one(self) -> StoreCall:
        return StoreCall("enqueue", ([self._new_job()],))

    def _enqueue_batch(self) -> StoreCall:
        return StoreCall("enqueue", ([self._new_job() for _ in range(self._rng.choice((3, 8, 20)))],))

    def _take(self) -> StoreCall:
        lease = self._rng.choice((0.5, 2.0, 30.0))
        options = {"lease": lease, "max_cost": None, "worker": "w"}
        return StoreCall("take", (self._rng.choice(QUEUES), self._rng.choice((1, 3, 10))), options)

    def _some_leases(self) -> list[Lease]:
        self._rng.shuffle(self._leases)
        count = self._rng.choice((1, 3, 10))
        some, self._leases = self._leases[:count], self._leases[count:]
        return some

    def _settle(self) -> StoreCall:
        return StoreCall("settle", ([self._outcome(lease) for lease in self._some_leases()],))

    def _outcome(self, lease: Lease) -> Outcome:
        rng = self._rng
        match rng.randrange(5):
            case 0:
                rank, counts = rng.choice((None, None, 2.0)), rng.random() < 0.5
                delay, then = rng.choice((0.0, 0.7)), self._follow_ups(0, 0, 1)
                return Retry(lease, delay, reason="once more", rank=rank, counts=counts, then=then)
            case 1:
                return Bury(lease, "no use", self._follow_ups(0, 0, 1, 2))
            case 2:
                return Done(lease, self._follow_ups(1, 2, 5), result=b"r")
        return Done(lease)

    def _follow_ups(self, *counts: int) -> list[NewJob]:
        return [self._new_job() for _ in range(self._rng.choice(counts))]

    def _extend(self) -> StoreCall:
        some = self._some_leases()
        self._leases += some
        return StoreCall("extend", (some, self._rng.choice((0.5, 10.0))))

    def _write(self) -> StoreCall:
        name = self._rng.choice(_DOCUMENTS)
        version = self._versions.get(name, 0) if self._rng.random() < 0.7 else None
        options = {"version": version, "ttl": self._rng.choice((None, None, 1.0))}
        return StoreCall("write", (name, self._rng.randbytes(self._rng.choice((8, 300)))), options)

    def _change(self) -> StoreCall:
        kind = self._rng.randrange(5)
        some = self._rng.sample(self._ids, min(1 if kind < 2 else 5, len(self._ids)))
        return StoreCall("change", ([self._one_change(kind, id, queue) for queue, id in some],))

    def _one_change(self, kind: int, id: int, queue: str) -> Change:
        if kind == 4:
            return Rerank(id, float(self._rng.randrange(4)), queue=queue)
        kinds: tuple[type[Remove | Cancel | Revive | StartNow], ...] = (Remove, Cancel, Revive, StartNow)
        return kinds[kind](id, queue=queue)
