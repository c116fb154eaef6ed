"""The page about flows is true."""

from typing import Any, get_args

import pytest
from tests.recipes import Page

from accoda import App, BuryJob, FlowState, NodeOptions, NodeState, Revive, When
from accoda.flows import members, model
from accoda.model import RESULT_IN_REPORT

PAGE = Page("flows.md")


@pytest.fixture
def page() -> dict[str, Any]:
    """The examples before the recipes, in one scope."""
    return PAGE.examples()


async def test_the_first_example_ships_or_refunds(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing() as trial:
        id = await page["place"](page["Order"](17, ["rome", "oslo"]))
        await app.run_until_idle()
        info = await app.flows.get(id)
        assert info.nodes["ship"].result == "shipped from shelf 7 in rome, shelf 7 in oslo"
        assert (info.state, info.nodes["refund"].state) == ("done", "skipped")
        trial.assert_no_failures()


async def test_results_are_read_as_shown(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing():
        flow = app.flow("invoice")
        order = page["Order"](17, [])
        flow.add(page["invoice"], order, after=flow.add(page["charge"], order))
        await flow.start()
        await app.run_until_idle()
        assert await app.flows.result(flow.id) == 1200


async def test_the_examples_of_fan_out_and_chains_give_what_they_count(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing():
        words = await page["count"]("one two\fthree\ffour five six")
        one, two = await page["pipelines"]()
        await app.run_until_idle()
        assert [await app.flows.result(id) for id in (words, one, two)] == [6, 6, 2]


async def test_the_example_of_a_batch_tells_its_progress(
    page: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    app: App = page["app"]
    async with app.testing():
        id = await page["load_all"]([{"id": number} for number in range(1, 5)])
        await app.run_until_idle()
        assert await page["progress"](id) == "5 of 5"
        assert capsys.readouterr().out == "import-7 is complete\n"


async def test_the_example_of_repair_lets_failed_flows_go_on(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing():
        broken = True

        @app.handler
        async def breaks() -> None:
            if broken:
                raise BuryJob("broken")

        flow = app.flow("repaired")
        flow.add(page["announce"], "it", after=flow.add(breaks))
        await flow.start()
        await app.run_until_idle()
        assert (await app.flows.get(flow.id)).state == "failed"
        broken = False
        await page["repair"]()
        await app.run_until_idle()
        assert (await app.flows.get(flow.id)).state == "done"


async def test_the_example_of_cancelling_undoes(page: dict[str, Any]) -> None:
    app: App = page["app"]
    async with app.testing() as trial:
        await page["place_by_noon"](page["Order"](17, []))
        await app.run_until_idle()
        assert (await app.flows.get("order-17")).state == "cancelled"
        assert [run.queue for run in trial.runs()] == ["undo"]


async def test_the_order_undoes_what_it_did() -> None:
    scope = PAGE.recipe("An order that undoes what it did")
    app, ledger = scope["app"], scope["ledger"]
    async with app.testing():
        await scope["place"](scope["Order"](1, ["rome", "milan"]))
        await app.run_until_idle()
        assert ledger == ["charged", "reserved in rome", "reserved in milan", "shipped"]
        ledger.clear()
        await scope["place"](scope["Order"](2, ["rome", "oslo", "milan"]))
        await scope["place"](scope["Order"](2, ["rome", "oslo", "milan"]))  # a second click
        await app.run_until_idle()
        assert ledger == [
            "charged",
            "reserved in rome",
            "reserved in milan",
            "released in rome",
            "released in milan",
            "refunded",
        ]
        assert (await app.flows.get("order-2")).state == "failed"
        ledger.clear()
        await app.storage.pause("ship", None)
        await scope["place"](scope["Order"](3, ["rome"]))
        await app.run_until_idle()
        assert await app.flows.cancel("order-3")
        await app.run_until_idle()
        assert ledger == ["charged", "reserved in rome", "released in rome", "refunded"]
        ledger.clear()
        await app.storage.pause("ship", 0)
        await scope["place"](scope["Order"](4, ["rome"]))
        await app.run_until_idle(["charge", "reserve", "check"])
        assert await app.flows.cancel("order-4")  # the order is shipped before the flow hears of it
        await app.run_until_idle()
        assert ledger == ["charged", "reserved in rome", "shipped"]


async def test_map_and_reduce_counts_words() -> None:
    scope = PAGE.recipe("Map and reduce")
    app: App = scope["app"]
    async with app.testing():
        flow = app.flow("count words")
        flow.add(scope["total"], after=flow.add(scope["split"], "a b a\nb c\n\na"))
        await flow.start()
        await app.run_until_idle()
        assert await app.flows.result(flow.id) == {"a": 3, "b": 2, "c": 1}


async def test_the_nightly_pipeline_runs_once_a_day() -> None:
    scope = PAGE.recipe("A nightly pipeline")
    app: App = scope["app"]
    async with app.testing() as trial:
        await app.run_until_idle()
        trial.advance(days=1)
        await app.run_until_idle()
        (first,) = await app.flows.list(name="nightly")
        day = first.id.removeprefix("nightly-")
        assert await app.flows.result(first.id) == f"{day}: 3000 rows"
        trial.advance(days=2)  # nobody was there for two days
        await app.run_until_idle()
        assert len(await app.flows.list(name="nightly", state="done")) == 3
        assert scope["alerts"] == []


async def test_the_first_answer_to_an_approval_counts() -> None:
    scope = PAGE.recipe("An approval")
    app, mails, order, decide = scope["app"], scope["mails"], scope["Order"], scope["decide"]
    async with app.testing() as trial:
        for number in (1, 2, 3):
            await scope["request"](order(number))
            await scope["request"](order(number))
        await app.run_until_idle()
        assert sorted(mails) == [f"approve order {number}?" for number in (1, 2, 3)]
        mails.clear()
        trial.advance(days=3)
        assert await decide(order(1), approved=True)
        assert await decide(order(1), approved=False)  # too late: it is approved
        assert not await decide(order(2), approved=False)
        await app.run_until_idle()
        trial.advance(days=5)  # the timers of all three
        await app.run_until_idle()
        assert sorted(mails) == ["order 1 is on its way", "order 2 is declined", "order 3 is declined"]


async def test_the_import_tells_its_progress_and_stores_no_row_twice() -> None:
    scope = PAGE.recipe("An import with progress")
    app, progress = scope["app"], scope["progress"]
    rows = [{"email": f"{number}@example.com"} for number in range(2500)]

    async with app.testing() as trial:
        id = await scope["import_rows"](1, [*rows, {"email": ""}])
        assert await progress(id) == {"state": "running", "ended": 0, "of": 0, "bad": 0}
        await app.run_until_idle()
        assert await progress(id) == {"state": "failed", "ended": 2501, "of": 2501, "bad": 1}
        assert scope["mails"] == ["import 1 has bad rows"]
        await scope["import_rows"](1, [*rows, {"email": ""}])  # again, under the same key
        await app.run_until_idle()
        assert len(trial.runs("rows")) == 2501
        dead = (await app.flows.get(id)).nodes["2501"]
        await app.storage.change([Revive(dead.job_id or 0)])
        await app.run_until_idle()
        assert scope["mails"] == ["import 1 has bad rows"]  # it is dead again, and told only once


def test_every_word_and_limit_is_in_the_page() -> None:
    for word in (*get_args(When), *get_args(FlowState), *NodeOptions.__annotations__):
        assert f"`{word}`" in PAGE.text or f'`"{word}"`' in PAGE.text, word
    for state in ("done", "dead", "cancelled", "removed", "skipped"):
        assert state in get_args(NodeState) and f"`{state}`" in PAGE.text
    assert (
        f"{model.NODES:,}" in PAGE.text and f"{model.EDGES:,}" in PAGE.text and f"1 to {model.NAME_LENGTH}" in PAGE.text
    )
    assert (RESULT_IN_REPORT, members.IN_ENVELOPE, model.KEEP_FOR) == (32 << 10, 64 << 10, 86_400)
