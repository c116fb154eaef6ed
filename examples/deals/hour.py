"""`python -m examples.deals.hour`: eight workers, 20 tokens a minute, a simulated hour with more work than tokens.

Two questions. How many calls does the API refuse, and how many of its tokens are used: with the right rate in the code
and with a wrong one, with the API's own numbers and without. And how long does an expensive job at the head of a queue
wait, while cheap ones want the same tokens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from msgspec import Struct

from accoda import App, Priority
from accoda.demand import Waiter

from .api import DealsApi, Terms
from .app import Plan, Post, Products, Service, make_service
from .catalogue import CATEGORIES
from .report import table
from .simulation import MIDNIGHT, sleep_until, working
from .virtual import ApiClock, CountedClient, LoopClock, VirtualLoop, run_virtually

RESULTS = Path(__file__).parent / "results"
WORKERS = 8
TERMS = Terms(capacity=20, rate=20, latency=0.8, seed=1)
HOUR = 3_600_000
MINUTE = 60_000
EARLIER = 37.0
"""Seconds by which the API began before the workers: its steps are not at the workers' round minutes."""


class Case(Struct, frozen=True):
    """What the code says of the rate, as a multiple of the truth, and whether it hears what the API says. `mixed`: jobs
    of one to five tokens; else of five only."""

    name: str
    times: float
    observes: bool
    mixed: bool = True


CASES = [
    Case("right rate, observed, calls for 5 only", 1.0, True, mixed=False),
    Case("right rate, observed", 1.0, True),
    Case("twice the rate, observed", 2.0, True),
    Case("half the rate, observed", 0.5, True),
    Case("right rate, not observed", 1.0, False),
    Case("twice the rate, not observed", 2.0, False),
    Case("half the rate, not observed", 0.5, False),
]


class Finding(Struct, frozen=True):
    """What the API saw of a case. `at_first` are the refusals of the first two minutes; `together` the most calls that
    were under way at once."""

    name: str
    calls: int
    refused: int
    at_first: int
    spent: int
    offered: int
    together: int

    @property
    def utilisation(self) -> float:
        return self.spent / self.offered


class Head(Struct, frozen=True):
    """One expensive job: seconds from its enqueue to its call, and from the moment at which the API could pay it."""

    waited: float
    since_affordable: float


class Scene:
    """The API and eight workers, each with an app, a client and books of its own, on one store in memory."""

    def __init__(self, loop: VirtualLoop, api: DealsApi, services: list[Service]) -> None:
        self.loop = loop
        self.clock = LoopClock(loop, MIDNIGHT)
        self.api = api
        self.services = services
        self.first = services[0]


class Silent:
    """Nobody hears of posts here: calls of the API are counted."""

    def publish(self, post: Post) -> None: ...

    def ran(self, run: str) -> None: ...


@asynccontextmanager
async def scene(loop: VirtualLoop, plan: Plan) -> AsyncIterator[Scene]:
    async with DealsApi(TERMS, ApiClock(loop, MIDNIGHT)) as api:
        await asyncio.sleep(EARLIER)
        clients = [CountedClient(api.url, loop.traffic) for _ in range(WORKERS)]
        apps = [App("memory://", clock=LoopClock(loop, MIDNIGHT)) for _ in range(WORKERS)]
        for app in apps[1:]:
            app.connections = apps[0].connections  # one store for all, as a server would be
        pairs = zip(clients, apps, strict=True)
        services = [make_service(client, [], Silent(), plan, app) for client, app in pairs]
        try:
            async with apps[0]:
                yield Scene(loop, api, services)
        finally:
            for client in clients:
                await client.close()


def plan_of(case: Case) -> Plan:
    size = round(TERMS.rate * case.times)
    return Plan(capacity=size, refill=size, observes=case.observes, prefetches=False)


