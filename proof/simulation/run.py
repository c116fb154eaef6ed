"""One seed from beginning to end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from msgspec import Struct

from proof.checker import CallLog, Options, check, final_state
from proof.simulation.breaks import broken
from proof.simulation.cluster import Cluster
from proof.simulation.patches import simulated
from proof.simulation.plan import Plan
from proof.simulation.process import Process
from proof.simulation.scheduler import Scheduler, TooLong
from proof.simulation.server import run_now

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
    flows: int
    joins: int
    """Nodes of flows that were started after others."""
    in_lanes: int
    """Jobs of lanes that were taken at least once."""
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.violations


def simulate(seed: int, plan: Plan | None = None, trace: IO[str] | None = None) -> Result:
    """Run one seed and check its calls. The trace gets a line for each step, if given."""
    plan = plan or Plan()
    scheduler = Scheduler(seed, trace)
    with _no_collector(), broken(plan.broken) as (core, heartbeat), simulated(scheduler, heartbeat):
        cluster = Cluster(scheduler, plan, core)
        try:
            return _run(scheduler, cluster, plan)
        finally:
            cluster.server.close()
            scheduler.close()
            run_now(cluster.server.core.close())


def _run(scheduler: Scheduler, cluster: Cluster, plan: Plan) -> Result:
    start = scheduler.now
    harness = Process(cluster, "harness", 0, 0.0)
    try:
        scheduler.run(harness.loop.spawn(cluster.run(harness)), LIMIT, 400_000 + 20 * plan.jobs)
    except TooLong as error:
        scheduler.problems.append(str(error))
    violations, counts = _judged(scheduler, cluster)
    return Result(
        seed=scheduler.seed,
        digest=f"{scheduler.digest & (1 << 64) - 1:016x}",
        operations=cluster.server.operations,
        calls=cluster.server.calls,
        steps=scheduler.steps,
        seconds=round(scheduler.now - start, 3),
        kills=cluster.kills,
        pauses=cluster.pauses,
        lost_requests=cluster.server.lost_requests,
        lost_answers=cluster.server.lost_answers,
        drained_in=round(cluster.drained_in, 3),
        faults=cluster.mix.faults,
        flows=counts.get("flows", 0),
        joins=counts.get("joins", 0),
        in_lanes=counts.get("ran in lanes", 0),
        violations=tuple(violations),
    )


def _judged(scheduler: Scheduler, cluster: Cluster) -> tuple[list[str], dict[str, int]]:
    """What is wrong, and the figures of the log."""
    found = [*scheduler.problems, *cluster.look_back()]
    try:
        final = run_now(final_state(cluster.server.core))
    except Exception as error:
        return [*found, f"the store cannot be read at the end: {error!r}"], {}
    verdict = check(CallLog.of(cluster.sink), final, options=EXACT)
    found += [f"{violation.rule}: job {violation.job}: {violation.text}" for violation in verdict.violations]
    return found, verdict.counts


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
