"""The store as a server behind a network: every call travels, and may be slow, lost, or applied without an answer.

The core is a real `MemoryStorage` (or a broken one) on the virtual clock. A call is a request that arrives after a
while, is applied in one step, and an answer that takes a while too. What is killed or stopped meanwhile is the client;
the request goes its way all the same, as it does once the kernel has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from accoda.errors import AccodaError, StorageUnavailable
from accoda.model import Lease
from accoda.storage.memory import MemoryStorage
from accoda.testing.simulation.lane import Lane
from accoda.testing.simulation.plan import Weather
from accoda.testing.simulation.world import SimClock, World

if TYPE_CHECKING:
    from accoda.testing.simulation.client import SimStore

VERBS = (
    "connect", "enqueue", "take", "settle", "extend", "rerank", "waiters", "wait", "stats", "read", "write",
    "documents", "find", "browse", "remove", "revive", "pause", "resume", "purge", "peek",
    "drop", "start_now", "place",
)  # fmt: skip
NUMBER = {verb: number for number, verb in enumerate(VERBS)}


Make = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the coroutine of a verb, when the request is there."""


class Call:
    """One call on its way. `size` is how many jobs it is about."""

    __slots__ = (
        "answer_in",
        "coro",
        "future",
        "lane",
        "late",
        "leases",
        "lost",
        "make",
        "over",
        "size",
        "store",
        "verb",
    )

    def __init__(self, store: SimStore, lane: Lane, verb: str, size: int, make: Make) -> None:
        self.store = store
        self.lane = lane
        self.verb = verb
        self.size = size
        self.make = make
        self.coro: Coroutine[Any, Any, Any] | None = None
        self.future: asyncio.Future[Any] = lane.create_future()
        self.answer_in = 0.0
        self.leases: Sequence[Lease] = ()
        """Those that it settles or extends."""
        self.late: Sequence[Lease] = ()
        """Those of them that had ended when it arrived."""
        self.lost = False
        self.over = False


class Server:
    """Applies calls to the core, one at a time."""

    def __init__(self, world: World, core: type[MemoryStorage], weather: Weather) -> None:
        self.world = world
        self.lane = world.lane("server")
        self.clock = SimClock(world, self.lane)
        self.core = core(self.clock)
        self.weather = weather
        self.down = False
        self.operations = 0
        self.calls = 0
        self.lost_requests = 0
        self.lost_answers = 0
        self._random = world.stream("network").random
        self._waits = Ordered()

    def send(self, call: Call) -> None:
        """Put a request on its way; what becomes of it is drawn now."""
        draw, weather, now = self._random, self.weather, self.world.now
        way = weather.latency * (0.2 + draw())
        call.answer_in = weather.latency * (0.2 + draw())
        fate = draw()
        if fate < weather.trouble:
            if fate < weather.lost_request:
                self.lost_requests += 1
                self.fail(call, way + weather.longest * draw(), "the request was lost")
                return
            if fate < weather.lost_request + weather.lost_answer:
                call.lost = True
            else:
                slow = weather.longest * draw()
                if draw() < 0.5:
                    way += slow
                else:
                    call.answer_in += slow
        self.lane.post(now + way, self._arrive, call)

    def fail(self, call: Call, after: float, why: str) -> None:
        call.lane.post(self.world.now + after, _set_error, call, StorageUnavailable(f"{call.verb}: {why}"))

    def _arrive(self, call: Call) -> None:
        if self.down:
            self.fail(call, call.answer_in, "the store is away")
        elif not call.over:
            call.late = self._late(call.leases) if call.leases else ()
            call.coro = call.make()
            self._drive(call)

    def _drive(self, call: Call, _: object = None) -> None:
        """Run the verb's coroutine. All but `wait` end in one step, so a task would be a waste."""
        if call.over or call.coro is None:
            return
        try:
            waits_for = call.coro.send(None)
        except StopIteration as end:
            self._answer(call, end.value)
        except AccodaError as error:
            self._count(call, ())
            call.lane.post(self.world.now + call.answer_in, _set_error, call, error)
        except Exception as error:  # a store that fails like this has a mistake in it
            self.world.problems.append(f"the store failed in {call.verb}: {error!r}")
            self.fail(call, call.answer_in, repr(error))
        else:
            self._waits.add(call)
            if waits_for is None:  # a bare yield: sleep(0)
                self.lane.call_soon(self._drive, call)
            else:
                waits_for._asyncio_future_blocking = False
                waits_for.add_done_callback(_Resume(self, call))

    def _answer(self, call: Call, value: Any) -> None:
        self._waits.discard(call)
        self._count(call, value)
        if call.lost:
            self.lost_answers += 1
            self.fail(call, call.answer_in + self.weather.longest * self._random(), "the answer was lost")
        else:
            call.lane.post(self.world.now + call.answer_in, self._deliver, call, value)

    def _deliver(self, call: Call, value: Any) -> None:
        """On the client's lane: the answer is there, unless the connection went away before it."""
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
        world, store = self.world, call.store
        self._look(call, value)
        world.note(NUMBER[verb], store.process.number, size, *_numbers(verb, value))
        if world.traced:
            world.tell(f"{store.process.name} {verb} {size}{' (answer lost)' if call.lost else ''} = {value!r}")

    # -- what only the server can see: no client knows the exact moment at which its call is applied

    def _late(self, leases: Sequence[Lease]) -> list[Lease]:
        jobs, now = self.core._jobs, self.clock.now()
        return [lease for lease in leases if (job := jobs.get(lease.id)) is not None and job.due <= now]

    def _look(self, call: Call, value: Any) -> None:
        if call.late:
            refused = {refusal.lease.id for refusal in value}
            for lease in call.late:
                if lease.id not in refused:
                    self.world.problems.append(f"{call.verb} of {lease} was accepted after its end")
        elif call.verb == "take" and value:
            line = self.core._lines[value[0].queue]
            if line.is_paused(self.clock.now()):
                self.world.problems.append(f"a take was given {len(value)} jobs of {line.name}, which is paused")

    # -- ends that come from outside

    def drop(self, call: Call) -> None:
        """Nobody waits for this call any more."""
        call.over = True
        if call in self._waits and call.coro is not None:
            self._waits.discard(call)
            call.coro.close()

    def drop_store(self, store: SimStore) -> None:
        """A connection ended: its waits end with it."""
        for call in [call for call in self._waits if call.store is store]:
            self.drop(call)
            self.fail(call, self.weather.latency, "the connection was closed")

    def go_down(self) -> None:
        """From now on every call fails, and those who wait are told."""
        self.down = True
        for call in list(self._waits):
            self.drop(call)
            self.fail(call, self.weather.latency * self._random(), "the store went away")

    def come_back(self) -> None:
        self.down = False

    def close(self) -> None:
        """The end of the simulation."""
        for call in list(self._waits):
            self.drop(call)


class _Resume:
    """The callback of what a verb waits for: goes on in a step of its own."""

    __slots__ = ("call", "server")

    def __init__(self, server: Server, call: Call) -> None:
        self.server = server
        self.call = call

    def __call__(self, _: object) -> None:
        self.server._drive(self.call)


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
    if verb == "peek":
        return [value.at, 0 if value.job is None else value.job.id]
    return [value] if isinstance(value, int) else []