def measure(case: Case, minutes: int = 60) -> Finding:
    """One case."""

    async def main(loop: VirtualLoop) -> Finding:
        async with scene(loop, plan_of(case)) as on:
            await _fill(on.first, minutes, case.mixed)
            begins = on.clock.now()
            async with working([service.app for service in on.services]):
                await sleep_until(on.clock, begins + minutes * MINUTE)
                counts, offered = on.api.counts, on.api.tokens.offered
                return Finding(
                    case.name,
                    counts.calls,
                    counts.refused,
                    sum(at < begins + 2 * MINUTE for at in counts.refused_at),
                    counts.spent,
                    offered,
                    loop.traffic.most,
                )

    return run_virtually(main, TERMS.seed)


async def _fill(service: Service, minutes: int, mixed: bool) -> None:
    """More work than tokens: deals for five tokens, and as many tokens' worth of products for one to four."""
    draws = Random("hour")
    for number in range(5 * minutes):
        key = f"{CATEGORIES[number % len(CATEGORIES)]}/{number}"
        await service.deals.request(key, Waiter(f"w{number}", draws.choice(("free", "starter", "pro", "business"))))
    for number in range(10 * minutes if mixed else 0):
        asins = tuple(f"B{number}-{place}" for place in range(draws.randint(1, 4)))
        await service.app.enqueue("products", Products(asins))


def measure_heads(heads: int = 10) -> list[Head]:
    """Expensive jobs, one after the other, each at the head of a queue of cheap ones, beside another such queue."""

    async def main(loop: VirtualLoop) -> list[Head]:
        async with scene(loop, Plan(capacity=20, refill=20, prefetches=False)) as on:
            app = on.first.app
            for number in range(60 * heads):
                await app.enqueue("products", Products((f"B{number}",)))
                await on.first.deals.request(f"toys/{number}", Waiter(f"w{number}", "business"))
            async with working([service.app for service in on.services]):
                draws = Random("heads")
                return [await _head(on, draws.uniform(60, 180)) for _ in range(heads)]

    return run_virtually(main, TERMS.seed)


async def _head(on: Scene, pause: float) -> Head:
    """Enqueue a job for 15 tokens before all others of its queue, and wait for its call."""
    await asyncio.sleep(pause)
    at, tokens = on.clock.now(), on.api.tokens
    affordable = at + tokens.affordable_in(15, at)
    await on.first.app.enqueue("products", Products(tuple(f"B{n}" for n in range(15))), priority=Priority.HIGH)
    while True:
        await asyncio.sleep(0.1)
        paid = [moment for moment, cost in on.api.counts.paid if cost == 15 and moment >= at]
        if paid:
            return Head((paid[0] - at) / 1000, (paid[0] - affordable) / 1000)


def text(findings: list[Finding], heads: list[Head]) -> str:
    headings = ("what the code says", "calls", "refused", "in the first 2 min", "tokens", "used", "at once")
    waited = [head.waited for head in heads]
    worst = max(head.since_affordable for head in heads)
    return (
        f"{table(headings, map(_cells, findings))}\n\n"
        f"{len(heads)} jobs for 15 tokens, each at the head of a queue of jobs for one, beside another for five:\n"
        f"called {min(waited):.1f} to {max(waited):.1f} s after they were enqueued,\n"
        f"at most {worst:.1f} s after the API could first have paid them (a refill comes every 60 s)."
    )


def _cells(found: Finding) -> tuple[str, ...]:
    counts = (found.calls, found.refused, found.at_first, found.spent)
    return found.name, *(f"{count:,}" for count in counts), f"{found.utilisation:.1%}", str(found.together)


def main() -> None:
    """Run, print, and save."""
    findings = []
    for case in CASES:
        sys.stderr.write(f"{case.name} …\n")
        findings.append(measure(case))
    found = text(findings, measure_heads())
    print(f"\n{found}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "hour.md").write_text(f"# Eight workers, 20 tokens a minute, a simulated hour\n\n{found}\n")


if __name__ == "__main__":
    main()
