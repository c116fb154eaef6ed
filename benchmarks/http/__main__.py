"""`python -m benchmarks.http [--rounds N] [--seconds S] [--connections C]`: what the HTTP service costs.

Everything is measured in turns, in one run, over connections that stay open; a ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import msgspec

from benchmarks.__main__ import tell
from benchmarks.http.load import Next, answers_a_second, request
from benchmarks.http.report import Line, save, show
from benchmarks.http.servers import Address, running

JOB = {"queue": "emails", "payload": {"to": "anna@example.com", "subject": "Hello", "user": 42}}
BATCH = 100
ONE = msgspec.json.encode(JOB)
MANY = msgspec.json.encode({"jobs": [JOB] * BATCH})
TAKE = msgspec.json.encode({"count": BATCH, "lease": 600})


@dataclass(frozen=True)
class Effort:
    """How long each sample takes, how many there are, and over how many connections."""

    seconds: float
    rounds: int
    connections: int


@dataclass(frozen=True)
class Case:
    """Something to measure. `sample` gives requests a second and the server's processor time for each, in microseconds;
    each is about `jobs` jobs."""

    name: str
    what: str
    jobs: int
    sample: Callable[[Effort], Awaitable[tuple[float, float]]]


def post(name: str, what: str, address: Address, path: str, body: bytes, jobs: int = 1) -> Case:
    """The same request again and again."""
    message = request("POST", path, body, address.token)

    async def sample(effort: Effort) -> tuple[float, float]:
        before = address.seconds_used()
        rate = await answers_a_second(address.port, message, connections=effort.connections, seconds=effort.seconds)
        return rate, (address.seconds_used() - before) / (rate * effort.seconds) * 1e6

    return Case(name, what, jobs, sample)


def work(name: str, address: Address) -> Case:
    """Take a hundred and settle them, in turns on each connection. The jobs were enqueued before, and not measured."""
    base = "/api/v1/queues/emails"
    take = request("POST", f"{base}/take", TAKE, address.token)
    enqueue = request("POST", "/api/v1/jobs/batch", MANY, address.token)
    read = msgspec.json.Decoder(_Taken).decode

    def worker() -> Next:
        taken = False

        def following(body: bytes) -> bytes:
            nonlocal taken
            taken = not taken
            if not taken:
                return take
            jobs = read(body).jobs
            assert jobs, "the queue ran empty: the sample would measure nothing"
            outcomes = [{"lease": job.lease, "do": "done"} for job in jobs]
            return request("POST", f"{base}/settle", msgspec.json.encode({"outcomes": outcomes}), address.token)

        return following

    async def sample(effort: Effort) -> tuple[float, float]:
        # As many as could be wanted: more than any service settles in that time.
        few = min(4, effort.connections)
        await answers_a_second(address.port, enqueue, connections=few, seconds=effort.seconds)
        before = address.seconds_used()
        rate = await answers_a_second(address.port, take, connections=few, seconds=effort.seconds, following=worker) / 2
        return rate, (address.seconds_used() - before) / (rate * effort.seconds) * 1e6

    return Case(name, "take and settle, 100 at a time", BATCH, sample)


class _Leased(msgspec.Struct):
    lease: str


class _Taken(msgspec.Struct):
    jobs: list[_Leased]


def cases(stack: ExitStack, folder: str) -> list[Case]:
    """Start the servers, and say what is asked of them."""

    def start(*words: str) -> Address:
        return stack.enter_context(running(*words))

    bare, memory, sqlite = start("bare"), start("memory://"), start(f"sqlite:///{folder}/open.db")
    guarded, guarded_sqlite = start("memory://", "token"), start(f"sqlite:///{folder}/token.db", "token")
    jobs, batch = "/api/v1/jobs", "/api/v1/jobs/batch"
    one, many = "enqueue one job", "enqueue 100 jobs"
    return [
        post("bare", "ignores the body, fixed answer", bare, "/ignore", ONE),
        post("bare, body read", "reads the body, fixed answer", bare, "/read", ONE),
        post("memory", one, memory, jobs, ONE),
        post("memory, token", one, guarded, jobs, ONE),
        post("sqlite", one, sqlite, jobs, ONE),
        post("sqlite, token", one, guarded_sqlite, jobs, ONE),
        post("memory", many, memory, batch, MANY, BATCH),
        post("memory, token", many, guarded, batch, MANY, BATCH),
        post("sqlite", many, sqlite, batch, MANY, BATCH),
        post("sqlite, token", many, guarded_sqlite, batch, MANY, BATCH),
        work("memory", start("memory://")),
        work("sqlite", start(f"sqlite:///{folder}/work.db")),
    ]


async def measure(asked: list[Case], effort: Effort) -> list[Line]:
    """Round after round, each case once in each."""
    samples: list[list[float]] = [[] for _ in asked]
    efforts: list[list[float]] = [[] for _ in asked]
    for number in range(effort.rounds + 1):
        for case, found, spent in zip(asked, samples, efforts, strict=True):
            rate, microseconds = await case.sample(effort)
            if number:  # the first round warms up
                found.append(rate)
                spent.append(microseconds)
            tell(f"round {number} of {effort.rounds}: {case.name}, {case.what}")
    ignored, read = samples[0], samples[1]
    return [
        Line(
            name=case.name,
            what=case.what,
            requests=statistics.median(found),
            jobs=statistics.median(found) * case.jobs,
            to_bare=_ratio(found, ignored),
            to_read=_ratio(found, read),
            effort=statistics.median(spent),
            effort_to_bare=_ratio(efforts[0], spent),
        )
        for case, found, spent in zip(asked, samples, efforts, strict=True)
    ]


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    # Many short samples: another process that is busy for a second then spoils a few rounds, not half of them.
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.4, help="length of each sample")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True, help="into benchmarks/results/")
    given = parser.parse_args()
    effort = Effort(given.seconds, given.rounds, given.connections)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lines = _runner()(partial(_measured, stack, folder, effort))
    print(text := show(lines, effort.connections, effort.rounds))
    if given.save:
        save(lines, text)


async def _measured(stack: ExitStack, folder: str, effort: Effort) -> list[Line]:
    return await measure(cases(stack, folder), effort)


def _runner() -> Callable[[Callable[[], Awaitable[list[Line]]]], list[Line]]:
    """Runs on uvloop where it is installed: the load should cost as little as it can."""
    try:
        import uvloop
    except ImportError:
        return lambda function: asyncio.run(function())  # type: ignore[arg-type]
    return lambda function: uvloop.run(function())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
