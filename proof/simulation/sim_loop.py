"""The event loop of one simulated thread, without sockets and without real time.

Each thread of each simulated process has a loop: a worker's main thread, its lease heartbeat, the store's server. The
scheduler picks a loop at random and runs its next step.

What asyncio keeps in order stays in order: within one loop, callbacks run in the order in which they were given to
`call_soon`. That is documented, and code relies on it. So a loop is first in, first out, and only the choice *between*
loops is drawn from the seed: threads and processes really do run in any order. What can differ inside one loop is when
answers arrive, and that is drawn too, by the network.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proof.simulation.scheduler import Scheduler

_NOWHERE = Context()


class Step(asyncio.TimerHandle):
    """One callback that waits for its turn, or, with a loop, for its moment. Leaner than asyncio's own."""

    __slots__ = ("args", "callback", "context", "off")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.off = False

    def cancel(self) -> None:
        self.off = True

    def cancelled(self) -> bool:
        return self.off

    def __repr__(self) -> str:
        return f"<step {describe(self.callback)}>"


class Timer(Step):
    """A step that is due at a moment of the virtual clock."""

    __slots__ = ("loop", "moment")

    loop: SimLoop
    moment: float

    def cancel(self) -> None:
        if not self.off:
            self.off = True
            self.loop.scheduler.dropped_timers += 1

    def when(self) -> float:
        return self.moment


class SimTask(asyncio.Task[Any]):
    """A task with a number for a hash: sets of tasks then have the same order in every run, wherever they are used."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """One thread's loop. Several of them run in turns on one real thread, moved by their `Scheduler`."""

    def __init__(self, scheduler: Scheduler, name: str, number: int) -> None:
        self.scheduler = scheduler
        self.ready: deque[Step] = deque()
        self.idle = False
        super().__init__()
        self.set_debug(False)  # PYTHONASYNCIODEBUG would make other steps
        self.ready.clear()
        self.name = name
        self.number = number
        self.idle = True
        """Whether the first step that comes makes it runnable: it has none, and is neither stopped nor dead."""
        self.stops = 0
        self.dead = False
        self.owner: Any = None
        """The process that it belongs to."""

    # -- what asyncio and its users call

    def time(self) -> float:
        return self.scheduler.now

    def is_running(self) -> bool:
        return not self.scheduler.over

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Step:  # type: ignore[override]
        step = Step(callback, args, copy_context() if context is None else context)
        self.ready.append(step)
        if self.idle:
            self.idle = False
            self.scheduler.runnable.append(self)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one real thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        return self.call_at(self.scheduler.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        timer = Timer(callback, args, copy_context() if context is None else context)
        timer.loop, timer.moment = self, when
        self.scheduler.add_timer(timer)
        return timer

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> SimTask:
        self.scheduler.tasks += 1
        # The number must be there before the task is: asyncio enters it into a set while it is made.
        SimTask.number = self.scheduler.tasks
        task = SimTask(coro, loop=self, name=name, context=context)
        task.number = self.scheduler.tasks
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.scheduler.unhandled(self, context)

    # -- what the simulation calls, from whatever loop

    def spawn(self, coro: Coroutine[Any, Any, Any]) -> SimTask:
        """Begin a task on this loop that inherits nothing from the loop that asks for it."""
        return self.create_task(coro, context=Context())

    def post(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Let something arrive from outside, for example an answer of the store."""
        self.call_at(when, callback, *args, context=_NOWHERE)

    def stop(self) -> None:
        """Run nothing of it until it goes on. Stops add up."""
        self.stops += 1
        if self.stops == 1 and not self.dead:
            self._leave()

    def go_on(self) -> None:
        self.stops -= 1
        if self.stops == 0 and not self.dead:
            if self.ready:
                self.scheduler.runnable.append(self)
            else:
                self.idle = True

    def die(self) -> None:
        """Never run anything of it again. Its steps stay where they are: nothing of it is cleaned up."""
        if not self.dead:
            if self.stops == 0:
                self._leave()
            self.dead = True

    def _leave(self) -> None:
        if not self.idle:
            self.scheduler.runnable.remove(self)
        self.idle = False


def describe(callback: object) -> str:
    """A callback by its name, the same in every run."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, SimTask):
        coro = owner.get_coro()
        return getattr(coro, "__qualname__", type(coro).__name__)
    return getattr(callback, "__qualname__", type(callback).__name__)
