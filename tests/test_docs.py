"""The examples of the pages run."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from accoda import App, Waiter
from accoda.envelope import type_of, unwrap

DOCS = Path(__file__).parent.parent / "docs"


def examples(page: str) -> dict[str, Any]:
    """All Python blocks of a page, run one after the other in one scope."""
    scope: dict[str, Any] = {"__name__": "example"}
    text = (DOCS / page).read_text().split("## Where handlers run")[0]  # test_runners.py has the rest
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, page, "exec"), scope)
    return scope


async def test_the_examples_of_handlers_run(capsys: pytest.CaptureFixture[str]) -> None:
    scope = examples("handlers.md")
    app: App = scope["app"]
    await scope["produce"]()
    async with app.testing() as trial:
        await app.enqueue("emails", {"to": "", "user_id": 1})
        await app.enqueue("imports", {"to": "x"})
        await app.run_until_idle()
        trial.assert_dead("emails", "no address")
        trial.assert_dead("imports", "no user")
    await scope["produce_both"]()
    first, *_ = await scope["office"].storage.take("work", 3)
    assert type_of(first.data) == "cache.refresh"  # the order holds over all types
    async with app.testing():
        running = asyncio.create_task(scope["ask"]())
        await asyncio.sleep(0)
        while not await app.run_until_idle(["sums"]):
            await asyncio.sleep(0)
        await running
    assert capsys.readouterr().out == "6\n"
    async with app.testing():
        halved = await scope["resize"].enqueue(scope["Resize"](path="a.png", width=100))
        await app.run_until_idle(["photos"])
        assert (await halved.result()).width == 50
    await scope["sell"]()
    await scope["shop"].run_until_idle()
    assert capsys.readouterr().out.splitlines() == ["acme", "globex"]
    jobs = await scope["shop"].storage.browse("invoices", "ready")
    assert [unwrap(job.data)[0].headers for job in jobs] == [{"tenant": "acme"}, {"tenant": "globex"}]


def test_the_example_of_a_test_is_one() -> None:
    examples("handlers.md")["test_a_greylisted_email_is_sent_a_minute_later"]()


async def test_the_example_of_demand_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    scope = examples("demand.md")
    await scope["main"]()
    said = re.findall(r"print\(.*\)  # (.*)\n", (DOCS / "demand.md").read_text())
    said = [line for line in said if not line.startswith("for callers")]
    assert capsys.readouterr().out.splitlines()[: len(said)] == said
    assert len(said) == 4


async def test_the_example_of_a_delivery_publishes_only_what_a_filter_leaves() -> None:
    scope = examples("demand.md")
    app: App = scope["app"]
    with app.testing():
        for id, most in (("anna", 100.0), ("ben", 1.0)):
            await scope["offers"].request("computers", Waiter(id, data=scope["Filters"](most)))
        await app.run_until_idle()
    assert (scope["published"], scope["last_run"].keys()) == (["anna"], {"anna", "ben"})


def test_every_option_of_a_demand_is_in_its_page() -> None:
    from accoda.demand import DemandOptions

    text = (DOCS / "demand.md").read_text()
    for name in DemandOptions.__annotations__:
        assert f"`{name}`" in text, name


def test_every_option_is_in_the_page() -> None:
    from accoda.enqueue import EnqueueOptions
    from accoda.handler_options import HandlerOptions

    text = (DOCS / "handlers.md").read_text()
    for name in (*EnqueueOptions.__annotations__, *HandlerOptions.__annotations__):
        assert f"`{name}`" in text, name


def test_every_option_of_the_worker_is_in_its_page() -> None:
    from accoda.cli.worker import worker

    text = (DOCS / "worker.md").read_text()
    for parameter in worker.params:
        if not getattr(parameter, "hidden", False):
            assert any(f"`{name}`" in text for name in (*parameter.opts, *parameter.secondary_opts)) or (
                parameter.name == "app"
            ), parameter.name
