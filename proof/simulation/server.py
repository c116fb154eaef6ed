"""The store as a server behind a network: every call travels, and may be slow, lost, or applied without an answer.

The core is a real `MemoryStorage` (or a broken one) on the virtual clock. A call is a request that arrives after a
while, is applied in one step, and an answer that takes a while too. What is killed or stopped meanwhile is the client;
the request goes its way all the same, as it does once the kernel has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from accoda.errors import AccodaError, StorageUnavailable
from accoda.model import Lease, NotCrashed
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import VERBS
from proof.simulation.plan import Network
from proof.simulation.scheduler import Scheduler, SimClock
from proof.simulation.sim_loop import SimLoop

if TYPE_CHECKING:
    from proof.simulation.client import SimStore

T = TypeVar("T")

NUMBER = {verb: number for number, verb in enumerate(("connect", *VERBS))}


class Call:
    """One call on its way: its verb and arguments, and what was drawn for it."""

    __slots__ = ("answer_in", "args", "future", "kwargs", "late", "loop", "lost", "over", "store", "verb", "waiting")

    def __init__(
        self, store: SimStore, loop: SimLoop, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.store = store
        self.loop = loop
        self.verb = verb
        self.args = args
        self.kwargs = kwargs
        self.future: asyncio.Future[Any] = loop.create_future()
        self.waiting: asyncio.Task[Any] | None = None
        """The task of a `wait` at the server."""
        self.answer_in = 0.0
        self.late: Sequence[Lease] = ()
        """Of the leases that it settles or extends, those that had ended when it arrived."""
        self.lost = False
        self.over = False

    @property
    def size(self) -> int:
        """How many jobs it is about; for most verbs, one call is one operation."""
        first = self.args[0] if self.args else None
        return len(first) if self.verb in ("enqueue", "settle", "extend", "change") and first is not None else 1

    @property
    def leases(self) -> Sequence[Lease]:
        """Those that it settles or extends."""
        if self.verb == "settle":
            return [outcome.lease for outcome in self.args[0]]
        return self.args[0] if self.verb == "extend" else ()


class Server:
    """Applies calls to the core, one at a time."""

    def __init__(self, scheduler: Scheduler, core: type[MemoryStorage], network: Network) -> None:
        self.scheduler = scheduler
        self.loop = scheduler.loop("server")
        self.clock = SimClock(scheduler, self.loop)
        self.core = core(self.clock)
        self.network = network
        self.down = False
        self.operations = 0
        self.calls = 0
        self.lost_requests = 0
        self.lost_answers = 0
        self.taken_back: Counter[int] = Counter()
        """By job: how often a worker said that a lease which ended was no crash."""
        self._random = scheduler.stream("network").random
        self._waits = Ordered()

    def send(self, call: Call) -> None:
        """Put a request on its way; what becomes of it is drawn now."""
        draw, network, now = self._random, self.network, self.scheduler.now
        way = network.latency * (0.2 + draw())
        call.answer_in = network.latency * (0.2 + draw())
        fate = draw()
        if fate < network.trouble:
            if fate < network.lost_request:
                self.lost_requests += 1
                self.fail(call, way + network.longest * draw(), "the request was lost")
                return
            if fate < network.lost_request + network.lost_answer:
                call.lost = True
            else:
                slow = network.longest * draw()
                if draw() < 0.5:
                    way += slow
                else:
                    call.answer_in += slow
        self.loop.post(now + way, self._arrive, call)

    def fail(self, call: Call, after: float, why: str) -> None:
        call.loop.post(self.scheduler.now + after, _set_error, call, StorageUnavailable(f"{call.verb}: {why}"))

    def _arrive(self, call: Call) -> None:
        if self.down:
            self.fail(call, call.answer_in, "the store is away")
        elif call.verb == "wait" and not call.over:
            self._waits.add(call)
            call.waiting = self.loop.spawn(self._wait(call))
        elif not call.over:
            call.late = self._late(call.leases)
            self._apply(call)

    async def _wait(self, call: Call) -> None:
        self._answer(call, await self.core.wait(*call.args, **call.kwargs))

    def _apply(self, call: Call) -> None:
        """In one step, without a task: no verb but `wait` has to wait."""
        try:
            self._answer(call, None if call.verb == "connect" else self._run(call))
        except AccodaError as error:
            self._count(call, ())
            call.loop.post(self.scheduler.now + call.answer_in, _set_error, call, error)
        except Exception as error:  # a store that fails like this has a mistake in it
            self.scheduler.problems.append(f"the store failed in {call.verb}: {error!r}")
            self.fail(call, call.answer_in, repr(error))

    def _run(self, call: Call) -> Any:
        if call.verb == "change":
            self.taken_back.update(each.id for each in call.args[0] if isinstance(each, NotCrashed))
        return run_now(getattr(self.core, call.verb)(*call.args, **call.kwargs))

    def _answer(self, call: Call, value: Any) -> None:
        self._waits.discard(call)
        self._count(call, value)
        if call.lost:
            self.lost_answers += 1
            self.fail(call, call.answer_in + self.network.longest * self._random(), "the answer was lost")
        else:
            call.loop.post(self.scheduler.now + call.answer_in, self._deliver, call, value)

    def _deliver(self, call: Call, value: Any) -> None:
        """On the client's loop: the answer is there, unless the connection went away before it."""
        if self.down or call.store.closed:
            _set_error(call, StorageUnavailable(f"{call.verb}: the connection ended before the answer"))
        elif not call.future.done():
            call.future.set_result(value)
            call.store.process.answered(call.verb, value)

    def _count(self, call: Call, value: Any) -> None:
        """One operation is one job through one verb; a call that is about no job is one."""
        verb = call.verb
        size = len(value) if verb == "take" else call.size
        self.operations += size or 1
        self.calls += 1
        scheduler, store = self.scheduler, call.store
        self._look(call, value)
        scheduler.note(NUMBER[verb], store.process.number, size, *_numbers(verb, value))
        if scheduler.traced:
            scheduler.tell(f"{store.process.name} {verb} {size}{' (answer lost)' if call.lost else ''} = {value!r}")

    # -- what only the server can see: no client knows the exact moment at which its call is applied

    def _late(self, leases: Sequence[Lease]) -> list[Lease]:
        jobs, now = self.core._jobs, self.clock.now()
        return [lease for lease in leases if (job := jobs.get(lease.id)) is not None and job.due <= now]

    def _look(self, call: Call, value: Any) -> None:
        if call.late:
            refused = {refusal.lease.id for refusal in value}
            for lease in call.late:
                if lease.id not in refused:
                    self.scheduler.problems.append(f"{call.verb} of {lease} was accepted after its end")
        elif call.verb == "take" and value:
            queue = self.core._queues[value[0].queue]
            if queue.is_paused(self.clock.now()):
                self.scheduler.problems.append(f"a take was given {len(value)} jobs of {queue.name}, which is paused")

    # -- ends that come from outside

    def drop(self, call: Call) -> None:
        """The caller of a `wait` has gone."""
        call.over = True
        self._waits.discard(call)
        if call.waiting is not None:
            call.waiting.cancel()

    def drop_store(self, store: SimStore) -> None:
        """A connection ended: its waits end with it."""
        for call in [call for call in self._waits if call.store is store]:
            self.drop(call)
            self.fail(call, self.network.latency, "the connection was closed")

    def go_down(self) -> None:
        """From now on every call fails, and so does every `wait` that goes on."""
        self.down = True
        for call in list(self._waits):
            self.drop(call)
            self.fail(call, self.network.latency * self._random(), "the store went away")

    def come_back(self) -> None:
        self.down = False

    def close(self) -> None:
        """The end of the simulation."""
        for call in list(self._waits):
            self.drop(call)


def run_now(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the memory storage, which never has to wait."""
    try:
        call.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise RuntimeError("the store waited")


class Ordered(dict[Any, None]):
    """A set that is iterated in the order in which it was filled, in every run."""

    def add(self, one: Any) -> None:
        self[one] = None

    def discard(self, one: Any) -> None:
        self.pop(one, None)

    def copy(self) -> Ordered:
        return Ordered(self)


def _set_error(call: Call, error: Exception) -> None:
    if not call.future.done():
        call.future.set_exception(error)


def _numbers(verb: str, value: Any) -> list[int]:
    """What of an answer goes into the trace's digest."""
    if verb in ("take", "enqueue"):
        return [one.id for one in value]
    if verb in ("settle", "extend"):
        return [one.lease.id for one in value]
    if verb == "look":
        return [value.at, 0 if value.job is None else value.job.id]
    return [value] if isinstance(value, int) else []
