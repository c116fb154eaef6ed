"""One seed from beginning to end."""

from __future__ import annotations

import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

from msgspec import Struct

from accoda.testing.history import History, Options, check, final_state
from accoda.testing.simulation.breaks import broken
from accoda.testing.simulation.city import City
from accoda.testing.simulation.patches import simulated
from accoda.testing.simulation.plan import Plan
from accoda.testing.simulation.process import Process
from accoda.testing.simulation.world import TooLong, World

T = TypeVar("T")

EXACT = Options(drift=0.0, lingering=0.0)
"""There is one clock, and a call is applied in one moment: the checker need allow for nothing but milliseconds."""
LIMIT = 3_600.0
"""Virtual seconds: no run takes nearly as long."""


class Result(Struct, frozen=True, kw_only=True):
    """What a seed gave. `digest` is the same for every run of the seed with the same plan and code."""

    seed: int
    digest: str
    operations: int
    calls: int
    steps: int
    seconds: float
    """Virtual ones."""
    kills: int
    pauses: int
    lost_requests: int
    lost_answers: int
    drained_in: float
    """Virtual seconds from the last fault until nothing was left to run."""
    faults: tuple[str, ...]
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.violations


def simulate(seed: int, plan: Plan | None = None, trace: IO[str] | None = None) -> Result:
    """Run one seed and check its history. The trace gets a line for each step, if given."""
    plan = plan or Plan()
    world = World(seed, trace)
    with _no_collector(), broken(plan.broken) as (core, keeper), simulated(world, keeper):
        city = City(world, plan, core)
        try:
            return _run(world, city, plan)
        finally:
            city.server.close()
            world.close()
            _drive(city.server.core.close())


def _run(world: World, city: City, plan: Plan) -> Result:
    start = world.now
    fate = Process(city, "fate", 0, 0.0)
    try:
        world.run(fate.lane.spawn(city.live(fate)), LIMIT, 400_000 + 20 * plan.jobs)
    except TooLong as error:
        world.problems.append(str(error))
    return Result(
        seed=world.seed,
        digest=f"{world.digest & (1 << 64) - 1:016x}",
        operations=city.server.operations,
        calls=city.server.calls,
        steps=world.steps,
        seconds=round(world.now - start, 3),
        kills=city.kills,
        pauses=city.pauses,
        lost_requests=city.server.lost_requests,
        lost_answers=city.server.lost_answers,
        drained_in=round(city.drained_in, 3),
        faults=city.mix.faults,
        violations=tuple(_violations(world, city)),
    )


def _violations(world: World, city: City) -> list[str]:
    found = [*world.problems, *city.look_back()]
    try:
        final = _drive(final_state(city.server.core))
    except Exception as error:
        return [*found, f"the store cannot be read at the end: {error!r}"]
    verdict = check(History.of(city.sink), final, options=EXACT)
    found += [f"{violation.rule}: job {violation.job}: {violation.text}" for violation in verdict.violations]
    return found


def _drive(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the memory core, which never has to wait."""
    try:
        coro.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("the core waited")


@contextmanager
def _no_collector() -> Iterator[None]:
    """No garbage collection in the middle: when it comes depends on everything, and it runs finalizers."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        if enabled:
            gc.enable()


__all__ = ["Plan", "Result", "simulate"]
