"""A demand: request, share, deliver, leave, get; in memory, with a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from accoda import App, InvalidInput, JobFailed, ResultTimeout
from accoda.app_testing import Trial
from accoda.demand import Answer, Demand, Waiter, Weights
from accoda.demand.metrics import read_counts
from accoda.model import ByKey, Revive, Target


class Filter(msgspec.Struct):
    least: int = 0


class Shop:
    """An app with one demand, whose calls and deliveries are recorded."""

    def __init__(self, **options: object) -> None:
        self.app = App("memory://")
        self.deals: Demand = self.app.demand("deals", **{"cost": 5, "fresh_for": 60, "keep_for": 300, **options})  # type: ignore[arg-type]
        self.calls: list[str] = []
        self.got: list[tuple[str, object]] = []
        self.during: list[object] = []
        self.deals.fetch(self.fetch)
        self.deals.deliver(self.deliver)

    async def fetch(self, category: str) -> list[int]:
        self.calls.append(category)
        for action in self.during:
            await action()  # type: ignore[operator]
        return [len(self.calls)]

    async def deliver(self, waiter: Waiter[Filter | None], found: list[int]) -> None:
        self.got.append((waiter.id, found[0]))

    async def ask(self, id: str, key: str = "books", **more: object) -> Answer:
        return await self.deals.request(key, Waiter(id), **more)  # type: ignore[arg-type]

    async def rank(self, key: str = "books") -> float:
        job = (await self.app.storage.look(ByKey("deals", key))).job
        assert job is not None
        return job.rank


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    yield Shop()


@pytest.fixture
def trial(shop: Shop) -> AsyncIterator[Trial]:
    with shop.app.testing() as trial:
        yield trial  # type: ignore[misc]


async def test_thirty_waiters_of_a_key_cost_one_call_and_each_gets_the_result(shop: Shop, trial: Trial) -> None:
    answers = [await shop.ask(f"w{n}") for n in range(30)]
    assert [answer.what for answer in answers] == ["created"] + ["attached"] * 29
    assert len({answer.id for answer in answers}) == 1
    await shop.app.run_until_idle()
    assert shop.calls == ["books"]
    assert sorted(shop.got) == sorted((f"w{n}", 1) for n in range(30))


async def test_the_cost_of_a_fetch_is_paid_once(shop: Shop, trial: Trial) -> None:
    for n in range(3):
        await shop.ask(f"w{n}")
    job = (await shop.app.storage.look(ByKey("deals", "books"))).job
    assert job is not None and job.cost == 5


async def test_a_fresh_result_is_delivered_without_a_call_and_a_stale_one_is_renewed(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.app.run_until_idle()
    trial.advance(59)
    assert (await shop.ask("b")).what == "cached"
    await shop.app.run_until_idle()
    assert (shop.calls, shop.got) == (["books"], [("a", 1), ("b", 1)])
    trial.advance(2)
    assert (await shop.ask("c")).what == "stale"
    await shop.app.run_until_idle(["deals.deliver"])
    assert shop.got[-1] == ("c", 1), "a stale result is delivered at once"
    await shop.app.run_until_idle()
    assert (shop.calls, len(shop.got)) == (["books"] * 2, 3)
    assert (await shop.ask("d")).what == "cached"
    await shop.app.run_until_idle()
    assert shop.got[-1] == ("d", 2)


async def test_an_expired_result_is_fetched_again_and_leaves_the_store(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.app.run_until_idle()
    trial.advance(301)
    assert (await shop.ask("b")).what == "created"
    await shop.app.run_until_idle()
    trial.advance(3600)
    await shop.app.run_until_idle()
    stats = (await shop.app.storage.stats()).queues
    assert {name: stats[name].total for name in stats} == {"deals": 0, "deals.deliver": 0, "deals.cache": 0}


async def test_a_waiter_that_joins_while_the_fetch_runs_is_served_by_it(shop: Shop, trial: Trial) -> None:
    async def late() -> None:
        assert (await shop.ask("late")).what == "attached"

    shop.during = [late]
    await shop.ask("early")
    await shop.app.run_until_idle()
    assert shop.calls == ["books"]
    assert shop.got == [("early", 1), ("late", 1)]


async def test_a_waiter_that_wants_a_fresher_result_than_the_running_fetch_gets_the_next(
    shop: Shop, trial: Trial
) -> None:
    async def late() -> None:
        trial.advance(1)
        shop.during.clear()
        assert (await shop.ask("late", fresh_after=trial.clock.now())).what == "attached"

    shop.during = [late]
    await shop.ask("early")
    await shop.app.run_until_idle()
    assert shop.calls == ["books"] * 2
    assert shop.got == [("early", 1), ("late", 2)]


async def test_fresh_after_passes_over_a_cached_result_that_is_older(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.app.run_until_idle()
    trial.advance(10)
    assert (await shop.ask("b", fresh_after=trial.clock.now() - 10_000)).what == "cached"
    assert (await shop.ask("c", fresh_after=trial.clock.now())).what == "created"
    await shop.app.run_until_idle()
    assert shop.got == [("a", 1), ("b", 2), ("c", 2)] or shop.got == [("a", 1), ("b", 1), ("c", 2)]
    with pytest.raises(InvalidInput, match="future"):
        await shop.ask("d", fresh_after=trial.clock.now() + 1)


async def test_a_fetch_that_ended_between_the_look_and_the_joining_is_not_made_again(shop: Shop, trial: Trial) -> None:
    """The look into the cache found nothing; then the fetch ended; then the request made a new job."""
    await shop.ask("a")
    looked = asyncio.Event()
    store = await shop.app.connections.get()
    look, first = store.look, [True]

    async def slow_look(target: Target, **options: Any) -> Any:
        found = await look(target, **options)
        if isinstance(target, ByKey) and target.queue == "deals.cache" and first.pop() if first else False:
            looked.set()
            while not shop.got:
                await asyncio.sleep(0)
        return found

    store.look = slow_look  # type: ignore[method-assign]
    late = asyncio.create_task(shop.ask("b"))
    await looked.wait()
    await shop.app.run_until_idle()
    assert (await late).what == "created"
    await shop.app.run_until_idle()
    assert shop.calls == ["books"]
    assert shop.got == [("a", 1), ("b", 1)]


async def test_the_same_waiter_twice_is_one_waiter_as_it_was_the_last_time(shop: Shop, trial: Trial) -> None:
    await shop.deals.request("books", Waiter("a", tier="free"))
    before = await shop.rank()
    await shop.deals.request("books", Waiter("a", tier="business"))
    assert await shop.rank() == before - 10
    await shop.app.run_until_idle()
    assert shop.got == [("a", 1)]


async def test_a_delivery_that_fails_is_tried_again_alone(shop: Shop, trial: Trial) -> None:
    app = App("memory://")
    deals = app.demand("deals", fresh_for=60)
    tries: list[str] = []

    @deals.fetch
    def fetch(key: str) -> str:  # a `def` runs in a thread
        return key.upper()

    @deals.deliver(retry=5, batch=1)
    def deliver(waiter: Waiter[Filter], result: str) -> None:
        tries.append(f"{waiter.id} {waiter.data.least} {result}")
        if waiter.id == "a" and len(tries) < 3:
            raise ConnectionError("no route")

    with app.testing() as trial:
        await deals.request("books", Waiter("a", data=Filter(7)))
        await deals.request("books", Waiter("b", data=Filter(8)))
        await app.run_until_idle()
        trial.advance(5)
        await app.run_until_idle()
    assert tries == ["a 7 BOOKS", "b 8 BOOKS", "a 7 BOOKS"]


async def test_a_delivery_whose_result_has_gone_joins_the_next_fetch(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.app.run_until_idle(["deals"])
    trial.advance(7200)  # longer than results are kept
    await shop.app.run_until_idle(["deals.cache"])
    await shop.app.run_until_idle()
    assert shop.calls == ["books"] * 2
    assert shop.got == [("a", 2)]


async def test_a_waiter_may_leave_and_the_last_one_cancels_the_job(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.ask("b")
    assert await shop.deals.withdraw("books", "nobody") == "absent"
    assert await shop.deals.withdraw("books", "a") == "left"
    assert await shop.rank() == 18 + 10
    assert await shop.deals.withdraw("books", "a") == "absent"
    assert await shop.deals.withdraw("books", "b") == "cancelled"
    assert await shop.deals.withdraw("books", "b") == "absent"
    assert (await shop.app.storage.look(ByKey("deals", "books"))).job is None
    assert await shop.app.run_until_idle() == 0
    assert shop.calls == []


async def test_a_waiter_that_leaves_during_the_fetch_is_not_served_and_the_others_are(shop: Shop, trial: Trial) -> None:
    async def leave() -> None:
        assert await shop.deals.withdraw("books", "a") == "left"

    shop.during = [leave]
    await shop.ask("a")
    await shop.ask("b")
    await shop.app.run_until_idle()
    assert shop.got == [("b", 1)]


async def test_the_last_waiter_that_leaves_cancels_a_running_fetch(shop: Shop, trial: Trial) -> None:
    async def leave() -> None:
        assert await shop.deals.withdraw("books", "a") == "cancelled"

    shop.during = [leave]
    await shop.ask("a")
    await shop.app.run_until_idle()
    assert shop.got == []
    assert (await shop.ask("b")).what == "created", "the cancelled fetch has left nothing behind"


async def test_a_waiter_that_left_may_come_back(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.ask("b")
    await shop.deals.withdraw("books", "a")
    assert (await shop.ask("a")).what == "attached"
    await shop.app.run_until_idle()
    assert sorted(shop.got) == [("a", 1), ("b", 1)]


async def test_a_leaving_waiter_that_finds_the_fetch_ended_makes_no_call(shop: Shop, trial: Trial) -> None:
    """As if the process had died between adding the entry and removing the job that it made."""
    from accoda.demand.waiters import LEAVES, Entry

    job = shop.deals._fetch_job("books", Entry(LEAVES, "a"), 100.0)
    await shop.app.storage.enqueue([job])
    await shop.app.run_until_idle()
    assert shop.calls == []
    assert (await shop.app.storage.look(ByKey("deals", "books"))).job is None


async def test_get_gives_the_value_to_all_callers_for_one_call(shop: Shop, trial: Trial) -> None:
    asking = [asyncio.create_task(shop.deals.get("books", timeout=5)) for _ in range(5)]
    while (await shop.app.storage.look(ByKey("deals", "books"))).job is None:
        await asyncio.sleep(0)
    await shop.app.run_until_idle()
    assert await asyncio.gather(*asking) == [[1]] * 5
    assert await shop.deals.get("books") == [1]
    assert (shop.calls, shop.got) == (["books"], [])


async def test_get_that_takes_too_long_leaves_nothing_behind(shop: Shop, trial: Trial) -> None:
    with pytest.raises(ResultTimeout, match="is still ready"):
        await shop.deals.get("books", timeout=0.01)
    assert (await shop.app.storage.look(ByKey("deals", "books"))).job is None


async def test_get_raises_if_the_fetch_is_given_up(trial: Trial) -> None:
    app = App("memory://")
    deals = app.demand("deals")

    @deals.fetch(max_attempts=1)
    async def fetch(key: str) -> None:
        raise ConnectionError("no route")

    with app.testing():
        asking = asyncio.create_task(deals.get("books", timeout=5))
        await asyncio.sleep(0)
        await app.run_until_idle()
        with pytest.raises(JobFailed, match="no route"):
            await asking


async def test_a_fetch_that_was_buried_keeps_its_waiters_and_serves_them_when_revived(trial: Trial) -> None:
    app = App("memory://")
    deals = app.demand("deals")
    broken, got = [True], []

    @deals.fetch(max_attempts=1)
    async def fetch(key: str) -> int:
        if broken:
            raise ConnectionError("no route")
        return 1

    @deals.deliver
    async def deliver(waiter: Waiter, result: int) -> None:
        got.append(waiter.id)

    with app.testing():
        answer = await deals.request("books", Waiter("a"))
        await app.run_until_idle()
        broken.clear()
        assert await app.storage.change([Revive(answer.id)]) == 1
        await app.run_until_idle()
    assert got == ["a"]


async def test_a_result_that_cannot_be_kept_buries_the_fetch_with_the_reason() -> None:
    app = App("memory://")
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> object:
        return object() if key == "odd" else b"x" * (300 << 10)

    with app.testing() as trial:
        await deals.request("odd", Waiter("a"))
        await deals.request("large", Waiter("a"))
        await app.run_until_idle()
        trial.assert_dead("deals", "fetch returned a object")
        trial.assert_dead("deals", "result:")
        assert (await app.storage.stats()).queues["deals"].dead == 2


async def test_errors_name_what_is_wrong(shop: Shop, trial: Trial) -> None:
    async def problem(waiter: object, **more: object) -> str:
        with pytest.raises(InvalidInput) as caught:
            await shop.deals.request("books", waiter, **more)  # type: ignore[arg-type]
        return str(caught.value)

    assert await problem("a") == "waiter: must be a Waiter(id, tier, due, data), not 'a'"
    assert await problem(Waiter("")) == "waiter.id: must be 1 to 512 characters of valid text without NUL, not ''"
    assert await problem(Waiter("a", tier="gold")) == "tier: must be one of business, pro, starter, free, not 'gold'"
    assert "time zone" in await problem(Waiter("a", due=datetime(2030, 1, 1)))
    assert "cannot be stored" in await problem(Waiter("a", data=object()))
    with pytest.raises(InvalidInput, match="key: must be valid text of at least one character"):
        await shop.deals.request("", Waiter("a"))
    app = App("memory://")
    with pytest.raises(InvalidInput, match="keep_for: must be at least fresh_for, which is 60 s"):
        app.demand("one", fresh_for=60, keep_for=30)
    with pytest.raises(InvalidInput, match="fresh: there is no such option of a demand; use fresh_for"):
        app.demand("two", fresh=60)  # type: ignore[call-arg]
    three = app.demand("three")
    with pytest.raises(InvalidInput, match="already"):
        app.demand("three")
    with pytest.raises(InvalidInput, match="must take waiter and result"):
        three.deliver(lambda waiter: None)
    with pytest.raises(InvalidInput, match="not in a process"):
        three.fetch(run_in="process")(print)
    assert (await shop.app.storage.stats()).queues == {}


async def test_a_due_moment_may_be_a_datetime(shop: Shop, trial: Trial) -> None:
    due = datetime.fromtimestamp(trial.clock.now() / 1000 + 300, UTC)
    await shop.deals.request("books", Waiter("a", tier="pro", due=due))
    assert await shop.rank() == 5 + 18 + 3


async def test_custom_weights_determine_the_rank() -> None:
    shop = Shop(weights=Weights(tiers={"gold": 0, "free": 50}))
    with shop.app.testing():
        await shop.deals.request("books", Waiter("a"))
        assert await shop.rank() == 18 + 50


async def test_events_are_counted_for_all_processes(shop: Shop, trial: Trial) -> None:
    await shop.ask("a")
    await shop.ask("b")
    await shop.app.run_until_idle()
    await shop.ask("c")
    await shop.app.run_until_idle()
    store = await shop.app.connections.get()
    await shop.deals.counters.flush(store)
    counts = await read_counts(store, "deals")
    assert (counts.created, counts.attached, counts.cached, counts.calls, counts.delivered) == (1, 1, 1, 1, 3)
    assert counts.hit_rate == pytest.approx(1 / 3)


async def test_a_huge_crowd_is_delivered_in_bundles(shop: Shop, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.demand.records.SINGLY", 20)
    monkeypatch.setattr("accoda.demand.records._BUNDLE", 7)
    for n in range(25):
        await shop.ask(f"w{n}")
    await shop.app.run_until_idle(["deals"])
    assert (await shop.app.storage.stats()).queues["deals.deliver"].ready == 4, "three of seven, one of four"
    await shop.app.run_until_idle()
    assert sorted(shop.got) == sorted((f"w{n}", 1) for n in range(25))


def test_results_are_cached_for_an_hour_unless_something_else_is_said() -> None:
    app = App("memory://")
    usual = app.demand("usual")
    assert (usual.fresh_for, usual.keep_for) == (3600, 3600)
    assert (app.demand("never", fresh_for=0).fresh_for, app.demands["never"].keep_for) == (0, 0)
    longer, shorter = app.demand("longer", keep_for=7200), app.demand("shorter", keep_for=60)
    assert (longer.fresh_for, longer.keep_for, shorter.fresh_for) == (3600, 7200, 60)


async def test_a_demand_that_says_nothing_answers_from_the_cache_for_an_hour() -> None:
    app = App("memory://")
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> str:
        return key

    with app.testing() as trial:
        await deals.request("books", Waiter("anna"))
        await app.run_until_idle()
        trial.advance(3599)
        assert (await deals.request("books", Waiter("ben"))).what == "cached"
        trial.advance(1)
        assert (await deals.request("books", Waiter("carla"))).what == "created"


async def test_the_counts_of_a_process_that_goes_on_without_requests_are_stored_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accoda.demand.metrics.FLUSH_EVERY", 0.0)
    async with App("memory://") as app:
        await app.demand("deals").request("books", Waiter("anna"))
        async with asyncio.timeout(10):
            while not (await read_counts(app.storage, "deals")).created:
                await asyncio.sleep(0)
