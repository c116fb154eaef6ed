"""The page about lanes is true."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.recipes import Page
from tests.runtime.running import running

from accoda import App, Lanes
from accoda.model import LANE, WEIGHT
from accoda.settings import Settings

PAGE = Page("lanes.md")


@pytest.fixture
def page() -> dict[str, Any]:
    """The examples before the recipes, in one scope."""
    return PAGE.examples()


async def declare(app: App) -> None:
    """What the first start of a worker does."""
    await app.run_until_idle()


async def drain(app: App, **knobs: Any) -> None:
    """Run what there is, in a worker with these settings."""
    async with running(app, settings=Settings.load(environ={}, overrides=knobs)):
        while any(queue.ready or queue.taken or queue.held for queue in (await app.storage.stats()).queues.values()):
            await asyncio.sleep(0.002)


async def test_the_first_example_serves_the_other_customer_before_the_third_report(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing() as trial:
        await declare(app)
        await page["order"]()
        assert (await app.storage.stats()).queues["reports"].held == 28
        await app.run_until_idle()
        payloads = trial.payloads("reports")
        assert payloads.index("2030-01") < payloads.index("2002-01")
        assert len(payloads) == 31


async def test_the_example_of_changes_changes_and_resets(
    page: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    app: App = page["app"]
    async with app.testing():
        await declare(app)
        await page["order"]()
        await page["tune"]()
        assert capsys.readouterr().out == "3 [('customer-7', 0, 30, 0), ('customer-8', 1, 0, 0)]\n"
        assert (await app.lanes.get("reports")).rules == Lanes(limit=2, fair=True)


async def test_two_queues_share_a_limit(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing():
        await declare(app)
        await page["pushed"](["a", "b", "c"])
        stats = (await app.storage.stats()).queues
        assert [(stats[queue].ready, stats[queue].held) for queue in ("builds", "clones")] == [(2, 1), (0, 3)]
        await app.storage.pause("builds", None)
        await app.run_until_idle()
        assert (await app.storage.stats()).queues["clones"].held == 3, "builds keeps the places"
        await app.lanes.change("clones", shared=None)
        assert (await app.storage.stats()).queues["clones"].held == 1


async def test_tenants_share_workers_and_one_that_pays_has_three_turns() -> None:
    scope = PAGE.recipe("Tenants that share workers fairly")
    app: App = scope["app"]
    async with app.testing():
        await declare(app)
        await app.storage.pause("work", None)
        await scope["submit"]("big", [f"task {number}" for number in range(40)])
        for number in range(5):
            await scope["submit"](f"small-{number}", ["task 1"])
        await app.lanes.change("work", limit=None)
        await scope["submit"]("acme", [f"task {number}" for number in range(40)])
        await app.storage.pause("work", 0)
        await drain(app, concurrency=1)
    lanes = [line.partition(":")[0] for line in scope["served"]]
    assert {f"small-{number}" for number in range(5)} <= {*lanes[:12]}
    counts = Counter(lanes[12:36])
    assert counts["acme"] == 3 * counts["big"] == 18


async def test_a_tenant_of_the_recipe_has_no_more_than_five_jobs_in_the_line() -> None:
    scope = PAGE.recipe("Tenants that share workers fairly")
    app: App = scope["app"]
    async with app.testing():
        await declare(app)
        await scope["submit"]("big", ["a task"] * 40)
        stats = (await app.storage.stats()).queues["work"]
        assert (stats.ready, stats.held) == (5, 35)
        await app.run_until_idle()
    assert len(scope["served"]) == 40


async def test_one_deployment_of_a_repository_runs_and_only_the_newest_commit_of_a_branch() -> None:
    scope = PAGE.recipe("One deployment of a repository at a time")
    app: App = scope["app"]
    async with app.testing():
        await declare(app)
        await scope["pushed"]("shop", "main", "m1")
        for commit in ("b1", "b2", "b3"):
            await scope["pushed"]("shop", "blue", commit)
        await scope["pushed"]("blog", "main", "p1")
        stats = (await app.storage.stats()).queues["deployments"]
        assert (stats.ready, stats.held) == (2, 1)
        [running_now, _] = await app.storage.take("deployments", 2)
        await scope["pushed"]("shop", "main", "m2")  # m1 was being deployed
        assert [each.why for each in await app.storage.extend([running_now.lease], 60)] == ["lost"]
        assert (await app.storage.stats()).queues["deployments"].held == 1, "one of shop at a time"
        await app.run_until_idle()
    assert sorted(scope["deployed"]) == ["b3", "m2"]


async def test_a_crawler_asks_each_host_for_two_pages_at_a_time() -> None:
    scope = PAGE.recipe("Crawling with a limit for each host")
    app: App = scope["app"]
    async with app.testing():
        await declare(app)
        hosts = ("a.example", "b.example", "slow.example")
        await scope["crawl"]([f"https://{host}/{page}" for host in hosts for page in range(10)])
        await scope["crawl"](["https://a.example/3"])  # known
        lanes = {each.lane: (each.ready, each.held) for each in (await app.lanes.get("pages")).lanes}
        assert lanes == {"a.example": (2, 8), "b.example": (2, 8), "slow.example": (1, 9)}
        await scope["is_down"]("b.example")
        await app.run_until_idle()
        assert Counter(url.split("/")[2] for url in scope["fetched"]) == {"a.example": 10, "slow.example": 10}
        await app.lanes.reset("pages", "b.example")
        await app.run_until_idle()
    assert len(scope["fetched"]) == 30


async def test_imports_have_the_same_number_of_rows() -> None:
    scope = PAGE.recipe("Imports that share a database fairly")
    app: App = scope["app"]
    async with app.testing():
        await declare(app)
        await app.storage.pause("imports", None)
        await scope["start_import"]("large", [*range(1000)], 50)
        await scope["start_import"]("small", [*range(1000)], 10)
        await app.storage.pause("imports", 0)
        taken = await app.storage.take("imports", 60)
        assert len(taken) == 4, "four at once"
        await app.lanes.change("imports", total=None)
        taken += await app.storage.take("imports", 56)
        rows: Counter[str | None] = Counter()
        for job in taken:
            rows[job.lane] += job.cost
        assert abs(rows["large"] - rows["small"]) <= 60, rows


def test_every_rule_and_bound_is_in_the_page() -> None:
    for name in Lanes.__struct_fields__:
        assert f"`{name}`" in PAGE.text, name
    assert f"up to {LANE} printable characters" in PAGE.text
    assert f"from 1/{WEIGHT} to {WEIGHT}" in PAGE.text


def test_the_page_is_found_from_the_others() -> None:
    root = Path(__file__).parents[2]
    assert "(lanes.md)" in (root / "docs" / "README.md").read_text()
    assert "(docs/lanes.md)" in (root / "README.md").read_text()
    assert "(lanes.md)" in (root / "docs" / "handlers.md").read_text()


async def test_a_follow_up_is_given_the_lane_as_shown() -> None:
    assert 'app.current.enqueue("invoices", 17, lane=app.current.lane)' in PAGE.text
    app = App("memory://")
    lanes: list[str | None] = []

    @app.handler
    async def orders() -> None:
        app.current.enqueue("invoices", 17, lane=app.current.lane)

    @app.handler
    async def invoices(number: int) -> None:
        lanes.append(app.current.lane)

    await orders.enqueue(lane="customer-7")
    await app.run_until_idle()
    assert lanes == ["customer-7"]
