"""The deals example: its API, its client, its filters and its app."""

from __future__ import annotations

import asyncio
import doctest
import json
from types import ModuleType
from typing import Any

import pytest
from examples.deals import automations, catalogue, chart, tokens
from examples.deals.api import DealsApi, Faults, Terms
from examples.deals.automations import Automation, Filters, due_of, matches, population, runs
from examples.deals.catalogue import CATEGORIES, Deal, deals_of
from examples.deals.client import ApiError, DealsClient, read_deals
from examples.deals.tokens import Tokens
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accoda.clock import ManualClock

MINUTE = 60.0


async def ask(url: str, request: bytes) -> bytes:
    """Send bytes to a server, and everything that it answers until it closes."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("module", [automations, catalogue, chart, tokens])
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


# -- tokens


@given(st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 30)), max_size=40))
def test_tokens_are_never_negative_nor_over_the_capacity_and_every_step_counts(moves: list[tuple[int, int]]) -> None:
    bucket, now, spent = Tokens(capacity=50, rate=20, left=50, stepped_at=0, offered=50), 0, 0
    for passed, cost in moves:
        now += passed
        bucket = bucket.at(now)
        assert 0 < bucket.refill_in(now) <= 60_000
        rest = bucket.spend(cost)
        assert (rest is None) == (cost > bucket.left)
        if rest is not None:
            spent += cost
            bucket = rest
        assert 0 <= bucket.left <= 50
        assert bucket.offered == 50 + 20 * (now // 60_000)
        assert spent + bucket.left <= bucket.offered


@given(st.integers(0, 50), st.integers(1, 200), st.integers(0, 59_999))
def test_a_call_is_affordable_when_it_is_said_to_be_and_not_before(left: int, cost: int, now: int) -> None:
    bucket = Tokens(capacity=1000, rate=20, left=left, stepped_at=0)
    after = bucket.affordable_in(cost, now)
    assert bucket.at(now + after).left >= cost
    assert after == 0 or bucket.at(now + after - 1).left < cost


# -- the API over HTTP


async def test_every_answer_tells_of_the_tokens_and_calls_cost_what_they_should() -> None:
    clock = ManualClock(1_700_000_000_000)
    async with DealsApi(Terms(capacity=60, rate=20), clock) as api:
        client = DealsClient(api.url)
        clock.advance(15)
        first = await client.get("/tokens")
        assert (first.status, first.left, first.refill_in) == (200, 60, 45.0)
        assert first.fields["refillRate"] == 20
        assert (await client.deals("toys")).left == 55
        products = await client.products(["B1", "B2", "B3"])
        assert (products.left, [found["asin"] for found in products.fields["products"]]) == (52, ["B1", "B2", "B3"])
        assert (api.counts.calls, api.counts.answered, api.counts.spent) == (3, 2, 8)
        await client.close()


async def test_too_few_tokens_are_a_429_that_takes_none_and_tokens_come_in_steps() -> None:
    clock = ManualClock()
    async with DealsApi(Terms(capacity=40, rate=4, start=4), clock) as api:
        client = DealsClient(api.url)
        clock.advance(59.5)
        refused = await client.deals("toys")
        assert (refused.status, refused.left, refused.refill_in, refused.retry_after) == (429, 4, 0.5, 1.0)
        many = await client.products([f"B{n}" for n in range(20)])
        assert (many.status, many.retry_after) == (429, 181.0)  # 16 more: four steps, the first in half a second
        clock.advance(0.4)
        assert (await client.deals("toys")).status == 429
        clock.advance(0.1)
        assert ((await client.deals("toys")).left, api.counts.refused, api.counts.spent) == (3, 3, 5)
        clock.advance(100 * MINUTE)
        assert (await client.get("/tokens")).left == 40
        assert api.tokens.offered == 4 + 101 * 4
        await client.close()


async def test_a_connection_stays_open_for_the_next_call_and_a_closed_one_is_replaced() -> None:
    async with DealsApi() as api:
        client = DealsClient(api.url)
        await client.get("/tokens")
        [first] = client._idle
        await client.get("/tokens")
        assert client._idle == [first]
        await asyncio.gather(*(client.get("/tokens") for _ in range(3)))
        assert len(client._idle) == 3
        port = api.port
        await api.close()
        await api.start(port)
        assert (await client.get("/tokens")).status == 200
        await client.close()
    with pytest.raises(ApiError, match="no answer"):
        await client.get("/tokens")


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/deals?category=cars", 400, "category: must be one of electronics"),
        ("/deals", 400, "category"),
        ("/products?asins=,", 400, "asins: name 1 to 60"),
        ("/products?asins=" + ",".join(["B"] * 61), 400, "asins: name 1 to 60"),
        ("/nothing", 404, "there is no /nothing; there are /deals"),
    ],
)
async def test_a_call_that_makes_no_sense_is_told_so_and_costs_nothing(target: str, status: int, said: str) -> None:
    async with DealsApi() as api:
        answer = await ask(api.url, f"GET {target} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        body: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert said in body["error"]
        assert body["tokensLeft"] == 60
        assert api.counts.spent == 0


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST /deals HTTP/1.1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}", 405),
        (b"GET / HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
async def test_what_is_no_request_is_refused_and_the_server_goes_on(request_bytes: bytes, status: int) -> None:
    async with DealsApi() as api:
        assert (await ask(api.url, request_bytes)).startswith(f"HTTP/1.1 {status} ".encode())
        assert b'"tokensLeft":60' in await ask(api.url, b"GET /tokens HTTP/1.0\r\n\r\n")


async def test_latency_goes_by_the_clock_of_the_api() -> None:
    clock = ManualClock()
    async with DealsApi(Terms(latency=2.0), clock) as api:
        client = DealsClient(api.url)
        call = asyncio.create_task(client.deals("toys"))
        while not api.counts.calls:
            await asyncio.sleep(0)
        clock.advance(1.5)  # at most the way there: a half of one and a half of the mean
        while not api.counts.spent:
            await asyncio.sleep(0)
        assert not call.done()
        clock.advance(1.5)
        assert (await call).status == 200
        await client.close()


async def test_faults_are_as_many_as_were_asked_for_and_the_same_for_the_same_seed() -> None:
    async def outcomes(seed: int) -> tuple[list[int], int, int]:
        faults = Faults(errors=0.2, broken=0.1)
        async with DealsApi(Terms(capacity=10_000, faults=faults, seed=seed), ManualClock()) as api:
            client = DealsClient(api.url)
            replies = [await client.deals("toys") for _ in range(300)]
            await client.close()
            broken = sum(reply.status == 200 and reply.left is None for reply in replies)
            assert (api.counts.errors, api.counts.broken) == (sum(r.status == 500 for r in replies), broken)
            # An error costs nothing; JSON that breaks off was paid for.
            assert api.counts.spent == 5 * (300 - api.counts.errors)
            return [reply.status for reply in replies], api.counts.errors, broken

    first = await outcomes(7)
    assert await outcomes(7) == first
    assert await outcomes(8) != first
    assert 30 < first[1] < 90
    assert 10 < first[2] < 60


async def test_a_slow_answer_takes_that_much_longer() -> None:
    clock = ManualClock()
    async with DealsApi(Terms(faults=Faults(slow=1.0, slow_for=5.0)), clock) as api:
        client = DealsClient(api.url)
        call = asyncio.create_task(client.deals("toys"))
        while not api.counts.slow:
            await asyncio.sleep(0)
        clock.advance(4.9)
        await asyncio.sleep(0.01)
        assert not call.done()
        clock.advance(0.1)
        assert (await call).left == 55
        await client.close()


async def test_an_answer_that_breaks_off_is_an_error_that_says_so() -> None:
    async with DealsApi(Terms(faults=Faults(broken=1.0))) as api:
        client = DealsClient(api.url)
        reply = await client.deals("toys")
        assert reply.left is None
        with pytest.raises(ApiError, match="cannot be read"):
            read_deals(reply)
        await client.close()


# -- the catalogue and the automations


def test_deals_change_with_the_category_the_hour_and_the_seed_and_with_nothing_else() -> None:
    kinds = [deals_of(category, hour, seed) for category in CATEGORIES for hour in (1, 2) for seed in (1, 2)]
    assert len(set(kinds)) == len(kinds)
    assert deals_of("toys", 1, 1) == deals_of("toys", 1, 1)
    for deal in (deal for kind in kinds for deal in kind):
        assert deal.price <= deal.was
        assert 1.0 <= deal.rating <= 5.0


DEAL = Deal("B1", "Norda kettle (Refurbished)", "kitchen", price=3_000, was=6_000, discount=50, rating=4.2, reviews=80)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(), True),
        (Filters(min_discount=50), True),
        (Filters(min_discount=51), False),
        (Filters(max_price=30), True),
        (Filters(max_price=29), False),
        (Filters(min_rating=4.2), True),
        (Filters(min_rating=4.3), False),
        (Filters(min_reviews=80), True),
        (Filters(min_reviews=81), False),
        (Filters(exclude_keywords=("refurbished",)), False),
        (Filters(exclude_keywords=("KETTLE",)), False),
        (Filters(exclude_keywords=("furbished", "ket")), True),
        (Filters(min_discount=10, max_price=99, min_rating=1.0, min_reviews=1, exclude_keywords=("used",)), True),
    ],
)
def test_each_filter_keeps_out_what_it_names(filters: Filters, wanted: bool) -> None:
    assert matches(DEAL, filters) is wanted


def test_a_population_is_the_same_for_the_same_seed_and_skewed() -> None:
    people = population(1_200, seed=3)
    assert people == population(1_200, seed=3)
    assert people != population(1_200, seed=4)
    by_category = [sum(one.category == category for one in people) for category in CATEGORIES]
    assert by_category[0] > 4 * by_category[-1] > 0
    by_tier = {tier: sum(one.tier == tier for one in people) for tier in ("business", "pro", "starter", "free")}
    assert min(by_tier.values()) > 100
    assert 0.6 < sum(one.offset == 0 for one in people) / len(people) < 0.75


def test_runs_fall_on_the_clock_face_and_into_the_hours() -> None:
    day = 1_700_006_400_000  # midnight
    hour = 3_600_000
    one = Automation("a", "pro", "toys", every=30, offset=10, begins=7, ends=9, filters=Filters())
    assert [moment - day for moment, _ in runs([one], day, day + 24 * hour)] == [
        7 * hour + minutes * 60_000 for minutes in (10, 40, 70, 100)
    ]
    assert [moment - day for moment, _ in runs([one], day + 7 * hour + 600_000, day + 8 * hour)] == [
        7 * hour + 600_000,
        7 * hour + 2_400_000,
    ]
    other = replace(one, id="b", every=60)
    assert [found.id for _, found in runs([one, other], day + 7 * hour, day + 8 * hour)] == ["a", "b", "a"]
    assert due_of(one, day) == day + 5 * 60_000
