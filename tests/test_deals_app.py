"""The deals example's app, end to end: in memory with a clock that is moved by hand, and with a worker on SQLite."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from examples.deals.api import DealsApi, Faults, Terms
from examples.deals.app import Plan, Post, Products, Service, make_service
from examples.deals.automations import PATIENCE, Automation, Filters, Tier, matches
from examples.deals.catalogue import deals_of
from examples.deals.client import DealsClient
from msgspec.structs import replace

from accoda import App, ByKey
from accoda.clock import ManualClock
from accoda.demand.waiters import Entry

ROOT = Path(__file__).parent.parent
HOUR = 3_600_000


def automation(number: int, tier: Tier = "free", category: str = "toys", **filters: int) -> Automation:
    return Automation(f"a{number}", tier, category, 60, 0, 0, 24, Filters(**filters))  # type: ignore[arg-type]


class World:
    """An API and the app, both by one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_006_400_000)
        self.posts: list[Post] = []
        self.runs: list[str] = []

    def publish(self, post: Post) -> None:
        self.posts.append(post)

    def ran(self, run: str) -> None:
        self.runs.append(run)

    async def start(self, terms: Terms, plan: Plan) -> Service:
        self.api = DealsApi(terms, self.clock)
        await self.api.start()
        self.client = DealsClient(self.api.url)
        app = App("memory://", clock=self.clock)
        self.service = make_service(self.client, [], self, plan, app)
        return self.service

    async def ask(self, *automations: Automation) -> list[str]:
        return [(await self.service.ask(one, self.clock.now())).what for one in automations]

    async def run(self) -> None:
        await self.service.app.run_until_idle()

    async def close(self) -> None:
        await self.client.close()
        await self.api.close()
        await self.service.app.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.close()


