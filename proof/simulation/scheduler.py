"""The scheduler: which loop runs next, what time it is, and a trace of both.

Time is virtual. Each step takes a few microseconds; when there is nothing to do, it jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from heapq import heapify, heappop, heappush
from random import Random
from typing import IO, Any, Protocol

from accoda.clock import Cancel
from proof.simulation.sim_loop import SimLoop, SimTask, Timer, describe

STEP = 5e-6
"""Virtual seconds that a step takes. More than nothing, so that a loop that spins does not stop the clock."""
ENOUGH = 50
"""Problems after which a run is not worth going on."""
START = 1_000.0
"""Where the monotonic clock begins."""
EPOCH = 1_700_000_000_000
"""Milliseconds: where the store's clock begins, at `START`."""


class TooLong(Exception):
    """The simulation did not end within its virtual time."""


class Waker(Protocol):
    def __call__(self) -> None: ...


class Scheduler:
    """All loops, the clock and the seed's scheduler."""

    def __init__(self, seed: int, trace: IO[str] | None = None) -> None:
        self.seed = seed
        self.now = START
        self.runnable: list[SimLoop] = []
        self.loops: list[SimLoop] = []
        self.steps = 0
        self.tasks = 0
        self.over = False
        self.dropped_timers = 0
        self.digest = seed
        self.problems: list[str] = []
        self.logged: list[str] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._choose = self.stream("schedule").random
        self._trace = trace

    def stream(self, name: str) -> Random:
        """Random numbers of their own for each part, so that one more draw in one does not change the others.

        Seeding with a text goes through SHA-512: it does not depend on PYTHONHASHSEED.
        """
        return Random(f"{self.seed}/{name}")

    def loop(self, name: str) -> SimLoop:
        loop = SimLoop(self, name, len(self.loops))
        self.loops.append(loop)
        return loop

    def add_timer(self, timer: Timer) -> None:
        self._timer_count += 1
        heappush(self._timers, (timer.moment, self._timer_count, timer))
        if self.dropped_timers > 1000 and self.dropped_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].off]
            heapify(self._timers)
            self.dropped_timers = 0

    def run(self, until: asyncio.Future[Any], limit: float, most: int) -> None:
        """Run steps until the future is done; `TooLong` after `limit` virtual seconds or `most` steps."""
        deadline = self.now + limit
        try:
            while not until.done():
                if self.now > deadline:
                    raise TooLong(f"not over after {limit:g} virtual seconds")
                if len(self.problems) > ENOUGH:
                    raise TooLong("given up: it fails again and again")
                if self.steps > most:
                    raise TooLong(f"not over after {most} steps: it goes round in circles")
                if not self._run_some(until):
                    raise TooLong("nothing is left to do, and it is not over")
        finally:
            asyncio._set_running_loop(None)

    def _run_some(self, until: asyncio.Future[Any]) -> bool:
        """The hot loop: local names, and one look at the timers for each step. False: there was nothing to do."""
        runnable, choose, set_loop = self.runnable, self._choose, asyncio._set_running_loop
        now, digest = self.now, self.digest
        count = 0
        while count < 256:
            if not runnable:
                if until.done() or not self._jump():
                    break
                now = self.now
            index = int(choose() * len(runnable)) if len(runnable) > 1 else 0
            loop = runnable[index]
            step = loop.ready.popleft()
            if not loop.ready:
                last = runnable.pop()
                if last is not loop:
                    runnable[index] = last
                loop.idle = True
            if step.off:
                continue
            count += 1
            now += STEP
            self.now = now
            digest = hash((digest, loop.number, now))  # of numbers only: not salted by PYTHONHASHSEED
            if self._trace is not None:
                self._trace.write(f"{now:.6f} {loop.name} {describe(step.callback)}\n")
            set_loop(loop)
            try:
                step.context.run(step.callback, *step.args)
            except Exception as error:
                self.unhandled(loop, {"message": f"a callback failed: {step!r}", "exception": error})
            timers = self._timers
            if timers and timers[0][0] <= now:
                self._ring()
        self.steps += count
        # `note` mixes what happens into the digest while steps run.
        self.digest = hash((self.digest, digest))
        return count > 0

    def _jump(self) -> bool:
        """There is nothing to do: go to the next timer. False: there is none."""
        while self._timers and not self.runnable:
            self.now = max(self.now, self._timers[0][0])
            self._ring()
        return bool(self.runnable)

    def _ring(self) -> None:
        """Timers that are due join their loops, in the order of their moments."""
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            if timer.off:
                self.dropped_timers -= 1
                continue
            loop = timer.loop
            loop.ready.append(timer)
            if loop.idle:
                loop.idle = False
                self.runnable.append(loop)

    # -- the trace

    def note(self, *numbers: int | float) -> None:
        """Something happened: mix it into the digest."""
        self.digest = hash((self.digest, *numbers))

    def tell(self, text: str) -> None:
        """A line for the trace's file, if there is one."""
        if self._trace is not None:
            self._trace.write(f"{self.now:.6f} -- {text}\n")

    @property
    def traced(self) -> bool:
        return self._trace is not None

    def unhandled(self, loop: SimLoop, context: dict[str, Any]) -> None:
        """An error that was not caught. The tasks of a killed process never end: that is no error."""
        if not loop.dead and not self.over:
            error = context.get("exception")
            self.problems.append(f"{loop.name}: {context.get('message')}: {error!r}")

    def close(self) -> None:
        """The end: nothing runs any more. What still hangs somewhere is let go of without a sound."""
        self.over = True
        for loop in self.loops:
            loop.idle = False
        discarded: set[asyncio.Task[Any]] = set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what it would still have awaited is not
            # A `finally` may begin more tasks.
            while tasks := {task for loop in self.loops for task in asyncio.all_tasks(loop)} - discarded:
                for task in tasks:
                    _discard(task)
                discarded |= tasks
        self._timers.clear()
        self.runnable.clear()
        for loop in self.loops:
            loop.ready.clear()
            loop.close()


class SimClock:
    """A clock of wall time: the store's, or a worker's that is `skew` seconds off."""

    def __init__(self, scheduler: Scheduler, loop: SimLoop | None = None, skew: float = 0.0) -> None:
        self._world = scheduler
        self._lane = loop
        self._offset = EPOCH + round(skew * 1000) - round(START * 1000)

    def now(self) -> int:
        return int(self._world.now * 1000) + self._offset

    def call_at(self, moment: int, wake: Waker) -> Cancel:
        loop = self._lane or asyncio.get_running_loop()
        # A hair later, so that `now` is never a millisecond short of the moment by rounding.
        return loop.call_at((moment - self._offset) / 1000 + 1e-6, wake).cancel


def _discard(task: asyncio.Task[Any]) -> None:
    """Close what a task was in the middle of. Its `finally` may want to await: then it is closed again."""
    coro = task.get_coro()
    for _ in range(20):
        try:
            with suppress(StopIteration, asyncio.CancelledError):
                coro.close()
            return
        except RuntimeError:  # it awaited instead of ending
            continue
        except Exception:  # what it raises at its end is of no interest
            return


__all__ = ["EPOCH", "Scheduler", "SimClock", "SimTask", "TooLong"]
