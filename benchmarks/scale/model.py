"""From the measured cost of each operation to what more machines would carry: arithmetic that docs/scale.md explains.

A call with `n` jobs costs so much for the call and so much for each job, on the client and on the store: two numbers,
fitted to the measured batch sizes (`Line`). Of these costs

- `serial_rate` tells what one client reaches that makes one call at a time,
- `crew_rate` what several processes reach on the cores of one machine, as a closed network of queues: every batch is
  with a client, with the store or waiting for the disk, and waits where the place is taken (mean value analysis),
- `limits` how many jobs a second each part of a set of nodes can carry, the least first,
- `needs` what a number of jobs a day asks for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Line:
    """What a call costs, and each job in it."""

    call: float = 0.0
    job: float = 0.0

    def each(self, batch: float) -> float:
        """For one job of a call with so many."""
        return self.call / batch + self.job

    def plus(self, job: float) -> Line:
        return Line(self.call, self.job + job)


def fit(points: Mapping[float, float]) -> Line:
    """The line whose relative errors are least (in squares) at points of batch size and cost for each job.

    Neither part is below 0: nothing costs less than nothing, whatever the noise says.
    """
    known = {batch: cost for batch, cost in points.items() if cost > 0}
    if not known:
        return Line()
    # Minimise the sum of ((call / n + job) / cost - 1)²: with u = 1 / (n cost) and v = 1 / cost, (call u + job v - 1)².
    pairs = [(1 / (batch * cost), 1 / cost) for batch, cost in known.items()]
    uu, uv, vv = (
        sum(a * b for a, b in some) for some in ([(u, u) for u, _ in pairs], pairs, [(v, v) for _, v in pairs])
    )
    su, sv = sum(u for u, _ in pairs), sum(v for _, v in pairs)
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        call, job = (su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant
        if call >= 0 and job >= 0:
            return Line(call, job)
    return min(Line(su / uu, 0.0), Line(0.0, sv / vv), key=lambda line: _misfit(line, known))


def _misfit(line: Line, known: Mapping[float, float]) -> float:
    return sum((line.each(batch) / cost - 1) ** 2 for batch, cost in known.items())


@dataclass(frozen=True)
class Operation:
    """Seconds of processor of client and store, seconds that pass beside them (the disk, the way there and back), bytes
    over the network and to the disk."""

    client: Line = Line()
    server: Line = Line()
    wait: Line = Line()
    wire: Line = Line()
    disk: Line = Line()


@dataclass(frozen=True)
class Costs:
    """Of one storage. `extra` is what Accoda's worker adds on the client for each job, over the bare calls.

    `one_writer`: the store does one thing at a time (Redis's thread, SQLite's lock). `synced`: each call of a client
    waits for the disk. `in_memory`: what waits must fit there.
    """

    name: str
    enqueue: Operation
    run: Operation
    extra: float
    bytes: float
    payload: int
    sync: float
    one_writer: bool
    synced: bool
    in_memory: bool

    def with_payload(self, payload: int) -> Costs:
        """Other payloads: their bytes are stored, and go over the network and to the disk at enqueue and at take."""
        more = payload - self.payload
        wired = 0 if self.name == "sqlite" else more
        enqueue, run = (
            replace(one, wire=one.wire.plus(wired), disk=one.disk.plus(more)) for one in (self.enqueue, self.run)
        )
        if self.name == "redis":  # the log tells what was removed by its id, not by its content
            run = replace(run, disk=self.run.disk)
        return replace(self, enqueue=enqueue, run=run, bytes=self.bytes + more, payload=payload)


def serial_rate(operation: Operation, batch: int) -> float:
    """Jobs a second of one client with one call at a time: everything one after the other."""
    return 1 / (operation.client.each(batch) + operation.server.each(batch) + operation.wait.each(batch))


@dataclass(frozen=True)
class Crew:
    """So many client processes on a machine, each with so many batches under way; the store has so many threads.

    `inside`: the store is a part of each process (SQLite), and Python lets one thread of a process run at a time.
    """

    processes: int
    under_way: int
    batch: int
    cores: int
    threads: int
    inside: bool = False


def crew_rate(crew: Crew, client: float, server: float, wait: float = 0.0) -> float:
    """Jobs a second of all together, from the seconds that one job takes at each place.

    A place with several seats is one that is as many times as fast, and a delay for the rest of the time (Seidmann).
    What the cores of the machine give in all is the upper bound, and where the store is inside, what the processes do:
    each is with the client's part of a batch, with the store's, or waits for the disk with all that it has.
    """
    seats = [(client * crew.batch, crew.processes), (server * crew.batch, crew.threads)]
    queues = [busy / seat for busy, seat in seats]
    delay = wait * crew.batch + sum(busy * (seat - 1) / seat for busy, seat in seats)
    lengths, rate = [0.0] * len(queues), 0.0
    for customers in range(1, crew.processes * crew.under_way + 1):
        times = [busy * (1 + length) for busy, length in zip(queues, lengths, strict=True)]
        rate = customers / (delay + sum(times))
        lengths = [rate * each for each in times]
    bounds = [rate * crew.batch, crew.cores / (client + server)]
    if crew.inside:
        bounds.append(crew.processes / (client + server + wait / crew.under_way))
    return min(bounds)


def crowded(alone: float, two: float, at_once: int) -> float:
    """What a job costs where it costs more beside a second process: as much more for each that runs at once.

    Takers of one PostgreSQL queue step over rows that others hold; the caches of a core are another's for a while. Of
    more processes than cores the rest stand still, and cost nothing.
    """
    return alone + max(0.0, two - alone) * (at_once - 1)


@dataclass(frozen=True)
class Plan:
    """What is asked for. `use` is the share of a processor that may be busy at the peak."""

    jobs_per_day: float = 1e9
    peak: float = 3.0
    payload: int = 50
    enqueue_batch: int = 10
    batch: int = 100
    use: float = 0.6

    @property
    def average(self) -> float:
        return self.jobs_per_day / SECONDS_A_DAY

    @property
    def most(self) -> float:
        return self.average * self.peak


@dataclass(frozen=True)
class Node:
    """One machine of the store: cores, bytes of memory, bytes a second of network and disk, sessions that share a sync;
    and how many cores there are for clients beside it."""

    cores: int = 8
    client_cores: int = 16
    memory: float = 64e9
    network: float = 10e9 / 8
    disk: float = 500e6
    sessions: int = 10


@dataclass(frozen=True)
class Share:
    """What one job needs from its enqueue to its end."""

    client: float
    server: float
    commits: float
    wire: float
    disk: float


def share(costs: Costs, plan: Plan) -> Share:
    def both(name: str) -> float:
        lines: tuple[Line, Line] = getattr(costs.enqueue, name), getattr(costs.run, name)
        return lines[0].each(plan.enqueue_batch) + lines[1].each(plan.batch)

    commits = 1 / plan.enqueue_batch + 1 / plan.batch if costs.synced else 0.0
    return Share(both("client") + costs.extra, both("server"), commits, both("wire"), both("disk"))


def limits(costs: Costs, plan: Plan, node: Node, nodes: int) -> list[tuple[str, float]]:
    """Jobs a second at which each part is used up (processors to the share that may be busy), the least first.

    For memory: the rate at which the backlog of an hour still fits.
    """
    costs = costs.with_payload(plan.payload)
    job = share(costs, plan)
    server_cores = 1 if costs.one_writer else node.cores
    parts = {
        "client cores": nodes * node.client_cores * plan.use / job.client,
        "server core" if costs.one_writer else "server cores": nodes * server_cores * plan.use / job.server,
        "disk bytes": nodes * node.disk / job.disk if job.disk else math.inf,
        "network": nodes * node.network / job.wire if job.wire else math.inf,
    }
    if costs.synced:
        together = 1 if costs.one_writer else node.sessions
        parts["disk commits"] = nodes * together / (costs.sync * job.commits)
    if costs.in_memory:
        parts["memory"] = nodes * node.memory / costs.bytes / 3600
    return sorted(parts.items(), key=lambda part: part[1])


@dataclass(frozen=True)
class Need:
    """What a plan asks of one storage at its peak; backlogs at the average rate."""

    client_cores: float
    server_cores: float
    nodes: int
    first: str
    commits: float
    disk: float
    network: float
    backlog_hour: float
    backlog_day: float


def needs(costs: Costs, plan: Plan, node: Node) -> Need:
    costs = costs.with_payload(plan.payload)
    job = share(costs, plan)
    first, one_carries = limits(costs, plan, node, 1)[0]
    return Need(
        client_cores=plan.most * job.client / plan.use,
        server_cores=plan.most * job.server / plan.use,
        nodes=math.ceil(plan.most / one_carries),
        first=first,
        commits=plan.most * job.commits,
        disk=plan.most * job.disk,
        network=plan.most * job.wire,
        backlog_hour=plan.average * 3600 * costs.bytes,
        backlog_day=plan.jobs_per_day * costs.bytes,
    )


@dataclass(frozen=True)
class Check:
    """A point that was measured, and what the model says of it."""

    what: str
    storage: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def errors(checks: Sequence[Check]) -> tuple[float, float]:
    """The median and the worst of the errors, without their signs."""
    sizes = sorted(abs(check.error) for check in checks)
    middle = len(sizes) // 2
    return (sizes[middle] if len(sizes) % 2 else (sizes[middle - 1] + sizes[middle]) / 2), sizes[-1]