async def test_one_call_serves_all_who_want_a_category_each_with_its_own_filter(world: World) -> None:
    await world.start(Terms(capacity=20), Plan())
    wanted = [automation(n, min_discount=10 * n, max_price=100) for n in range(6)]
    assert await world.ask(*wanted) == ["created"] + ["attached"] * 5
    await world.run()
    assert (world.api.counts.calls, world.api.counts.spent) == (1, 5)
    found = deals_of("toys", world.clock.now() // HOUR)
    assert {post.run.partition("@")[0]: post.deals for post in world.posts} == {
        one.id: deals for one in wanted if (deals := tuple(deal for deal in found if matches(deal, one.filters)))
    }
    assert await world.ask(automation(9)) == ["cached"]
    await world.run()
    assert (len(world.runs), world.api.counts.calls) == (7, 1)
    world.clock.advance(600)
    assert await world.ask(automation(10)) == ["created"]


async def test_nothing_is_published_where_no_deal_passes_the_filters_but_the_run_is_over(world: World) -> None:
    await world.start(Terms(capacity=20), Plan())
    await world.ask(automation(0, min_discount=101), automation(1))
    await world.run()
    assert [post.run.partition("@")[0] for post in world.posts] == ["a1"]
    assert sorted(run.partition("@")[0] for run in world.runs) == ["a0", "a1"]


async def test_filters_and_users_are_stored_under_the_names_that_other_programs_use(world: World) -> None:
    service = await world.start(Terms(capacity=20), Plan())
    filters = Filters(30, 100, 4, 50, ("used",))
    await world.ask(replace(automation(0, "pro"), filters=filters, user_id="user-7"))
    looked = await service.app.storage.look(ByKey("deals", "toys"), waiters_after=0)
    [entry] = [msgspec.msgpack.decode(each, type=Entry) for each in looked.waiters]
    assert (entry.id.partition("@")[0], entry.tier) == ("a0", "pro")
    assert msgspec.msgpack.decode(entry.data) == {
        "userId": "user-7",
        "filters": {
            "minDiscount": 30,
            "maxPrice": 100,
            "minRating": 4,
            "minReviews": 50,
            "excludeKeywords": ["used"],
        },
    }


def test_the_hour_runs_with_one_command_and_tells_what_happened() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.deals"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "09:00  toys-daily (free) wants toys: attached" in lines
    assert "09:00  toys-never: nothing passes its filters, nothing is posted; next run 09:30" in lines
    assert not any("toys-never" in line and "posted, best" in line for line in lines)
    assert any(line.startswith("09:30  toys-cheap: 4 deals posted, best: ") for line in lines)
    assert lines[-1] == "11 runs of automations, 8 calls of the API, 0 refused."
    shown = (ROOT / "examples" / "deals" / "README.md").read_text().split("```\n09:00")[1].split("…")[0]
    assert done.stdout.startswith("09:00" + shown)


async def test_without_sharing_each_automation_has_a_call_of_its_own(world: World) -> None:
    await world.start(Terms(capacity=20), Plan(shared=False))
    assert await world.ask(*(automation(n) for n in range(4))) == ["created"] * 4
    await world.run()
    assert (len(world.posts), world.api.counts.calls) == (4, 4)


async def test_the_best_tier_is_served_first_and_without_ranks_the_first_who_came(world: World) -> None:
    def asked() -> list[Automation]:
        return [automation(0, "free", "toys"), automation(1, "business", "books"), automation(2, "pro", "pets")]

    await world.start(Terms(capacity=20), Plan())
    await world.ask(*asked())
    ranks = {job.key: job.rank for job in await world.service.app.storage.browse("deals", "ready")}
    assert sorted(ranks, key=lambda key: ranks[key]) == ["books", "pets", "toys"]
    assert ranks["books"] == 20 - 2 + PATIENCE["business"]
    await world.close()
    await world.start(Terms(capacity=20), Plan(ranked=False))
    await world.ask(*asked())
    assert {job.rank for job in await world.service.app.storage.browse("deals", "ready")} == {0.0}


async def test_no_call_is_made_that_the_api_could_not_pay_and_all_are_made_when_it_can(world: World) -> None:
    await world.start(Terms(capacity=20, rate=20), Plan(refill=20))
    categories = ("toys", "books", "pets", "music", "tools", "garden")
    await world.ask(*(automation(n, category=category) for n, category in enumerate(categories)))
    await world.run()
    assert (len(world.posts), world.api.counts.calls) == (4, 4)
    world.clock.advance(59)
    await world.run()
    assert world.api.counts.calls == 4
    world.clock.advance(2)
    await world.run()
    assert (len(world.posts), world.api.counts.calls, world.api.counts.refused) == (6, 6, 0)


async def test_a_429_closes_the_budget_until_the_api_says_and_nothing_is_lost(world: World) -> None:
    await world.start(Terms(capacity=20, rate=20, start=0), Plan())  # the code believes that it is full
    await world.ask(automation(0))
    await world.run()
    view = (await world.service.app.budget_views())["keepa"]
    assert (world.api.counts.refused, view.closed_until, view.refused_today) == (1, world.clock.now() + 60_000, 1)
    await world.ask(automation(1, category="books"))
    await world.run()
    assert (world.api.counts.calls, world.posts) == (1, [])
    world.clock.advance(60)
    await world.run()
    assert (world.api.counts.calls, world.api.counts.refused, len(world.posts)) == (3, 1, 2)


async def test_an_error_of_the_api_is_tried_again_and_costs_nothing(world: World) -> None:
    await world.start(Terms(capacity=20, faults=Faults(errors=1.0)), Plan())
    await world.ask(automation(0))
    await world.run()
    assert (world.api.counts.errors, world.posts) == (1, [])
    assert (await world.service.app.budget_views())["keepa"].available == 20
    world.api.terms = Terms(capacity=20)
    world.clock.advance(60)
    await world.run()
    assert len(world.posts) == 1


async def test_products_cost_a_token_each_of_the_same_budget(world: World) -> None:
    service = await world.start(Terms(capacity=20), Plan())
    await service.app.enqueue("products", Products(("B1", "B2", "B3")))
    await world.run()
    assert world.api.counts.spent == 3
    assert (await service.app.budget_views())["keepa"].available == 17
    [usage] = await service.app.spending("products")
    assert (usage.cost, usage.success) == (3, True)


async def test_a_worker_serves_it_on_sqlite_with_the_real_clock(tmp_path: Path) -> None:
    async with DealsApi(Terms(capacity=20)) as api:
        url = f"sqlite:///{tmp_path / 'deals.db'}"
        async with App(url) as app:
            client = DealsClient(api.url)
            service = make_service(client, [], World(), Plan(), app)
            for number in range(3):
                await service.ask(automation(number, "pro"), 60_000)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "PYTEST_"))}
        environment |= {"ACCODA_URL": url, "DEALS_API": api.url}
        command = [sys.executable, "-m", "accoda", "worker", "examples.deals.app:app", "--burst"]
        worker = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(worker.communicate(), 120)
        assert worker.returncode == 0, err.decode()
        posts = sorted(line for line in out.decode().splitlines() if " (pro): " in line)
        assert [post.partition(" ")[0] for post in posts] == ["a0@1", "a1@1", "a2@1"]
        assert (api.counts.calls, api.counts.spent) == (1, 5)
